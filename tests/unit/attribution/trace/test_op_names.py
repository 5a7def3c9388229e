import pytest
from trace_cases import FORWARD_A, Recorder, graph

from tb_memplugin.attribution.trace.op_names import NOTE, OpNames, facts_from_names
from tb_memplugin.schema.trace import OpFact, Pass, TraceFacts

FOLDED = "m/ArithmeticOptimizer/FoldTransposeIntoMatMul_MatMul"


def test_op_that_the_graph_optimizer_computes_in_another_way_is_the_op_that_it_replaces() -> None:
    product = OpFact("m", "forward", passes_to=("m/Reshape",))
    step = Recorder()
    step.run(FOLDED, [(0x1000, 4096)])
    names = OpNames(step.trace(), TraceFacts(graphs=graph(m__MatMul=product, m__Reshape=FORWARD_A)))
    assert names.fact(FOLDED) == product
    assert names.following(FOLDED) == ["m/Reshape"]


def test_term_of_a_rewritten_sum_is_not_the_sum() -> None:
    leaf = "m/ArithmeticOptimizer/AddOpsRewrite_Leaf_1_add_2"
    step = Recorder()
    step.run(leaf, [(0x1000, 4096)])
    names = OpNames(step.trace(), TraceFacts(graphs=graph(m__add_2=FORWARD_A)))
    assert names.fact(leaf) == OpFact("m/a", "forward")


NAMES = (
    "PartitionedCall/net/dense/MatMul",
    "StatefulPartitionedCall_1/net/dense/BiasAdd",
    "gradient_tape/net/dense/MatMul/MatMul_1",
    "net/gradients/net/dense/BiasAdd_grad",
    "gradient_tape/unknown/Sum",
    "adam/dense/mul",
    "RMSprop_2/Square",
    "compile_loss/mse/Square",
    "gradient_tape/compile_loss/mse/Mul",
    "Iterator/Next",
    "AddN",
)


@pytest.mark.parametrize(
    ("name", "layer", "pass_name"),
    [
        (NAMES[0], "net/dense", "forward"),
        (NAMES[1], "net/dense", "forward"),
        (NAMES[2], "net/dense", "backward"),
        (NAMES[3], "net/dense", "backward"),
        (NAMES[4], None, "backward"),
        (NAMES[5], None, "update"),
        (NAMES[6], None, "update"),
        (NAMES[7], None, "forward"),
        (NAMES[8], None, "backward"),
        (NAMES[9], None, "forward"),
        (NAMES[10], None, "other"),
    ],
)
def test_a_scope_is_the_layer_unless_it_is_of_the_program(name: str, layer: str | None, pass_name: Pass) -> None:
    recorder = Recorder()
    for number, op in enumerate(NAMES):
        recorder.run(op, [(4096 * number, 256)])
    facts = facts_from_names(recorder.trace())
    (graph,) = facts.graphs
    assert graph.ops[name] == OpFact(layer, pass_name)
    assert graph.root and facts.notes == (NOTE,) and facts.mode == "graph"
