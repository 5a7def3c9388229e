"""The four questions on a run, answered for a device: does it fit, grow, fragment, and what changed? Pure."""

from typing import Any

from tb_memplugin.analysis.answer import QUESTIONS, Answer, Evidence, describe_answer
from tb_memplugin.analysis.answer_memory import fits, fragmented
from tb_memplugin.analysis.answer_steps import changed, growing
from tb_memplugin.analysis.facts import device_phase
from tb_memplugin.model import Phase, Run


def answers(run: Run, device: str | None, phase: Phase | None = None) -> tuple[Answer, ...]:
    """The answers in the order of `QUESTIONS`, from every step of the run; all unknown without a device.

    Args:
        run, device: The run and one of its devices.
        phase: The phase to look at; by default its `device_phase`.
    """
    if device is None:
        return tuple(
            Answer(name, None, "No allocator data recorded", "unknown", "unknown", Evidence("overview"), {})
            for name in QUESTIONS
        )
    phase = device_phase(run, device) if phase is None else phase
    return (
        fits(run, device, phase),
        growing(run, device, phase),
        fragmented(run, device, phase),
        changed(run, device, phase),
    )


def describe_answers(run: Run, device: str | None, phase: Phase | None = None) -> list[dict[str, Any]]:
    """The answers as JSON objects."""
    return [describe_answer(answer) for answer in answers(run, device, phase)]
