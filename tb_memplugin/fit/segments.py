"""The layers of a run that can be recomputed, and which segments of them to recompute. Pure.

The choice takes the least time with which a step stays within some bytes; simulations then check
it.

While the backward pass of a unit runs, every recomputed segment before it holds its output only. A
segment's own results are all there again. So the bytes in use in a unit's backward pass are those
of the recorded step, less what the segments before it do not hold. Over the linear order of units
this is a dynamic program, whose result is exact."""

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tb_memplugin.fit.asking import COMPILED, ON_JAX
from tb_memplugin.fit.cases import PeakParts
from tb_memplugin.fit.changes import Segments
from tb_memplugin.fit.conditions import Conditions
from tb_memplugin.fit.plans import TimeSource
from tb_memplugin.fit.predictor import Predictor
from tb_memplugin.fit.recomputation import NO_PART, Part, Parts
from tb_memplugin.fit.simulation import in_one_piece, in_use, peak_in_one_piece, rounded_sizes
from tb_memplugin.fit.steps import SizedStep
from tb_memplugin.schema import (
    Floats,
    Integers,
    Layer,
    Run,
    Snapshot,
    StepRequests,
    Timeline,
    counted,
    example_bytes,
)

FORWARD_SHARE = 1 / 3
"""Share of the forward pass in a step's time if no time was recorded: a backward pass does about
twice the work."""

RECOMPUTED = (
    "The recorded step recomputes layers already. Record it without recomputation for a plan."
)
MOST_TRIES = 5
"""Choices of segments that are simulated for one question: they halve the span from the smallest
peak four times."""
TIME_PARTS = 64
"""Parts of the forward pass's time that are told apart."""
_Saved = TypeVar("_Saved")
_NEVER = np.iinfo(np.int64).min // 2


@dataclasses.dataclass(frozen=True)
class Unit:
    """Layers between two neighboring cut points, by their paths, which are recomputed together or
    not at all."""

    first: int  # one whose first number follows another one's last can form a segment with it
    last: int
    layers: tuple[str, ...]
    output_bytes: int | None = None  # the recorded ones of the last layer's output; None if unknown


Spans: TypeAlias = tuple[tuple[int, int], ...]
"""First unit of each segment to recompute, and first unit after it."""


