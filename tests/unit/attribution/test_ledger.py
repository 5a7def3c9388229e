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
    FLOAT,
    FORWARD_A,
    GRADIENT,
    Recorder,
    any_step,
    graph,
    ledger_of,
    one_step,
    rows,
    with_shapes,
)

from tb_memplugin.attribution import event_chunks
from tb_memplugin.schema import (
    AllocationTrace,
    ConstantFact,
    Earlier,
    HeldTensorGroup,
    Intervals,
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


def test_an_output_that_no_backward_op_reads_is_not_saved_with_the_others_of_its_op() -> None:
    # GIVEN a loss: a value for each example, and the gradient of the logits, which alone the backward pass reads
    loss = OpFact(
        None, "forward", saved_for_backward=True, unread_outputs=(0,), output_shapes=((-1,), (-1, 8)), passes_to=()
    )
    facts = TraceFacts(trainable=FACTS.trainable, graphs=graph(a=FORWARD_A, da=BACKWARD, dw=GRADIENT, loss=loss))
    step = Recorder()
    step.run("a", [(0x1000, 4096)])
    step.run("loss", [(0x9000, 512), (0xA000, 4096)])
    step.run("da", [(0x20000, 16384)])
    step.run("dw", [(0x30000, 1000)], [(0xA000, 4096), (0x1000, 4096), (0x9000, 512)])
    trace = step.trace()
    known = with_shapes(trace, {1: ("[128]", FLOAT), 2: ("[128,8]", FLOAT)})
    saved = {row.layer: row.bytes for row in ledger_of(known, facts).saved_for_backward}
    assert saved == {None: 4096, "m/a": 4096}
    # THEN an output of unknown shape may be the one that is read
    assert sum(row.bytes for row in ledger_of(trace, facts).saved_for_backward) == 2 * 4096 + 512


def test_backward_op_that_depends_on_no_gradient_is_saved_if_it_ran_in_the_forward_pass() -> None:
    early = OpFact("m/a", "backward", early=True)
    facts = TraceFacts(trainable=FACTS.trainable, graphs=graph(a=FORWARD_A, da=BACKWARD, dw=GRADIENT, early=early))

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
    step.run("dw", [(0x9000, 8192)], [(0x9000, 8192)], region=None, asker="CollectiveAdapterImpl::TempChunk")
    assert rows(ledger_of(step.trace(), FACTS)) == {("m/a", "workspace"): 8192}


def test_chunk_without_op_is_workspace_if_freed_before_the_next_op() -> None:
    def found(between: bool) -> str:
        step = Recorder()
        step.run("a", [(0x1000, 256)])
        step.event(1, 0x9000, 8192)
        step.event(1, 0x20000, 65536, "unknown")  # the peak
        if between:
            step.run("b")
        step.event(-1, 0x9000, 8192)
        return next(row.category for row in ledger_of(step.trace(), FACTS).ledger if row.bytes == 8192)

    assert found(between=False) == "workspace"
    assert found(between=True) == "unattributed"


def test_suspended_forward_op_does_not_move_the_end_of_the_forward_pass() -> None:
    # GIVEN a suspended op of a frozen layer, with a result that is not saved, until after the backward pass
    step = Recorder()
    step.run("a", [(0x1000, 4096)])
    step.overlapping("b", [(0x9000, 8192)], lasts=100)
    step.run("da", [(0x20000, 16384)])
    step.run("dw", [(0x30000, 1000)], [(0x1000, 4096), (0x20000, 16384), (0x30000, 1000)])
    step.time += 100
    step.run("unknown", [], [(0x9000, 8192)])
    snapshot = ledger_of(step.trace(), FACTS)
    assert rows(snapshot)["m/a", "activations"] == 4096
    assert {row.layer: row.bytes for row in snapshot.saved_for_backward} == {"m/a": 4096}


def test_older_chunks_get_owners_by_address_and_the_remainder_is_unattributed() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 1000, "GPU:0", 0x100, 0x100)
    facts = TraceFacts(trainable=FACTS.trainable, graphs=FACTS.graphs, variables=(variable,))
    snapshot = ledger_of(one_step(start=500_000).trace(), facts)
    found = rows(snapshot)
    assert (found["m/a", "weights"], found["m/a", "rounding"]) == (1000, 24 + 24)
    assert found[None, "unattributed"] == 500_000 - 1024
    assert sum(found.values()) == snapshot.in_use_bytes == 500_000 + 21_504


