"""Timelines of hand-made steps, of steps recorded on a GPU, and of steps that must be reduced."""

import collections
import dataclasses
import gc
from typing import Any

import numpy as np
import pytest
from gpu_cases import NAMES, XLA, recorded
from gpu_cases import attributed as attributed_recording
from hypothesis import given, settings
from hypothesis import strategies as st
from timeline_cases import category_totals
from trace_cases import (
    ACTIONS,
    BACKWARD,
    FACTS,
    FLOAT,
    FORWARD_A,
    FORWARD_B,
    INT64,
    STRING,
    Recorder,
    any_step,
    attributed,
    graph,
    one_step,
    with_shapes,
)

from tb_memplugin.attribution import timelines
from tb_memplugin.schema import (
    MISSING,
    AllocationTrace,
    BatchFacts,
    ChunkOwner,
    Intervals,
    LedgerRow,
    OpFact,
    Snapshot,
    TensorFact,
    TensorShape,
    Timeline,
    TraceFacts,
    VariableFact,
    split_rounding,
)
from tb_memplugin.storage.frames import codec, frame_of

OPS = {"a": FORWARD_A, "b": FORWARD_B, "da": BACKWARD, "up": OpFact("m/a", "update")}
STEP_FACTS = dataclasses.replace(FACTS, graphs=graph(**OPS))


class IntervalModel:
    """The chunks in use at the start and after each event, added up from the raw events one at a
    time.

    `new` is the part that the step allocated, by the name of the requesting op, `rounding`
    allocated minus requested bytes of these.
    """

    def __init__(self, trace: AllocationTrace) -> None:
        live: dict[int, tuple[int, int, str | None]] = {}
        in_use, new, rounding = trace.start_in_use, collections.Counter[str | None](), 0
        self.in_use, self.new, self.rounding = [in_use], [dict(new)], [rounding]
        columns = (trace.kind, trace.address, trace.allocated, trace.requested, trace.op)
        for kind, address, size, requested, op in zip(
            *(column.tolist() for column in columns), strict=True
        ):
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
    step = attributed(trace, facts)
    return step.timeline(), step.snapshot


def live_at(timeline: Timeline, moment: int) -> dict[tuple[str | None, str, bool | None], int]:
    """Bytes by layer, category and trainable, rounding as a category of its own."""
    rows = []
    for row in np.flatnonzero((timeline.start <= moment) & (timeline.end > moment)).tolist():
        owner, rounding = (
            timeline.owners[int(timeline.owner[row])],
            int(timeline.rounding_bytes[row]),
        )
        known = None if rounding == MISSING else rounding
        rows.append(
            LedgerRow(owner.layer, owner.category, owner.trainable, int(timeline.bytes[row]), known)
        )
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
    """The timeline is the interval model of the raw events, and its peak is the snapshot's
    ledger."""
    model = IntervalModel(trace)
    assert totals(timeline).tolist() == [model.in_use[event] for event in timeline.event.tolist()]
    assert int(timeline.event[timeline.peak]) == model.in_use.index(max(model.in_use))
    assert timeline.in_use_bytes == snapshot.in_use_bytes == max(model.in_use)
    # neither compiled nor merged
    if timeline.events + 1 == len(timeline.event) and int(timeline.count.max()) == 1:
        check_new_chunks(timeline, model)
    assert live_at(timeline, timeline.peak) == by_owner(snapshot.ledger)
    assert (np.diff(timeline.time_ns) >= 0).all() and (np.diff(timeline.event) >= 0).all()
    assert all(
        one.end <= other.start
        for one, other in zip(timeline.bands, timeline.bands[1:], strict=False)
    )
    assert len(codec.encode(frame_of("timelines", timeline, 0))) < 1 << 20


def check_new_chunks(timeline: Timeline, model: IntervalModel) -> None:
    """At every moment, the chunks that the step allocated have the model's bytes by op, and its
    rounding."""
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
        {
            UNKNOWN: 4096,
            SAVED_A: 4096,
            GRADIENT_A: 16384,
            WEIGHT_A: 1000,
            ("m/a", "rounding", True): 24,
        },
        {UNKNOWN: 4096},
    ]
    assert taken.event.tolist() == list(range(len(trace) + 1)) and taken.events == len(trace)
    assert [taken.ops[op] for op in taken.op.tolist() if op >= 0] == ["a", "b", "da", "dw"]
    first, dw = (taken.op.tolist().index(taken.ops.index(op)) for op in ("a", "dw"))
    assert (taken.start[first], taken.end[first], taken.rounding_bytes[first]) == (1, 6, 0)
    assert taken.rounding_bytes[dw] == 24


