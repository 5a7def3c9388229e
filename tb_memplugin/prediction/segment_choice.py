"""Chooses the segments of layers to recompute: the least time with which a step stays within some bytes. Pure.

While the backward pass of a unit runs, every recomputed segment before it holds its output only. A segment's own
results are all there again. So the bytes in use in a unit's backward pass are those of the recorded step, less what the
segments before it do not hold. Over the linear order of units this is a dynamic program, whose result is exact.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from tb_memplugin.model import Integers
from tb_memplugin.prediction.segment_costs import UnitCosts

TIME_PARTS = 64
"""Parts of the forward pass's time that are told apart."""
_NEVER = np.iinfo(np.int64).min // 2


@dataclasses.dataclass(frozen=True)
class Choice:
    """Segments to recompute.

    Attributes:
        spans: First unit of each segment, and first unit after it.
        seconds: Time of the additional forward passes.
    """

    spans: tuple[tuple[int, int], ...]
    seconds: float


class SegmentChoices:
    """Chooses segments under different limits.

    Args:
        costs: The costs of the units.
    """

    def __init__(self, costs: UnitCosts) -> None:
        self._costs = costs
        count = len(costs)
        total = float(costs.seconds.sum()) or 1.0
        scaled = np.concatenate([[0.0], np.cumsum(costs.seconds)]) / total * TIME_PARTS
        self._time = np.rint(scaled).astype(np.int64)
        self._spans = [self._from(first) for first in range(count)]

    def _from(self, first: int) -> tuple[Integers, Integers, Integers]:
        """For the segments that begin with a unit: unit after each, most bytes in its backward pass, bytes saved."""
        costs = self._costs
        breaks = np.flatnonzero(~costs.joins[first + 1 :])
        end = first + 1 + (int(breaks[0]) if len(breaks) else len(costs) - first - 1)
        span = slice(first, end)
        held = np.cumsum(costs.held[span])
        # All of the segment runs forward again when its backward pass begins, with the results in `start` still absent.
        again = np.maximum.accumulate(held - costs.held[span] + costs.working[span])
        most = np.maximum(np.maximum.accumulate(costs.backward[span]), costs.start[span] + again - held)
        return np.arange(first + 1, end + 1), most, held - costs.kept[span]

    def choose(self, limit_bytes: int) -> Choice | None:
        """The least time within some bytes; None if no segments are enough."""
        best, back = self._run(limit_bytes, self._time)
        enough = np.flatnonzero(self._costs.after - best[-1] <= limit_bytes)
        if not len(enough) or best[-1, enough[0]] <= _NEVER // 2:
            return None
        return self._trace(back, int(enough[0]))

    def smallest(self) -> int:
        """The fewest bytes that any segments need."""
        low, high = 0, int(max(self._costs.backward.max(initial=0), self._costs.after))
        while high - low > max(1, high >> 12):
            middle = (low + high) // 2
            best, _ = self._run(middle, np.zeros_like(self._time))
            if best[-1, 0] > _NEVER // 2 and self._costs.after - best[-1, 0] <= middle:
                high = middle
            else:
                low = middle
        return high

    def _run(self, limit: int, time: Integers) -> tuple[Integers, Integers]:
        """(bytes saved, at most, before each unit at each time; the unit before that and whether it is recomputed)."""
        count, parts = len(self._costs), int(time[-1]) + 1
        best = np.full((count + 1, parts), _NEVER, np.int64)
        best[0, 0] = 0
        back = np.full((count + 1, parts), -1, np.int64)  # 2 × unit + whether the segment from there is recomputed
        times = np.arange(parts)
        for first in range(count):
            here = best[first]
            # What needs less time and saves as much is better.
            here = np.where(here > np.concatenate([[_NEVER], np.maximum.accumulate(here)[:-1]]), here, _NEVER)
            kept = np.where(self._costs.backward[first] - here <= limit, here, _NEVER)
            better = kept > best[first + 1]
            best[first + 1][better], back[first + 1][better] = kept[better], 2 * first
            after, most, saved = self._spans[first]
            useful = saved > 0
            after, most, saved = after[useful], most[useful], saved[useful]
            filled = np.flatnonzero(here > _NEVER // 2)
            if not len(after) or not len(filled):
                continue
            values = here[filled]
            allowed = most[:, None] - values[None, :] <= limit
            gained = values[None, :] + saved[:, None]
            at = after[:, None] * parts + (times[filled][None, :] + (time[after] - time[first])[:, None])
            allowed &= gained > best.flat[at]
            best.flat[at[allowed]], back.flat[at[allowed]] = gained[allowed], 2 * first + 1
        return best, back

    def _trace(self, back: Integers, time: int) -> Choice:
        spans = list(self._backwards(back, time))
        seconds = float(sum(self._costs.seconds[first:end].sum() for first, end in spans))
        return Choice(tuple(reversed(spans)), seconds)

    def _backwards(self, back: Integers, time: int) -> Iterator[tuple[int, int]]:
        end = len(self._costs)
        while end:
            first, again = divmod(int(back[end, time]), 2)
            if again:
                yield first, end
                time -= int(self._time[end] - self._time[first])
            end = first
