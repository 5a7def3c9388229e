"""The timeline: what is live inside a traced step, from event to event, with owners.

The rows follow the rules of the ledger: at the peak, their sums by owner are the snapshot's ledger.
Its moments are the start, one after each event, and between these the positions of compiled
modules. Rows are kept few: moments are dropped and small allocations merged by owner; kept moments
stay exact."""

import array
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from tb_memplugin.attribution.chunks import peak_event
from tb_memplugin.attribution.compiled import (
    ModuleRun,
    Row,
    module_rows,
    module_runs,
    place_positions,
    run_marks,
)
from tb_memplugin.attribution.execution import MAX_STEPS, Marks, bands
from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.attribution.tensors import Shapes
from tb_memplugin.attribution.window import Owner
from tb_memplugin.schema import (
    MISSING,
    AllocationTrace,
    Band,
    ChunkOwner,
    CompiledSpan,
    Integers,
    Snapshot,
    TensorShape,
    Timeline,
    extreme_rows,
    format_bytes,
    live_sums,
)

MAX_ALLOCATIONS = 20_000
"""Most rows of a timeline; in a larger step, only the largest allocations keep rows of their own,
and the others share rows by layer and category."""
MAX_MOMENTS = 40_000
"""About the most moments of a timeline; each allocation begins at one and ends at another."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Columns as in `model.Timeline`."""

    start: Integers
    end: Integers
    bytes: Integers
    rounding_bytes: Integers
    count: Integers
    owner: Integers
    op: Integers
    address: Integers
    shape: Integers
    line: Integers

    def take(self, chosen: Integers) -> "Rows":
        return Rows(*(column[chosen] for column in vars(self).values()))


def _columns(values: Integers) -> Rows:
    columns = values.reshape(-1, len(dataclasses.fields(Rows))).T
    return Rows(*(np.ascontiguousarray(column) for column in columns))