AGAIN = dataclasses.replace(FACTS, graphs=graph(**OPS, rematerialized=OpFact("m/a", "forward")))


@pytest.mark.parametrize(
    ("steps", "bands"),
    [
        ("a b da up", [("forward", 0, 4), ("backward", 4, 7), ("update", 7, 8)]),
        # Recomputation does not begin another step
        ("a da rematerialized da", [("forward", 0, 2), ("backward", 2, 8)]),
        # Updates within the backward pass have a band
        (
            "a b da up da up a da a",
            [
                *(
                    ("forward", 0, 4),
                    ("backward", 4, 7),
                    ("backward_and_update", 7, 10),
                    ("update", 10, 12),
                ),
                *(("forward", 13, 14), ("backward", 14, 16), ("forward", 17, 19)),
            ],
        ),
    ],
)
def test_the_bands_are_the_passes(steps: str, bands: list[tuple[str, int, int]]) -> None:
    step = Recorder()
    for op in steps.split():
        step.run(op, [(0x1000, 256)], [(0x1000, 256)])
    taken, _ = worked(step.trace(), AGAIN)
    assert [(band.name, band.start, band.end) for band in taken.bands] == bands


def test_each_of_two_steps_in_one_window_has_bands_but_very_many_have_none() -> None:
    def worked_steps(count: int) -> Timeline:
        step = Recorder()
        for _ in range(count):
            step.runs("a +1000:4096, da +20000:16384 -1000 -20000, up +70000:256 -70000")
        trace = step.trace()
        taken, snapshot = worked(trace, STEP_FACTS)
        check(taken, snapshot, trace)
        return taken

    assert [band.name for band in worked_steps(2).bands] == ["forward", "backward", "update"] * 2
    many = worked_steps(101)
    assert many.bands == () and "more than" in many.not_available[-1]


def test_variable_owns_its_new_chunk_once_the_old_one_is_freed() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 2048, "GPU:0", 0x100, 0x8000)
    update = OpFact("m/a", "update", assigns="w")
    facts = TraceFacts(
        trainable=FACTS.trainable, graphs=graph(assign=update), variables=(variable,)
    )
    step = Recorder(2048)
    step.run("assign", [(0x8000, 2048)], [(0x100, 2048)], region="temp")
    trace = step.trace()
    taken, snapshot = worked(trace, facts)
    check(taken, snapshot, trace)
    assert live_at(taken, 1) == {("m/a", "weights", True): 2048, ("m/a", "workspace", True): 2048}
    assert live_at(taken, 2) == {("m/a", "weights", True): 2048}


def test_a_trace_that_misses_events_has_no_timeline() -> None:
    assert attributed(one_step().trace(missed=1), FACTS).timeline() is None


def test_without_facts_the_timeline_still_closes_and_has_a_note() -> None:
    trace = one_step().trace()
    taken, snapshot = worked(trace, TraceFacts())
    check(taken, snapshot, trace)
    assert taken.bands == () and any(
        "backward pass are unknown" in text for text in taken.not_available
    )


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
    trace, step = recorded(name)[0], attributed_recording(name)
    taken = step.timeline()
    check(taken, step.snapshot, trace)
    assert [band.name for band in taken.bands] == [
        "forward",
        "backward",
        "backward_and_update",
        "update",
    ]
    # A compiled module's positions lie between the moments of events, which have the allocator's
    # figures.
    last = np.append(np.flatnonzero(np.diff(taken.event)), len(taken.event) - 1)
    assert totals(taken)[last].tolist() == [trace.start_in_use, *trace.in_use.tolist()]


@pytest.mark.parametrize("name", XLA)
def test_inside_of_a_compiled_step_is_the_buffer_assignment(name: str) -> None:
    step = attributed_recording(name)
    taken = step.timeline()
    (span,) = taken.compiled
    assert span.start <= taken.peak < span.end and span.end - span.start > 50
    assert any("is the compiler's plan" in sentence for sentence in taken.not_available)
    # THEN it is spread over the lifetime of its chunks
    times = taken.time_ns[span.start : span.end]
    assert int(times[-1] - times[0]) > 1_000_000 and (np.diff(times) > 0).mean() > 0.9
    # AND activations grow until the end of the forward pass and are freed at the step's end
    activations = category_totals(taken)["activations"]
    end = taken.bands[0].end
    held = sum(row.bytes for row in step.snapshot.saved_for_backward)
    assert int(activations[end - 1]) >= 0.9 * held and int(activations[-1]) == 0


