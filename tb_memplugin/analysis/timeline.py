"""What is live inside a traced step, from event to event, with owners. Pure.

The rows follow the rules of the ledger: at the peak their sums by owner are the snapshot's ledger.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from tb_memplugin.analysis.attribution import peak_event
from tb_memplugin.analysis.categories import Classifier, Owner
from tb_memplugin.analysis.passes import MAX_STEPS, Marks, bands, measured_marks
from tb_memplugin.analysis.plan_inside import PlanSteps, plan_steps, planned_rows
from tb_memplugin.analysis.timeline_reduce import Rows, level_at, reduced
from tb_memplugin.codec import MISSING
from tb_memplugin.model import Band, ChunkOwner, Integers, PlannedSpan, Snapshot, Timeline
from tb_memplugin.trace import AllocationTrace, Module, PlannedAllocation, TraceFacts

MAX_EVENTS = 500_000
"""Events of a step beyond which no timeline is made: it would take many seconds."""
NO_OWNER = Owner(None, "unattributed", None)
_PS_PER_NS = 1000
_Stretch = TypeVar("_Stretch", Band, PlannedSpan)


def timeline(trace: AllocationTrace, facts: TraceFacts, classifier: Classifier, snapshot: Snapshot) -> Timeline | None:
    """The timeline of the step whose snapshot this is; None where the trace contradicts itself or is too long.

    Args:
        trace: The allocator's events.
        facts: What was known of the program.
        classifier: Of the trace's chunks.
        snapshot: What `attribution.attribute` made of these.
    """
    found = classifier.chunks
    start_rest = trace.start_in_use - int(found.allocated[found.birth == -1].sum())
    if trace.missed or found.strays or start_rest < 0 or len(trace) > MAX_EVENTS:
        return None
    standing = classifier.standing()
    rest = start_rest - sum(item.allocated for item in standing)
    told = rest >= 0  # as in the ledger: owners that do not fit into the bytes in use are not told
    axis = _Axis(trace, _runs_of_modules(classifier) if told else [], classifier)
    made = _Made()
    for item in standing if told else ():
        owner = Owner(item.layer, item.category, item.trainable)
        made.add(0, axis.moments, owner, item.allocated, item.allocated - item.requested, None)
    made.add(0, axis.moments, NO_OWNER, rest if told else start_rest, MISSING, None, count=0)
    _add_chunks(made, trace, classifier, axis, told)
    rows, time_ns, event, kept, merged = reduced(made.rows(), axis.time_ns, axis.event, axis.must_keep())
    return Timeline(
        step=snapshot.step,
        phase=snapshot.phase,
        device=snapshot.device,
        wall_time=snapshot.wall_time,
        mode=snapshot.mode,
        in_use_bytes=snapshot.in_use_bytes,
        peak=int(np.searchsorted(kept, axis.peak)),
        events=len(trace),
        duration_ns=max(axis.duration_ns, int(time_ns[-1])),
        time_ns=time_ns,
        event=event,
        start=rows.start,
        end=rows.end,
        bytes=rows.bytes,
        rounding_bytes=rows.rounding_bytes,
        count=rows.count,
        owner=rows.owner,
        op=rows.op,
        owners=tuple(ChunkOwner(*owner) for owner in made.owners),
        ops=tuple(made.ops),
        bands=tuple(_kept(axis.bands, kept)),
        planned=tuple(_kept(axis.planned, kept)),
        not_available=(*facts.notes, *merged, *_notes(axis, told)),
    )


def _add_chunks(made: "_Made", trace: AllocationTrace, classifier: Classifier, axis: "_Axis", told: bool) -> None:
    """The rows of what the trace allocated or freed."""
    birth = classifier.chunks.birth
    inside = {chunk: run for run in axis.runs for chunk in run.blocks}
    for chunk in range(len(birth)):
        op = trace.text(int(trace.op[birth[chunk]])) if birth[chunk] >= 0 else None
        if chunk in inside:
            made.extend(_block_rows(classifier, chunk, inside[chunk], axis), op)
        else:
            made.extend(_chunk_rows(classifier, chunk, axis, told), op)


def _notes(axis: "_Axis", told: bool) -> Iterator[str]:
    if not told:
        yield "The owners are not available, because what is known of them is more than was in use."
    if axis.runs:
        yield (
            "Measured times inside compiled modules are not available, because XLA allocates whole blocks for them: "
            "what is in these, and in which order, is the compiler's plan, spread evenly over the module's run."
        )
    if not axis.bands:
        yield (
            "The ends of the forward and the backward pass are not available, because no layer's operations were seen "
            f"to run in both, or the window holds more than {MAX_STEPS} steps."
        )


def _kept(stretches: Iterable[_Stretch], moments: Integers) -> Iterator[_Stretch]:
    """The stretches among the moments that are kept, without those that hold none of them."""
    for one in stretches:
        start, end = np.searchsorted(moments, (one.start, one.end)).tolist()
        if start < end:
            yield dataclasses.replace(one, start=start, end=end)


class _Row(NamedTuple):
    start: int
    end: int
    owner: Owner
    bytes: int
    rounding_bytes: int
    op: str | None = None


class _Made:
    """Rows, owners and op names while they are made; equal ones have one number."""

    def __init__(self) -> None:
        self.owners: dict[Owner, int] = {}
        self.ops: dict[str, int] = {}
        self._rows: list[tuple[int, int, int, int, int, int, int]] = []

    def add(
        self, start: int, end: int, owner: Owner, size: int, rounding: int, op: str | None, *, count: int = 1
    ) -> None:
        """A row; nothing where there are no bytes or no moments."""
        if size <= 0 or start >= end:
            return
        number = self.owners.setdefault(owner, len(self.owners))
        op_number = -1 if op is None else self.ops.setdefault(op, len(self.ops))
        self._rows.append((start, end, size, rounding, count, number, op_number))

    def extend(self, rows: Iterator[_Row], op: str | None) -> None:
        """Rows of one allocation; what names no op of its own was asked for by `op`."""
        for row in rows:
            self.add(row.start, row.end, row.owner, row.bytes, row.rounding_bytes, row.op or op)

    def rows(self) -> Rows:
        """All of them as columns."""
        columns = np.asarray(self._rows, np.int64).reshape(-1, 7).T
        return Rows(*(np.ascontiguousarray(column) for column in columns))


# --- compiled modules -------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _ModuleRun:
    """One execution of a compiled module: its blocks live from event `begin` to before event `end`, all of them."""

    module: Module
    steps: PlanSteps
    begin: int
    end: int
    blocks: dict[int, PlannedAllocation]
    moments: Integers = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    """Those of the plan's positions; others may lie between them."""


