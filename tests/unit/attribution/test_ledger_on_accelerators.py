"""The ledger without op executions, as on a GPU, and with buffer assignments."""

import dataclasses

import numpy as np
import pytest
from trace_cases import BACKWARD, FACTS, FORWARD_A, FORWARD_B, GRADIENT, Recorder, graph, ledger_of, rows

from tb_memplugin.attribution.owners.classifier import Classifier
from tb_memplugin.attribution.results.ledger import step_mode
from tb_memplugin.attribution.trace.op_names import OpNames
from tb_memplugin.attribution.trace.xla import BufferAssignments
from tb_memplugin.schema.trace import AllocationTrace, Buffer, BufferAllocation, Intervals, Module, OpFact, TraceFacts

RELAYOUT = "dw-0-TransposeNHWCToNCHW-LayoutOptimizer"
NOTHING = Intervals(*(np.zeros(0, np.int64) for _ in range(4)))


def unseen_step() -> Recorder:
    """The input's copy for a weight's gradient is made first; forward, backward."""
    step = Recorder()
    step.run(RELAYOUT, [(0x80000, 2048)])
    step.run("a", [(0x1000, 4096)])
    step.run("b", [(0x9000, 8192)])
    step.run("a", [], [(0x9000, 8192)])
    step.run("da", [(0x20000, 16384)])
    step.run("da-1-TransposeNHWCToNCHW-LayoutOptimizer", [(0x50000, 512)], [(0x50000, 512)])
    step.run("dw", [(0x30000, 1000)], [(0x1000, 4096), (0x80000, 2048), (0x20000, 16384), (0x30000, 1000)])
    return step


def on_accelerator(step: Recorder) -> AllocationTrace:
    return dataclasses.replace(step.trace(), ops=NOTHING)


def test_forward_pass_ends_at_its_last_allocation_without_op_executions() -> None:
    snapshot = ledger_of(on_accelerator(unseen_step()), FACTS)
    held = {row.layer: row.bytes for row in snapshot.saved_for_backward}
    assert held == {"m/a": 4096 + 2048}
    assert rows(snapshot)["m/a", "activations"] == 4096 + 2048
    assert rows(snapshot)["m/a", "weight_gradients"] == 1000


def test_copies_in_another_layout_made_in_the_backward_pass() -> None:
    trace = on_accelerator(unseen_step())
    names = OpNames(trace, FACTS)
    reads_forward = dataclasses.replace(BACKWARD, forward_inputs=(1,))
    known = OpNames(trace, dataclasses.replace(FACTS, graphs=graph(da=reads_forward)))
    gradient = names.fact("da-1-TransposeNHWCToNCHW-LayoutOptimizer")
    forward_data = known.fact("da-1-TransposeNHWCToNCHW-LayoutOptimizer")
    result = names.fact("dw-0-0-TransposeNCHWToNHWC-LayoutOptimizer")
    assert gradient is not None and gradient.relayout and not gradient.saved_for_backward
    assert forward_data is not None and forward_data.relayout and forward_data.saved_for_backward
    assert result == GRADIENT


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


def test_batch_that_a_custom_loop_passes_to_a_function_is_input() -> None:
    # Seen on a GPU: the function's arguments are sent from the host one by one.
    own = dataclasses.replace(FACTS.graphs[0], arguments=frozenset({"inputs", "classes"}))
    sent = received("inputs/_3", "classes/_1")
    assert rows(ledger_of(sent, dataclasses.replace(FACTS, graphs=(own,)))) == {(None, "inputs"): 4096}
    # Of a function that the program calls itself, or beside a layer's result, it may be anything.
    inner = dataclasses.replace(own, root=False)
    for trace, graph_facts in ((sent, inner), (received("inputs/_3", "layer/Cast/_5"), own)):
        assert (None, "inputs") not in rows(ledger_of(trace, dataclasses.replace(FACTS, graphs=(graph_facts,))))


def test_tensor_is_not_input_if_something_else_was_sent_too() -> None:
    for senders in (("IteratorGetNext/_3", "layer/Cast/_5"), ("placeholder/_7",), ()):
        assert (None, "inputs") not in rows(ledger_of(received(*senders), FACTS))


def buffer(op: str, size: int, start: int, end: int, offset: int, *readers: str, **more: bool) -> Buffer:
    return Buffer((op,), readers, offset, size, start, end, more.get("named", True), False, more.get("constant", False))


def test_buffer_assignment_with_recomputation_in_the_backward_pass() -> None:
    buffers = (
        buffer("a", 400, 0, 9, 0, "b", "da"),
        buffer("b", 100, 1, 5, 400, "da"),
        buffer("da", 50, 2, 8, 500, "b"),  # has the name of what was fused into it, but forward ops read it
        buffer("a", 30, 2, 9, 550, "da", constant=True),
        buffer("b", 5, 3, 3, 580),
        buffer("b", 5, 4, 4, 580),
        buffer("da", 70, 5, 6, 600, "dw"),
        buffer("dw", 10, 6, 9, 700, "update"),
        buffer("b", 20, 7, 8, 720, "dw"),  # again
        buffer("da", 40, 8, 9, 740, "dw"),
    )
    module = Module("inference_train_1__", "train", (BufferAllocation(1000, False, buffers),))
    trace = dataclasses.replace(any_trace(), modules=(module,))
    facts = TraceFacts(graphs=graph(a=FORWARD_A, b=FORWARD_B, da=BACKWARD, dw=GRADIENT, update=OpFact("m/a", "update")))
    plans = BufferAssignments(trace.modules, OpNames(trace, facts), facts.variables)
    held = [(part.layer, part.bytes) for part in plans.saved(module, module.allocations[0])]
    assert sorted(held) == [("m/a", 50), ("m/a", 400), ("m/b", 100)]
    parts = plans.parts(module, module.allocations[0])
    assert sum(part.bytes for part in parts) == 1000
    assert ("m/a", "workspace", 30) in parts