@dataclasses.dataclass(frozen=True)
class UnitCosts:
    """Bytes and time of each unit of a step, in order; columns of shape [units]. Chooses segments
    by them."""

    backward: Integers  # most bytes in use while the backward pass of a unit runs
    start: Integers  # bytes in use when it begins
    held: Integers  # bytes that the unit saves for the backward pass
    # the part of them that stays if the unit is the last one of a recomputed segment: its output
    kept: Integers
    # most bytes of the unit's own results and temporaries at once in its forward pass
    working: Integers
    seconds: Floats  # time of its forward pass
    joins: npt.NDArray[np.bool_]  # whether it can be recomputed together with the unit before
    after: int  # most bytes in use between the last unit's forward and its backward pass

    def __len__(self) -> int:
        return len(self.held)

    @functools.cached_property
    def _time(self) -> Integers:
        """Whole parts of the time before each unit, of `TIME_PARTS`."""
        scaled = (
            np.concatenate([[0.0], np.cumsum(self.seconds)])
            / (float(self.seconds.sum()) or 1.0)
            * TIME_PARTS
        )
        return np.rint(scaled).astype(np.int64)

    @functools.cached_property
    def _spans(self) -> list[tuple[Integers, Integers, Integers]]:
        return [self._from(first) for first in range(len(self))]

    def _from(self, first: int) -> tuple[Integers, Integers, Integers]:
        """For the segments that begin with a unit: unit after each, most bytes in its backward
        pass, bytes saved."""
        breaks = np.flatnonzero(~self.joins[first + 1 :])
        end = first + 1 + (int(breaks[0]) if len(breaks) else len(self) - first - 1)
        span = slice(first, end)
        held = np.cumsum(self.held[span])
        # All of the segment runs forward again when its backward pass begins, with the results in
        # `start` still absent.
        again = np.maximum.accumulate(held - self.held[span] + self.working[span])
        most = np.maximum(
            np.maximum.accumulate(self.backward[span]), self.start[span] + again - held
        )
        return np.arange(first + 1, end + 1), most, held - self.kept[span]

    def choose(self, limit_bytes: int) -> Spans | None:
        """The least time within some bytes; None if no segments are enough."""
        best, back = self._run(limit_bytes, self._time)
        enough = np.flatnonzero(self.after - best[-1] <= limit_bytes)
        if not len(enough) or best[-1, enough[0]] <= _NEVER // 2:
            return None
        time, end = int(enough[0]), len(self)
        spans: list[tuple[int, int]] = []
        while end:
            first, again = divmod(int(back[end, time]), 2)
            if again:
                spans.append((first, end))
                time -= int(self._time[end] - self._time[first])
            end = first
        return tuple(reversed(spans))

    def covering(self, pieces: int) -> Spans:
        """All units, in segments that save about the same; units that cannot be joined are in
        different ones."""
        piece = (np.cumsum(self.held) - self.held) * pieces // max(1, int(self.held.sum()))
        begins = np.flatnonzero(~self.joins | np.concatenate([[True], np.diff(piece) > 0])).tolist()
        return tuple(zip(begins, [*begins[1:], len(self)], strict=True))

    def smallest(self) -> int:
        low, high = 0, int(max(self.backward.max(initial=0), self.after))
        while high - low > max(1, high >> 12):
            middle = (low + high) // 2
            best, _ = self._run(middle, np.zeros_like(self._time))
            if best[-1, 0] > _NEVER // 2 and self.after - best[-1, 0] <= middle:
                high = middle
            else:
                low = middle
        return high

    def _run(self, limit: int, time: Integers) -> tuple[Integers, Integers]:
        """(bytes saved, at most, before each unit at each time; the unit before that and whether it
        is recomputed)."""
        count, parts = len(self), int(time[-1]) + 1
        best = np.full((count + 1, parts), _NEVER, np.int64)
        best[0, 0] = 0
        # 2 × unit + whether the segment from there is recomputed
        back = np.full((count + 1, parts), -1, np.int64)
        times = np.arange(parts)
        for first in range(count):
            here = best[first]
            # What needs less time and saves as much is better.
            here = np.where(
                here > np.concatenate([[_NEVER], np.maximum.accumulate(here)[:-1]]), here, _NEVER
            )
            kept = np.where(self.backward[first] - here <= limit, here, _NEVER)
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
            at = after[:, None] * parts + (
                times[filled][None, :] + (time[after] - time[first])[:, None]
            )
            allowed &= gained > best.flat[at]
            best.flat[at[allowed]], back.flat[at[allowed]] = gained[allowed], 2 * first + 1
        return best, back


def joined(
    units: Iterable[Unit], saved: Callable[[Unit], _Saved | None]
) -> list[tuple[Unit, _Saved]]:
    """The units that save something for the backward pass, with that. Layers that save nothing
    belong to the following unit, if both can form a segment."""
    found: list[tuple[Unit, _Saved]] = []
    waiting: Unit | None = None
    for unit in units:
        if waiting is not None and waiting.last + 1 == unit.first:
            unit = Unit(waiting.first, unit.last, waiting.layers + unit.layers, unit.output_bytes)
        own = saved(unit)
        waiting = unit if own is None else None
        if own is not None:
            found.append((unit, own))
    return found


def requesting_units(requests: StepRequests, units: Sequence[Unit]) -> list[tuple[Unit, Part]]:
    """The units with what they request and save, in the order of the forward pass."""
    parts = Parts(requests)

    def saved(unit: Unit) -> Part | None:
        part = parts.of(unit.layers, unit.output_bytes)
        return part if part is not None and len(part.saved) else None

    # Where a layer begins is no order: random ops have no inputs and may run first.
    return sorted(joined(units, saved), key=lambda one: one[1].end)


