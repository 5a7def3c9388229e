"""The rules of the ledger on small traces made by hand.

Lifetimes, categories, closure, and traces that do not hold together.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from map_cases import memory_map
from trace_cases import (
    ACTIONS,
    BACKWARD,
    FACTS,
    FORWARD_A,
    FORWARD_B,
    GRADIENT,
    Recorder,
    any_step,
    attributed,
    graph,
    ledger_of,
    one_step,
    rows,
)

from tb_memplugin.attribution import StepChunks, ages_after, event_chunks, facts_from_names
from tb_memplugin.schema import (
    GRADIENTS,
    MISSING,
    OWNER_SOURCES,
    AllocationTrace,
    BatchFacts,
    Buffer,
    BufferAllocation,
    Category,
    ChunkOwner,
    ConstantFact,
    Earlier,
    GraphFacts,
    HeldTensorGroup,
    Intervals,
    Module,
    OpFact,
    Snapshot,
    TensorFact,
    TraceFacts,
    VariableFact,
    split_rounding,
)


def test_categories_follow_from_role_and_lifetime() -> None:
    snapshot = ledger_of(one_step().trace(), FACTS)
    assert snapshot.in_use_bytes == 4096 + 16384 + 1024
    assert rows(snapshot) == {
        ("m/a", "activations"): 4096,
        ("m/a", "activation_gradients"): 16384,
        ("m/a", "weight_gradients"): 1000,
        ("m/a", "rounding"): 24,
    }
    assert snapshot.rounding_bytes == 24
    assert [(row.layer, row.bytes) for row in snapshot.saved_for_backward] == [("m/a", 4096)]


def test_backward_op_that_depends_on_no_gradient_is_saved_if_it_ran_in_the_forward_pass() -> None:
    early = OpFact("m/a", "backward", gradient_free=True)
    facts = TraceFacts(
        trainable=FACTS.trainable, graphs=graph(a=FORWARD_A, da=BACKWARD, dw=GRADIENT, early=early)
    )

    def found(in_forward_pass: bool) -> tuple[dict[tuple[str | None, str], int], int]:
        step = Recorder()
        order = ["early", "a"] if in_forward_pass else ["a", "da", "early"]
        sizes = {"early": (0x9000, 8192), "a": (0x1000, 4096), "da": (0x20000, 16384)}
        for name in [*order, *({"a", "da"} - {*order})]:
            step.run(name, [sizes[name]])
        step.run("dw", [], [sizes[name] for name in sizes])
        snapshot = ledger_of(step.trace(), facts)
        return rows(snapshot), sum(row.bytes for row in snapshot.saved_for_backward)

    ledger, saved = found(in_forward_pass=True)
    assert (ledger["m/a", "activations"], saved) == (4096 + 8192, 4096 + 8192)
    ledger, saved = found(in_forward_pass=False)
    assert (ledger["m/a", "activations"], ledger["m/a", "workspace"], saved) == (4096, 8192, 4096)


def test_scratch_space_belongs_to_the_running_op_whatever_its_name() -> None:
    step = Recorder()
    step.run(
        "dw",
        [(0x9000, 8192)],
        [(0x9000, 8192)],
        region=None,
        asker="CollectiveAdapterImpl::TempChunk",
    )
    assert rows(ledger_of(step.trace(), FACTS)) == {("m/a", "workspace"): 8192}


def test_what_replicas_send_each_other_is_communication_and_its_sums_are_gradients() -> None:
    # GIVEN a step that packs its gradients, sums them over the replicas, and unpacks them
    collective, unpack = (
        OpFact(None, "update", communicates=True),
        OpFact(None, "update", is_gradient=True),
    )
    weights = {"m/a": 4096, "m/b": 512, "m/c": 512}
    facts = TraceFacts(
        trainable=dict.fromkeys(weights, True),
        graphs=graph(a=FORWARD_A, dw=GRADIENT, concat=collective, reduce=collective, split=unpack),
        variables=tuple(
            VariableFact(f"{layer}/kernel", "weights", layer, True, size, "CPU:0", None, None)
            for layer, size in weights.items()
        ),
    )
    step = Recorder()
    step.run("a", [(0x1000, 256)])
    step.run("dw", [(0x2000, 5120)])
    step.run("concat", [(0x8000, 5120)], [(0x2000, 5120)])
    # what a collective operation requests besides its result has a name of TensorFlow's own
    step.run("reduce", [(0x10000, 2560)], asker="CollectiveAdapterImpl::TempChunk")
    step.run("split", [(0x20000, 4096), (0x30000, 512), (0x40000, 512)])
    assert rows(ledger_of(step.trace(), facts)) == {
        ("m/a", "activations"): 256,
        (None, "communication"): 5120 + 2560,
        ("m/a", "weight_gradients"): 4096,
        (None, "weight_gradients"): 2 * 512,  # of either layer
    }


@pytest.mark.parametrize("read_by", ["da", "b"])
def test_what_outlives_the_forward_pass_is_an_activation_though_requested_as_scratch_space(
    read_by: str,
) -> None:
    # GIVEN an op that requests its result as it does its scratch space, as Einsum does
    step = Recorder()
    step.run("b", [(0x1000, 4096), (0x9000, 8192)], [(0x9000, 8192)], region="temp")
    step.runs("a +a000:512, da +20000:16384")
    step.run(read_by, [], [(0x1000, 4096)])
    step.run("da", [(0x30000, 512)], [], region="temp")
    step.runs("dw +40000:65536")
    trace = step.trace()
    # THEN it is one also if TensorFlow frees it late, and what was saved are the activations
    found = ledger_of(trace, FACTS)
    assert {row.layer: row.bytes for row in found.saved_for_backward} == {"m/a": 512, "m/b": 4096}
    at_forward_end = attributed(trace, FACTS).timeline()
    assert at_forward_end is not None
    owners = {
        at_forward_end.owners[at].category
        for at in at_forward_end.owner[at_forward_end.bytes == 4096].tolist()
    }
    scratch = {
        at_forward_end.owners[at].category
        for at in at_forward_end.owner[at_forward_end.bytes == 8192].tolist()
    }
    assert (owners, scratch) == ({"activations"}, {"workspace"})


@pytest.mark.parametrize("failed", [True, False])
def test_what_a_step_holds_that_fails_in_the_backward_pass_is_an_activation(failed: bool) -> None:
    # GIVEN a forward result that no backward op is known to read, in use at the last event of the
    # window
    facts = dataclasses.replace(FACTS, interrupted=failed)
    trace = Recorder().runs("b +9000:8192, a +1000:4096, da +20000:16384").trace()
    snapshot = ledger_of(trace, facts)
    category = "activations" if failed else "workspace"
    assert rows(snapshot)["m/b", category] == 8192
    assert sum(row.bytes for row in snapshot.saved_for_backward) == 4096 + 8192 * failed


def test_chunk_without_op_is_workspace_if_freed_before_the_next_op() -> None:
    def found(between: bool) -> str:
        step = Recorder().runs("a +1000:256")
        step.event(1, 0x9000, 8192)
        step.event(1, 0x20000, 65536, "unknown")  # the peak
        if between:
            step.run("b")
        step.event(-1, 0x9000, 8192)
        return next(
            row.category for row in ledger_of(step.trace(), FACTS).ledger if row.bytes == 8192
        )

    assert found(between=False) == "workspace"
    assert found(between=True) == "unattributed"


def test_suspended_forward_op_does_not_move_the_end_of_the_forward_pass() -> None:
    # GIVEN a suspended op of a frozen layer until after the backward pass, so that its result is
    # freed late
    step = Recorder().runs("a +1000:4096")
    step.overlapping("b", [(0x9000, 8192)], lasts=100)
    step.runs("da +20000:16384, dw +30000:1000 -1000:4096 -20000 -30000")
    step.time += 100
    step.run("unknown", [], [(0x9000, 8192)])
    snapshot = ledger_of(step.trace(), FACTS)
    assert rows(snapshot)["m/a", "activations"] == 4096
    assert {row.layer: row.bytes for row in snapshot.saved_for_backward} == {
        "m/a": 4096,
        "m/b": 8192,
    }


@pytest.mark.parametrize("freed_by_python", [True, False])
def test_what_a_step_returns_is_not_saved_if_its_op_ran_before_the_backward_pass(
    freed_by_python: bool,
) -> None:
    step = Recorder().runs("a +1000:4096")
    step.run("b", [(0x9000, 8192)])
    step.runs("da +20000:16384 -1000, dw +30000:1000 -20000 -30000")
    step.event(-1, 0x9000, 8192)
    trace = dataclasses.replace(step.trace(), threads=("executor", "python"))
    trace.thread[-1] = int(freed_by_python)
    saved = {row.layer: row.bytes for row in ledger_of(trace, FACTS).saved_for_backward}
    assert saved == {"m/a": 4096} | ({} if freed_by_python else {"m/b": 8192})


def test_older_chunks_get_owners_by_address_and_the_remainder_is_unattributed() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 1000, "GPU:0", 0x100, 0x100)
    facts = TraceFacts(trainable=FACTS.trainable, graphs=FACTS.graphs, variables=(variable,))
    snapshot = ledger_of(one_step(start=500_000).trace(), facts)
    found = rows(snapshot)
    assert (found["m/a", "weights"], found["m/a", "rounding"]) == (1000, 24 + 24)
    assert found[None, "unattributed"] == 500_000 - 1024
    assert sum(found.values()) == snapshot.in_use_bytes == 500_000 + 21_504


def test_older_chunks_that_a_layer_read_last_and_those_of_their_size_are_inputs() -> None:
    # GIVEN an older batch that the backward pass reads, an older prefetched one, and one that the
    # window receives
    step = Recorder(2 * 8192 + 4096).runs("a +1000:4096")
    step.event(1, 0xC0000, 8192, "SameWorkerRecvDone")
    step.runs("da +20000:16384 -90000:8192 -1000:4096, unknown -a0000:8192 -b0000:4096")
    snapshot = ledger_of(step.trace(), FACTS)
    assert (rows(snapshot)[None, "inputs"], rows(snapshot)[None, "unattributed"]) == (
        3 * 8192,
        4096,
    )
    # THEN the batch is no activation, whatever reads it
    assert {row.layer: row.bytes for row in snapshot.saved_for_backward} == {"m/a": 4096}


@pytest.mark.parametrize("features", [64, 1024])
def test_a_batch_that_no_layer_read_last_is_known_by_its_recorded_shape(features: int) -> None:
    # GIVEN twice the bytes of a batch of 8 before the window; the step frees a chunk of a batch's
    # size that no layer read last
    size = 8 * features * 4
    facts = dataclasses.replace(FACTS, batch=BatchFacts(8, (((-1, features), "float32"),)))
    step = Recorder(2 * size).runs(f"a +1000:4096, da -1000:4096, unknown -a0000:{size}")
    found = rows(ledger_of(step.trace(), facts))
    # THEN it is the batch, and what nothing is known of is none
    assert (found[None, "inputs"], found[None, "unattributed"]) == (size, size)


@pytest.mark.parametrize(("address", "size", "own"), [(0x90000, 8192, 8192), (0x91000, 4096, 8192)])
def test_chunks_of_the_size_of_a_batch_that_python_fed_are_batches(
    address: int, size: int, own: int
) -> None:
    # GIVEN a custom loop: an older batch that Python holds, whole or as a replica's slice of it,
    # and unknown chunks
    chunks = [
        (0x90000, 8192, 8192),
        (0x92000, 8192, 8192),
        (0x94000, 8192, 8000),
        (0xC0000, 4096, 4096),
    ]
    start = memory_map(chunks, [(0x90000, 1 << 20)])
    fed = TensorFact("inputs", size, address)
    step = Recorder(start.in_use_bytes).runs("a +1000:4096")
    trace = dataclasses.replace(step.trace(), start_map=start, end_map=start)
    found = rows(ledger_of(trace, dataclasses.replace(FACTS, tensors=(fed,))))
    assert (found[None, "inputs"], found[None, "unattributed"]) == (2 * 8192, 8000 + 4096)
    # BUT a size that Python holds for another reason says nothing
    held = dataclasses.replace(fed, category="held_tensors")
    found = rows(ledger_of(trace, dataclasses.replace(FACTS, tensors=(held,))))
    assert (found[None, "held_tensors"], found[None, "unattributed"]) == (own, 8192 + 8000 + 4096)
    assert (None, "inputs") not in found


def test_a_value_that_is_about_to_replace_a_variable_outside_an_optimizer_is_a_temporary() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 2048, "GPU:0", 0x100, 0x8000)
    facts = TraceFacts(
        trainable=FACTS.trainable, graphs=graph(add=OpFact(None, "other")), variables=(variable,)
    )
    step = Recorder(2048).runs("add +8000:2048 -100:2048")
    assert rows(ledger_of(step.trace(), facts)) == {
        ("m/a", "weights"): 2048,
        ("m/a", "workspace"): 2048,
    }


def test_all_that_a_pass_over_another_one_reads_is_saved_though_never_in_use_at_once() -> None:
    layer, inner = OpFact("m/a", "forward", True, 0), OpFact("m/b", "forward", True, 0)
    facts = TraceFacts(graphs=graph(layer=layer, inner=inner, outer=BACKWARD))
    step = Recorder()
    for _ in range(2):  # two steps in one window
        step.runs(
            "layer +1000:512, outer +2000:256 -1000, inner +3000:1024, layer +1000:512, outer "
            "-1000 -2000 -3000"
        )
    saved = ledger_of(step.trace(), facts).saved_for_backward
    # The first result is freed before the second one is there; the third one outlives neither.
    assert {row.layer: row.bytes for row in saved} == {"m/a": 512, "m/b": 1024}


def test_trace_with_missing_events_only_has_owners_of_older_chunks() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 1000, "GPU:0", 0x100, 0x100)
    facts = TraceFacts(trainable=FACTS.trainable, graphs=FACTS.graphs, variables=(variable,))
    snapshot = ledger_of(one_step(start=4096).trace(missed=2), facts)
    assert rows(snapshot).keys() == {
        ("m/a", "weights"),
        ("m/a", "rounding"),
        (None, "unattributed"),
    }
    assert sum(rows(snapshot).values()) == snapshot.in_use_bytes
    assert snapshot.saved_for_backward == ()
    assert any("misses events" in sentence for sentence in snapshot.not_available)


def test_variables_that_do_not_fit_and_a_step_that_frees_more_than_was_in_use_have_no_owners() -> (
    None
):
    variable = VariableFact("w", "weights", "m/a", True, 10_000_000, "GPU:0", 0x100, 0x100)
    snapshot = ledger_of(one_step(start=4096).trace(), TraceFacts(variables=(variable,)))
    # The rounding of a new gradient is known although its owner is unknown.
    assert rows(snapshot) == {
        (None, "unattributed"): snapshot.in_use_bytes - 24,
        (None, "rounding"): 24,
    }
    step = Recorder(4096).runs("a +1000:16384, b -90000:8192")
    snapshot = ledger_of(step.trace(), FACTS)
    assert rows(snapshot) == {(None, "unattributed"): snapshot.in_use_bytes}
    assert any("owners are unknown" in sentence for sentence in snapshot.not_available)


def test_freeing_a_free_chunk_is_a_contradiction_and_an_older_one_is_none() -> None:
    step = Recorder(4096).runs("a +2000:512 -1000:4096")
    found = event_chunks(step.trace())
    assert (found.birth.tolist(), found.death.tolist(), found.unmatched_frees) == (
        [0, -1],
        [2, 1],
        0,
    )
    step.run("a", [], [(0x1000, 4096)])
    assert event_chunks(step.trace()).unmatched_frees == 1


@settings(max_examples=80, deadline=None)
@given(ACTIONS, st.integers(0, 10**6))
def test_every_ledger_sums_to_the_bytes_in_use(actions: list[tuple[int, int]], start: int) -> None:
    trace = any_step(actions, start).trace()
    snapshot = ledger_of(trace, FACTS)
    assert snapshot.in_use_bytes == max(start, int(trace.in_use.max()))
    assert sum(row.bytes for row in snapshot.ledger) == snapshot.in_use_bytes
    assert all(row.bytes > 0 for row in snapshot.ledger)
    assert snapshot.rounding_bytes == sum(
        row.bytes for row in snapshot.ledger if row.category == "rounding"
    )
    assert split_rounding(snapshot.ledger) == snapshot.ledger


@pytest.mark.parametrize(
    ("backward", "held_by", "category"),
    [
        ("(backward, kept)", None, "activations"),
        ("(backward, kept)", "list `history` in module __main__", "held_tensors"),
        ("(backward)", None, "held_tensors"),
    ],
)
def test_what_a_persistent_tape_keeps_beyond_the_step_is_an_activation(
    backward, held_by, category
) -> None:
    # GIVEN a layer's result that outlives an eager step, with a backward pass of the given span
    step = Recorder().runs("MatMul +1000:4096, MatMul +9000:1024 -9000")
    trace = step.trace()
    first, second = trace.ops.start_ps.tolist()
    spans = np.asarray([(0, first - 1, first + 1, 0), (0, second - 1, second + 2, 1)], np.int64).T
    layers = Intervals(spans[0], spans[1], spans[2], spans[3] + len(trace.strings))
    trace = dataclasses.replace(trace, strings=(*trace.strings, "m/a", backward), layers=layers)
    tensor = TensorFact("held_tensors", 4096, 0x1000, (1024,), "float32", held_by)
    facts = TraceFacts(trainable=FACTS.trainable, tensors_at_end=(tensor,), mode="eager")
    snapshot = ledger_of(trace, facts)
    assert {row.category: row.bytes for row in snapshot.ledger}[category] == 4096
    saved = {row.layer: row.bytes for row in snapshot.saved_for_backward}
    assert saved == ({"m/a": 4096} if category == "activations" else {})


HISTORY, CACHE = "list `history` in module __main__", "list in attribute `cache` of Trainer"
BYTES = 4096


def kept(
    address: int, held_by: str | None = HISTORY, shape: tuple[int, ...] = (32, 32)
) -> TensorFact:
    return TensorFact("held_tensors", BYTES, address, shape, "float32", held_by)


def groups(
    new: list[tuple[str, TensorFact]], old: list[TensorFact], lines: dict[str, str]
) -> list[HeldTensorGroup]:
    """Groups of a step that reaches its peak before its ops make the `new` tensors that Python
    keeps."""
    step = Recorder(len(old) * BYTES)
    step.run("peak", [(0x90000, 64 * BYTES)], [(0x90000, 64 * BYTES)])
    for op, tensor in new:
        step.run(op, [(tensor.address, BYTES)])
    graphs = graph(
        **{op: OpFact("m/a", "forward", line=lines.get(op)) for op, _ in new}, da=BACKWARD
    )
    facts = TraceFacts(
        graphs=graphs, tensors=tuple(old), tensors_at_end=tuple(tensor for _, tensor in new)
    )
    return list(ledger_of(step.trace(), facts).held_tensors)


OLD = [kept(0x1000), kept(0x3000)]
LEAK = HeldTensorGroup((32, 32), "float32", 2, 2 * BYTES, HISTORY)
PATH = "module __main__ › history (list) › "
REACHED = [
    dataclasses.replace(tensor, retaining_path=f"{PATH}[{at}]") for at, tensor in enumerate(OLD)
]
SEVERAL = [("a", kept(0x5000)), ("b", kept(0x7000)), ("b", kept(0x9000))]


@pytest.mark.parametrize(
    ("new", "old", "lines", "line", "path"),
    [
        ([("a", kept(0x5000))], OLD, {"a": "train.py:10"}, "train.py:10", None),  # their like
        ([("a", kept(0x5000, CACHE))], OLD, {"a": "train.py:10"}, None, None),
        ([("a", kept(0x5000, None))], OLD, {"a": "train.py:10"}, None, None),
        ([("a", kept(0x5000, shape=(1024,)))], OLD, {"a": "train.py:10"}, None, None),
        # Of several lines, the one that made most of them counts, even if it is unknown
        (SEVERAL, OLD, {"a": "train.py:10", "b": "train.py:11"}, "train.py:11", None),
        (SEVERAL, OLD, {"a": "train.py:10"}, None, None),
        ([], REACHED, {}, None, f"{PATH}[…]"),  # what the paths share
        ([], [REACHED[0], OLD[1]], {}, None, f"{PATH}[0]"),  # a path that is unknown does not count
    ],
)
def test_older_tensors_have_the_line_of_their_like_that_the_step_made(
    new, old, lines, line, path
) -> None:
    assert groups(new, old, lines) == [dataclasses.replace(LEAK, line=line, retaining_path=path)]


def test_a_tensor_that_lives_at_the_peak_is_counted_with_its_line() -> None:
    # GIVEN a leaked tensor of no layer, made before the step's largest allocation
    step = Recorder()
    step.run("loss", [(0x5000, BYTES)])
    step.run("peak", [(0x90000, 64 * BYTES)], [(0x90000, 64 * BYTES)])
    facts = TraceFacts(
        graphs=graph(loss=OpFact(None, "other", line="train.py:12")), tensors_at_end=(kept(0x5000),)
    )
    (held,) = ledger_of(step.trace(), facts).held_tensors
    assert held == HeldTensorGroup((32, 32), "float32", 1, BYTES, HISTORY, "train.py:12")


def constants_step(*sizes: int) -> AllocationTrace:
    """A step in which TensorFlow allocates chunks without an op that stay, beside the layer's."""
    step = Recorder().runs("layer +1000:512")
    for number, size in enumerate(sizes):
        step.event(1, 0x100000 * (number + 1), size)
    return step.trace()


