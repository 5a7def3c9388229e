import dataclasses

import pytest
from trace_cases import BACKWARD, FACTS, FORWARD_A, GRADIENT, Recorder, graph, ledger_of, rows

from tb_memplugin.attribution.trace.op_names import OpNames
from tb_memplugin.attribution.trace.window import reordered_ops
from tb_memplugin.schema import GRADIENTS
from tb_memplugin.schema.trace import TraceFacts

READS_DA = dataclasses.replace(BACKWARD, gradient_inputs=("da",))
OPS = {
    "a": FORWARD_A,
    "da": BACKWARD,
    "moved": READS_DA,
    "product": dataclasses.replace(BACKWARD, gradient_inputs=("moved",)),
    "dw": dataclasses.replace(GRADIENT, gradient_inputs=("product",)),
}
SOURCE = TraceFacts(trainable=FACTS.trainable, graphs=graph(**OPS))


def ran(*order: str, executed: bool = True) -> Recorder:
    step = Recorder()
    for place, name in enumerate(order):
        if executed:
            step.run(name, [(0x10000 * (place + 1), 4096)])
        else:
            step.event(1, 0x10000 * (place + 1), 4096, name, "output")
    return step


@pytest.mark.parametrize("executed", [True, False])
def test_backward_op_that_began_before_all_its_inputs_is_reordered(executed: bool) -> None:
    def found(*order: str) -> set[str]:
        trace = ran(*order, executed=executed).trace()
        return reordered_ops(trace, OpNames(trace, SOURCE))

    assert found("moved", "a", "da", "product", "dw") == {"moved"}
    assert found("a", "da", "moved", "product", "dw") == set()
    assert found("a", "da", "product", "moved", "dw") == set()  # the input was moved, as casts are
    assert found("moved", "product", "dw", "a", "da", "moved", "product", "dw") == set()  # begins within a step


def test_in_a_forward_pass_that_failed_the_inputs_of_a_reordered_op_never_ran() -> None:
    def found(*order: str, before_backward: bool = True) -> set[str]:
        trace = ran(*order).trace()
        return reordered_ops(trace, OpNames(trace, SOURCE), before_backward)

    assert found("a", "moved") == {"moved"}
    assert found("a", "moved", before_backward=False) == set()
    # AND in the steps before it, they ran later
    assert found("moved", "a", "da", "product", "dw", "moved", "a") == {"moved"}
    assert found("a", "da", "moved", "product", "dw", "a") == set()


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
