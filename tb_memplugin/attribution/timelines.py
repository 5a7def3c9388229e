"""The timeline: what is live inside a traced step, from event to event, with owners.

The rows follow the rules of the ledger: at the peak, their sums by owner are the snapshot's ledger.
Its moments are the start, one after each event, and between these the positions of compiled
modules. Rows are kept few: moments are dropped and small allocations merged by owner; kept moments
stay exact."""

import array
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

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
from tb_memplugin.attribution.window import layerless
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
    column_names,
    extreme_rows,
    format_bytes,
    live_sums,
    rows_of,
)

MAX_ALLOCATIONS = 20_000
"""Most rows of a timeline; in a larger step, only the largest allocations keep rows of their own,
and the others share rows by layer and category."""
MAX_MOMENTS = 40_000
"""About the most moments of a timeline; each allocation begins at one and ends at another."""


Table: TypeAlias = npt.NDArray[Any]
"""Rows with the columns of `Timeline`'s allocations."""
_Known = TypeVar("_Known", str, TensorShape)
_COLUMNS = [(name, np.int64) for name in column_names(Timeline, "allocations")]


def reduced(
    rows: Table, time_ns: Integers, event: Integers, always: Sequence[int]
) -> tuple[Table, Integers, Integers, Integers, list[str]]:
    """(rows, times, events, kept moments, sentences on the reduction), of rows in terms of the
    moments of `time_ns` and `event`; moments of `always` are kept."""
    moments = len(time_ns)
    if len(rows) <= MAX_ALLOCATIONS and moments <= MAX_MOMENTS:
        return _sorted(rows), time_ns, event, np.arange(moments), []
    largest = np.argsort(-rows["bytes"], kind="stable")
    own, small = map(np.sort, np.split(largest, [MAX_ALLOCATIONS // 2]))
    in_use = live_sums(rows["start"], rows["end"], rows["bytes"], moments)
    placed, limit = rows.copy(), MAX_MOMENTS
    while True:
        kept = extreme_rows([in_use], limit, always=sorted(set(always))).astype(np.int64)
        for edge in ("start", "end"):
            placed[edge] = np.searchsorted(kept, rows[edge])
        # Rows that are live at none of the kept moments begin where they end.
        alive = placed["start"] < placed["end"]
        merged = _merged(placed[small[alive[small]]])
        if len(own) + len(merged) <= MAX_ALLOCATIONS or limit <= 16:
            break
        limit //= 2
    both = _sorted(np.concatenate([placed[own[alive[own]]], merged]))
    return both, time_ns[kept], event[kept], kept, _sentences(rows, small, moments, len(kept))


def _sentences(rows: Table, small: Integers, moments: int, kept: int) -> list[str]:
    sentences = []
    if len(small):
        largest = format_bytes(int(rows["bytes"][small].max()))
        sentences.append(
            f"Of the step's {len(rows)} allocations, the {len(small)} smallest "
            f"(up to {largest}) are merged by layer and category."
        )
    if kept < moments:
        sentences.append(
            f"Of the step's {moments} moments, {kept} are kept: the highest and lowest of their "
            "neighbors."
        )
    return sentences


def _sorted(rows: Table) -> Table:
    return rows[np.lexsort((rows["end"], rows["start"]))]


def _merged(rows: Table) -> Table:
    """One row for each owner and stretch of moments over which the owner's bytes stay the same.
    Allocations of unknown rounding have rows of their own. A stretch with one allocation keeps what
    is known of it."""
    parts: list[tuple[int, ...]] = []
    unknown = rows["rounding_bytes"] == MISSING
    for owner, hidden in sorted(set(rows_of(rows["owner"], unknown))):
        own = rows[(rows["owner"] == owner) & (unknown == hidden)]
        edges = np.unique(np.concatenate([own["start"], own["end"]]))
        first, last = np.searchsorted(edges, own["start"]), np.searchsorted(edges, own["end"])
        rounding_bytes = np.zeros_like(own["bytes"]) if hidden else own["rounding_bytes"]
        known = [own[name] for name in ("op", "address", "shape", "line")]
        columns = (np.ones_like(own["bytes"]), own["bytes"], rounding_bytes, own["count"], *known)
        levels = [live_sums(first, last, column, len(edges) - 1) for column in columns]
        stretches = rows_of(edges[:-1], edges[1:], *levels)
        for start, end, alive, size, rounding, count, *facts in stretches:
            if size:
                only = facts if alive == 1 else [-1] * len(facts)
                parts.append(
                    (start, end, size, MISSING if hidden else rounding, count, owner, *only)
                )
    return np.array(parts, _COLUMNS)


class RowBuilder:
    """Collects rows; `owners`, `ops`, `shapes` and `lines` have the number of each."""

    def __init__(self) -> None:
        self.owners: dict[ChunkOwner, int] = {}
        self.ops: dict[str, int] = {}
        self.shapes: dict[TensorShape, int] = {}
        self.lines: dict[str, int] = {}
        # an object for each row would let Python's garbage collector run earlier
        self._values = array.array("q")

    def add(self, row: Row, *, count: int = 1) -> None:
        if row.bytes <= 0 or row.start >= row.end:
            return
        owner = self.owners.setdefault(row.owner, len(self.owners))
        address = -1 if row.address is None else row.address
        op, shape = _number(self.ops, row.op), _number(self.shapes, row.shape)
        place = (op, address, shape, _number(self.lines, row.line))
        self._values.extend((row.start, row.end, row.bytes, row.rounding_bytes, count, owner))
        self._values.extend(place)

    def rows(self) -> Table:
        return np.array(self._values, np.int64).view(_COLUMNS)


def _number(numbers: dict[_Known, int], value: _Known | None) -> int:
    return -1 if value is None else numbers.setdefault(value, len(numbers))


_PS_PER_NS = 1000


class Moments:
    """The moments of one step, before any reduction; fills in those of the module runs. `peak` is
    the moment of the peak; `time_ns`, `event`, `bands` and `compiled` are as in `Timeline`."""

    def __init__(
        self, trace: AllocationTrace, runs: Sequence[ModuleRun], marks: Iterable[Marks]
    ) -> None:
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
            at += len(run.moments)
        at_peak = [run for run in runs if run.begin + 1 <= peak <= run.end]
        inside = [int(run.moments[run.positions.peak]) for run in at_peak]
        self.peak = max([self.moment(peak), *inside])
        self.compiled = [
            CompiledSpan(int(run.moments[0]), int(run.moments[-1]) + 1) for run in runs
        ]
        self.bands = self._bands(runs, marks)

    def moment(self, measured: int) -> int:
        return int(self._measured[measured])

    def must_keep(self) -> list[int]:
        edges = [edge for band in self.bands for edge in (band.start, band.end)]
        edges += [edge for span in self.compiled for edge in (span.start, span.end)]
        return [0, self.count - 1, self.peak, *(edge for edge in edges if edge < self.count)]

    def _bands(self, runs: Sequence[ModuleRun], marks: Iterable[Marks]) -> tuple[Band, ...]:
        placed: list[Marks] = []
        for begin, *ends in marks:
            moments = (None if end is None else self.moment(end) for end in ends)
            placed.append(Marks(self.moment(begin) if placed else 0, *moments))
        placed += filter(None, map(run_marks, runs))
        return bands(sorted(placed, key=lambda mark: mark.begin), self.count)


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


def timeline(
    classifier: Classifier, shapes: Shapes, marks: Iterable[Marks], snapshot: Snapshot
) -> Timeline | None:
    """The timeline of a step with this snapshot and these passes; None if the trace contradicts
    itself or is too long."""
    window, chunks = classifier.window, classifier.chunks
    trace = window.trace
    unknown = trace.start_in_use - int(chunks.allocated[chunks.birth == -1].sum())
    if trace.missed or chunks.unmatched_frees or unknown < 0 or len(trace) > MAX_EVENTS:
        return None
    runs = module_runs(classifier)
    moments = Moments(trace, runs, marks)
    builder = RowBuilder()
    builder.add(Row(0, moments.count, layerless("unattributed"), unknown, MISSING), count=0)
    run_of = {chunk: run for run in runs for chunk in run.allocations}
    for chunk in range(len(chunks)):
        if chunk in run_of:
            start, end = (moments.moment(one[chunk] + 1) for one in (window.birth, window.death))
            rows_of_chunk = module_rows(window, chunk, run_of[chunk], start, end)
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
        **{name: rows[name].copy() for name, _ in _COLUMNS},
        owners=tuple(builder.owners),
        ops=tuple(builder.ops),
        shapes=tuple(builder.shapes),
        lines=tuple(builder.lines),
        bands=tuple(_kept(moments.bands, kept)),
        compiled=tuple(_kept(moments.compiled, kept)),
        not_available=(*window.facts.notes, *merged, *_notes(moments)),
    )


def _chunk_rows(
    classifier: Classifier, chunk: int, moments: Moments, shape: TensorShape | None
) -> Iterator[Row]:
    window = classifier.window
    known = (window.op_name(chunk), window.address[chunk], shape, classifier.line(chunk))
    for begin, end, parts in classifier.spans(chunk):
        start, stop = moments.moment(begin + 1), moments.moment(end + 1)
        for owner, size, requested in parts:
            rounding = size - requested if requested >= 0 else MISSING
            yield Row(start, stop, owner, size, rounding, *known)


def _notes(moments: Moments) -> Iterator[str]:
    if moments.compiled:
        yield (
            "Times inside compiled modules are unknown: XLA allocates all buffers at once, so "
            "their order is the compiler's plan, spread evenly over the module's run."
        )
    if not moments.bands:
        yield (
            "The ends of the forward and backward pass are unknown: the trace shows no layer's ops "
            f"in both, or more than {MAX_STEPS} steps."
        )


def _kept(stretches: Iterable[_Stretch], moments: Integers) -> Iterator[_Stretch]:
    """The stretches that contain kept moments, in terms of these."""
    for one in stretches:
        start, end = np.searchsorted(moments, (one.start, one.end)).tolist()
        if start < end:
            yield dataclasses.replace(one, start=start, end=end)
