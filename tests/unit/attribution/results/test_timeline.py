"""Timelines of hand-made steps, of steps recorded on a GPU, and of steps that must be reduced."""

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest
from gpu_cases import NAMES, XLA, recorded, replayed
from hypothesis import given, settings
from hypothesis import strategies as st
from timeline_cases import category_totals
from trace_cases import ACTIONS, FACTS, Recorder, any_step, graph, ledger_of, one_step

from tb_memplugin.attribution.owners.classifier import Classifier
from tb_memplugin.attribution.results import passes, timeline_rows
from tb_memplugin.attribution.results.passes import Marks, bands
from tb_memplugin.attribution.results.timeline import timeline
from tb_memplugin.schema import MISSING, LedgerRow, Snapshot, Timeline
from tb_memplugin.schema.rounding import split_rounding
from tb_memplugin.schema.trace import AllocationTrace, Intervals, OpFact, TraceFacts, VariableFact
from tb_memplugin.storage.frames import codec
from tb_memplugin.storage.frames.record_frames import frame_of

UPDATE = OpFact("m/a", "update")
STEP_FACTS = dataclasses.replace(
    FACTS, graphs=graph(a=FACTS.graphs[0].ops["a"], b=FACTS.graphs[0].ops["b"], da=FACTS.graphs[0].ops["da"], up=UPDATE)
)


class IntervalModel:
    """The chunks in use at the start and after each event, added up from the raw events one at a time.

    `new` is the part that the step allocated, by the name of the requesting op, `rounding` allocated minus requested
    bytes of these.
    """

    def __init__(self, trace: AllocationTrace) -> None:
        live: dict[int, tuple[int, int, str | None]] = {}
        in_use, new, rounding = trace.start_in_use, collections.Counter[str | None](), 0
        self.in_use, self.new, self.rounding = [in_use], [dict(new)], [rounding]
        columns = (trace.kind, trace.address, trace.allocated, trace.requested, trace.op)
        for kind, address, size, requested, op in zip(*(column.tolist() for column in columns), strict=True):
            if kind == 1:
                assert address not in live
                live[address] = (size, requested, trace.text(op))
                in_use, rounding = in_use + size, rounding + size - requested
                new[trace.text(op)] += size
            else:
                in_use -= size
                if address in live:  # not an older chunk
                    allocated, first_request, op_name = live.pop(address)
                    assert allocated == size
                    rounding -= size - first_request
                    new[op_name] -= size
            self.in_use.append(in_use)
            self.new.append({name: amount for name, amount in new.items() if amount})
            self.rounding.append(rounding)


def worked(trace: AllocationTrace, facts: TraceFacts) -> tuple[Timeline, Snapshot]:
    classifier = Classifier(trace, facts)
    snapshot = ledger_of(trace, facts, classifier=classifier)
    taken = timeline(classifier, snapshot)
    return taken, snapshot


def live_at(timeline: Timeline, moment: int) -> dict[tuple[str | None, str, bool | None], int]:
    """Bytes by layer, category and trainable, rounding as a category of its own."""
    rows = []
    for row in np.flatnonzero((timeline.start <= moment) & (timeline.end > moment)).tolist():
        owner, rounding = timeline.owners[int(timeline.owner[row])], int(timeline.rounding_bytes[row])
        known = None if rounding == MISSING else rounding
        rows.append(LedgerRow(owner.layer, owner.category, owner.trainable, int(timeline.bytes[row]), known))
    return by_owner(split_rounding(rows))


def by_owner(ledger: tuple[LedgerRow, ...]) -> dict[tuple[str | None, str, bool | None], int]:
    return {(row.layer, row.category, row.trainable): row.bytes for row in ledger}


UNKNOWN = (None, "unattributed", None)
SAVED_A, GRADIENT_A = ("m/a", "activations", True), ("m/a", "activation_gradients", True)
WEIGHT_A = ("m/a", "weight_gradients", True)
COLUMNS = ("start", "end", "bytes", "rounding_bytes", "op")


def totals(timeline: Timeline) -> Any:
    return sum(category_totals(timeline).values())


def check(timeline: Timeline, snapshot: Snapshot, trace: AllocationTrace) -> None:
    """The timeline is the interval model of the raw events, and its peak is the snapshot's ledger."""
    model = IntervalModel(trace)
    assert totals(timeline).tolist() == [model.in_use[event] for event in timeline.event.tolist()]
    assert int(timeline.event[timeline.peak]) == model.in_use.index(max(model.in_use))
    assert timeline.in_use_bytes == snapshot.in_use_bytes == max(model.in_use)
    if timeline.events + 1 == len(timeline.event) and int(timeline.count.max()) == 1:  # neither compiled nor merged
        check_new_chunks(timeline, model)
    assert live_at(timeline, timeline.peak) == by_owner(snapshot.ledger)
    assert (np.diff(timeline.time_ns) >= 0).all() and (np.diff(timeline.event) >= 0).all()
    assert all(one.end <= other.start for one, other in zip(timeline.bands, timeline.bands[1:], strict=False))
    assert len(codec.encode(frame_of("timelines", timeline, 0))) < 1 << 20


