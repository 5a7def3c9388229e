"""`PeakScalars`: peaks as ordinary scalars, for TensorBoard's Scalars and HParams dashboards. For
the background thread."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.schema import MISSING, PHASES, Samples

# the highest peak so far, of any device in any phase: the metric for HParams
RUN_TAG = "memory/peak_bytes"
EPOCH_TAG = "memory/epoch_peak_bytes/{phase}/{device}"  # the highest peak of an epoch


ScalarPoint: TypeAlias = tuple[str, int, int]  # tag, step and value


class PeakScalars:
    """Collects samples and returns the points that are due. One thread owns it. The run's peak is
    due whenever it rises; an epoch's peaks are due when the epoch ends. Steps outside of an epoch
    count towards the run's peak only."""

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
            epoch = int(samples.epoch[rows[0]])
            if epoch != self._epoch:
                points += self.end_epoch()
                self._epoch = epoch
            self._step = int(samples.step[rows].max())

            highest = self._run_peak
            for tag, peak in _peaks(samples, rows):
                highest = max(highest, peak)
                if epoch != MISSING:
                    self._peaks[tag] = max(peak, self._peaks.get(tag, peak))
            if highest > self._run_peak:
                self._run_peak = highest
                points.append((RUN_TAG, self._step, highest))
        return points

    def end_epoch(self) -> list[ScalarPoint]:
        points = [(tag, self._step, peak) for tag, peak in self._peaks.items()]
        if points:
            points.append((RUN_TAG, self._step, self._run_peak))
        self._epoch, self._peaks = MISSING, {}
        return points


def _peaks(samples: Samples, rows: Any) -> Iterator[tuple[str, int]]:
    """Tag and highest peak of each phase and device in the given rows, unless unknown."""
    for device, figures in samples.devices.items():
        for at, phase in enumerate(PHASES):
            peaks = figures.peak_bytes[rows][samples.phase[rows] == at]
            highest = int(peaks.max(initial=MISSING))
            if highest != MISSING:
                yield EPOCH_TAG.format(phase=phase, device=device), highest
