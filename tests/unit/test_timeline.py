"""What is live inside a step: small steps made by hand, steps recorded on a GPU, and steps too large to keep whole."""

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gpu_recordings import NAMES, XLA, recorded, replayed
from trace_cases import ACTIONS, FACTS, Recorder, any_step, graph, one_step

from tb_memplugin import codec
from tb_memplugin.analysis import passes, timeline_reduce
from tb_memplugin.analysis.attribution import attribute
from tb_memplugin.analysis.categories import Classifier
from tb_memplugin.analysis.lifetimes import chunks
from tb_memplugin.analysis.passes import Marks, bands
from tb_memplugin.analysis.timeline import category_totals, timeline
from tb_memplugin.model import LedgerRow, Snapshot, Timeline
from tb_memplugin.timeline_records import timeline_frame
from tb_memplugin.trace import AllocationTrace, Intervals, OpFact, TraceFacts, VariableFact

UPDATE = OpFact("m/a", "update")
STEP_FACTS = dataclasses.replace(
    FACTS, graphs=graph(a=FACTS.graphs[0].ops["a"], b=FACTS.graphs[0].ops["b"], da=FACTS.graphs[0].ops["da"], up=UPDATE)
)


def worked(trace: AllocationTrace, facts: TraceFacts) -> tuple[Timeline, Snapshot]:
    """The step's timeline and its snapshot, made of the same classifier."""
    classifier = Classifier(trace, facts, chunks(trace))
    snapshot = attribute(trace, facts, step=7, phase="train", wall_time=1.0, capacity_bytes=None, classifier=classifier)
    taken = timeline(trace, facts, classifier, snapshot)
    assert taken is not None
    return taken, snapshot


def live_at(taken: Timeline, moment: int) -> dict[tuple[str | None, str, bool | None], int]:
    """Bytes by layer, category and trainable."""
    sums: dict[tuple[str | None, str, bool | None], int] = collections.Counter()
    for row in np.flatnonzero((taken.start <= moment) & (taken.end > moment)).tolist():
        owner = taken.owners[int(taken.owner[row])]
        sums[owner.layer, owner.category, owner.trainable] += int(taken.bytes[row])
    return dict(sums)


def by_owner(ledger: tuple[LedgerRow, ...]) -> dict[tuple[str | None, str, bool | None], int]:
    return {(row.layer, row.category, row.trainable): row.bytes for row in ledger}


def totals(taken: Timeline) -> Any:
    return sum(category_totals(taken).values())


def check(taken: Timeline, snapshot: Snapshot) -> None:
    """What holds for every timeline."""
    assert live_at(taken, taken.peak) == by_owner(snapshot.ledger)
    assert int(totals(taken).max()) == int(totals(taken)[taken.peak]) == snapshot.in_use_bytes == taken.in_use_bytes
    assert (np.diff(taken.time_ns) >= 0).all() and (np.diff(taken.event) >= 0).all()
    assert all(one.end <= other.start for one, other in zip(taken.bands, taken.bands[1:], strict=False))
    assert len(codec.encode(timeline_frame(taken, 0))) < 1 << 20


def test_every_moment_is_what_the_allocator_said() -> None:
    trace = one_step(start=4096).trace()
    taken, snapshot = worked(trace, FACTS)
    check(taken, snapshot)
    assert totals(taken).tolist() == [4096, *trace.in_use.tolist()]
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
    assert [(band.name, band.start, band.end) for band in taken.bands] == [
        ("forward", 0, 3),
        ("backward", 3, 9),
        ("update", 9, 10),
    ]


def test_two_steps_in_one_window_have_bands_each() -> None:
    step = Recorder()
    for _ in range(2):
        step.run("a", [(0x1000, 4096)])
        step.run("da", [(0x20000, 16384)], [(0x1000, 4096), (0x20000, 16384)])
        step.run("up", [(0x70000, 256)], [(0x70000, 256)])
    taken, _ = worked(step.trace(), STEP_FACTS)
    assert [band.name for band in taken.bands] == ["forward", "backward", "update"] * 2


def test_of_very_many_steps_in_one_window_no_passes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MAX_STEPS", 1)
    step = Recorder()
    for _ in range(2):
        step.run("a", [(0x1000, 4096)])
        step.run("da", [(0x20000, 16384)], [(0x1000, 4096), (0x20000, 16384)])
    taken, snapshot = worked(step.trace(), STEP_FACTS)
    check(taken, snapshot)
    assert taken.bands == () and "more than" in taken.not_available[-1]


def test_what_is_computed_again_does_not_begin_another_step() -> None:
    again = OpFact("m/a", "forward")
    facts = dataclasses.replace(STEP_FACTS, graphs=graph(**dict(STEP_FACTS.graphs[0].ops), rematerialized=again))
    step = Recorder()
    step.run("a", [(0x1000, 4096)])
    step.run("da", [(0x20000, 16384)])
    step.run("rematerialized", [(0x90000, 4096)])
    step.run("da", [(0xA0000, 16384)])
    taken, _ = worked(step.trace(), facts)
    assert [band.name for band in taken.bands] == ["forward", "backward"]


def test_updates_within_the_backward_pass_are_told() -> None:
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


def test_a_new_value_of_a_variable_is_its_own_from_the_moment_the_old_one_is_gone() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 2048, "GPU:0", 0x100, 0x8000)
    update = OpFact("m/a", "update", assigns="w")
    facts = TraceFacts(trainable=FACTS.trainable, graphs=graph(assign=update), variables=(variable,))
    step = Recorder(2048)
    step.run("assign", [(0x8000, 2048)], [(0x100, 2048)], region="temp")
    taken, snapshot = worked(step.trace(), facts)
    check(taken, snapshot)
    assert live_at(taken, 1) == {("m/a", "weights", True): 2048, ("m/a", "workspace", True): 2048}
    assert live_at(taken, 2) == {("m/a", "weights", True): 2048}