def _runs_of_modules(classifier: Classifier) -> list[_ModuleRun]:
    runs: list[_ModuleRun] = []
    found = classifier.chunks
    steps: dict[str, PlanSteps] = {}
    for chunk in np.argsort(found.birth, kind="stable").tolist():
        plan = classifier.plan(chunk)
        if plan is None:
            continue
        module, allocation = plan
        birth, death = int(found.birth[chunk]), int(found.death[chunk])
        last = next((run for run in reversed(runs) if run.module is module), None)
        if last is not None and birth < last.end and allocation not in last.blocks.values():
            last.blocks[chunk] = allocation
            last.begin, last.end = birth, min(last.end, death)
            continue
        if module.name not in steps:
            steps[module.name] = plan_steps(classifier.plans, module)
        runs.append(_ModuleRun(module, steps[module.name], birth, death, {chunk: allocation}))
    return runs


def _block_rows(classifier: Classifier, chunk: int, run: _ModuleRun, axis: "_Axis") -> Iterator[_Row]:
    """What a module's block holds; before the module runs, as at its plan's first position, after it as at its last."""
    found, allocation = classifier.chunks, run.blocks[chunk]
    edges = [axis.moment(int(found.birth[chunk]) + 1), *run.moments[1:].tolist()]
    edges.append(axis.moment(int(found.death[chunk]) + 1))
    name = run.module.function or run.module.name
    for row in planned_rows(classifier.plans, run.module, allocation, run.steps.positions):
        owner = classifier.owned(row.layer, row.category)
        yield _Row(edges[row.first], edges[row.end], owner, row.bytes, 0, row.op or f"{name}: not used by its plan")
    more = int(found.allocated[chunk] - found.requested[chunk])
    yield _Row(edges[0], edges[-1], Owner(None, "workspace", None), more, more, f"{name}: rest of its chunk")


def _chunk_rows(classifier: Classifier, chunk: int, axis: "_Axis", told: bool) -> Iterator[_Row]:
    for begin, end, owners in classifier.owner_spans(chunk):
        start, stop = axis.moment(begin + 1), axis.moment(end + 1)
        for owner, size, requested in owners:
            yield _Row(start, stop, owner if told else NO_OWNER, size, size - requested if requested >= 0 else MISSING)


# --- moments ----------------------------------------------------------------------------------------------------------