def reduced(
    rows: Rows, time_ns: Integers, event: Integers, always: Sequence[int]
) -> tuple[Rows, Integers, Integers, Integers, list[str]]:
    """(rows, times, events, kept moments, sentences on the reduction), of rows in terms of the
    moments of `time_ns` and `event`; moments of `always` are kept."""
    moments = len(time_ns)
    if len(rows.start) <= MAX_ALLOCATIONS and moments <= MAX_MOMENTS:
        return _sorted(rows), time_ns, event, np.arange(moments), []
    largest = np.argsort(-rows.bytes, kind="stable")
    in_use = live_sums(rows.start, rows.end, rows.bytes, moments)
    limit = MAX_MOMENTS
    while True:
        kept = extreme_rows([in_use], limit, always=sorted(set(always))).astype(np.int64)
        # Rows that are live at none of the kept moments begin where they end.
        start, end = (
            np.searchsorted(kept, edge).astype(np.int64) for edge in (rows.start, rows.end)
        )
        placed = dataclasses.replace(rows, start=start, end=end)
        own, small = (
            np.sort(largest[: MAX_ALLOCATIONS // 2]),
            np.sort(largest[MAX_ALLOCATIONS // 2 :]),
        )
        merged = _merged(placed.take(small))
        if len(own) + len(merged.start) <= MAX_ALLOCATIONS or limit <= 16:
            break
        limit //= 2
    alive = own[placed.start[own] < placed.end[own]]
    pairs = zip(vars(placed.take(alive)).values(), vars(merged).values(), strict=True)
    both = _sorted(Rows(*map(np.concatenate, pairs)))
    return both, time_ns[kept], event[kept], kept, _sentences(rows, small, moments, len(kept))


def _sentences(rows: Rows, small: Integers, moments: int, kept: int) -> list[str]:
    sentences = []
    if len(small):
        largest = format_bytes(int(rows.bytes[small].max()))
        sentences.append(
            f"Of the step's {len(rows.start)} allocations, the {len(small)} smallest (up to "
            f"{largest}) are merged by layer and category."
        )
    if kept < moments:
        sentences.append(
            f"Of the step's {moments} moments, {kept} are kept: the highest and lowest of their "
            "neighbors."
        )
    return sentences


def _sorted(rows: Rows) -> Rows:
    return rows.take(np.lexsort((rows.end, rows.start)))


def _merged(rows: Rows) -> Rows:
    """One row for each owner and stretch of moments over which the owner's bytes stay the same.
    Allocations of unknown rounding have rows of their own. A stretch with one allocation keeps what
    is known of it."""
    parts: list[tuple[int, ...]] = []
    rows = rows.take(np.flatnonzero(rows.start < rows.end))
    unknown = rows.rounding_bytes == MISSING
    for owner, hidden in sorted(set(zip(rows.owner.tolist(), unknown.tolist(), strict=True))):
        own = rows.take(np.flatnonzero((rows.owner == owner) & (unknown == hidden)))
        rounding_bytes = np.zeros_like(own.bytes) if hidden else own.rounding_bytes
        known = (own.op, own.address, own.shape, own.line)
        columns = (np.ones_like(own.bytes), own.bytes, rounding_bytes, own.count, *known)
        edges = np.unique(np.concatenate([own.start, own.end]))
        first, last = np.searchsorted(edges, own.start), np.searchsorted(edges, own.end)
        levels = [live_sums(first, last, column, len(edges) - 1).tolist() for column in columns]
        stretches = zip(edges[:-1].tolist(), edges[1:].tolist(), *levels, strict=True)
        for start, end, alive, size, rounding, count, *facts in stretches:
            if size:
                only = facts if alive == 1 else [-1] * len(facts)
                parts.append(
                    (start, end, size, MISSING if hidden else rounding, count, owner, *only)
                )
    return _columns(np.fromiter(itertools.chain.from_iterable(parts), np.int64))


class RowBuilder:
    """Collects rows; `owners`, `ops`, `shapes` and `lines` have the number of each, -1 for None."""

    def __init__(self) -> None:
        self.owners: dict[Owner, int] = {}
        self.ops: dict[str | None, int] = {None: -1}
        self.shapes: dict[TensorShape | None, int] = {None: -1}
        self.lines: dict[str | None, int] = {None: -1}
        # an object for each row would let Python's garbage collector run earlier
        self._values = array.array("q")

    def add(self, row: Row, *, count: int = 1) -> None:
        if row.bytes <= 0 or row.start >= row.end:
            return
        owner = self.owners.setdefault(row.owner, len(self.owners))
        op = self.ops.setdefault(row.op, len(self.ops) - 1)
        shape = self.shapes.setdefault(row.shape, len(self.shapes) - 1)
        line = self.lines.setdefault(row.line, len(self.lines) - 1)
        place = (op, -1 if row.address is None else row.address, shape, line)
        self._values.extend(
            (row.start, row.end, row.bytes, row.rounding_bytes, count, owner, *place)
        )

    def rows(self) -> Rows:
        return _columns(np.array(self._values, np.int64))


_PS_PER_NS = 1000


class Moments:
    """The moments of one step, before any reduction; fills in those of the module runs. `peak` is
    the moment of the peak; `time_ns`, `event`, `bands` and `compiled` are as in `Timeline`."""

    def __init__(self, classifier: Classifier, runs: Sequence[ModuleRun]) -> None:
        trace = classifier.window.trace
        events, peak = len(trace), peak_event(trace) + 1
        first, last = _first_and_last(trace)
        measured = np.concatenate([[0], (trace.time_ps - first) // _PS_PER_NS])
        self.duration_ns = (last - first) // _PS_PER_NS
        placed = [place_positions(run, np.append(measured, self.duration_ns), peak) for run in runs]
        parts = [(np.arange(events + 1), measured, np.full(events + 1, -2)), *placed]
        follows, times, side = (np.concatenate(column) for column in zip(*parts, strict=True))
        # Each event's moment comes before the positions that follow the event.
        order = np.lexsort((np.arange(len(times)), times, side, follows))
        where = np.empty(len(order), np.int64)
        where[order] = np.arange(len(order))
        self.count = len(order)
        self._measured = np.append(where[: events + 1], self.count)
        self.time_ns = np.maximum.accumulate(times[order].astype(np.int64))
        self.event = follows[order].astype(np.int64)
        at = events + 1
        for run in runs:
            run.moments = where[at : at + len(run.positions.positions)]
            at += len(run.positions.positions)
        at_peak = [run for run in runs if run.begin + 1 <= peak <= run.end]
        self.peak = max(
            [int(self._measured[peak]), *(int(run.moments[run.positions.peak]) for run in at_peak)]
        )
        self.compiled = [
            CompiledSpan(int(run.moments[0]), int(run.moments[-1]) + 1)
            for run in runs
            if len(run.moments)
        ]
        self.bands = self._bands(classifier, runs)

    def moment(self, measured: int) -> int:
        return int(self._measured[measured])

    def must_keep(self) -> list[int]:
        edges = [edge for band in self.bands for edge in (band.start, band.end)]
        edges += [edge for span in self.compiled for edge in (span.start, span.end)]
        return [0, self.count - 1, self.peak, *(edge for edge in edges if edge < self.count)]

    def _bands(self, classifier: Classifier, runs: Sequence[ModuleRun]) -> tuple[Band, ...]:
        marks: list[Marks] = []
        for begin, *ends in classifier.marks():
            moments = (None if end is None else self.moment(end) for end in ends)
            marks.append(Marks(self.moment(begin) if marks else 0, *moments))
        marks += [mark for mark in map(run_marks, runs) if mark is not None]
        return bands(sorted(marks, key=lambda mark: mark.begin), self.count)


def _first_and_last(trace: AllocationTrace) -> tuple[int, int]:
    """Times in picoseconds of the first and the last thing that the trace saw."""
    if not len(trace):
        return 0, 0
    spans = [part for part in (trace.ops, trace.layers) if len(part)]
    first = min([int(trace.time_ps[0]), *(int(part.start_ps.min()) for part in spans)])
    return first, max([int(trace.time_ps[-1]), *(int(part.end_ps.max()) for part in spans)])


MAX_EVENTS = 500_000
"""Most events of a step with a timeline: more would take many seconds."""
_SAME = ("step", "phase", "device", "wall_time", "mode", "in_use_bytes")
_Stretch = TypeVar("_Stretch", Band, CompiledSpan)


def timeline(classifier: Classifier, shapes: Shapes, snapshot: Snapshot) -> Timeline | None:
    """The timeline of a step with this snapshot; None if the trace contradicts itself or is too
    long."""
    trace, facts, chunks = classifier.window.trace, classifier.window.facts, classifier.chunks
    unknown = trace.start_in_use - int(chunks.allocated[chunks.birth == -1].sum())
    if trace.missed or chunks.unmatched_frees or unknown < 0 or len(trace) > MAX_EVENTS:
        return None
    runs = module_runs(classifier)
    moments = Moments(classifier, runs)
    builder = RowBuilder()
    builder.add(Row(0, moments.count, Owner(None, "unattributed", None), unknown, MISSING), count=0)
    run_of = {chunk: run for run in runs for chunk in run.allocations}
    for chunk in range(len(chunks)):
        birth, death = int(chunks.birth[chunk]), int(chunks.death[chunk])
        if chunk in run_of:
            start, end = moments.moment(birth + 1), moments.moment(death + 1)
            rows_of_chunk = module_rows(classifier, chunk, run_of[chunk], start, end)
        else:
            rows_of_chunk = _chunk_rows(classifier, chunk, moments, shapes.of(chunk))
        for row in rows_of_chunk:
            builder.add(row)
    rows, time_ns, event, kept, merged = reduced(
        builder.rows(), moments.time_ns, moments.event, moments.must_keep()
    )
    return Timeline(
        **{name: getattr(snapshot, name) for name in _SAME},
        peak=int(np.searchsorted(kept, moments.peak)),
        events=len(trace),
        duration_ns=max(moments.duration_ns, int(time_ns[-1])),
        time_ns=time_ns,
        event=event,
        **vars(rows),
        owners=tuple(ChunkOwner(*owner) for owner in builder.owners),
        ops=tuple(one for one in builder.ops if one is not None),
        shapes=tuple(one for one in builder.shapes if one is not None),
        lines=tuple(one for one in builder.lines if one is not None),
        bands=tuple(_kept(moments.bands, kept)),
        compiled=tuple(_kept(moments.compiled, kept)),
        not_available=(*facts.notes, *merged, *_notes(moments)),
    )


def _chunk_rows(
    classifier: Classifier, chunk: int, moments: Moments, shape: TensorShape | None
) -> Iterator[Row]:
    address, op, line = (
        classifier.window.address[chunk],
        classifier.window.op_name(chunk),
        classifier.line(chunk),
    )
    for begin, end, owners in classifier.owner_spans(chunk):
        start, stop = moments.moment(begin + 1), moments.moment(end + 1)
        for owner, size, requested in owners:
            rounding = size - requested if requested >= 0 else MISSING
            yield Row(start, stop, owner, size, rounding, op, address, shape, line)


def _notes(moments: Moments) -> Iterator[str]:
    if moments.compiled:
        yield (
            "Times inside compiled modules are unknown: XLA allocates all buffers at once, so "
            "their order is the compiler's plan, spread evenly over the module's run."
        )
    if not moments.bands:
        yield (
            "The ends of the forward and backward pass are unknown: the trace shows no layer's "
            f"ops in both, or more than {MAX_STEPS} steps."
        )


def _kept(stretches: Iterable[_Stretch], moments: Integers) -> Iterator[_Stretch]:
    """The stretches that contain kept moments, in terms of these."""
    for one in stretches:
        start, end = np.searchsorted(moments, (one.start, one.end)).tolist()
        if start < end:
            yield dataclasses.replace(one, start=start, end=end)
