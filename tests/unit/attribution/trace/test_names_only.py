"""Layers and passes from op names alone, as TensorFlow writes them."""

import pytest
from trace_cases import Recorder

from tb_memplugin.attribution.trace.names_only import NOTE, facts_from_names
from tb_memplugin.model.trace import OpFact, Pass

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