class _Axis:
    """The moments of a step: its start, one after each event, and between these the positions of compilers' plans.

    Attributes:
        moments: Their number.
        time_ns, event: As in `Timeline`.
        runs: Executions of compiled modules, their moments filled in.
        peak: The moment of the peak.
        bands, planned: As in `Timeline`, before any reduction.
        duration_ns: From the first to the last thing that the trace saw.
    """

    def __init__(self, trace: AllocationTrace, runs: list[_ModuleRun], classifier: Classifier) -> None:
        events, peak = len(trace), peak_event(trace) + 1
        spans = [part for part in (trace.ops, trace.layers) if len(part)]
        first = min([int(trace.time_ps[0]), *(int(part.start_ps.min()) for part in spans)]) if events else 0
        last = max([int(trace.time_ps[-1]), *(int(part.end_ps.max()) for part in spans)]) if events else 0
        measured = np.concatenate([[0], (trace.time_ps - first) // _PS_PER_NS])
        self.duration_ns = (last - first) // _PS_PER_NS
        self.runs = runs
        plans = [_plan_places(run, np.append(measured, self.duration_ns), peak) for run in runs]
        follows = np.concatenate([np.arange(events + 1), *(plan.follows for plan in plans)])
        times = np.concatenate([measured, *(plan.times for plan in plans)])
        side = np.concatenate([np.full(events + 1, -2), *(plan.side for plan in plans)])
        # Moments that the allocator's events make, each followed by the positions of plans up to the next event.
        order = np.lexsort((np.arange(len(times)), times, side, follows))
        where = np.empty(len(order), np.int64)
        where[order] = np.arange(len(order))
        self.moments = len(order)
        self._measured = np.append(where[: events + 1], self.moments)
        self.time_ns = np.maximum.accumulate(times[order].astype(np.int64))
        self.event = follows[order].astype(np.int64)
        at = events + 1
        for run in runs:
            run.moments = where[at : at + len(run.steps.positions)]
            at += len(run.steps.positions)
        inside = [run for run in runs if run.begin + 1 <= peak <= run.end]
        self.peak = max([int(self._measured[peak]), *(int(run.moments[run.steps.peak]) for run in inside)])
        self.planned = [PlannedSpan(int(run.moments[0]), int(run.moments[-1]) + 1) for run in runs if len(run.moments)]
        self.bands = self._bands(trace, classifier)

    def moment(self, measured: int) -> int:
        """The moment after that many events; the number of moments for what comes after all."""
        return int(self._measured[measured])

    def must_keep(self) -> list[int]:
        """Moments that no reduction may drop."""
        edges = [edge for band in self.bands for edge in (band.start, band.end)]
        edges += [edge for span in self.planned for edge in (span.start, span.end)]
        return [0, self.moments - 1, self.peak, *(edge for edge in edges if edge < self.moments)]

    def _bands(self, trace: AllocationTrace, classifier: Classifier) -> tuple[Band, ...]:
        marks: list[Marks] = []
        for mark in measured_marks(trace, classifier):
            ends = (mark.forward_end, mark.backward_end, mark.update_begin, mark.update_end)
            begin = self.moment(mark.begin) if marks else 0
            marks.append(Marks(begin, *(None if end is None else self.moment(end) for end in ends)))
        marks += [mark for mark in map(_planned_marks, self.runs) if mark is not None]
        return bands(sorted(marks, key=lambda mark: mark.begin), self.moments)


class _Places(NamedTuple):
    """Where a plan's positions come: after which event, when, and before (-1), at (0) or after (1) the step's peak."""

    follows: Integers
    times: Integers
    side: Integers


def _plan_places(run: _ModuleRun, times: Integers, peak: int) -> _Places:
    """Spread evenly over the module's run, its plan's peak at the step's if that lies in it.

    `times` are those at which the moments of the allocator's events begin, and last that at which the step ends.
    """
    count, at = len(run.steps.positions), run.steps.peak
    measured = times[:-1]
    first, last = run.begin + 1, min(run.end, len(measured) - 1)
    begin, end = int(times[first]), int(times[last + 1])
    if not first <= peak <= last:
        placed = np.linspace(begin, end, count + 1)[:-1].astype(np.int64)
        return _Places(_events_up_to(placed, measured, first, last), placed, np.zeros(count, np.int64))
    # As many bytes as at the peak are in use up to the next event: the plan's peak lies where it is least in the way.
    middle = min(
        max(begin + (end - begin) * at // count, int(times[peak])), max(int(times[peak]), int(times[peak + 1]) - 1)
    )
    parts = (np.linspace(begin, middle, at + 1)[:at], [middle], np.linspace(middle, end, count - at + 1)[1:-1])
    placed = np.concatenate(parts).astype(np.int64)
    side = np.sign(np.arange(count) - at)
    follows = _events_up_to(placed, measured, first, last)
    follows = np.where(side < 0, np.minimum(follows, peak), np.where(side > 0, np.maximum(follows, peak), peak))
    return _Places(follows, placed, np.where(follows == peak, side, 0))


def _events_up_to(times: Integers, measured: Integers, first: int, last: int) -> Integers:
    """After which event each of the times comes, of the events `first` to `last`."""
    found: Integers = np.clip(np.searchsorted(measured, times, side="right") - 1, first, last)
    return found


def _planned_marks(run: _ModuleRun) -> Marks | None:
    steps, moments = run.steps, run.moments
    if steps.forward_end is None or steps.backward_end is None:
        return None
    edges = [*moments.tolist(), int(moments[-1]) + 1]
    marks = Marks(edges[0], edges[steps.forward_end], edges[steps.backward_end])
    if steps.update_begin is not None:
        marks.update_begin, marks.update_end = edges[steps.update_begin], edges[-1]
    return marks


def category_totals(taken: Timeline) -> Mapping[str, Integers]:
    """Bytes of each category at every moment, shape [moments]; together the allocator's bytes in use."""
    moments = len(taken.time_ns)
    totals: dict[str, Integers] = {}
    for number, owner in enumerate(taken.owners):
        rows = taken.owner == number
        level = level_at(taken.start[rows], taken.end[rows], taken.bytes[rows], moments)
        totals[owner.category] = totals.get(owner.category, np.zeros(moments, np.int64)) + level
    return totals