@pytest.mark.parametrize(("allocations", "moments"), [(300, 8000), (6000, 90), (60, 60)])
def test_reduced_timeline_is_exact_at_the_kept_moments(monkeypatch, allocations, moments) -> None:
    step = attributed_recording("VGG16_graph_trainable")
    whole = step.timeline()
    monkeypatch.setattr(timelines, "MAX_ALLOCATIONS", allocations)
    monkeypatch.setattr(timelines, "MAX_MOMENTS", moments)
    taken = step.timeline()
    check(taken, step.snapshot, step.trace)
    assert int(totals(taken).min()) == int(totals(whole).min())
    for moment, event in enumerate(taken.event.tolist()):
        assert live_at(taken, moment) == live_at(whole, event)
    assert [band.name for band in taken.bands] == [band.name for band in whole.bands]
    assert len(taken.not_available) > len(whole.not_available)
    if allocations < len(whole):
        assert int(taken.count.max()) > 1 and ("are merged by layer and category") in " ".join(
            taken.not_available
        )


@settings(max_examples=80, deadline=None)
@given(ACTIONS, st.integers(0, 10**6), st.booleans())
def test_any_step_sums_to_the_allocators_figures(
    actions: list[tuple[int, int]], start: int, tiny: bool
) -> None:
    trace = any_step(actions, start).trace()
    with pytest.MonkeyPatch.context() as patch:
        if tiny:
            patch.setattr(timelines, "MAX_ALLOCATIONS", 12)
            patch.setattr(timelines, "MAX_MOMENTS", 16)
        taken, snapshot = worked(trace, FACTS)
    check(taken, snapshot, trace)
    measured = [start, *trace.in_use.tolist()]
    assert totals(taken).tolist() == [measured[event] for event in taken.event.tolist()]


# --- shapes of tensors: only those that take exactly the requested bytes
# ----------------------------------------------


def shapes_of(trace: AllocationTrace, facts: TraceFacts) -> list[TensorShape | None]:
    """The shapes of the timeline's rows in the order of their addresses, which is that of the
    chunks in these tests."""
    made, _ = worked(trace, facts)
    shapes = (*made.shapes, None)  # -1 is the last one
    rows = sorted(zip(made.address.tolist(), made.shape.tolist(), strict=True))
    return [shapes[shape] for address, shape in rows if address >= 0]


@pytest.mark.parametrize(
    ("text", "dtype", "size", "shape"),
    [
        ("[16,64]", FLOAT, 4096, TensorShape((16, 64), "float32")),
        ("[512]", INT64, 4096, TensorShape((512,), "int64")),
        ("[]", FLOAT, 4, TensorShape((), "float32")),
        ("[16,64]", FLOAT, 4097, None),  # scratch space under the shape of something else
        ("[16,64]", STRING, 4096, None),
        ("[16,64]", 0, 4096, None),
        ("[-1,-64]", FLOAT, 256, None),
        ("[16,", FLOAT, 64, None),
        ("[nonsense]", FLOAT, 4, None),
    ],
)
def test_the_shape_of_an_event_counts_if_it_takes_the_requested_bytes(
    text, dtype, size, shape
) -> None:
    step = Recorder()
    step.run("a", [(0x1000, size)])
    assert shapes_of(with_shapes(step.trace(), {0: (text, dtype)}), FACTS) == [shape]


def test_an_event_without_a_shape_has_that_of_the_ops_output() -> None:
    # GIVEN an op whose outputs are open in the batch, one of which is a mask of other bytes, and
    # one with two outputs of the same bytes
    outputs: dict[str, Any] = {
        "output_shapes": ((-1, 64), (-1, 64)),
        "output_dtypes": ("float32", "bool"),
    }
    two = OpFact(
        "m/a", "forward", output_shapes=((32, 32), (1024,)), output_dtypes=("float32", "float32")
    )
    ops = {
        "a": OpFact("m/a", "forward", **outputs),
        "b": OpFact("m/b", "forward", **outputs),
        "two": two,
    }
    facts = dataclasses.replace(FACTS, graphs=graph(**ops))
    step = Recorder().runs("a +1000:4096, b +9000:4096, b +19000:1024 +29000:2048, two +39000:4096")
    assert shapes_of(step.trace(), facts) == [None] * 5
    # THEN with the recorded batch, the output of exactly these bytes is the one
    known, mask = TensorShape((16, 64), "float32"), TensorShape((16, 64), "bool")
    assert shapes_of(step.trace(), dataclasses.replace(facts, batch=BatchFacts(16))) == [
        known,
        known,
        mask,
        None,
        None,
    ]