def unit_costs(
    step: SizedStep, found: Sequence[tuple[Unit, Part]], seconds: Sequence[float]
) -> UnitCosts:
    """The costs of `requesting_units` in a step in which nothing is recomputed; `seconds` of their
    forward passes."""
    requests = step.requests
    sized = rounded_sizes(step.sizes)
    level = in_use(requests, sized)[1:]  # after each event
    backs = [part.back for _, part in found]
    ends = [
        min((back for back in backs[:row] if back > own), default=requests.events)
        for row, own in enumerate(backs)
    ]
    forward_end = max((part.end for _, part in found), default=0)
    last_back = max(min(backs, default=0), forward_end)
    return UnitCosts(
        backward=np.asarray(
            [int(level[back:end].max()) for back, end in zip(backs, ends, strict=True)], np.int64
        ),
        start=np.asarray([int(level[back - 1]) for back in backs], np.int64),
        held=np.asarray([int(sized[part.saved].sum()) for _, part in found], np.int64),
        kept=np.asarray(
            [0 if part.output is None else int(sized[part.output]) for _, part in found], np.int64
        ),
        working=np.asarray([_most(requests, sized, part) for _, part in found], np.int64),
        seconds=np.asarray(seconds, np.float64),
        joins=_joins(found),
        after=int(level[forward_end : last_back + 1].max(initial=0)),
    )


def _joins(found: Sequence[tuple[Unit, Part]]) -> npt.NDArray[np.bool_]:
    """Whether each unit can be recomputed together with the one before."""
    pairs = itertools.pairwise(unit for unit, _ in found)
    return np.asarray([False, *(before.last + 1 == unit.first for before, unit in pairs)], bool)


def _most(requests: StepRequests, sized: Integers, part: Part) -> int:
    rows = part.forward
    changes = np.zeros(part.end - part.begin + 2, np.int64)
    np.add.at(changes, requests.birth[rows] - part.begin, sized[rows])
    freed = rows[requests.death[rows] <= part.end]
    np.subtract.at(changes, requests.death[freed] - part.begin, sized[freed])
    return int(np.cumsum(changes).max())


@dataclasses.dataclass(frozen=True)
class Units:
    """Layers between cut points that save something, in the order of the forward pass, and what
    they request.

    `seconds` are those of each one's forward pass; `sentences` say why there are none, or what is
    assumed."""

    found: tuple[tuple[Unit, Part], ...] = ()
    seconds: tuple[float, ...] = ()
    step_seconds: float = 1.0
    time_source: TimeSource = "estimated"
    sentences: tuple[str, ...] = ()
    # of a compiled step: bytes that each unit saves, as its chunks hold them together
    saved: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.found)


def unsuitable_recording(
    requests: StepRequests, layers: Sequence[Layer], asks: bool = False
) -> str | None:
    """Why no segments can be planned from a recorded step, and what to record instead; None if they
    can. Of a compiled step, that takes who `asks` its compiler."""
    if in_one_piece(requests):
        return ON_JAX
    if requests.mode == "xla" and not asks:
        return COMPILED
    return RECOMPUTED if any(layer.recomputed is not None for layer in layers) else None


