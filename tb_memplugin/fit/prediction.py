"""The answer to a question about other conditions: the range of simulated peaks, their breakdown, and whether the
replay can be trusted: only a recorded step that its replay reproduces may predict anything. Pure."""

import collections
import dataclasses
import operator
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from tb_memplugin.allocator import Simulator
from tb_memplugin.fit.changes import Change
from tb_memplugin.fit.evidence import Peaks
from tb_memplugin.fit.history import FailedRequest, Outcome, StepPeak, live_rows, most_live_bytes
from tb_memplugin.fit.sized_steps import SizedStep, as_recorded, event_order, in_use, start_map
from tb_memplugin.schema import PERSISTENT, ChunkOwner, LedgerRow, StepRequests, format_bytes, is_gpu, owned

SETTLED = 2
"""Simulated steps that do not count for the peak: the first makes the optimizer's slots, the next settles."""
MARGIN = 0.04
"""Share by which the range is wider than the simulated peaks: real steps run their ops in other orders. The steps of
the trainings in docs/accuracy.md differ by ± 3.7 % from their median peak (median over graph mode). At 0,
`test_the_range_reaches_as_far_as_the_simulation_of_the_recorded_training_misses_its_peak` fails."""

ALWAYS_COPIED_BYTES = 32 << 20
"""Arrays from this size on have pages of their own from the C library, behind a header, so they are never aligned as
TensorFlow needs it to use them in place (glibc's largest threshold)."""

Method: TypeAlias = Literal["recorded", "replay", "two_sizes", "estimate", "unknown"]


@dataclasses.dataclass(frozen=True)
class Limits:
    """The simulations of the least and of the most bytes; or one that stands for both, with the bytes between them.

    Those of typical steps, `usual`, exist where these are not halfway between. With accumulated gradients an update
    takes several steps, and the highest of their peaks counts.
    """

    least: Sequence[Outcome]
    most: Sequence[Outcome]
    uncertain_bytes: int = 0
    usual: Sequence[Outcome] | None = None
    steps_of_update: int = 1

    @property
    def low(self) -> int:
        lowest = min(peak.bytes for one in self.least for peak in settled(one))
        return round(lowest * (1 - MARGIN)) - self.uncertain_bytes

    @property
    def high(self) -> int:
        return round(max(peak.bytes for one in self.most for peak in settled(one)) * (1 + MARGIN))

    @property
    def typical(self) -> tuple[StepPeak, ...]:
        """The median simulated peak of the usual updates, or those of the least and of the most bytes."""
        both = [self.most] if self.least is self.most else [self.least, self.most]
        sides = both if self.usual is None else [self.usual]
        return tuple(_median(side, self.steps_of_update) for side in sides)

    @property
    def peak(self) -> int:
        return sum(peak.bytes for peak in self.typical) // len(self.typical)


def arrays_in_place(requests: StepRequests) -> int:
    """Bytes of a data set that another process may not have in the memory of a CPU's allocator.

    TensorFlow copies an array into it, or uses the array itself if that happens to be aligned.
    """
    if is_gpu(requests.device):
        return 0
    is_input = owned(requests, lambda owner: owner.category == "inputs")
    stays = (requests.birth < 0) & (requests.death >= requests.events) & (requests.batch_power == 0)
    return int(requests.requested[is_input & stays & (requests.requested < ALWAYS_COPIED_BYTES)].sum())


def settled(outcome: Outcome) -> Sequence[StepPeak]:
    return outcome.peaks[SETTLED:] or outcome.peaks


