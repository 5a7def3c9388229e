"""The timeline: what is live inside a traced step, from event to event, with owners. Pure.

The rows follow the rules of the ledger: at the peak, their sums by owner are the snapshot's ledger. Its moments are the
start, one after each event, and between these the positions of compiled modules.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.attribution.results.compiled_runs import (
    ModuleRun,
    module_rows,
    module_runs,
    place_positions,
    run_marks,
)
from tb_memplugin.attribution.results.ledger import peak_event
from tb_memplugin.attribution.results.passes import MAX_STEPS, Marks, bands, measured_marks
from tb_memplugin.attribution.results.tensors import TensorShapes
from tb_memplugin.attribution.results.timeline_rows import Row, RowBuilder, reduced
from tb_memplugin.attribution.trace import Owner
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
)

_PS_PER_NS = 1000


class Moments:
    """The moments of one step; fills in those of the module runs.

    Attributes:
        count: Number of moments.
        time_ns, event, bands, compiled: As in `Timeline`, before any reduction.
        peak: The moment of the peak.
        duration_ns: From the first to the last thing that the trace saw.
    """

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
        self.peak = max([int(self._measured[peak]), *(int(run.moments[run.positions.peak]) for run in at_peak)])
        self.compiled = [
            CompiledSpan(int(run.moments[0]), int(run.moments[-1]) + 1) for run in runs if len(run.moments)
        ]
        self.bands = self._bands(classifier, runs)

    def moment(self, measured: int) -> int:
        """The moment after a number of events; `count` for numbers beyond the last event."""
        return int(self._measured[measured])

    def must_keep(self) -> list[int]:
        edges = [edge for band in self.bands for edge in (band.start, band.end)]
        edges += [edge for span in self.compiled for edge in (span.start, span.end)]
        return [0, self.count - 1, self.peak, *(edge for edge in edges if edge < self.count)]

    def _bands(self, classifier: Classifier, runs: Sequence[ModuleRun]) -> tuple[Band, ...]:
        marks: list[Marks] = []
        for mark in measured_marks(classifier):
            ends = (mark.forward_end, mark.backward_end, mark.update_begin, mark.update_end)
            begin = self.moment(mark.begin) if marks else 0
            marks.append(Marks(begin, *(None if end is None else self.moment(end) for end in ends)))
        marks += [mark for mark in map(run_marks, runs) if mark is not None]
        return bands(sorted(marks, key=lambda mark: mark.begin), self.count)


def _first_and_last(trace: AllocationTrace) -> tuple[int, int]:
    """Times in picoseconds of the first and the last thing that the trace saw; zeros without events."""
    if not len(trace):
        return 0, 0
    spans = [part for part in (trace.ops, trace.layers) if len(part)]
    first = min([int(trace.time_ps[0]), *(int(part.start_ps.min()) for part in spans)])
    return first, max([int(trace.time_ps[-1]), *(int(part.end_ps.max()) for part in spans)])


MAX_EVENTS = 500_000
"""Most events of a step with a timeline: more would take many seconds."""
NO_OWNER = Owner(None, "unattributed", None)
_Stretch = TypeVar("_Stretch", Band, CompiledSpan)


def timeline(classifier: Classifier, snapshot: Snapshot) -> Timeline | None:
    """The timeline of a step; None if the trace contradicts itself or is too long.

    The snapshot was made by `attribute` with the same classifier.
    """
    trace, facts, chunks = classifier.window.trace, classifier.window.facts, classifier.chunks
    unknown = trace.start_in_use - int(chunks.allocated[chunks.birth == -1].sum())
    if trace.missed or chunks.unmatched_frees or unknown < 0 or len(trace) > MAX_EVENTS:
        return None
    assert snapshot.mode is not None  # of a traced step
    runs = module_runs(classifier)
    moments = Moments(classifier, runs)
    builder = RowBuilder()
    builder.add(Row(0, moments.count, NO_OWNER, unknown, MISSING), count=0)
    shapes = TensorShapes(classifier)
    run_of = {chunk: run for run in runs for chunk in run.allocations}
    for chunk in range(len(chunks)):
        birth, death = int(chunks.birth[chunk]), int(chunks.death[chunk])
        op = trace.text(int(trace.op[birth])) if birth >= 0 else None
        if chunk in run_of:
            start, end = moments.moment(birth + 1), moments.moment(death + 1)
            builder.extend(module_rows(classifier, chunk, run_of[chunk], start, end), op)
        else:
            builder.extend(_chunk_rows(classifier, chunk, moments, shapes.of(chunk)), op)
    rows, time_ns, event, kept, merged = reduced(builder.rows(), moments.time_ns, moments.event, moments.must_keep())
    return Timeline(
        step=snapshot.step,
        phase=snapshot.phase,
        device=snapshot.device,
        wall_time=snapshot.wall_time,
        mode=snapshot.mode,
        in_use_bytes=snapshot.in_use_bytes,
        peak=int(np.searchsorted(kept, moments.peak)),
        events=len(trace),
        duration_ns=max(moments.duration_ns, int(time_ns[-1])),
        time_ns=time_ns,
        event=event,
        **vars(rows),
        owners=tuple(ChunkOwner(*owner) for owner in builder.owners),
        ops=tuple(builder.ops),
        shapes=tuple(builder.shapes),
        lines=tuple(builder.lines),
        bands=tuple(_kept(moments.bands, kept)),
        compiled=tuple(_kept(moments.compiled, kept)),
        not_available=(*facts.notes, *merged, *_notes(moments)),
    )


def _chunk_rows(classifier: Classifier, chunk: int, moments: Moments, shape: TensorShape | None) -> Iterator[Row]:
    address, line = int(classifier.chunks.address[chunk]), classifier.line(chunk)
    for begin, end, owners in classifier.owner_spans(chunk):
        start, stop = moments.moment(begin + 1), moments.moment(end + 1)
        for owner, size, requested in owners:
            rounding = size - requested if requested >= 0 else MISSING
            yield Row(start, stop, owner, size, rounding, None, address, shape, line)


def _notes(moments: Moments) -> Iterator[str]:
    if moments.compiled:
        yield (
            "Times inside compiled modules are unknown: XLA allocates all buffers at once, so their order is the "
            "compiler's plan, spread evenly over the module's run."
        )
    if not moments.bands:
        yield (
            "The ends of the forward and backward pass are unknown: the trace shows no layer's ops in both, or more "
            f"than {MAX_STEPS} steps."
        )


def _kept(stretches: Iterable[_Stretch], moments: Integers) -> Iterator[_Stretch]:
    """The stretches in terms of the moments that are kept, without those that contain none of them."""
    for one in stretches:
        start, end = np.searchsorted(moments, (one.start, one.end)).tolist()
        if start < end:
            yield dataclasses.replace(one, start=start, end=end)