def units_of(
    run: Run, requests: StepRequests, layers: Sequence[Layer], asks: bool = False
) -> Units:
    unsuitable = unsuitable_recording(requests, layers, asks)
    if unsuitable is not None:
        return Units(sentences=(unsuitable,))
    numbered = [layer for layer in layers if layer.unit is not None]
    number_of = operator.attrgetter("unit")
    units = []
    for number, group in itertools.groupby(sorted(numbered, key=number_of), number_of):
        members = list(group)
        paths, size = tuple(layer.path for layer in members), example_bytes(members[-1])
        if any(
            f"{path}/".startswith(f"{layer}/") for layer in paths for path in requests.unrepeatable
        ):
            continue
        size = None if size is None or not requests.examples else size * requests.examples
        units.append(Unit(number, number, paths, size))
    if not units:
        return Units(
            sentences=("Recomputation is unknown: the model's layer graph was not recorded.",)
        )
    if requests.mode == "xla":
        return _compiled_units(run, requests, units)
    found = tuple(requesting_units(requests, units))
    if not found:
        return Units(
            sentences=("No layer between two cut points saves anything that could be recomputed.",)
        )
    for line in reversed(run.timelines):
        total = line.duration_ns * 1e-9
        if _is_of(requests, line) and total > 0 and len(line.event) >= 2:
            # By the times of allocations.
            times = line.seconds_at(
                np.asarray([found[0][1].begin] + [part.end + 1 for _, part in found])
            )
            return Units(found, tuple(np.maximum(np.diff(times), 0.0).tolist()), total, "measured")
    held = [float(requests.requested[part.saved].sum()) for _, part in found]
    shares = tuple(FORWARD_SHARE * one / max(1.0, sum(held)) for one in held)
    sentence = (
        "The time is an estimate: a forward pass takes a third of a step, and each layer its "
        "share of the bytes."
    )
    return Units(found, shares, 1.0, "estimated", (sentence,))


def _is_of(requests: StepRequests, record: Snapshot | Timeline) -> bool:
    names = operator.attrgetter("step", "phase", "device")
    return bool(names(record) == names(requests))


def _compiled_units(run: Run, requests: StepRequests, units: Sequence[Unit]) -> Units:
    """By what the buffers of the compiled step save for each layer."""
    snapshots = (one for one in run.snapshots if _is_of(requests, one))
    rows = next((one.saved_for_backward for one in snapshots), ())

    def saved(unit: Unit) -> int | None:
        inside = [
            row.bytes
            for row in rows
            if any(f"{row.layer}/".startswith(f"{path}/") for path in unit.layers)
        ]
        return sum(inside) if inside and unit.output_bytes is not None else None

    found = joined(units, saved)
    total = max(1, sum(size for _, size in found))
    return Units(
        tuple((unit, NO_PART) for unit, _ in found),
        tuple(FORWARD_SHARE * size / total for _, size in found),
        sentences=("XLA's compiler was asked about each choice of segments.",),
        saved=tuple(size for _, size in found),
    )


def compiled_costs(step: SizedStep, units: Units, ratio: float) -> UnitCosts:
    """The costs of a compiled step's units, which choose what its compiler is asked about: as if
    their bytes were saved one after the other, and freed in the backward pass in the other order.

    `ratio` is the batch size as a multiple of the recorded one."""
    held = np.asarray(units.saved, np.float64) * ratio
    kept = np.asarray([unit.output_bytes or 0 for unit, _ in units.found], np.float64) * ratio
    peak = peak_in_one_piece(step)
    through = (peak - held.sum() + np.cumsum(held)).astype(np.int64)
    return UnitCosts(
        backward=through,
        start=through,
        held=held.astype(np.int64),
        kept=kept.astype(np.int64),
        working=held.astype(np.int64),
        seconds=np.asarray(units.seconds, np.float64),
        joins=_joins(units.found),
        after=peak,
    )


@dataclasses.dataclass(frozen=True)
class Recomputing:
    """Conditions with segments, and the step's peaks and additional time, as a share of the
    recorded one."""

    conditions: Conditions
    extra_time: float
    parts: PeakParts

    @property
    def segments(self) -> Segments:
        """Paths of each segment's layers."""
        return self.conditions.recompute


def inside(root: str, segments: Segments) -> Segments:
    """Segments with paths below a model's."""
    return tuple(tuple(path.removeprefix(root) for path in segment) for segment in segments)


def recompute_sentence(segments: Segments) -> str:
    layers = sum(map(len, segments))
    return f"recompute {counted(len(segments), 'segment')} with {counted(layers, 'layer')}"