def _median(outcomes: Sequence[Outcome], steps: int) -> StepPeak:
    """The median, or the lower one of two, of the highest peaks of every `steps` steps in a row, or of all of fewer."""
    size = operator.attrgetter("bytes")
    highest: list[StepPeak] = []
    for peaks in map(settled, outcomes):
        highest += (max(peaks[at : at + steps], key=size) for at in range(max(1, len(peaks) - steps + 1)))
    return sorted(highest, key=size)[(len(highest) - 1) // 2]


@dataclasses.dataclass(frozen=True)
class Reproduced:
    """How much of recorded steps their replay reproduced: allocations at the recorded address, of all allocations."""

    addresses: int
    of: int

    @property
    def whole(self) -> bool:
        return self.addresses == self.of


def reproduce(requests: StepRequests) -> Reproduced:
    simulator = Simulator(start_map(requests))
    added = list(zip(requests.added_address.tolist(), requests.added_bytes.tolist(), strict=True))
    address, allocated, requested = (
        column.tolist() for column in (requests.address, requests.allocated, requests.requested)
    )
    same = allocations = 0
    for entry in event_order(requests):
        if entry < 0:
            simulator.free(address[-1 - entry])
            continue
        allocations += 1
        place = address[entry]
        if simulator.choose(requested[entry]) is None:
            for region in [region for region in added if region[0] <= place < region[0] + region[1]]:
                simulator.add_region(*region)
                added.remove(region)
        same += simulator.follow(place, requested[entry], allocated[entry])
    return Reproduced(same, allocations)


@dataclasses.dataclass(frozen=True, repr=False)
class Prediction:
    """What a training would need under some conditions.

    Attributes:
        batch_size, capacity_bytes: The conditions' batch size and capacity, or the recorded ones; None if unknown.
        peak_bytes, low_bytes, high_bytes: Predicted peak of bytes in use and its range; None if unknown.
        fits: True if every simulated step passes, with the most bytes of the range, and leaves some percent of the
            capacity free; False if every simulation fails, even with the least bytes; else None.
        fails_at: The request that fails, None if none does or it is unknown.
        method: ``recorded``: the peaks of recorded steps; ``replay``: all sizes are exact; ``two_sizes``: some follow
            from two recorded batch sizes; ``estimate``: some have a range; ``unknown``: no prediction.
        reproduced: How much of the recorded steps their replay reproduced.
        assumptions: What the prediction assumes or why there is none, as sentences.
        ledger: Predicted bytes at the peak by owner; sums to `peak_bytes`.
        demand_bytes: Most bytes that are live at once, rounded up to 256 each, in the steps with this peak: never more
            than it. BFC needs no less. None if unknown.
    """

    batch_size: int | None
    capacity_bytes: int | None
    peak_bytes: int | None
    low_bytes: int | None
    high_bytes: int | None
    fits: bool | None
    fails_at: FailedRequest | None
    method: Method
    reproduced: Reproduced
    assumptions: tuple[str, ...]
    ledger: tuple[LedgerRow, ...] = ()
    demand_bytes: int | None = None

    def __repr__(self) -> str:
        size = "unknown" if self.batch_size is None else f"{self.batch_size:,}"
        return (
            f"<{type(self).__name__} batch size {size}, peak {format_bytes(self.peak_bytes)} of "
            f"{format_bytes(self.capacity_bytes)}, fits={self.fits}, method={self.method}>"
        )


def peak_ledger(
    ends: Sequence[tuple[SizedStep, StepPeak]], change: Change, additional: Sequence[tuple[ChunkOwner, int]] = ()
) -> tuple[LedgerRow, ...]:
    """The ledger of a predicted peak, halfway between those of several simulated steps; largest rows first.

    The rows sum to the mean of the peaks and the `additional` bytes, which the simulation leaves out.
    """
    sums = collections.Counter[ChunkOwner]()
    for step, peak in ends:
        sums.update(_live_bytes(step, peak))
    totals = collections.Counter({owner: size // len(ends) for owner, size in sums.items()})
    for owner, size in change.extra:
        totals[owner] += size
    rest = sum(peak.bytes for _, peak in ends) // len(ends) - sum(totals.values())
    for owner, size in ((ChunkOwner(None, "rounding", None), rest), *additional):
        totals[owner] += size
    owned = collections.Counter[ChunkOwner]()
    for owner, size in totals.items():
        for other, part in change.owners(owner, size):
            owned[other] += part
    rows = [
        LedgerRow(owner.layer, owner.category, owner.trainable, size, size if owner.category == "rounding" else 0)
        for owner, size in owned.items()
        if size
    ]
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def _live_bytes(step: SizedStep, peak: StepPeak) -> collections.Counter[ChunkOwner]:
    """Bytes of the live chunks by owner. Until a variable's old chunk is freed, the new one counts as workspace."""
    requests = step.requests
    older = collections.Counter[tuple[int, int]]()
    replaced: set[tuple[int, int]] = set()
    for row in np.flatnonzero(requests.birth < 0).tolist():
        key = int(requests.owner[row]), int(step.sizes[row])
        older[key] += 1
        if requests.death[row] < requests.events:
            replaced.add(key)
    totals, values = collections.Counter[ChunkOwner](), collections.Counter[tuple[int, int]]()
    for row in live_rows(step, peak):  # older chunks first
        key = int(requests.owner[row]), int(step.sizes[row])
        owner = requests.owners[key[0]]
        values[key] += 1
        if owner.category in PERSISTENT and key in replaced and values[key] > older[key]:
            owner = ChunkOwner(owner.layer, "workspace", owner.trainable)
        totals[owner] += key[1]
    return totals


@dataclasses.dataclass(frozen=True)
class PeakParts:
    """A peak in bytes with its range, its breakdown, which sums to it, and its bytes that are live at once.

    `demand_bytes`, each rounded up to 256, are never more than the peak; None if unknown.
    """

    low_bytes: int
    peak_bytes: int
    high_bytes: int
    ledger: tuple[LedgerRow, ...]
    demand_bytes: int | None

    @property
    def span(self) -> tuple[int, int, int]:
        return self.low_bytes, self.peak_bytes, self.high_bytes


def recorded_parts(steps: Sequence[StepRequests], batch: int, peaks: Peaks) -> PeakParts:
    """The measured peaks of a batch size that ran, with the breakdown of its most typical recorded step."""
    own = [(one, recorded_peak(one)) for one in steps if one.batch_size == batch]
    if not own:
        return PeakParts(peaks.low_bytes, peaks.median_bytes, peaks.high_bytes, (), None)
    typical, peak = min(own, key=lambda pair: abs(pair[1].bytes - peaks.median_bytes))
    step = as_recorded(typical)
    demand = most_live_bytes(step, peak)
    size = max(peaks.median_bytes, demand)  # the median is that of other steps as well, which may need less
    ledger = peak_ledger([(step, dataclasses.replace(peak, bytes=size))], Change())
    return PeakParts(peaks.low_bytes, size, max(peaks.high_bytes, size), ledger, demand)


def recorded_peak(requests: StepRequests) -> StepPeak:
    levels = in_use(requests, requests.allocated)
    highest = int(np.argmax(levels))
    return StepPeak(int(levels[highest]), 0, highest - 1)