def test_temporaries_of_a_module_that_one_op_runs_are_workspace() -> None:
    # GIVEN a module of one layer's ops and one of a step, with buffers of unknown ops
    unknown = buffer("pad", 400, 0, 3, 0)
    inside = (unknown, buffer("da", 100, 1, 3, 400))
    step = (*inside, buffer("b", 200, 2, 3, 500))
    modules = tuple(
        Module(name, "", (BufferAllocation(1000, False, buffers), BufferAllocation(400, True, (unknown,))))
        for name, buffers in (("a_inference__conv_xla_1__.1", inside), ("a_inference_train_1__.2", step))
    )
    facts = TraceFacts(graphs=graph(b=FORWARD_B, da=BACKWARD))
    plans = BufferAssignments(modules, OpNames(any_trace(), facts), facts.variables)
    of_op, of_step = ([plans.parts(module, planned) for planned in module.allocations] for module in modules)
    assert (None, "workspace", 400) in of_op[0] and (None, "unattributed", 400) not in of_op[0]
    assert of_op[1] == [(None, "unattributed", 400)]  # a result
    assert (None, "unattributed", 400) in of_step[0]


def test_the_line_of_a_result_is_that_of_the_buffer_which_its_allocation_ends_with() -> None:
    # GIVEN a result, in whose allocation a temporary lies before it, and a result that borrows a neighbor's name
    temporary, result = buffer("a", 400, 0, 2, 0), buffer("b", 400, 3, 9, 0)
    borrowed = buffer("b", 1000, 3, 9, 0, named=False)
    planned = (BufferAllocation(400, True, (temporary, result)), BufferAllocation(1000, True, (borrowed,)))
    ops = {op: OpFact("m/a", "forward", line=line) for op, line in (("a", "train.py:1"), ("b", "train.py:2"))}
    step = Recorder()
    for number, allocation in enumerate(planned):
        step.event(1, 0x1000 * (number + 1), allocation.bytes)
    trace = dataclasses.replace(step.trace(), modules=(Module("a_train__.1", "", planned),))
    classifier = Classifier(trace, TraceFacts(graphs=graph(**ops)))
    assert [classifier.line(chunk) for chunk in range(2)] == ["train.py:2", None]


def any_trace() -> AllocationTrace:
    step = Recorder()
    step.run("a", [(0x1000, 256)])
    return step.trace()


def test_results_of_a_module_inside_a_graph_are_classified_by_their_last_reader() -> None:
    # GIVEN modules with results of four sizes and unknown layers
    sizes = {"activations": 1024, "workspace": 2048, "activation_gradients": 4096, "weight_gradients": 8192}
    planned = tuple(BufferAllocation(size, True, (buffer("convolution", size, 0, 1, 0),)) for size in sizes.values())
    facts = dataclasses.replace(
        FACTS, graphs=graph(a=FORWARD_A, b=FORWARD_B, da=BACKWARD, dw=GRADIENT, up=OpFact("m/a", "update"))
    )
    places = {category: 0x10000 * number for number, category in enumerate(sizes, 1)}

    step = Recorder()
    step.run("a", [(0x1000, 256)])
    for category in ("activations", "workspace"):
        step.event(1, places[category], sizes[category])
    step.run("b", [(0x3000, 256)], [(places["workspace"], sizes["workspace"])])
    step.run("da", [(0x2000, 256)])
    for category in ("activation_gradients", "weight_gradients"):
        step.event(1, places[category], sizes[category])
    for category, reader in (("activations", "da"), ("activation_gradients", "da"), ("weight_gradients", "up")):
        step.run(reader, [], [(places[category], sizes[category])])
    trace = dataclasses.replace(step.trace(), modules=(Module("a_forward__conv_xla_1__.1", "", planned),))
    classifier = Classifier(trace, facts)
    found = {
        int(classifier.chunks.requested[chunk]): classifier.owners(chunk, 0)[0][0].category
        for chunk in range(len(classifier.chunks))
    }
    assert {category: found[size] for category, size in sizes.items()} == {category: category for category in sizes}


@pytest.mark.parametrize(("others", "mode"), [(4096, "graph"), (1024, "xla")])
def test_a_step_is_compiled_if_modules_hold_most_of_its_peak(others: int, mode: str) -> None:
    # GIVEN one compiled op, as Keras's grouped convolutions are in graph mode, beside other results
    planned = BufferAllocation(2048, False, (buffer("a", 2048, 0, 1, 0),))
    step = Recorder()
    step.run("b", [(0x1000, others)])
    step.event(1, 0x8000, 2048)
    trace = dataclasses.replace(step.trace(), modules=(Module("a_forward__conv_xla_1__.1", "", (planned,)),))
    facts = dataclasses.replace(FACTS, graphs=graph(a=FORWARD_A, b=FORWARD_B))
    assert step_mode(Classifier(trace, facts)) == (mode, 2048)


def test_of_two_modules_that_request_the_same_size_the_one_of_the_function_counts() -> None:
    # GIVEN a profile with the module of an earlier training, which also requests 43,204 bytes
    modules = [Module(f"{name}.9", name, (BufferAllocation(43_204, False, ()),)) for name in ("earlier", "step")]
    plans = BufferAssignments(modules, OpNames(any_trace(), FACTS), ())
    for function, module in (("__inference_step_631", modules[1]), ("__inference_earlier_7", modules[0])):
        planned = plans.planned(43_204, function)
        assert planned is not None and planned[0] is module
    assert plans.planned(43_204, "__inference_other_7") is None and plans.planned(43_205, None) is None
