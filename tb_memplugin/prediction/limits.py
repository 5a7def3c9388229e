"""The range of simulated peaks. Pure."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tb_memplugin.model import StepRequests, is_gpu
from tb_memplugin.prediction.history import Outcome, StepPeak

SETTLED = 2
"""Simulated steps that do not count for the peak: the first makes the optimizer's slots, the next settles."""
MARGIN = 0.04
"""Share by which the range is wider than the simulated peaks: real steps run their ops in other orders. The steps of
the trainings in docs/accuracy.md differ by ± 3.7 % from their median peak (median over graph mode). At 0,
`test_the_range_reaches_as_far_as_the_simulation_of_the_recorded_training_misses_its_peak` fails."""

ALWAYS_COPIED_BYTES = 32 << 20
"""Arrays from this size on have pages of their own from the C library, behind a header, so they are never aligned as
TensorFlow needs it to use them in place (glibc's largest threshold)."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """The simulations of the least and of the most bytes; or one that stands for both, with the bytes between them.

    Those of typical steps exist where these are not halfway between. With accumulated gradients an update takes several
    steps, and the highest of their peaks counts.
    """

    least: Sequence[Outcome]
    most: Sequence[Outcome]
    uncertain_bytes: int = 0
    usual: Sequence[Outcome] | None = None
    steps_of_update: int = 1

    @property
    def low(self) -> int:
        """Low end of the range."""
        return (
            round(min(peak.bytes for one in self.least for peak in settled(one)) * (1 - MARGIN)) - self.uncertain_bytes
        )

    @property
    def high(self) -> int:
        """High end of the range."""
        return round(max(peak.bytes for one in self.most for peak in settled(one)) * (1 + MARGIN))

    @property
    def typical(self) -> tuple[StepPeak, ...]:
        """The median simulated peak of the usual updates, or those of the least and of the most bytes."""
        if self.usual is not None:
            sides = [self.usual]
        else:
            sides = [self.most] if self.least is self.most else [self.least, self.most]
        return tuple(_median(side, self.steps_of_update) for side in sides)

    @property
    def peak(self) -> int:
        """The typical peak: halfway between several."""
        return sum(peak.bytes for peak in self.typical) // len(self.typical)


def arrays_in_place(requests: StepRequests) -> int:
    """Bytes of a data set that another process may not have in the memory of a CPU's allocator.

    TensorFlow copies an array into it, or uses the array itself if that happens to be aligned.
    """
    if is_gpu(requests.device):
        return 0
    is_input = np.asarray([owner.category == "inputs" for owner in requests.owners], bool)[requests.owner]
    stays = (requests.birth < 0) & (requests.death >= requests.events) & (requests.batch_power == 0)
    return int(requests.requested[is_input & stays & (requests.requested < ALWAYS_COPIED_BYTES)].sum())


def settled(outcome: Outcome) -> Sequence[StepPeak]:
    """The peaks of the steps after the pool settled."""
    return outcome.peaks[SETTLED:] or outcome.peaks


def _bytes(peak: StepPeak) -> int:
    return peak.bytes


def _median(outcomes: Sequence[Outcome], steps: int) -> StepPeak:
    """The median of the highest peaks of every `steps` steps in a row, the lower one of two."""
    peaks = sorted((peak for one in outcomes for peak in _highest(settled(one), steps)), key=_bytes)
    return peaks[(len(peaks) - 1) // 2]


def _highest(peaks: Sequence[StepPeak], steps: int) -> list[StepPeak]:
    """The highest peak of every `steps` steps in a row; of all, if there are fewer."""
    return [max(peaks[at : at + steps], key=_bytes) for at in range(max(1, len(peaks) - steps + 1))]
