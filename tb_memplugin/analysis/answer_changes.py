"""Answers which change affected the peak of a run most, and why. Pure."""

import numpy as np

from tb_memplugin.analysis.answer import Answer, Evidence, known
from tb_memplugin.analysis.jumps import MIN_JUMP_BYTES, MIN_JUMP_SHARE, MIN_STEPS
from tb_memplugin.analysis.step_change import StepChange
from tb_memplugin.analysis.step_changes import step_changes
from tb_memplugin.analysis.step_rows import step_rows
from tb_memplugin.model import MISSING, Integers, Phase, Run


def changed(run: Run, device: str, phase: Phase) -> Answer:
    """The change with the largest effect on the peak; of equal ones, the latest."""
    changes = step_changes(run, device, phase)
    if changes:
        return _changed(device, phase, max(changes, key=lambda one: (abs(one.delta_bytes or 0), one.step)))
    peaks = step_rows(run, device, phase).devices[device].peak_bytes
    known_peaks = peaks[peaks != MISSING]
    measured = len(known_peaks)
    evidence = Evidence("overview", phase=phase)
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
    evidence = Evidence("overview", step=change.step, phase=phase)
    if before is not None and after is not None:
        evidence = Evidence("compare", step=before.step, phase=phase, other_step=after.step)
    figures = known(
        step=change.step,
        delta_bytes=change.delta_bytes,
        peak_before_bytes=None if before is None else before.peak_bytes,
        peak_after_bytes=None if after is None else after.peak_bytes,
    )
    figures |= {f"{category}_delta_bytes": delta for category, delta in change.parts}
    figures |= {"earlier_optimizers_bytes": change.former_bytes} if change.former_bytes else {}
    return Answer("changed", device, change.sentence(), "ok", "measured", evidence, figures, change.details())
