"""The peaks of recent steps, to check simulations of a failed training against."""

import collections
import statistics
from collections.abc import Mapping

from tb_memplugin.model import Phase

MAX_STEPS = 4096
"""Most steps that are kept."""


class StepPeaks:
    """Peaks of the last steps. The training's thread adds steps; any thread may read."""

    def __init__(self) -> None:
        self._steps: collections.deque[tuple[int, Phase, Mapping[str, int]]] = collections.deque(maxlen=MAX_STEPS)

    def add(self, step: int, phase: Phase, peaks: Mapping[str, int]) -> None:
        """Add the peaks of a step by device."""
        self._steps.append((step, phase, peaks))

    def median(self, device: str, phase: Phase, first_step: int) -> int | None:
        """Median peak of a device over the steps of a phase from one on; None without any."""
        peaks = [
            peaks[device]
            for step, of_phase, peaks in list(self._steps)
            if of_phase == phase and step >= first_step and peaks.get(device, 0) > 0
        ]
        return int(statistics.median(peaks)) if peaks else None
