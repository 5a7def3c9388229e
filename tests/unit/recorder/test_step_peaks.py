"""The peaks of recent steps, and simulated fixes that they withhold."""

import dataclasses

import pytest
from reading_cases import DEVICE, MIB, make_oom
from requests_cases import make_table, make_traced

from tb_memplugin.model import Oom
from tb_memplugin.recorder.oom.simulated_fixes import with_simulated_fixes
from tb_memplugin.recorder.oom.step_peaks import MAX_STEPS, StepPeaks

TRACED = make_traced()
PEAK = TRACED[3].snapshot.in_use_bytes
BATCH = 48


def test_the_median_is_of_one_device_and_phase_from_a_step_on() -> None:
    peaks = StepPeaks()
    assert peaks.median(DEVICE, "train", 0) is None
    for step, size in enumerate((900, 10, 30, 20)):
        peaks.add(step, "train", {DEVICE: size, "GPU:1": 7 * size})
    peaks.add(4, "validation", {DEVICE: 5000})
    peaks.add(5, "train", {DEVICE: 0, "GPU:1": 70})  # its peak is unknown
    assert peaks.median(DEVICE, "train", 0) == 25
    assert peaks.median(DEVICE, "train", 1) == 20
    assert peaks.median("GPU:1", "train", 1) == 105
    assert peaks.median(DEVICE, "validation", 0) == 5000
    assert peaks.median(DEVICE, "train", 4) is None and peaks.median("GPU:7", "train", 0) is None


def test_only_the_last_steps_are_kept() -> None:
    peaks = StepPeaks()
    for step in range(3 * MAX_STEPS):
        peaks.add(step, "train", {DEVICE: 1 if step < 2 * MAX_STEPS else 2})
    assert peaks.median(DEVICE, "train", 0) == 2  # although most steps had 1


def solved(peaks: StepPeaks) -> Oom:
    """A post-mortem of the training with a batch that is too large, with fixes."""
    oom = dataclasses.replace(make_oom(9), device=DEVICE, capacity_bytes=100 * MIB, verdict="capacity", op=None)
    requests = [one.requests for one in TRACED.values()]
    return with_simulated_fixes(oom, BATCH, requests, peaks, make_table().layers)


@pytest.mark.parametrize(("share", "word"), [(0.85, "above"), (1.18, "below")])
def test_a_simulation_that_misses_the_measured_peaks_gives_no_fix(share: float, word: str) -> None:
    peaks = StepPeaks()
    peaks.add(0, "train", {DEVICE: PEAK})  # not like the recorded steps: it made the optimizer's slots
    for step in range(1, 9):
        peaks.add(step, "train", {DEVICE: round(share * PEAK)})
    oom = solved(peaks)
    assert not any(fix.simulated for fix in oom.fixes)
    (note,) = [one for one in oom.not_available if one.startswith("No fix could be simulated.")]
    assert f"% {word} the median of the run's steps" in note


@pytest.mark.parametrize("measured", [None, 0.95, 1.05])
def test_a_simulation_that_agrees_with_the_measured_peaks_has_fixes(measured: float | None) -> None:
    peaks = StepPeaks()
    for step in range(9 if measured else 0):
        peaks.add(step, "train", {DEVICE: round((measured or 0) * PEAK)})
    oom = solved(peaks)
    kinds = {fix.kind for fix in oom.fixes if fix.simulated}
    assert {"batch", "accumulation", "limit"} <= kinds and oom.not_available == make_oom(9).not_available