def test_older_chunks_that_a_layer_read_last_and_those_of_their_size_are_inputs() -> None:
    # GIVEN an older batch that the backward pass reads, an older prefetched one, and one that the window receives
    step = Recorder(2 * 8192 + 4096)
    step.run("a", [(0x1000, 4096)])
    step.event(1, 0xC0000, 8192, "SameWorkerRecvDone")
    step.run("da", [(0x20000, 16384)], [(0x90000, 8192), (0x1000, 4096)])
    step.run("unknown", [], [(0xA0000, 8192), (0xB0000, 4096)])
    snapshot = ledger_of(step.trace(), FACTS)
    assert (rows(snapshot)[None, "inputs"], rows(snapshot)[None, "unattributed"]) == (3 * 8192, 4096)
    assert {row.layer: row.bytes for row in snapshot.saved_for_backward} == {None: 8192, "m/a": 4096}


@pytest.mark.parametrize(("address", "size", "own"), [(0x90000, 8192, 8192), (0x91000, 4096, 8192)])
def test_chunks_of_the_size_of_a_batch_that_python_fed_are_batches(address: int, size: int, own: int) -> None:
    # GIVEN a custom loop: an older batch that Python holds, whole or as a replica's slice of it, and unknown chunks
    chunks = [(0x90000, 8192, 8192), (0x92000, 8192, 8192), (0x94000, 8192, 8000), (0xC0000, 4096, 4096)]
    start = memory_map(chunks, [(0x90000, 1 << 20)])
    fed = TensorFact("inputs", size, address)
    step = Recorder(start.in_use_bytes)
    step.run("a", [(0x1000, 4096)])
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
    facts = TraceFacts(trainable=FACTS.trainable, graphs=graph(add=OpFact(None, "other")), variables=(variable,))
    step = Recorder(2048)
    step.run("add", [(0x8000, 2048)], [(0x100, 2048)])
    assert rows(ledger_of(step.trace(), facts)) == {("m/a", "weights"): 2048, ("m/a", "workspace"): 2048}


def test_all_that_a_pass_over_another_one_reads_is_saved_though_never_in_use_at_once() -> None:
    facts = {
        "layer": OpFact("m/a", "forward", True, 0),
        "inner": OpFact("m/b", "forward", True, 0),
        "outer": OpFact("m/a", "backward"),
    }
    step = Recorder()
    for _ in range(2):  # two steps in one window
        step.run("layer", [(0x1000, 512)])
        step.run("outer", [(0x2000, 256)], [(0x1000, 512)])
        step.run("inner", [(0x3000, 1024)])
        step.run("layer", [(0x1000, 512)])
        step.run("outer", [], [(0x1000, 512), (0x2000, 256), (0x3000, 1024)])
    saved = ledger_of(step.trace(), TraceFacts(graphs=graph(**facts))).saved_for_backward
    # The first result is freed before the second one is there; the third one outlives neither.
    assert {row.layer: row.bytes for row in saved} == {"m/a": 512, "m/b": 1024}


def test_trace_with_missing_events_only_has_owners_of_older_chunks() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 1000, "GPU:0", 0x100, 0x100)
    facts = TraceFacts(trainable=FACTS.trainable, graphs=FACTS.graphs, variables=(variable,))
    snapshot = ledger_of(one_step(start=4096).trace(missed=2), facts)
    assert rows(snapshot).keys() == {("m/a", "weights"), ("m/a", "rounding"), (None, "unattributed")}
    assert sum(rows(snapshot).values()) == snapshot.in_use_bytes
    assert snapshot.saved_for_backward == ()
    assert any("misses events" in sentence for sentence in snapshot.not_available)


