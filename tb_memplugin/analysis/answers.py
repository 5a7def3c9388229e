"""The four questions on a run, answered for a device: does it fit, grow, fragment, and what changed? Pure."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tb_memplugin.analysis.answer import QUESTIONS, Answer, Evidence, describe_answer
from tb_memplugin.analysis.answer_changes import changed
from tb_memplugin.analysis.answer_memory import fits, fragmented
from tb_memplugin.analysis.answer_steps import growing
from tb_memplugin.analysis.facts import device_phase
from tb_memplugin.model import Phase, Run, full_device_name


def answers(
    run: Run, device: str | None, phase: Phase | None = None, by_worker: Mapping[str, Run] | None = None
) -> tuple[Answer, ...]:
    """The answers in the order of `QUESTIONS`, from every step of the run; all unknown without a device.

    Args:
        run, device: The run and one of its devices.
        phase: The phase to look at; by default its `device_phase`.
        by_worker: As for `describe_run`. Growth is looked for in the run of the device's worker, whose sessions are
            known there.
    """
    if device is None:
        return tuple(
            Answer(name, None, "No allocator data recorded", "unknown", "unknown", Evidence("overview"), {})
            for name in QUESTIONS
        )
    phase = device_phase(run, device) if phase is None else phase
    return (
        fits(run, device, phase),
        dataclasses.replace(growing(*_of_worker(run, device, by_worker or {}), phase), device=device),
        fragmented(run, device, phase),
        changed(run, device, phase),
    )


def _of_worker(run: Run, device: str, by_worker: Mapping[str, Run]) -> tuple[Run, str]:
    """The run of a device's worker, and the device's name there."""
    for worker, own in by_worker.items():
        name = device.removeprefix(f"{worker}/") if worker else device
        if device == full_device_name(worker, name) and name in own.samples.devices:
            return own, name
    return run, device


def describe_answers(
    run: Run, device: str | None, phase: Phase | None = None, by_worker: Mapping[str, Run] | None = None
) -> list[dict[str, Any]]:
    """The answers as JSON objects."""
    return [describe_answer(answer) for answer in answers(run, device, phase, by_worker)]