def constant(size: int, layer: str | None = None, **more: Any) -> ConstantFact:
    return ConstantFact(size, (size // 4,), "float32", layer, "step", "a.py:3", **more)


def with_constants(*facts: ConstantFact) -> TraceFacts:
    return dataclasses.replace(
        FACTS,
        graphs=tuple(
            dataclasses.replace(one, constants=facts)
            for one in graph(layer=OpFact("m/a", "forward"))
        ),
    )


def state_of(snapshot: Snapshot) -> dict[str | None, int]:
    return {row.layer: row.bytes for row in snapshot.ledger if row.category == "other_state"}


def test_constants_of_a_function_belong_to_the_layer_that_uses_them() -> None:
    snapshot = ledger_of(
        constants_step(80_000, 4096), with_constants(constant(80_000, "m/a"), constant(4096))
    )
    assert state_of(snapshot) == {"m/a": 80_000, None: 4096}
    assert [
        (group.bytes, group.held_by, group.line, group.category) for group in snapshot.held_tensors
    ] == [
        (80_000, "constant in layer m/a", "a.py:3", "other_state"),
        (4096, "constant of function `step`", "a.py:3", "other_state"),
    ]
    snapshot = ledger_of(constants_step(80_000), with_constants(constant(80_000, of_input=True)))
    assert rows(snapshot)[None, "inputs"] == 80_000


ONE, BOTH = [constant(80_000, "m/a")], [constant(80_000, "m/a"), constant(80_000, "m/b")]


@pytest.mark.parametrize(
    ("sizes", "constants", "batches", "expected"),
    [
        ((80_000, 80_000), BOTH, (), {"m/a": 80_000, "m/b": 80_000}),
        ((80_000,), BOTH, (), {None: 80_000}),  # TensorFlow may keep one of equal constants only
        # More chunks than constants are theirs only if nothing else is likely
        ((80_000, 80_000), ONE, (), {"m/a": 160_000}),
        ((2048, 2048), [constant(2048, "m/a")], (), {"m/a": 2048, None: 2048}),
        ((80_000, 80_000), ONE, (80_000,), {}),  # a batch has the same size
    ],
)
def test_constants_of_one_size_each_have_a_chunk_or_have_no_layer(
    sizes, constants, batches, expected
) -> None:
    facts = dataclasses.replace(
        with_constants(*constants), earlier=Earlier(input_sizes=frozenset(batches))
    )
    assert state_of(ledger_of(constants_step(*sizes), facts)) == expected


def test_a_variable_of_no_model_and_a_sparse_gradient_made_dense_are_named() -> None:
    address, shape = (0x100, 0x100), (1024,)
    buffer = VariableFact(
        "buffer:0#7", "other_state", None, None, 4096, "GPU:0", *address, shape, "float32", False
    )
    dense = OpFact(
        "m/a",
        "update",
        is_gradient=True,
        gradient_of="m/a",
        made_dense=True,
        output_shapes=((512,),),
    )
    step = Recorder(4096).runs("dense +2000:2048, dense -2000")
    snapshot = ledger_of(step.trace(), TraceFacts(graphs=graph(dense=dense), variables=(buffer,)))
    assert rows(snapshot) == {(None, "other_state"): 4096, ("m/a", "weight_gradients"): 2048}
    assert [
        (group.bytes, group.shape, group.held_by, group.category) for group in snapshot.held_tensors
    ] == [
        (4096, (1024,), "variable `buffer`", "other_state"),
        (2048, (512,), "sparse gradient of layer m/a, made dense", "weight_gradients"),
    ]


def test_a_gradient_that_the_loop_still_refers_to_is_its_layers() -> None:
    gradient = OpFact("m/a", "backward", is_gradient=True, gradient_of="m/a")
    held = TensorFact("held_tensors", 4096, 0x1000, (1024,), "float32", HISTORY)
    step = Recorder().runs("gradient +1000:4096")
    facts = TraceFacts(graphs=graph(gradient=gradient), tensors_at_end=(held,))
    assert rows(ledger_of(step.trace(), facts)) == {("m/a", "weight_gradients"): 4096}


def variable(address: int | None, size: int) -> VariableFact:
    return VariableFact(f"v{address}", "weights", "m/a", True, size, "GPU:0", address, address)


def tensor(address: int, size: int) -> TensorFact:
    return TensorFact("inputs", size, address)


def lost(name: str, size: int, address: int | None = 0x70000, **also: Any) -> VariableFact:
    """A variable at the address of a copy that was made for reading it."""
    fact = VariableFact(name, "weights", f"m/{name}", True, size, "GPU:0", address, None)
    return dataclasses.replace(fact, **also)


def at_step_start(
    chunks: list[tuple[int, int, int]], step: Recorder, *variables: VariableFact, **ops: OpFact
) -> dict[tuple[str | None, str], int]:
    """The ledger of a step that begins with chunks (address, bytes, requested bytes), by owner."""
    start = memory_map(chunks, [(0, 1 << 20)])
    trace = dataclasses.replace(step.trace(), start_map=start, end_map=start)
    found = rows(ledger_of(trace, TraceFacts(variables=variables, graphs=graph(**ops))))
    return {owner: size for owner, size in found.items() if owner[1] != "rounding"}


def test_a_copy_on_read_variable_is_matched_by_its_size_if_no_more_chunks_have_it() -> None:
    def owned(
        chunks: list[tuple[int, int, int]], *variables: VariableFact
    ) -> dict[tuple[str | None, str], int]:
        in_use = sum(size for _, size, _ in chunks)
        step = Recorder(in_use).runs("a +90000:256")
        found = at_step_start(chunks, step, *variables, a=OpFact(None, "forward"))
        return {owner: size for owner, size in found.items() if owner[1] != "workspace"}

    chunks = [(0x100, 1024, 1000), (0x1000, 1024, 900), (0x2000, 5120, 5000)]
    embedding, w = lost("embedding", 5000), lost("w", 1000, 0x100)
    assert owned(chunks, embedding, w) == {
        ("m/embedding", "weights"): 5000,
        ("m/w", "weights"): 1000,
        (None, "unattributed"): 900,
    }
    # AND also if another chunk is at the copy's address
    moved = dataclasses.replace(embedding, start_address=0x1000)
    assert owned(chunks, moved)["m/embedding", "weights"] == 5000
    alike = [(0x100, 1024, 1000), (0x1000, 1024, 1000), (0x2000, 1024, 1000)]
    two = lost("one", 1000), lost("other", 1000)
    assert owned(alike, *two) == {(None, "unattributed"): 3000}
    # BUT if a third variable has one of the chunks, the two others are theirs
    assert owned(alike, *two, lost("third", 1000, 0x1000)) == {
        (f"m/{name}", "weights"): 1000 for name in ("one", "other", "third")
    }


@pytest.mark.parametrize("places", [(0x100, 0x1000), (0x1000, 0x100)])
def test_a_copy_on_read_variable_had_its_value_where_its_assignment_frees_it(
    places: tuple[int, int],
) -> None:
    # GIVEN a table, its slot, and something else of their size; each assignment makes a new chunk
    # and frees the old one, and the table is read before that
    table, slot = places
    chunks = [(0x100, 1024, 1000), (0x1000, 1024, 1000), (0x2000, 1024, 1000)]
    step = Recorder(3072).runs(
        f"gather +4000:1000, slot +5000:1000 -{slot:x}:1000, read +6000:1000, table +7000:1000 "
        f"-{table:x}:1000 -6000"
    )
    of_slot = lost("slot", 1000, layer="m/table", role="optimizer_state")
    found = at_step_start(
        chunks,
        step,
        lost("table", 1000),
        of_slot,
        gather=OpFact("m/table", "forward", saved_for_backward=True),
        read=OpFact("m/table", "update"),
        slot=OpFact("m/table", "update", assigns="slot"),
        table=OpFact("m/table", "update", assigns="table"),
    )
    # THEN at the peak, when the table's new value is being made, each counts once
    assert found == {
        ("m/table", "weights"): 1000,
        ("m/table", "optimizer_state"): 1000,
        ("m/table", "activations"): 1000,
        ("m/table", "workspace"): 2000,
        (None, "unattributed"): 1000,
    }


def test_a_weight_that_its_average_overwrites_and_the_average_count_once() -> None:
    # GIVEN a weight that is assigned twice: an update's result, then the new average, which both
    # variables share in the end
    weight = lost("w", 1000, 0x100, end_address=0x5000)
    average = lost("average", 1000, 0x1000, end_address=0x5000, layer="m/w", role="optimizer_state")
    step = Recorder(2048).runs(
        "update +4000:1000 -100:1000, mean +5000:1000, assign -1000:1000, peak +9000:2048 -9000, "
        "overwrite -4000"
    )
    update = OpFact("m/w", "update")
    found = at_step_start(
        [(0x100, 1024, 1000), (0x1000, 1024, 1000)],
        step,
        weight,
        average,
        update=dataclasses.replace(update, assigns="w"),
        mean=update,
        assign=dataclasses.replace(update, assigns="average"),
        peak=update,
        overwrite=dataclasses.replace(update, assigns="w"),
    )
    assert found == {
        ("m/w", "weights"): 1000,
        ("m/w", "optimizer_state"): 1000,
        ("m/w", "workspace"): 2048,
    }


def step_from(in_use: int) -> AllocationTrace:
    return Recorder(in_use).runs("a +20000:100 -9000:2000").trace()


def old(found: StepChunks) -> dict[int, tuple[int, int]]:
    """Address to (bytes, requested bytes) of the older chunks."""
    columns = (found.address, found.allocated, found.requested)
    rows = zip(*(column[found.birth == -1].tolist() for column in columns), strict=True)
    return {address: (size, asked) for address, size, asked in rows}


def test_with_a_map_every_chunk_in_use_is_known_with_its_sizes() -> None:
    chunks = [(0x1000, 4096, 3000), (0x9000, 2048, 1999), (0xA000, 1024, MISSING), (0xB000, 256, 1)]
    start = memory_map(chunks, [(0, 1 << 20)])
    trace = dataclasses.replace(step_from(6400), start_map=start, end_map=start)
    # GIVEN variables at other addresses, with other sizes
    found = attributed(
        trace, TraceFacts(variables=(variable(0x1000, 4000), variable(0x70000, 100)))
    ).chunks
    assert old(found) == {0x1000: (4096, 3000), 0x9000: (2048, 1999), 0xB000: (256, 1)}
    assert int(found.allocated[found.live(0)].sum()) == start.in_use_bytes
    assert found.death[found.address == 0x9000].tolist() == [1]
    assert found.death[found.address == 0xB000].tolist() == [len(trace)]


def test_without_a_map_known_chunks_have_their_rounded_requests_once() -> None:
    def older(in_use: int, facts: TraceFacts) -> dict[int, tuple[int, int]]:
        return old(attributed(step_from(in_use), facts).chunks)

    facts = TraceFacts(
        variables=(variable(0x1000, 3000), variable(None, 50)), tensors=(tensor(0x5000, 300),)
    )
    assert older(1 << 20, facts) == {0x9000: (2048, 2000), 0x1000: (3072, 3000), 0x5000: (512, 300)}
    # GIVEN two variables and a tensor that share one buffer, and a variable whose buffer the step
    # frees
    variables = (variable(0x1000, 3000), variable(0x1000, 3000), variable(0x9000, 1500))
    facts = TraceFacts(variables=variables, tensors=(tensor(0x1000, 3000),))
    assert older(1 << 20, facts) == {0x9000: (2048, 2000), 0x1000: (3072, 3000)}
    facts = TraceFacts(
        variables=(variable(0x1000, 3000),), tensors=(tensor(0x5000, 300), tensor(0x6000, 100))
    )
    fits = 2048 + 3072 + 512 + 256
    assert set(older(fits, facts)) == {0x9000, 0x1000, 0x5000, 0x6000}
    assert set(older(fits - 1, facts)) == {0x9000, 0x1000}
    assert set(older(2048 + 3072 - 1, facts)) == {0x9000, 0x5000, 0x6000}


def test_chunks_of_the_map_have_the_owners_of_the_step_at_its_moment() -> None:
    # GIVEN a variable's chunk, one without an owner, and a step that allocates two and frees one of
    # them
    at_start = [(0x100, 256, 200), (0x200, 512, MISSING), (0x400, 512, MISSING), (0x800, 512, 500)]
    regions = [(0x100, 0x900)]
    start = memory_map([*at_start, (0x600, 512, MISSING)], regions)
    end = memory_map(
        [*at_start[:2], (0x400, 512, 450), *at_start[3:], (0x600, 512, MISSING)], regions
    )
    step = Recorder(256 + 512)
    step.event(1, 0x400, 450, "a", "output")
    step.event(1, 0x200, 500, "a", "output")
    step.event(-1, 0x200, 500)
    trace = dataclasses.replace(step.trace(), start_map=start, end_map=end)
    facts = TraceFacts(
        graphs=graph(a=OpFact("m/a", "forward", True)), variables=(variable(0x100, 200),)
    )
    made = attributed(trace, facts)
    ages = {(0x100, 256): 3, (0x800, 256): 1}
    owned = made.map(ages, 0)
    weights, saved = ChunkOwner("m/a", "weights", True), ChunkOwner("m/a", "activations", None)
    owners = [owned.owners[owner] if owner >= 0 else None for owner in owned.owner.tolist()]
    by_address = dict(
        zip(
            owned.address.tolist(), zip(owners, owned.source, owned.since, strict=True), strict=True
        )
    )
    source = OWNER_SOURCES.index
    assert by_address[0x100] == (weights, source("variable"), 3)
    assert by_address[0x400] == (saved, source("trace"), 0)
    # of another size: its age is not that chunk's
    assert by_address[0x800] == (None, source("none"), MISSING)
    assert (owned.step, owned.phase) == (0, "train")
    assert made.map(ages, -1).owner.tolist().count(-1) == len(start) - 1
    assert (made.map(ages).owner >= 0).sum() == 3  # at the peak


def test_ages_of_chunks_continue_from_step_to_step() -> None:
    columns = (
        [0x100, 0x400, 0x800, 0xC00],
        [256, 512, 512, 256],
        [200, 500, 500, 100],
        [-1, 0, -1, 1],
        [3, 2, 3, 3],
    )
    owners = (ChunkOwner("m/a", "weights", True),)
    chunks = StepChunks(7, "train", *map(np.asarray, columns), np.zeros(4, np.int64), owners, 3, {})
    ages = ages_after({(0x100, 256): 3, (0xC00, 256): 3}, chunks)
    assert ages == {(0x100, 256): 3, (0x800, 512): 7, (0xC00, 256): 7}


def ledger_of_op(name: str, **ops: OpFact) -> dict[tuple[str | None, str], int]:
    step = Recorder()
    step.run(name, [(0x1000, 4096)])
    return rows(ledger_of(step.trace(), TraceFacts(graphs=graph(**ops))))


def test_an_op_that_the_optimizer_rewrote_is_the_one_it_replaces_but_a_term_of_a_sum_is_not() -> (
    None
):
    # GIVEN a product whose buffer another op reuses, for a result that the backward pass reads
    folded = "m/ArithmeticOptimizer/FoldTransposeIntoMatMul_MatMul"
    product = OpFact("m", "forward", passes_to=("m/Reshape",))
    assert ledger_of_op(folded, m__MatMul=product, m__Reshape=FORWARD_A) == {
        ("m", "activations"): 4096
    }
    leaf = "m/ArithmeticOptimizer/AddOpsRewrite_Leaf_1_add_2"
    assert ledger_of_op(leaf, m__add_2=FORWARD_A) == {("m/a", "workspace"): 4096}


@pytest.mark.parametrize(
    "name",
    [
        "ArithmeticOptimizer/ReorderCastLikeAndValuePreserving_float_cast_1",
        "ArithmeticOptimizer/AddOpsRewrite_Internal_0_cast_1",
        "ArithmeticOptimizer/HoistCommonFactorOutOfAggregation_Mul_cast_1_other_2",
        "ArithmeticOptimizer/RemoveStackSliceSameAxis_Axis_cast_1",
        "ConstantFolding/cast_1-reduction_indices",
        "ConstantFolding/cast_1-folded-1",
        "ConstantFolding/cast_1_recip",
        "ConstantFolding/ArithmeticOptimizer/AddOpsRewrite_Leaf_1_cast_1-folded",
        "cast_1-0-CastToFp16-AutoMixedPrecision",
        "Recomputed/cast_1",
    ],
)
def test_an_op_that_the_optimizer_made_is_where_the_op_is_that_its_name_contains(name: str) -> None:
    # GIVEN ops without a layer, so that no scope tells anything, and the optimizer's op beside them
    ops = {"cast_1": OpFact(None, "backward"), "cast": OpFact("m", "forward")}
    # THEN the longest name of an op decides, not another one that the name contains as well
    assert ledger_of_op(name, **ops) == {(None, "activation_gradients"): 4096}


NAMES = {
    "PartitionedCall/net/dense/MatMul": ("net/dense", "forward"),
    "StatefulPartitionedCall_1/net/dense/BiasAdd": ("net/dense", "forward"),
    "gradient_tape/net/dense/MatMul/MatMul_1": ("net/dense", "backward"),
    "net/gradients/net/dense/BiasAdd_grad": ("net/dense", "backward"),
    "gradient_tape/unknown/Sum": (None, "backward"),
    "adam/dense/mul": (None, "update"),
    "RMSprop_2/Square": (None, "update"),
    "compile_loss/mse/Square": (None, "forward"),
    "gradient_tape/compile_loss/mse/Mul": (None, "backward"),
    "Iterator/Next": (None, "forward"),
    "AddN": (None, "other"),
}
"""Layer and pass by the name of an op."""


@pytest.mark.parametrize("name", NAMES)
def test_a_scope_is_the_layer_unless_it_is_of_the_program(name: str) -> None:
    recorder = Recorder()
    for number, op in enumerate(NAMES):
        recorder.run(op, [(4096 * number, 256)])
    facts = facts_from_names(recorder.trace())
    (graph,) = facts.graphs
    assert graph.ops[name] == OpFact(*NAMES[name])
    assert graph.root and "made without the recorder" in facts.notes[0] and facts.mode == "graph"


READS_DA = dataclasses.replace(BACKWARD, gradient_inputs=("da",))
OPS = {
    "a": FORWARD_A,
    "da": BACKWARD,
    "moved": READS_DA,
    "product": dataclasses.replace(BACKWARD, gradient_inputs=("moved",)),
    "dw": dataclasses.replace(GRADIENT, gradient_inputs=("product",)),
}
NOTHING = Intervals(*(np.zeros(0, np.int64) for _ in range(4)))
SOURCE = TraceFacts(trainable=FACTS.trainable, graphs=graph(**OPS))


def reordered(*order: str, executed: bool = True, before_backward: bool = False) -> set[str]:
    """The backward ops of a step of which no result counts as a gradient: they began before what
    they depend on."""
    step = Recorder()
    for place, name in enumerate(order):
        step.run(name, [(0x10000 * (place + 1), 4096)])
    for place, _ in enumerate(order):
        step.event(-1, 0x10000 * (place + 1), 4096)
    trace = step.trace() if executed else dataclasses.replace(step.trace(), ops=NOTHING)
    chunks = attributed(trace, dataclasses.replace(SOURCE, before_backward=before_backward)).chunks
    category = {
        birth: chunks.owners[owner].category
        for birth, owner in zip(chunks.birth, chunks.owner, strict=True)
    }
    backward = {"da", "moved", "product", "dw"} & chunks.ops.keys()
    return {
        op for op in backward if all(category[birth] not in GRADIENTS for birth in chunks.ops[op])
    }


@pytest.mark.parametrize("executed", [True, False])
def test_backward_op_that_began_before_all_its_inputs_is_reordered(executed: bool) -> None:
    assert reordered("moved", "a", "da", "product", "dw", executed=executed) == {"moved"}
    assert reordered("a", "da", "moved", "product", "dw", executed=executed) == set()
    # The input was moved, as casts are.
    assert reordered("a", "da", "product", "moved", "dw", executed=executed) == set()
    # The trace begins within a step.
    assert (
        reordered("moved", "product", "dw", "a", "da", "moved", "product", "dw", executed=executed)
        == set()
    )


def test_in_a_forward_pass_that_failed_the_inputs_of_a_reordered_op_never_ran() -> None:
    assert reordered("a", "moved", before_backward=True) == {"moved"}
    assert reordered("a", "moved") == set()
    # AND in the steps before it, they ran later
    assert reordered("moved", "a", "da", "product", "dw", "moved", "a", before_backward=True) == {
        "moved"
    }
    assert reordered("a", "da", "moved", "product", "dw", "a", before_backward=True) == set()


@pytest.mark.parametrize("before_backward", [True, False])
def test_what_a_forward_pass_that_failed_holds_is_no_gradient(before_backward: bool) -> None:
    step = Recorder().runs("a +1000:4096, da +20000:16384, dw +40000:1000")
    facts = dataclasses.replace(SOURCE, interrupted=True, before_backward=before_backward)
    found = rows(ledger_of(step.trace(), facts))
    gradients = sum(size for (_, category), size in found.items() if category in GRADIENTS)
    assert gradients == (0 if before_backward else 16384 + 1000)
    workspace = sum(size for (_, category), size in found.items() if category == "workspace")
    assert workspace >= (16384 + 1000 if before_backward else 0)


def test_what_an_early_backward_op_made_waits_for_it_also_if_the_forward_pass_failed() -> None:
    facts = dataclasses.replace(SOURCE, interrupted=True, before_backward=True)
    failed = "moved +9000:8192, a +1000:4096"
    before = (
        "moved +8000:512, a +2000:256, da +20000:16384 -2000, product +30000:512 -8000 -20000, "
        "dw -30000, "
    )
    # GIVEN a step that failed, alone in its trace or after a whole one THEN both results are for
    # the backward pass
    for steps in (failed, before + failed):
        chunks = attributed(Recorder().runs(steps).trace(), facts).chunks
        held = [
            chunks.owners[owner].category for owner in chunks.owner[chunks.death == chunks.events]
        ]
        assert held == ["activations", "activations"]
    # BUT what it freed before the failure was none
    freed = ledger_of(Recorder().runs("moved +9000:8192 -9000, a +1000:4096").trace(), facts)
    assert ("m/a", "workspace") in rows(freed)


def test_reordered_op_that_the_backward_pass_reads_is_saved_for_it() -> None:
    step = Recorder().runs(
        "moved +9000:8192, a +1000:4096, da +20000:16384 -1000, product +30000:512 -9000 -20000, "
        "dw +40000:1000 -30000 -40000"
    )
    snapshot = ledger_of(step.trace(), SOURCE)
    assert rows(snapshot)["m/a", "activations"] == 4096 + 8192
    assert sum(row.bytes for row in snapshot.saved_for_backward) == 4096 + 8192


RELAYOUT = "dw-0-TransposeNHWCToNCHW-LayoutOptimizer"


def unseen_step() -> Recorder:
    """The input's copy for a weight's gradient is made first; forward, backward."""
    step = Recorder()
    step.run(RELAYOUT, [(0x80000, 2048)])
    step.runs(
        "a +1000:4096, b +9000:8192, a -9000, da +20000:16384, "
        "da-1-TransposeNHWCToNCHW-LayoutOptimizer +50000:512 -50000, dw +30000:1000 -1000 "
        "-80000:2048 -20000 -30000"
    )
    return step


def test_forward_pass_ends_at_its_last_allocation_without_op_executions() -> None:
    snapshot = ledger_of(dataclasses.replace(unseen_step().trace(), ops=NOTHING), FACTS)
    held = {row.layer: row.bytes for row in snapshot.saved_for_backward}
    assert held == {"m/a": 4096 + 2048}
    assert rows(snapshot)["m/a", "activations"] == 4096 + 2048
    assert rows(snapshot)["m/a", "weight_gradients"] == 1000


def categories_by_op(trace: AllocationTrace, facts: TraceFacts) -> dict[str, Category]:
    chunks = attributed(trace, facts).chunks
    by_birth = dict(zip(chunks.birth.tolist(), chunks.owner.tolist(), strict=True))
    return {op: chunks.owners[by_birth[births[0]]].category for op, births in chunks.ops.items()}


def test_copies_in_another_layout_made_in_the_backward_pass() -> None:
    copy, result = (
        "da-1-TransposeNHWCToNCHW-LayoutOptimizer",
        "dw-0-0-TransposeNCHWToNHWC-LayoutOptimizer",
    )
    step = unseen_step()
    step.run(result, [(0x60000, 512)])
    trace = dataclasses.replace(step.trace(), ops=NOTHING)
    found = categories_by_op(trace, FACTS)
    assert (found[copy], found[result]) == ("activation_gradients", "weight_gradients")
    # BUT a copy of what the op reads of the forward pass is a temporary
    reads_forward = {
        **FACTS.graphs[0].ops,
        "da": dataclasses.replace(BACKWARD, forward_inputs=(1,)),
    }
    assert (
        categories_by_op(trace, dataclasses.replace(FACTS, graphs=graph(**reads_forward)))[copy]
        == "workspace"
    )


def received(*senders: str, beside: tuple[str, ...] = ()) -> AllocationTrace:
    """A device receives a tensor while `senders` send and the ops `beside` run."""
    step = Recorder()
    for op in (*senders, *beside):
        step.run(op, [])
    step.event(1, 0x70000, 4096, "SameWorkerRecvDone", "dynamic")
    trace = step.trace()
    sent = {f"{sender}:Type": f"{sender}:_Send" for sender in senders}
    strings = tuple(sent.get(text, text) for text in trace.strings)
    return dataclasses.replace(trace, strings=strings)


@pytest.mark.parametrize(
    ("senders", "beside"),
    [
        (("IteratorGetNext/_3",), ()),  # by the host
        (("placeholder/_7", "placeholder_1/_5"), ("MultiDeviceIteratorFromStringHandle",)),
        ((), ("RemoteCall",)),  # a data set on the device
    ],
)
def test_a_batch_that_was_sent_is_input(senders: tuple[str, ...], beside: tuple[str, ...]) -> None:
    assert rows(ledger_of(received(*senders, beside=beside), FACTS)) == {(None, "inputs"): 4096}


def test_a_batch_that_a_custom_loop_passes_is_input_unless_something_else_was_sent_too() -> None:
    # Seen on a GPU: the function's arguments are sent from the host one by one.
    own = dataclasses.replace(FACTS.graphs[0], arguments=frozenset({"inputs", "classes"}))
    sent = received("inputs/_3", "classes/_1")
    assert rows(ledger_of(sent, dataclasses.replace(FACTS, graphs=(own,)))) == {
        (None, "inputs"): 4096
    }
    # Of a function that the program calls itself, or beside a layer's result, it may be anything.
    inner = dataclasses.replace(own, root=False)
    for trace, graph_facts in ((sent, inner), (received("inputs/_3", "layer/Cast/_5"), own)):
        assert (None, "inputs") not in rows(
            ledger_of(trace, dataclasses.replace(FACTS, graphs=(graph_facts,)))
        )
    for senders in (("IteratorGetNext/_3", "layer/Cast/_5"), ("placeholder/_7",), ()):
        assert (None, "inputs") not in rows(ledger_of(received(*senders), FACTS))


def buffer(
    op: str, size: int, start: int, end: int, offset: int, *readers: str, **more: bool
) -> Buffer:
    return Buffer(
        (op,),
        readers,
        offset,
        size,
        start,
        end,
        more.get("named", True),
        False,
        more.get("constant", False),
    )


def test_buffer_assignment_with_recomputation_in_the_backward_pass() -> None:
    buffers = (
        buffer("a", 400, 0, 9, 0, "b", "da"),
        buffer("b", 100, 1, 5, 400, "da"),
        # has the name of what was fused into it, but forward ops read it
        buffer("da", 50, 2, 8, 500, "b"),
        buffer("a", 30, 2, 9, 550, "da", constant=True),
        buffer("b", 5, 3, 3, 580),
        buffer("b", 5, 4, 4, 580),
        buffer("da", 70, 5, 6, 600, "dw"),
        buffer("dw", 10, 6, 9, 700, "update"),
        buffer("b", 20, 7, 8, 720, "dw"),  # again
        buffer("da", 40, 8, 9, 740, "dw"),
    )
    facts = TraceFacts(
        graphs=graph(
            a=FORWARD_A, b=FORWARD_B, da=BACKWARD, dw=GRADIENT, update=OpFact("m/a", "update")
        )
    )
    module = Module("inference_train_1__", "train", (BufferAllocation(1024, False, buffers),))
    snapshot = ledger_of(allocating(1024, modules=(module,)), facts)
    assert {row.layer: row.bytes for row in snapshot.saved_for_backward} == {
        "m/a": 50 + 400,
        "m/b": 100,
    }
    assert rows(snapshot) == {
        ("m/a", "activations"): 50 + 400,
        ("m/b", "activations"): 100,
        ("m/a", "activation_gradients"): 70,
        ("m/a", "workspace"): 30,
        (None, "workspace"): 1024 - 580 - 70,
    }


def allocating(*sizes: int, modules: tuple[Module, ...], op: str | None = None) -> AllocationTrace:
    """A step that requests these bytes without an op's name, as compiled modules do, or with their
    function's."""
    step = Recorder()
    for number, size in enumerate(sizes, 1):
        step.event(1, 0x10000 * number, size, op)
    return dataclasses.replace(step.trace(), modules=modules)


def test_temporaries_of_a_module_that_one_op_runs_are_workspace() -> None:
    # GIVEN a module of one layer's ops and one of a step, with buffers of unknown ops
    unknown = buffer("pad", 512, 0, 3, 0)
    inside = (unknown, buffer("da", 100, 1, 3, 512))
    facts = TraceFacts(graphs=graph(b=FORWARD_B, da=BACKWARD))

    def unattributed(*buffers: Buffer) -> int:
        planned = BufferAllocation(1024, False, buffers), BufferAllocation(512, True, (unknown,))
        trace = allocating(1024, 512, modules=(Module("a_inference__conv_xla_1__.1", "", planned),))
        return rows(ledger_of(trace, facts)).get((None, "unattributed"), 0)

    assert unattributed(*inside) == 512  # of the result
    assert unattributed(*inside, buffer("b", 200, 2, 3, 612)) == 2 * 512


def test_the_line_of_a_result_is_that_of_the_buffer_which_its_allocation_ends_with() -> None:
    # GIVEN a result, in whose allocation a temporary lies before it, and a result that borrows a
    # neighbor's name
    temporary, result = buffer("a", 512, 0, 2, 0), buffer("b", 512, 3, 9, 0)
    borrowed = buffer("b", 1024, 3, 9, 0, named=False)
    planned = (
        BufferAllocation(512, True, (temporary, result)),
        BufferAllocation(1024, True, (borrowed,)),
    )
    ops = {
        op: OpFact("m/a", "forward", line=line)
        for op, line in (("a", "train.py:1"), ("b", "train.py:2"))
    }
    trace = allocating(512, 1024, modules=(Module("a_train__.1", "", planned),))
    # THEN older tensors like these, which Python holds, have their lines
    new, old = (
        tuple(
            TensorFact("held_tensors", size, at + size, (size,), "int8", "list")
            for size in (512, 1024)
        )
        for at in (0x10000 - 512, 0x900000)
    )
    new = (new[0], dataclasses.replace(new[1], address=0x20000))
    trace = dataclasses.replace(trace, start_in_use=1536, in_use=trace.in_use + 1536)
    facts = TraceFacts(graphs=graph(**ops), tensors=old, tensors_at_end=new)
    held = [(group.bytes, group.line) for group in ledger_of(trace, facts).held_tensors]
    assert held == [(1024, None), (512, "train.py:2")]


def test_results_of_a_module_inside_a_graph_are_classified_by_their_last_reader() -> None:
    # GIVEN modules with results of four sizes and unknown layers
    sizes = {
        "activations": 1024,
        "workspace": 2048,
        "activation_gradients": 4096,
        "weight_gradients": 8192,
    }
    planned = tuple(
        BufferAllocation(size, True, (buffer("convolution", size, 0, 1, 0),))
        for size in sizes.values()
    )
    facts = dataclasses.replace(
        FACTS,
        graphs=graph(
            a=FORWARD_A, b=FORWARD_B, da=BACKWARD, dw=GRADIENT, up=OpFact("m/a", "update")
        ),
    )
    places = {category: 0x10000 * number for number, category in enumerate(sizes, 1)}

    step = Recorder().runs("a +1000:256")
    for category in ("activations", "workspace"):
        step.event(1, places[category], sizes[category])
    step.run("b", [(0x3000, 256)], [(places["workspace"], sizes["workspace"])])
    step.run("da", [(0x2000, 256)])
    for category in ("activation_gradients", "weight_gradients"):
        step.event(1, places[category], sizes[category])
    for category, reader in (
        ("activations", "da"),
        ("activation_gradients", "da"),
        ("weight_gradients", "up"),
    ):
        step.run(reader, [], [(places[category], sizes[category])])
    trace = dataclasses.replace(
        step.trace(), modules=(Module("a_forward__conv_xla_1__.1", "", planned),)
    )
    chunks = attributed(trace, facts).chunks
    columns = zip(chunks.requested.tolist(), chunks.owner.tolist(), strict=True)
    found = {size: chunks.owners[owner].category for size, owner in columns}
    assert {category: found[size] for category, size in sizes.items()} == {
        category: category for category in sizes
    }


@pytest.mark.parametrize(
    ("others", "layers", "mode"),
    [(4096, "ab", "graph"), (1024, "ab", "xla"), (1024, "aa", "graph")],
)
def test_a_step_is_compiled_if_modules_hold_most_of_its_peak_unless_they_are_of_one_op(
    others: int, layers: str, mode: str
) -> None:
    # GIVEN a module of several layers, or the inside of an op, beside other results
    buffers = tuple(buffer(op, 1024, 0, 1, 1024 * at) for at, op in enumerate(layers))
    step = Recorder()
    step.run("b", [(0x1000, others)])
    step.event(1, 0x8000, 2048)
    planned = BufferAllocation(2048, False, buffers)
    trace = dataclasses.replace(
        step.trace(), modules=(Module("a_forward__conv_xla_1__.1", "", (planned,)),)
    )
    facts = dataclasses.replace(FACTS, graphs=graph(a=FORWARD_A, b=FORWARD_B))
    snapshot = ledger_of(trace, facts)
    assert snapshot.mode == mode and "XLA allocates their 2048 bytes" in snapshot.not_available[-1]


@pytest.mark.parametrize("layer", ["m/a", "m"])
def test_a_compiled_op_inside_a_layer_has_its_memory_and_the_step_stays_a_graph(layer: str) -> None:
    # GIVEN a forward and a backward op that launch modules with results and scratch space
    at = {"y": 0x10000, "dx": 0x20000, "dw": 0x30000, "scratch": 0x40000}
    sizes = {"y": 8192, "dx": 4096, "dw": 1024, "scratch": 16384}
    planned = [BufferAllocation(size, name != "scratch", ()) for name, size in sizes.items()]
    step = Recorder().runs("a +1000:256")
    begun = step.time
    step.event(1, at["y"], sizes["y"])
    step.runs("b +4000:256 -4000")
    turn = step.time
    step.runs("da +2000:256")
    began = step.time
    for name in ("dx", "dw", "scratch"):
        step.event(1, at[name], sizes[name])
    step.event(-1, at["scratch"], sizes["scratch"])
    step.runs("up -30000, da -20000 -10000 -2000")
    trace, end = step.trace(), step.time
    names = len(trace.strings), len(trace.strings) + 1
    # AND the second launch still runs while its successors do on the same thread
    launches = Intervals(*np.asarray([[0, 0], [begun, began], [turn, end], names]))
    trace = dataclasses.replace(
        trace,
        strings=(*trace.strings, "call", "dcall"),
        launches=launches,
        modules=(Module("a_forward__conv_xla_1__.1", "", tuple(planned)),),
    )
    gradient = dataclasses.replace(GRADIENT, output_shapes=((16, 16),), output_dtypes=("float32",))
    facts = dataclasses.replace(
        FACTS,
        graphs=(
            GraphFacts(
                "train",
                {
                    **graph(a=FORWARD_A, b=FORWARD_B, da=BACKWARD, up=OpFact("m/a", "update"))[
                        0
                    ].ops,
                    "call": OpFact(layer, "forward", saved_for_backward=True),
                    "dcall": OpFact(layer, "backward"),
                },
                {"dcall": (("", 1),)},
                True,
            ),
            GraphFacts("__backward_1", {"Identity": gradient}, {}, False),
        ),
    )
    step_made = attributed(trace, facts)
    chunks = step_made.chunks
    columns = zip(chunks.requested.tolist(), chunks.owner.tolist(), strict=True)
    found = {size: chunks.owners[owner] for size, owner in columns}
    owners = {name: (found[size].layer, found[size].category) for name, size in sizes.items()}
    # THEN a module of a layer with layers in it keeps its own contents
    if layer == "m":
        assert owners["dw"] == (None, "workspace")
        return
    assert step_made.snapshot.mode == "graph"
    assert not any("XLA" in note for note in step_made.snapshot.not_available)
    assert owners == {
        "y": ("m/a", "activations"),
        "dx": ("m/a", "activation_gradients"),
        "dw": ("m/a", "weight_gradients"),
        "scratch": ("m/a", "workspace"),
    }


def test_of_two_modules_that_request_the_same_size_the_one_of_the_function_counts() -> None:
    # GIVEN a profile with the module of an earlier training, which also requests 43,008 bytes
    modules = tuple(
        Module(
            f"{name}.9", name, (BufferAllocation(43_008, False, (buffer(op, 43_008, 0, 1, 0),)),)
        )
        for name, op in (("earlier", "a"), ("step", "b"))
    )
    facts = TraceFacts(graphs=graph(a=FORWARD_A, b=FORWARD_B))

    def layers(function: str, size: int = 43_008) -> set[str | None]:
        return {
            layer
            for layer, _ in rows(ledger_of(allocating(size, modules=modules, op=function), facts))
        }

    assert (layers("__inference_step_631"), layers("__inference_earlier_7")) == ({"m/b"}, {"m/a"})
    assert layers("__inference_other_7") == layers("__inference_step_631", 43_264) == {None}


def test_batches_that_are_ready_belong_to_the_stages_of_the_pipeline() -> None:
    # GIVEN six batches of (8, 100, 256) float32, one of them in use, and stages, one of examples
    size = 4 * 8 * 100 * 256
    stages = ("prefetch(3)", 3, 3 * size), ("map", 9, 9 * size // 8), ("parallel_map", 4, 4 * size)
    batch = BatchFacts(8, (((-1, 100, 256), "float32"), ((8,), "float32")), stages)
    facts = TraceFacts(batch=batch, earlier=Earlier(input_sizes=frozenset({size})))
    snapshot = ledger_of(constants_step(*[size] * 6), facts)
    assert rows(snapshot)[None, "inputs"] == 6 * size
    assert [(one.held_by, one.count, one.bytes, one.shape) for one in snapshot.held_tensors] == [
        ("prefetch(3)", 3, 3 * size, (8, 100, 256)),
        ("parallel_map", 2, 2 * size, (8, 100, 256)),
    ]