def test_older_chunks_have_the_shape_of_their_variable_or_tensor() -> None:
    weights = VariableFact(
        "w", "weights", "m/a", True, 4096, "GPU:0", 0x50000, 0x50000, (32, 32), "float32"
    )
    unknown = VariableFact("v", "weights", "m/a", True, 1024, "GPU:0", 0x60000, 0x60000)
    held = TensorFact("held_tensors", 2000, 0x70000, (500,), "int32")
    facts = dataclasses.replace(FACTS, variables=(weights, unknown), tensors=(held,))
    old = shapes_of(one_step(4096 + 1024 + 2048).trace(), facts)[-3:]
    assert old == [TensorShape((32, 32), "float32"), None, TensorShape((500,), "int32")]


def test_rows_of_a_timeline_have_address_shape_and_line() -> None:
    fact = dataclasses.replace(FACTS.graphs[0].ops["a"], line="train.py:42")
    facts = dataclasses.replace(FACTS, graphs=graph(**{**FACTS.graphs[0].ops, "a": fact}))
    made, _ = worked(with_shapes(one_step(512).trace(), {0: ("[16,64]", FLOAT)}), facts)
    shapes, lines = (*made.shapes, None), (*made.lines, None)  # -1 is the last one
    columns = zip(made.address.tolist(), made.shape.tolist(), made.line.tolist(), strict=True)
    found = [(address, shapes[shape], lines[line]) for address, shape, line in columns]
    assert found == [
        (-1, None, None),  # unknown bytes
        (0x1000, TensorShape((16, 64), "float32"), "train.py:42"),
        (0x9000, None, None),
        (0x20000, None, None),
        (0x30000, None, None),
    ]


def test_a_step_of_10000_tensors_keeps_a_row_for_each() -> None:
    step, chunks = Recorder(), [(0x1000 * (place + 1), 256 + place % 7) for place in range(10_000)]
    for op, freed in (("a", False), ("da", True)):
        for chunk in chunks:
            step.run(op, [] if freed else [chunk], [chunk] if freed else [])
    made, _ = worked(step.trace(), FACTS)
    assert len(made) == 10_000 and (made.count == 1).all() and len(made.time_ns) == 20_001
    assert not any("merged" in sentence or "moments" in sentence for sentence in made.not_available)
    assert sorted(set(made.address.tolist())) == [address for address, _ in chunks]


def test_rows_are_few_objects_for_pythons_garbage_collector() -> None:
    """The more objects a recorder makes, the earlier those of the program grow old, and old ones
    are collected late."""
    builder, owner = timelines.RowBuilder(), ChunkOwner("net/a", "weights", True)
    gc.disable()
    try:
        before = len(gc.get_objects())
        for moment in range(2000):
            builder.add(timelines.Row(moment, moment + 1, owner, 256, 0, "op", 4096, (2, 3)))
        made = len(gc.get_objects()) - before
    finally:
        gc.enable()
    assert made < 20 and len(builder.rows()) == 2000


@pytest.mark.parametrize("name", NAMES)
def test_the_largest_tensors_are_those_of_the_timeline_at_the_peak(name: str) -> None:
    step = attributed_recording(name)
    timeline = step.timeline()
    assert timeline is not None
    live = (
        (timeline.start <= timeline.peak) & (timeline.end > timeline.peak) & (timeline.shape >= 0)
    )
    requested = timeline.bytes - timeline.rounding_bytes
    sizes: collections.Counter[Any] = collections.Counter()
    for row in np.flatnonzero(live & (requested >= 1024)).tolist():
        owner, shape = timeline.owners[timeline.owner[row]], timeline.shapes[timeline.shape[row]]
        sizes[owner.layer, owner.category, shape.shape, shape.dtype] += int(requested[row])
    groups = step.snapshot.largest_tensors
    found = {(one.layer, one.category, one.shape, one.dtype): one.bytes for one in groups}
    assert found.items() <= sizes.items()
    assert (
        0 < len(found) == min(200, len(sizes))
        and sorted(found.values()) == sorted(sizes.values())[-200:]
    )
