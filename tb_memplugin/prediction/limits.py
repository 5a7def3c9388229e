"""The range of simulated peaks, and the breakdown at one of them. Pure."""

import collections
import dataclasses
import statistics
from collections.abc import Sequence

from tb_memplugin.model import ChunkOwner, LedgerRow
from tb_memplugin.prediction.changes import Change
from tb_memplugin.prediction.history import Outcome, StepPeak
from tb_memplugin.prediction.sized_steps import LEFT_OUT, SizedStep

SETTLED = 2
"""Simulated steps that do not count for the peak: the first makes the optimizer's slots, the next settles."""
MARGIN = 0.04
"""Share by which the range is wider than the simulated peaks: real steps run their ops in other orders."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """The simulations of the least and of the most bytes; or one that stands for both, with the bytes between them.

    Those of typical steps exist where these are not halfway between.
    """

    least: Sequence[Outcome]
    most: Sequence[Outcome]
    uncertain_bytes: int = 0
    usual: Sequence[Outcome] | None = None

    @property
    def low(self) -> int:
        """Low end of the range."""
        return round(min(size for one in self.least for size in settled(one)) * (1 - MARGIN)) - self.uncertain_bytes

    @property
    def high(self) -> int:
        """High end of the range."""
        return round(max(size for one in self.most for size in settled(one)) * (1 + MARGIN))

    @property
    def peak(self) -> int:
        """The typical peak."""
        ends = (self.least, self.most) if self.usual is None else (self.usual,)
        return round(statistics.mean(statistics.median(size for one in end for size in settled(one)) for end in ends))

    @property
    def typical(self) -> StepPeak:
        """The simulated peak closest to the typical one, with the recorded order of events."""
        recorded = (self.usual or self.most)[0].peaks
        return min(recorded[SETTLED:] or recorded, key=lambda peak: abs(peak.bytes - self.peak))


def settled(outcome: Outcome) -> list[int]:
    """The peaks of the steps after the pool settled."""
    return [peak.bytes for peak in outcome.peaks[SETTLED:] or outcome.peaks]


def ledger_at(steps: Sequence[SizedStep], peak: StepPeak, change: Change) -> tuple[LedgerRow, ...]:
    """The ledger of a simulated peak."""
    step = steps[peak.index]
    requests = step.requests
    live = (requests.birth <= peak.event) & (requests.death > peak.event) & (step.sizes != LEFT_OUT)
    totals: collections.Counter[ChunkOwner] = collections.Counter()
    for number, size in zip(requests.owner[live].tolist(), step.sizes[live].tolist(), strict=True):
        totals[requests.owners[number]] += size
    for owner, size in change.extra:
        totals[owner] += size
    rows = [LedgerRow(owner.layer, owner.category, owner.trainable, size, 0) for owner, size in totals.items() if size]
    rest = peak.bytes - sum(totals.values())
    if rest > 0:
        rows.append(LedgerRow(None, "rounding", None, rest, rest))
    return tuple(sorted(rows, key=lambda row: -row.bytes))
