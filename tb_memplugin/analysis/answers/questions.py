"""The four questions on a run, answered for a device: does it fit, grow, fragment, and what changed? Pure."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tb_memplugin.analysis.answers.answer import QUESTIONS, Answer, AnswerEvidence, describe_answer, known
from tb_memplugin.analysis.answers.answer_memory import fits, fragmented
from tb_memplugin.analysis.answers.answer_steps import growing
from tb_memplugin.analysis.answers.step_change import StepChange
from tb_memplugin.analysis.answers.step_changes import step_changes
from tb_memplugin.analysis.growth.jumps import MIN_JUMP_BYTES, MIN_JUMP_SHARE, MIN_STEPS
from tb_memplugin.analysis.steps.facts import device_phase, range_of
from tb_memplugin.analysis.steps.step_rows import step_rows
from tb_memplugin.model import MISSING, Integers, Phase, Run, full_device_name


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
            Answer(name, None, "No allocator data recorded", "unknown", "unknown", AnswerEvidence("overview"), {})
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


def changed(run: Run, device: str, phase: Phase) -> Answer:
    """The change with the largest effect on the peak; of equal ones, the latest."""
    changes = step_changes(run, device, phase)
    if changes:
        return _changed(device, phase, max(changes, key=lambda one: (abs(one.delta_bytes or 0), one.step)))
    rows = step_rows(run, device, phase)
    is_known = rows.devices[device].peak_bytes != MISSING
    known_peaks = rows.devices[device].peak_bytes[is_known]
    measured = range_of(rows.step[is_known], run.thinning > 1).steps
    evidence = AnswerEvidence("overview", phase=phase)
    figures = {"steps": measured}
    if measured < 2 or (measured < MIN_STEPS and _varies(known_peaks)):
        sentence = f"Too few steps to compare: {measured}"
        return Answer("changed", device, sentence, "unknown", "unknown", evidence, figures)
    return Answer("changed", device, f"No changes in {measured:,} steps", "ok", "measured", evidence, figures)


def _varies(peaks: Integers) -> bool:
    """Whether the peaks differ considerably, in a series too short for a jump."""
    return bool(np.ptp(peaks) >= max(MIN_JUMP_BYTES, MIN_JUMP_SHARE * int(peaks.min())))


def _changed(device: str, phase: Phase, change: StepChange) -> Answer:
    before, after = change.before, change.after
    evidence = AnswerEvidence("overview", step=change.step, phase=phase)
    if before is not None and after is not None:
        evidence = AnswerEvidence("compare", step=before.step, phase=phase, other_step=after.step)
    figures = known(
        step=change.step,
        delta_bytes=change.delta_bytes,
        peak_before_bytes=None if before is None else before.peak_bytes,
        peak_after_bytes=None if after is None else after.peak_bytes,
    )
    figures |= {f"{category}_delta_bytes": delta for category, delta in change.parts}
    figures |= {"earlier_optimizers_bytes": change.former_bytes} if change.former_bytes else {}
    return Answer("changed", device, change.sentence(), "ok", "measured", evidence, figures, change.details())
