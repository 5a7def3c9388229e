"""Facts of a trace's ops: names that TensorFlow changed, ops that it moved, and profiles without facts."""

import dataclasses

import pytest
from trace_cases import BACKWARD, FACTS, FORWARD_A, GRADIENT, Recorder, attributed, graph, ledger_of, rows

from tb_memplugin.attribution import facts_from_names
from tb_memplugin.schema import GRADIENTS, OpFact, TraceFacts


def ledger_of_op(name: str, **ops: OpFact) -> dict[tuple[str | None, str], int]:
    step = Recorder()
    step.run(name, [(0x1000, 4096)])
    return rows(ledger_of(step.trace(), TraceFacts(graphs=graph(**ops))))


def test_op_that_the_graph_optimizer_computes_in_another_way_is_the_op_that_it_replaces() -> None:
    # GIVEN a product whose buffer another op reuses, for a result that the backward pass reads
    folded = "m/ArithmeticOptimizer/FoldTransposeIntoMatMul_MatMul"
    product = OpFact("m", "forward", passes_to=("m/Reshape",))
    assert ledger_of_op(folded, m__MatMul=product, m__Reshape=FORWARD_A) == {("m", "activations"): 4096}


def test_term_of_a_rewritten_sum_is_not_the_sum() -> None:
    leaf = "m/ArithmeticOptimizer/AddOpsRewrite_Leaf_1_add_2"
    assert ledger_of_op(leaf, m__add_2=FORWARD_A) == {("m/a", "workspace"): 4096}


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
SOURCE = TraceFacts(trainable=FACTS.trainable, graphs=graph(**OPS))


def reordered(*order: str, executed: bool = True, before_backward: bool = False) -> set[str]:
    """The backward ops of a step of which no result counts as a gradient: they began before what they depend on."""
    step = Recorder()
    for place, name in enumerate(order):
        if executed:
            step.run(name, [(0x10000 * (place + 1), 4096)])
        else:
            step.event(1, 0x10000 * (place + 1), 4096, name, "output")
    for place, _ in enumerate(order):
        step.event(-1, 0x10000 * (place + 1), 4096)
    chunks = attributed(step.trace(), dataclasses.replace(SOURCE, before_backward=before_backward)).chunks
    category = {birth: chunks.owners[owner].category for birth, owner in zip(chunks.birth, chunks.owner, strict=True)}
    backward = {"da", "moved", "product", "dw"} & chunks.ops.keys()
    return {op for op in backward if all(category[birth] not in GRADIENTS for birth in chunks.ops[op])}


@pytest.mark.parametrize("executed", [True, False])
def test_backward_op_that_began_before_all_its_inputs_is_reordered(executed: bool) -> None:
    assert reordered("moved", "a", "da", "product", "dw", executed=executed) == {"moved"}
    assert reordered("a", "da", "moved", "product", "dw", executed=executed) == set()
    # The input was moved, as casts are.
    assert reordered("a", "da", "product", "moved", "dw", executed=executed) == set()
    # The trace begins within a step.
    assert reordered("moved", "product", "dw", "a", "da", "moved", "product", "dw", executed=executed) == set()


def test_in_a_forward_pass_that_failed_the_inputs_of_a_reordered_op_never_ran() -> None:
    assert reordered("a", "moved", before_backward=True) == {"moved"}
    assert reordered("a", "moved") == set()
    # AND in the steps before it, they ran later
    assert reordered("moved", "a", "da", "product", "dw", "moved", "a", before_backward=True) == {"moved"}
    assert reordered("a", "da", "moved", "product", "dw", "a", before_backward=True) == set()


@pytest.mark.parametrize("before_backward", [True, False])
def test_what_a_forward_pass_that_failed_holds_is_no_gradient(before_backward: bool) -> None:
    step = Recorder()
    step.run("a", [(0x1000, 4096)])
    step.run("da", [(0x20000, 16384)])
    step.run("dw", [(0x40000, 1000)])
    facts = dataclasses.replace(SOURCE, interrupted=True, before_backward=before_backward)
    found = rows(ledger_of(step.trace(), facts))
    gradients = sum(size for (_, category), size in found.items() if category in GRADIENTS)
    assert gradients == (0 if before_backward else 16384 + 1000)
    workspace = sum(size for (_, category), size in found.items() if category == "workspace")
    assert workspace >= (16384 + 1000 if before_backward else 0)


def test_reordered_op_that_the_backward_pass_reads_is_saved_for_it() -> None:
    step = Recorder()
    step.run("moved", [(0x9000, 8192)])
    step.run("a", [(0x1000, 4096)])
    step.run("da", [(0x20000, 16384)], [(0x1000, 4096)])
    step.run("product", [(0x30000, 512)], [(0x9000, 8192), (0x20000, 16384)])
    step.run("dw", [(0x40000, 1000)], [(0x30000, 512), (0x40000, 1000)])
    snapshot = ledger_of(step.trace(), SOURCE)
    assert rows(snapshot)["m/a", "activations"] == 4096 + 8192
    assert sum(row.bytes for row in snapshot.saved_for_backward) == 4096 + 8192
