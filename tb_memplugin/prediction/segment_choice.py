"""What it takes to keep or to recompute the layers between cut points, and the choice of segments to recompute. Pure.

The choice takes the least time with which a step stays within some bytes.

While the backward pass of a unit runs, every recomputed segment before it holds its output only. A segment's own
results are all there again. So the bytes in use in a unit's backward pass are those of the recorded step, less what the
segments before it do not hold. Over the linear order of units this is a dynamic program, whose result is exact.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import Floats, Integers, StepRequests
from tb_memplugin.prediction.recomputation import Part, Parts
from tb_memplugin.prediction.sized_steps import SizedStep, in_use, rounded_sizes

TIME_PARTS = 64
"""Parts of the forward pass's time that are told apart."""
_NEVER = np.iinfo(np.int64).min // 2


@dataclasses.dataclass(frozen=True)
class Unit:
    """Layers between two neighboring cut points, which are recomputed together or not at all.

    Attributes:
        first, last: Numbers: a unit whose first number follows another one's last can form a segment with it.
        layers: Paths of the layers, in order.
        output_bytes: Recorded bytes of the last layer's output, None if unknown.
    """

    first: int
    last: int
    layers: tuple[str, ...]
    output_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class UnitCosts:
    """Bytes and time of each unit of a step, in order; columns of shape [units].

    Attributes:
        backward: Most bytes in use while the backward pass of a unit runs.
        start: Bytes in use when it begins.
        held: Bytes that the unit saves for the backward pass.
        kept: The part of them that stays if the unit is the last one of a recomputed segment: its output.
        working: Most bytes of the unit's own results and temporaries at once in its forward pass.
        seconds: Time of its forward pass.
        joins: Whether it can be recomputed together with the unit before.
        after: Most bytes in use between the last unit's forward and its backward pass.
    """

    backward: Integers
    start: Integers
    held: Integers
    kept: Integers
    working: Integers
    seconds: Floats
    joins: npt.NDArray[np.bool_]
    after: int

    def __len__(self) -> int:
        return len(self.held)


def requesting_units(requests: StepRequests, units: Sequence[Unit]) -> list[tuple[Unit, Part]]:
    """The units that save something for the backward pass, in the order of the forward pass.

    Layers that request nothing belong to the following unit, if both can form a segment.
    """
    parts = Parts(requests)
    found: list[tuple[Unit, Part]] = []
    waiting: Unit | None = None
    for unit in units:
        if waiting is not None and waiting.last + 1 == unit.first:
            unit = Unit(waiting.first, unit.last, waiting.layers + unit.layers, unit.output_bytes)
        part = parts.of(unit.layers, unit.output_bytes)
        if part is None or not len(part.saved):
            waiting = unit
        else:
            found.append((unit, part))
            waiting = None
    # Where a layer begins is no order: random ops have no inputs and may run first.
    return sorted(found, key=lambda one: one[1].end)


def unit_costs(step: SizedStep, found: Sequence[tuple[Unit, Part]], seconds: Sequence[float]) -> UnitCosts:
    """The costs of units.

    Args:
        step: The step with its sizes, in which nothing is recomputed.
        found: Result of `requesting_units`.
        seconds: Time of each one's forward pass.
    """
    requests = step.requests
    sized = rounded_sizes(step.sizes)
    level = in_use(requests, sized)[1:]  # after each event
    backs = [part.back for _, part in found]
    ends = [min((back for back in backs[:row] if back > own), default=requests.events) for row, own in enumerate(backs)]
    forward_end = max((part.end for _, part in found), default=0)
    last_back = max(min(backs, default=0), forward_end)
    return UnitCosts(
        backward=np.asarray([int(level[back:end].max()) for back, end in zip(backs, ends, strict=True)], np.int64),
        start=np.asarray([int(level[back - 1]) for back in backs], np.int64),
        held=np.asarray([int(sized[part.saved].sum()) for _, part in found], np.int64),
        kept=np.asarray([0 if part.output is None else int(sized[part.output]) for _, part in found], np.int64),
        working=np.asarray([_most(requests, sized, part) for _, part in found], np.int64),
        seconds=np.asarray(seconds, np.float64),
        joins=np.asarray(
            [row > 0 and found[row - 1][0].last + 1 == unit.first for row, (unit, _) in enumerate(found)], bool
        ),
        after=int(level[forward_end : last_back + 1].max(initial=0)),
    )


def _most(requests: StepRequests, sized: Integers, part: Part) -> int:
    """Most bytes at once of a part's rows in its forward pass."""
    rows = part.forward
    changes = np.zeros(part.end - part.begin + 2, np.int64)
    np.add.at(changes, requests.birth[rows] - part.begin, sized[rows])
    freed = rows[requests.death[rows] <= part.end]
    np.subtract.at(changes, requests.death[freed] - part.begin, sized[freed])
    return int(np.cumsum(changes).max())


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
