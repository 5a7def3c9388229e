"""The timeline: what is live inside a traced step, from event to event, with owners. Pure.

The rows follow the rules of the ledger: at the peak, their sums by owner are the snapshot's ledger.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

from tb_memplugin.attribution.classifier import Classifier
from tb_memplugin.attribution.compiled_runs import ModuleRun, module_rows, module_runs
from tb_memplugin.attribution.moments import Moments
from tb_memplugin.attribution.passes import MAX_STEPS
from tb_memplugin.attribution.tensor_shapes import TensorShapes
from tb_memplugin.attribution.timeline_reduce import reduced
from tb_memplugin.attribution.timeline_rows import Row, RowBuilder
from tb_memplugin.attribution.window import Owner
from tb_memplugin.model import MISSING, Band, ChunkOwner, CompiledSpan, Integers, Snapshot, TensorShape, Timeline
from tb_memplugin.model.trace import AllocationTrace, TraceFacts

MAX_EVENTS = 500_000
"""Most events of a step with a timeline: more would take many seconds."""
NO_OWNER = Owner(None, "unattributed", None)
_Stretch = TypeVar("_Stretch", Band, CompiledSpan)


def timeline(trace: AllocationTrace, facts: TraceFacts, classifier: Classifier, snapshot: Snapshot) -> Timeline | None:
    """The timeline of a step; None if the trace contradicts itself or is too long.

    Args:
        trace: The allocator's events.
        facts: The recorder's facts about the program.
        classifier: The classifier of the trace with these facts.
        snapshot: The step's snapshot, made by `attribute` with the same classifier.
    """
    chunks = classifier.chunks
    unknown = trace.start_in_use - int(chunks.allocated[chunks.birth == -1].sum())
    if trace.missed or chunks.unmatched_frees or unknown < 0 or len(trace) > MAX_EVENTS:
        return None
    assert snapshot.mode is not None  # of a traced step
    runs = module_runs(classifier)
    moments = Moments(trace, runs, classifier)
    builder = RowBuilder()
    builder.add(Row(0, moments.count, NO_OWNER, unknown, MISSING), count=0)
    _add_chunks(builder, trace, facts, classifier, moments, runs)
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
        start=rows.start,
        end=rows.end,
        bytes=rows.bytes,
        rounding_bytes=rows.rounding_bytes,
        count=rows.count,
        owner=rows.owner,
        op=rows.op,
        address=rows.address,
        shape=rows.shape,
        line=rows.line,
        owners=tuple(ChunkOwner(*owner) for owner in builder.owners),
        ops=tuple(builder.ops),
        shapes=tuple(builder.shapes),
        lines=tuple(builder.lines),
        bands=tuple(_kept(moments.bands, kept)),
        compiled=tuple(_kept(moments.compiled, kept)),
        not_available=(*facts.notes, *merged, *_notes(moments)),
    )


def _add_chunks(
    builder: RowBuilder,
    trace: AllocationTrace,
    facts: TraceFacts,
    classifier: Classifier,
    moments: Moments,
    runs: Iterable[ModuleRun],
) -> None:
    """Add the rows of the chunks; `moments` has been made with the runs."""
    chunks, shapes = classifier.chunks, TensorShapes(trace, facts, classifier)
    run_of = {chunk: run for run in runs for chunk in run.allocations}
    for chunk in range(len(chunks)):
        birth, death = int(chunks.birth[chunk]), int(chunks.death[chunk])
        op = trace.text(int(trace.op[birth])) if birth >= 0 else None
        if chunk in run_of:
            start, end = moments.moment(birth + 1), moments.moment(death + 1)
            builder.extend(module_rows(classifier, chunk, run_of[chunk], start, end), op)
        else:
            builder.extend(_chunk_rows(classifier, chunk, moments, shapes.of(chunk)), op)


def _chunk_rows(classifier: Classifier, chunk: int, moments: Moments, shape: TensorShape | None) -> Iterator[Row]:
    fact = classifier.op_fact(chunk)
    address, line = int(classifier.chunks.address[chunk]), None if fact is None else fact.line
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
