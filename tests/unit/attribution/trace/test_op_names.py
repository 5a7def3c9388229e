from trace_cases import FORWARD_A, Recorder, graph

from tb_memplugin.attribution.trace.op_names import OpNames
from tb_memplugin.model.trace import OpFact, TraceFacts

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
