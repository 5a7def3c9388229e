import pytest
from trace_cases import FORWARD_A, Recorder, graph, ledger_of, rows

from tb_memplugin.attribution import facts_from_names
from tb_memplugin.schema import OpFact, TraceFacts


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
