"""The breakdown of a peak: what is live at a simulated one, or a recorded one as it was measured. Pure."""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

from tb_memplugin.model import PERSISTENT, ChunkOwner, LedgerRow, StepRequests
from tb_memplugin.prediction.changes import Change
from tb_memplugin.prediction.evidence import Peaks
from tb_memplugin.prediction.history import StepPeak, live_rows, most_live_bytes
from tb_memplugin.prediction.sized_steps import SizedStep, as_recorded, in_use


def peak_ledger(
    ends: Sequence[tuple[SizedStep, StepPeak]], change: Change, additional: Sequence[tuple[ChunkOwner, int]] = ()
) -> tuple[LedgerRow, ...]:
    """The ledger of a predicted peak, halfway between those of several simulated steps; largest rows first.

    Args:
        ends: The steps with their peaks.
        change: What other conditions change.
        additional: Bytes at the peak that the simulation leaves out.

    Returns:
        Rows that sum to the mean of the peaks and the additional bytes.
    """
    sums: collections.Counter[ChunkOwner] = collections.Counter()
    for step, peak in ends:
        sums.update(_live_bytes(step, peak))
    totals: collections.Counter[ChunkOwner] = collections.Counter()
    for owner, size in sums.items():
        totals[owner] += size // len(ends)
    for owner, size in change.extra:
        totals[owner] += size
    rest = sum(peak.bytes for _, peak in ends) // len(ends) - sum(totals.values())
    totals[ChunkOwner(None, "rounding", None)] += rest
    for owner, size in additional:
        totals[owner] += size
    owned: collections.Counter[ChunkOwner] = collections.Counter()
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
    older: collections.Counter[tuple[int, int]] = collections.Counter()
    replaced: set[tuple[int, int]] = set()
    for row in np.flatnonzero(requests.birth < 0).tolist():
        key = int(requests.owner[row]), int(step.sizes[row])
        older[key] += 1
        if requests.death[row] < requests.events:
            replaced.add(key)
    totals: collections.Counter[ChunkOwner] = collections.Counter()
    values: collections.Counter[tuple[int, int]] = collections.Counter()
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
        """(low, typical, high) peak."""
        return self.low_bytes, self.peak_bytes, self.high_bytes


def recorded_parts(steps: Sequence[StepRequests], batch: int, peaks: Peaks) -> PeakParts:
    """The measured peaks of a batch size that ran, with the breakdown of its most typical recorded step.

    Args:
        steps: The recorded steps.
        batch: The batch size.
        peaks: Its measured peaks.
    """
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
    """The peak of a step as it was recorded."""
    levels = in_use(requests, requests.allocated)
    highest = int(np.argmax(levels))
    return StepPeak(int(levels[highest]), 0, highest - 1)
