"""Peaks as ordinary scalars: from samples to points for TensorBoard's Scalars and HParams dashboards. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tb_memplugin.model import MISSING, PHASES, Samples

RUN_TAG = "memory/peak_bytes"
"""The highest peak so far, of any device in any phase: the metric for HParams."""
EPOCH_TAG = "memory/epoch_peak_bytes/{phase}/{device}"
"""The highest peak of an epoch."""


class ScalarPoint(NamedTuple):
    """One value of a tag at a training step."""

    tag: str
    step: int
    value: int


class PeakScalars:
    """Collects samples and returns the points that are due. One thread owns it.

    The run's peak is due whenever it rises; an epoch's peaks are due when the epoch ends. Steps outside of an epoch
    count towards the run's peak only.
    """

    def __init__(self) -> None:
        self._run_peak = MISSING
        self._epoch = MISSING
        self._step = 0
        self._peaks: dict[str, int] = {}

    def add(self, samples: Samples) -> list[ScalarPoint]:
        """Take samples in the order of recording; return the points that are due."""
        points: list[ScalarPoint] = []
        changes = np.flatnonzero(np.diff(samples.epoch)) + 1
        for rows in np.split(np.arange(len(samples)), changes):
            if not len(rows):
                continue
            epoch = int(samples.epoch[rows[0]])
            if epoch != self._epoch:
                points += self.end_epoch()
                self._epoch = epoch
            self._step = int(samples.step[rows].max())
            peaks = dict(_peaks(samples, rows))
            if epoch != MISSING:
                self._peaks.update({tag: max(peak, self._peaks.get(tag, peak)) for tag, peak in peaks.items()})
            highest = max(peaks.values(), default=MISSING)
            if highest > self._run_peak:
                self._run_peak = highest
                points.append(ScalarPoint(RUN_TAG, self._step, highest))
        return points

    def end_epoch(self) -> list[ScalarPoint]:
        points = [ScalarPoint(tag, self._step, peak) for tag, peak in self._peaks.items()]
        if points:
            points.append(ScalarPoint(RUN_TAG, self._step, self._run_peak))
        self._epoch, self._peaks = MISSING, {}
        return points


def _peaks(samples: Samples, rows: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Iterator[tuple[str, int]]:
    """Tag and highest peak of each phase and device in the given rows, unless unknown."""
    for device, figures in samples.devices.items():
        for at, phase in enumerate(PHASES):
            peaks = figures.peak_bytes[rows][samples.phase[rows] == at]
            if len(peaks) and peaks.max() != MISSING:
                yield EPOCH_TAG.format(phase=phase, device=device), int(peaks.max())