def test_owners_that_do_not_fit_are_not_told_at_any_moment() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 10_000_000, "GPU:0", 0x100, 0x100)
    taken, snapshot = worked(one_step(start=4096).trace(), TraceFacts(variables=(variable,)))
    check(taken, snapshot)
    assert {owner.category for owner in taken.owners} == {"unattributed"}
    assert any("owners are not available" in sentence for sentence in taken.not_available)


def test_a_trace_that_misses_events_has_no_timeline() -> None:
    trace = one_step().trace(missed=1)
    classifier = Classifier(trace, FACTS, chunks(trace))
    snapshot = attribute(trace, FACTS, step=0, phase="train", wall_time=0.0, capacity_bytes=None, classifier=classifier)
    assert timeline(trace, FACTS, classifier, snapshot) is None


def test_without_any_facts_the_timeline_still_closes_and_says_what_it_lacks() -> None:
    taken, snapshot = worked(one_step().trace(), TraceFacts())
    check(taken, snapshot)
    assert taken.bands == () and any("backward pass are not available" in text for text in taken.not_available)


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
    check(taken, snapshot)
    assert [band.name for band in taken.bands] == ["forward", "backward", "update"]


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_step_is_its_ledger_at_the_peak(name: str) -> None:
    trace, facts = recorded(name)
    classifier = Classifier(trace, facts, chunks(trace))
    taken = timeline(trace, facts, classifier, replayed(name))
    assert taken is not None
    check(taken, replayed(name))
    assert [band.name for band in taken.bands] == ["forward", "backward", "backward_and_update", "update"]
    # A compiled module's positions lie between the allocator's events, at whose moments the allocator's figures hold.
    last = np.append(np.flatnonzero(np.diff(taken.event)), len(taken.event) - 1)
    assert totals(taken)[last].tolist() == [trace.start_in_use, *trace.in_use.tolist()]
    held = sum(row.bytes for row in replayed(name).held_for_backward)
    if name not in XLA:
        end = max(classifier.forward_ends().tolist(), key=classifier.held_bytes)
        assert classifier.held_bytes(end) == held
        assert taken.bands[0].end == int(np.searchsorted(trace.time_ps, end, "right")) + 1


@pytest.mark.parametrize("name", XLA)
def test_the_inside_of_a_compiled_step_is_the_plan(name: str) -> None:
    trace, facts = recorded(name)
    classifier = Classifier(trace, facts, chunks(trace))
    taken = timeline(trace, facts, classifier, replayed(name))
    assert taken is not None
    (span,) = taken.planned
    assert span.start <= taken.peak < span.end and span.end - span.start > 50
    assert any("is the compiler's plan" in sentence for sentence in taken.not_available)
    # THEN it is spread over the time for which its blocks are there
    times = taken.time_ns[span.start : span.end]
    assert int(times[-1] - times[0]) > 1_000_000 and (np.diff(times) > 0).mean() > 0.9
    # AND activations grow to the end of the forward pass, and are gone at the step's end
    activations = category_totals(taken)["activations"]
    end = taken.bands[0].end
    held = sum(row.bytes for row in replayed(name).held_for_backward)
    assert int(activations[end - 1]) >= 0.9 * held and int(activations[-1]) == 0


@pytest.mark.parametrize(("allocations", "moments"), [(300, 8000), (6000, 90), (60, 60)])
def test_a_larger_step_is_exact_at_the_moments_that_are_kept(
    monkeypatch: pytest.MonkeyPatch, allocations: int, moments: int
) -> None:
    name = "VGG16_graph_trainable"
    trace, facts = recorded(name)
    classifier = Classifier(trace, facts, chunks(trace))
    whole = timeline(trace, facts, classifier, replayed(name))
    monkeypatch.setattr(timeline_reduce, "MAX_ALLOCATIONS", allocations)
    monkeypatch.setattr(timeline_reduce, "MAX_MOMENTS", moments)
    taken = timeline(trace, facts, classifier, replayed(name))
    assert taken is not None and whole is not None
    check(taken, replayed(name))
    assert int(totals(taken).min()) == int(totals(whole).min())
    for moment, event in enumerate(taken.event.tolist()):
        assert live_at(taken, moment) == live_at(whole, event)
    assert [band.name for band in taken.bands] == [band.name for band in whole.bands]
    assert len(taken.not_available) > len(whole.not_available)
    if allocations < len(whole):
        assert int(taken.count.max()) > 1 and "small ones are shown together" in " ".join(taken.not_available)


@settings(max_examples=80, deadline=None)
@given(
    ACTIONS,
    st.integers(0, 10**6),
    st.booleans(),
)
def test_any_step_sums_to_the_allocators_figures(actions: list[tuple[int, int]], start: int, tiny: bool) -> None:
    trace = any_step(actions, start).trace()
    with pytest.MonkeyPatch.context() as patch:
        if tiny:
            patch.setattr(timeline_reduce, "MAX_ALLOCATIONS", 12)
            patch.setattr(timeline_reduce, "MAX_MOMENTS", 16)
        taken, snapshot = worked(trace, FACTS)
    check(taken, snapshot)
    measured = [start, *trace.in_use.tolist()]
    assert totals(taken).tolist() == [measured[event] for event in taken.event.tolist()]