def test_variables_that_do_not_fit_into_the_bytes_in_use_have_no_rows() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 10_000_000, "GPU:0", 0x100, 0x100)
    snapshot = ledger_of(one_step(start=4096).trace(), TraceFacts(variables=(variable,)))
    # The rounding of a new gradient is known although its owner is unknown.
    assert rows(snapshot) == {(None, "unattributed"): snapshot.in_use_bytes - 24, (None, "rounding"): 24}


def test_a_step_that_frees_more_than_was_in_use_has_no_owners() -> None:
    step = Recorder(4096)
    step.run("a", [(0x1000, 16384)])
    step.run("b", [], [(0x90000, 8192)])
    snapshot = ledger_of(step.trace(), FACTS)
    assert rows(snapshot) == {(None, "unattributed"): snapshot.in_use_bytes}
    assert any("owners are unknown" in sentence for sentence in snapshot.not_available)


def test_freeing_a_free_chunk_is_a_contradiction_and_an_older_one_is_none() -> None:
    step = Recorder(4096)
    step.run("a", [(0x2000, 512)], [(0x1000, 4096)])
    found = event_chunks(step.trace())
    assert (found.birth.tolist(), found.death.tolist(), found.unmatched_frees) == ([0, -1], [2, 1], 0)
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
    assert snapshot.rounding_bytes == sum(row.bytes for row in snapshot.ledger if row.category == "rounding")
    assert split_rounding(snapshot.ledger) == snapshot.ledger


@pytest.mark.parametrize(
    ("backward", "held_by", "category"),
    [
        ("(backward, kept)", None, "activations"),
        ("(backward, kept)", "list `history` in module __main__", "held_tensors"),
        ("(backward)", None, "held_tensors"),
    ],
)
def test_what_a_persistent_tape_keeps_beyond_the_step_is_an_activation(backward, held_by, category) -> None:
    # GIVEN a layer's result that outlives an eager step, with a backward pass of the given span
    step = Recorder()
    step.run("MatMul", [(0x1000, 4096)])
    step.run("MatMul", [(0x9000, 1024)], [(0x9000, 1024)])
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


def kept(address: int, held_by: str | None = HISTORY, shape: tuple[int, ...] = (32, 32)) -> TensorFact:
    return TensorFact("held_tensors", BYTES, address, shape, "float32", held_by)


def groups(new: list[tuple[str, TensorFact]], old: list[TensorFact], lines: dict[str, str]) -> list[HeldTensorGroup]:
    """Groups of a step that reaches its peak before its ops make the `new` tensors that Python keeps."""
    step = Recorder(len(old) * BYTES)
    step.run("peak", [(0x90000, 64 * BYTES)], [(0x90000, 64 * BYTES)])
    for op, tensor in new:
        step.run(op, [(tensor.address, BYTES)])
    graphs = graph(**{op: OpFact("m/a", "forward", line=lines.get(op)) for op, _ in new}, da=BACKWARD)
    facts = TraceFacts(graphs=graphs, tensors=tuple(old), tensors_at_end=tuple(tensor for _, tensor in new))
    return list(ledger_of(step.trace(), facts).held_tensors)


OLD = [kept(0x1000), kept(0x3000)]
LEAK = HeldTensorGroup((32, 32), "float32", 2, 2 * BYTES, HISTORY)
PATH = "module __main__ › history (list) › "
REACHED = [dataclasses.replace(tensor, retaining_path=f"{PATH}[{at}]") for at, tensor in enumerate(OLD)]
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
def test_older_tensors_have_the_line_of_their_like_that_the_step_made(new, old, lines, line, path) -> None:
    assert groups(new, old, lines) == [dataclasses.replace(LEAK, line=line, retaining_path=path)]