def check_new_chunks(timeline: Timeline, model: IntervalModel) -> None:
    """At every moment, the chunks that the step allocated have the model's bytes by op, and its rounding."""
    rows = list(zip(*(getattr(timeline, name).tolist() for name in COLUMNS), strict=True))
    for moment in range(0, len(timeline.event), max(1, len(timeline.event) // 50)):
        new: dict[str | None, int] = collections.Counter()
        rounding = 0
        for start, end, size, row_rounding, op in rows:
            if 0 < start <= moment < end:
                new[timeline.ops[op] if op >= 0 else None] += size
                rounding += row_rounding
        assert (new, rounding) == (model.new[moment], model.rounding[moment])


def test_every_moment_has_the_allocators_bytes() -> None:
    trace = one_step(start=4096).trace()
    taken, snapshot = worked(trace, FACTS)
    check(taken, snapshot, trace)
    assert totals(taken).tolist() == [4096, 8192, 16384, 8192, 24576, 25600, 21504, 5120, 4096]
    assert [live_at(taken, moment) for moment in (0, 2, 5, 8)] == [
        {UNKNOWN: 4096},
        {UNKNOWN: 4096, SAVED_A: 4096, ("m/b", "workspace", False): 8192},
        {UNKNOWN: 4096, SAVED_A: 4096, GRADIENT_A: 16384, WEIGHT_A: 1000, ("m/a", "rounding", True): 24},
        {UNKNOWN: 4096},
    ]
    assert taken.event.tolist() == list(range(len(trace) + 1)) and taken.events == len(trace)
    assert [taken.ops[op] for op in taken.op.tolist() if op >= 0] == ["a", "b", "da", "dw"]
    first = next(row for row in range(len(taken)) if taken.op[row] == taken.ops.index("a"))
    assert (int(taken.start[first]), int(taken.end[first])) == (1, 6)
    assert int(taken.rounding_bytes[first]) == 0
    dw = next(row for row in range(len(taken)) if taken.op[row] == taken.ops.index("dw"))
    assert int(taken.rounding_bytes[dw]) == 24


def test_the_bands_are_the_passes() -> None:
    step = one_step()
    step.run("up", [(0x70000, 256)], [(0x70000, 256)])
    taken, _ = worked(step.trace(), STEP_FACTS)
    bands = [(band.name, band.start, band.end) for band in taken.bands]
    assert bands == [("forward", 0, 3), ("backward", 3, 9), ("update", 9, 10)]


def test_each_of_two_steps_in_one_window_has_bands_but_very_many_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Recorder()
    for _ in range(2):
        step.run("a", [(0x1000, 4096)])
        step.run("da", [(0x20000, 16384)], [(0x1000, 4096), (0x20000, 16384)])
        step.run("up", [(0x70000, 256)], [(0x70000, 256)])
    trace = step.trace()
    taken, _ = worked(trace, STEP_FACTS)
    assert [band.name for band in taken.bands] == ["forward", "backward", "update"] * 2
    monkeypatch.setattr(passes, "MAX_STEPS", 1)
    taken, snapshot = worked(trace, STEP_FACTS)
    check(taken, snapshot, trace)
    assert taken.bands == () and "more than" in taken.not_available[-1]


def test_recomputation_does_not_begin_another_step() -> None:
    again = OpFact("m/a", "forward")
    facts = dataclasses.replace(STEP_FACTS, graphs=graph(**dict(STEP_FACTS.graphs[0].ops), rematerialized=again))
    step = Recorder()
    step.run("a", [(0x1000, 4096)])
    step.run("da", [(0x20000, 16384)])
    step.run("rematerialized", [(0x90000, 4096)])
    step.run("da", [(0xA0000, 16384)])
    taken, _ = worked(step.trace(), facts)
    assert [band.name for band in taken.bands] == ["forward", "backward"]


def test_updates_within_the_backward_pass_have_a_band() -> None:
    marks = [Marks(0, 5, 20, 8, 25), Marks(30, 40, 50, None, None), Marks(60)]
    assert [(band.name, band.start, band.end) for band in bands(marks, 70)] == [
        ("forward", 0, 5),
        ("backward", 5, 8),
        ("backward_and_update", 8, 20),
        ("update", 20, 25),
        ("forward", 30, 40),
        ("backward", 40, 50),
        ("forward", 60, 70),
    ]


def test_variable_owns_its_new_chunk_once_the_old_one_is_freed() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 2048, "GPU:0", 0x100, 0x8000)
    update = OpFact("m/a", "update", assigns="w")
    facts = TraceFacts(trainable=FACTS.trainable, graphs=graph(assign=update), variables=(variable,))
    step = Recorder(2048)
    step.run("assign", [(0x8000, 2048)], [(0x100, 2048)], region="temp")
    trace = step.trace()
    taken, snapshot = worked(trace, facts)
    check(taken, snapshot, trace)
    assert live_at(taken, 1) == {("m/a", "weights", True): 2048, ("m/a", "workspace", True): 2048}
    assert live_at(taken, 2) == {("m/a", "weights", True): 2048}


def test_a_trace_that_misses_events_has_no_timeline() -> None:
    trace = one_step().trace(missed=1)
    classifier = Classifier(trace, FACTS)
    assert timeline(classifier, ledger_of(trace, FACTS, classifier=classifier)) is None


def test_without_facts_the_timeline_still_closes_and_has_a_note() -> None:
    trace = one_step().trace()
    taken, snapshot = worked(trace, TraceFacts())
    check(taken, snapshot, trace)
    assert taken.bands == () and any("backward pass are unknown" in text for text in taken.not_available)


def test_eager_spans_are_the_bands() -> None:
    step = one_step()
    trace = step.trace()
    spans = np.asarray([(0, 1, 3, 0), (0, 8, 12, 1), (0, 13, 20, 2)], np.int64).T
    named = dataclasses.replace(
        trace,
        strings=(*trace.strings, "m/a", "(backward)", "(update)"),
        layers=Intervals(spans[0], spans[1], spans[2], spans[3] + len(trace.strings)),
    )
    taken, snapshot = worked(named, dataclasses.replace(FACTS, mode="eager"))
    check(taken, snapshot, trace)
    assert [band.name for band in taken.bands] == ["forward", "backward", "update"]


@pytest.mark.parametrize("name", NAMES)
def test_timeline_of_a_recorded_step(name: str) -> None:
    trace, facts = recorded(name)
    classifier = Classifier(trace, facts)
    taken = timeline(classifier, replayed(name))
    check(taken, replayed(name), trace)
    assert [band.name for band in taken.bands] == ["forward", "backward", "backward_and_update", "update"]
    # A compiled module's positions lie between the moments of events, which have the allocator's figures.
    last = np.append(np.flatnonzero(np.diff(taken.event)), len(taken.event) - 1)
    assert totals(taken)[last].tolist() == [trace.start_in_use, *trace.in_use.tolist()]
    held = sum(row.bytes for row in replayed(name).saved_for_backward)
    if name not in XLA:
        requested, saved = classifier.chunks.requested, classifier.saved
        end = max(classifier.execution.forward_ends, key=lambda end: requested[saved.at(end)].sum())
        assert requested[saved.at(end)].sum() == held
        assert taken.bands[0].end == int(np.searchsorted(trace.time_ps, end, "right")) + 1


@pytest.mark.parametrize("name", XLA)
def test_inside_of_a_compiled_step_is_the_buffer_assignment(name: str) -> None:
    trace, facts = recorded(name)
    classifier = Classifier(trace, facts)
    taken = timeline(classifier, replayed(name))
    (span,) = taken.compiled
    assert span.start <= taken.peak < span.end and span.end - span.start > 50
    assert any("is the compiler's plan" in sentence for sentence in taken.not_available)
    # THEN it is spread over the lifetime of its chunks
    times = taken.time_ns[span.start : span.end]
    assert int(times[-1] - times[0]) > 1_000_000 and (np.diff(times) > 0).mean() > 0.9
    # AND activations grow until the end of the forward pass and are freed at the step's end
    activations = category_totals(taken)["activations"]
    end = taken.bands[0].end
    held = sum(row.bytes for row in replayed(name).saved_for_backward)
    assert int(activations[end - 1]) >= 0.9 * held and int(activations[-1]) == 0


@pytest.mark.parametrize(("allocations", "moments"), [(300, 8000), (6000, 90), (60, 60)])
def test_reduced_timeline_is_exact_at_the_kept_moments(monkeypatch, allocations, moments) -> None:
    name = "VGG16_graph_trainable"
    trace, facts = recorded(name)
    classifier = Classifier(trace, facts)
    whole = timeline(classifier, replayed(name))
    monkeypatch.setattr(timeline_rows, "MAX_ALLOCATIONS", allocations)
    monkeypatch.setattr(timeline_rows, "MAX_MOMENTS", moments)
    taken = timeline(classifier, replayed(name))
    check(taken, replayed(name), trace)
    assert int(totals(taken).min()) == int(totals(whole).min())
    for moment, event in enumerate(taken.event.tolist()):
        assert live_at(taken, moment) == live_at(whole, event)
    assert [band.name for band in taken.bands] == [band.name for band in whole.bands]
    assert len(taken.not_available) > len(whole.not_available)
    if allocations < len(whole):
        assert int(taken.count.max()) > 1 and "are merged by layer and category" in " ".join(taken.not_available)


@settings(max_examples=80, deadline=None)
@given(ACTIONS, st.integers(0, 10**6), st.booleans())
def test_any_step_sums_to_the_allocators_figures(actions: list[tuple[int, int]], start: int, tiny: bool) -> None:
    trace = any_step(actions, start).trace()
    with pytest.MonkeyPatch.context() as patch:
        if tiny:
            patch.setattr(timeline_rows, "MAX_ALLOCATIONS", 12)
            patch.setattr(timeline_rows, "MAX_MOMENTS", 16)
        taken, snapshot = worked(trace, FACTS)
    check(taken, snapshot, trace)
    measured = [start, *trace.in_use.tolist()]
    assert totals(taken).tolist() == [measured[event] for event in taken.event.tolist()]