class SegmentSearch:
    """Chooses segments under conditions with a batch size and the capacity to fit into, and
    simulates them."""

    def __init__(self, predictor: Predictor, units: Units, conditions: Conditions) -> None:
        self._predictor, self._units, self._conditions = predictor, units, conditions
        step = predictor.case(conditions).changed.high[-1]
        if units.saved:
            ratio = (conditions.batch_size or 1) / (predictor.batch_size or 1)
            self._costs = compiled_costs(step, units, ratio)
        else:
            self._costs = unit_costs(step, units.found, units.seconds)
        self._found: dict[Spans, Recomputing | None] = {}
        self.smallest_bytes = self._costs.smallest()
        self.demand_bytes = peak_in_one_piece(step)

    def cheapest(self, budget: int) -> Recomputing | None:
        """The segments that fit within a peak at the least time; those of the smallest peak if none
        do; None if none save. A choice counts requested bytes; its simulation adds what the
        allocator keeps unsplit."""
        fitting, failing = self.smallest_bytes, self.demand_bytes
        best = self._simulated(self._costs.choose(fitting))
        if self._units.saved:
            return self._asked(budget, best)
        if best is None or not self._is_within(best, budget):
            return best
        for _ in range(MOST_TRIES - 1):
            limit = (fitting + failing) // 2
            found = self._simulated(self._costs.choose(limit))
            if found is not None and self._is_within(found, budget):
                fitting = limit
                best = min(best, found, key=lambda one: one.extra_time)
            else:
                failing = limit
        return best

    def _asked(self, budget: int, first: Recomputing | None) -> Recomputing | None:
        """The same for a compiled step: more segments if the first are not enough, else as few as
        answers allow."""
        found, count = [*filter(None, [first])], len(self._units)
        for pieces in (round(count**0.5), count):
            if not any(self._is_within(one, budget) for one in found):
                found += filter(None, [self._simulated(self._costs.covering(pieces))])
        best = min(found, key=lambda one: one.parts.peak.high_bytes, default=None)
        low, high = self.smallest_bytes, self.demand_bytes
        most = self._predictor.peaks(self._conditions).peak.high_bytes
        for _ in range(MOST_TRIES):
            if best is None or not self._is_within(best, budget):
                break
            least = best.parts.peak.high_bytes
            limit = low + int((high - low) * (budget - least) / max(1, most - least))
            fewer = self._simulated(self._costs.choose(limit))
            if fewer is None or fewer.extra_time >= best.extra_time:
                break
            if self._is_within(fewer, budget):
                best, low = fewer, limit
            else:
                high, most = limit, fewer.parts.peak.high_bytes
        return best

    def curve(self, points: int) -> list[Recomputing]:
        """Choices from the smallest peak upward, with those simulated before; none costs more for a
        higher peak."""
        for limit in (
            np.linspace(self.smallest_bytes, self.demand_bytes, points + 1)[:-1]
            .astype(int)
            .tolist()
        ):
            self._simulated(self._costs.choose(limit))
        kept: list[Recomputing] = []
        found = sorted(
            filter(None, self._found.values()),
            key=lambda one: (one.parts.peak.high_bytes, one.extra_time),
        )
        for one in found:
            if not kept or one.extra_time < kept[-1].extra_time:
                kept.append(one)
        return kept

    def _simulated(self, spans: Spans | None) -> Recomputing | None:
        """A choice with its peaks; None without segments, or if it cannot be simulated."""
        if not spans:
            return None
        if spans not in self._found:
            units = self._units.found
            segments = tuple(
                tuple(path for unit, _ in units[first:end] for path in unit.layers)
                for first, end in spans
            )
            wanted = dataclasses.replace(self._conditions, recompute=segments)
            self._predictor.ask(wanted)
            predicted = None
            if self._predictor.reason_against(wanted) is None:
                seconds = float(
                    sum(self._costs.seconds[first:end].sum() for first, end in reversed(spans))
                )
                time = seconds / self._units.step_seconds
                predicted = Recomputing(wanted, time, self._predictor.peaks(wanted))
            self._found[spans] = predicted
        return self._found[spans]

    def _is_within(self, found: Recomputing, budget: int) -> bool:
        return self._predictor.is_within(budget, found.conditions)