def test_a_tensor_that_lives_at_the_peak_is_counted_with_its_line() -> None:
    # GIVEN a leaked tensor of no layer, made before the step's largest allocation
    step = Recorder()
    step.run("loss", [(0x5000, BYTES)])
    step.run("peak", [(0x90000, 64 * BYTES)], [(0x90000, 64 * BYTES)])
    facts = TraceFacts(graphs=graph(loss=OpFact(None, "other", line="train.py:12")), tensors_at_end=(kept(0x5000),))
    assert ledger_of(step.trace(), facts).held_tensors == (
        HeldTensorGroup((32, 32), "float32", 1, BYTES, HISTORY, "train.py:12"),
    )


def constants_step(*sizes: int) -> AllocationTrace:
    """A step in which TensorFlow allocates chunks without an op that stay, beside the layer's."""
    step = Recorder()
    step.run("layer", [(0x1000, 512)])
    for number, size in enumerate(sizes):
        step.event(1, 0x100000 * (number + 1), size)
    return step.trace()


def constant(size: int, layer: str | None = None, **more: Any) -> ConstantFact:
    return ConstantFact(size, (size // 4,), "float32", layer, "step", "a.py:3", **more)


def with_constants(*facts: ConstantFact) -> TraceFacts:
    return dataclasses.replace(
        FACTS, graphs=tuple(dataclasses.replace(one, constants=facts) for one in graph(layer=OpFact("m/a", "forward")))
    )


def state_of(snapshot: Snapshot) -> dict[str | None, int]:
    return {row.layer: row.bytes for row in snapshot.ledger if row.category == "other_state"}


def test_constants_of_a_function_belong_to_the_layer_that_uses_them() -> None:
    snapshot = ledger_of(constants_step(80_000, 4096), with_constants(constant(80_000, "m/a"), constant(4096)))
    assert state_of(snapshot) == {"m/a": 80_000, None: 4096}
    assert [(group.bytes, group.held_by, group.line, group.category) for group in snapshot.held_tensors] == [
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
def test_constants_of_one_size_each_have_a_chunk_or_have_no_layer(sizes, constants, batches, expected) -> None:
    facts = dataclasses.replace(with_constants(*constants), earlier=Earlier(input_sizes=frozenset(batches)))
    assert state_of(ledger_of(constants_step(*sizes), facts)) == expected


def test_a_variable_of_no_model_and_a_sparse_gradient_made_dense_are_named() -> None:
    buffer = VariableFact(
        "buffer:0#7", "other_state", None, None, 4096, "GPU:0", 0x100, 0x100, (1024,), "float32", False
    )
    dense = OpFact("m/a", "update", is_gradient=True, gradient_of="m/a", made_dense=True, output_shapes=((512,),))
    step = Recorder(4096)
    step.run("dense", [(0x2000, 2048)])
    step.run("dense", [], [(0x2000, 2048)])
    snapshot = ledger_of(step.trace(), TraceFacts(graphs=graph(dense=dense), variables=(buffer,)))
    assert rows(snapshot) == {(None, "other_state"): 4096, ("m/a", "weight_gradients"): 2048}
    assert [(group.bytes, group.shape, group.held_by, group.category) for group in snapshot.held_tensors] == [
        (4096, (1024,), "variable `buffer`", "other_state"),
        (2048, (512,), "sparse gradient of layer m/a, made dense", "weight_gradients"),
    ]


def test_a_gradient_that_the_loop_still_refers_to_is_its_layers() -> None:
    gradient = OpFact("m/a", "backward", is_gradient=True, gradient_of="m/a")
    held = TensorFact("held_tensors", 4096, 0x1000, (1024,), "float32", HISTORY)
    step = Recorder()
    step.run("gradient", [(0x1000, 4096)])
    facts = TraceFacts(graphs=graph(gradient=gradient), tensors_at_end=(held,))
    assert rows(ledger_of(step.trace(), facts)) == {("m/a", "weight_gradients"): 4096}
