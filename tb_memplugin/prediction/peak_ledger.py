"""The breakdown of a peak: what is live at a simulated one, or a recorded one as it was measured. Pure."""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

from tb_memplugin.model import PERSISTENT, ChunkOwner, LedgerRow, StepRequests
from tb_memplugin.prediction.changes import Change
from tb_memplugin.prediction.evidence import Peaks
from tb_memplugin.prediction.history import StepPeak, live_rows
from tb_memplugin.prediction.prediction import Prediction, Reproduced
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


def recorded_ledger(steps: Sequence[StepRequests], batch: int, peaks: Peaks) -> tuple[LedgerRow, ...]:
    """The breakdown of the most typical recorded step of a batch size; sums to the median peak. Empty without one.

    Args:
        steps: The recorded steps.
        batch: The batch size.
        peaks: Its measured peaks.
    """
    own = [(one, recorded_peak(one)) for one in steps if one.batch_size == batch]
    if not own:
        return ()
    typical, peak = min(own, key=lambda pair: abs(pair[1].bytes - peaks.median_bytes))
    return peak_ledger([(as_recorded(typical), dataclasses.replace(peak, bytes=peaks.median_bytes))], Change())


def recorded_prediction(
    steps: Sequence[StepRequests], batch: int, capacity: int | None, peaks: Peaks, reproduced: Reproduced
) -> Prediction:
    """The measured peaks of a batch size that ran, with the ledger of its most typical recorded step.

    Args:
        steps: The recorded steps.
        batch, capacity: The conditions.
        peaks: The measured peaks.
        reproduced: The replays of the recorded steps.
    """
    return Prediction(
        batch_size=batch,
        capacity_bytes=capacity,
        peak_bytes=peaks.median_bytes,
        low_bytes=peaks.low_bytes,
        high_bytes=peaks.high_bytes,
        fits=True,
        fails_at=None,
        method="recorded",
        reproduced=reproduced,
        assumptions=(),
        ledger=recorded_ledger(steps, batch, peaks),
    )


def recorded_peak(requests: StepRequests) -> StepPeak:
    """The peak of a step as it was recorded."""
    levels = in_use(requests, requests.allocated)
    highest = int(np.argmax(levels))
    return StepPeak(int(levels[highest]), 0, highest - 1)
