"""The ledger without op executions, as on a GPU, and with buffer assignments."""

import dataclasses

import numpy as np
import pytest
from trace_cases import BACKWARD, FACTS, FORWARD_A, FORWARD_B, GRADIENT, Recorder, attributed, graph, ledger_of, rows

from tb_memplugin.schema import (
    AllocationTrace,
    Buffer,
    BufferAllocation,
    Category,
    Intervals,
    Module,
    OpFact,
    TensorFact,
    TraceFacts,
)

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


def categories_by_op(trace: AllocationTrace, facts: TraceFacts) -> dict[str, Category]:
    chunks = attributed(trace, facts).chunks
    by_birth = dict(zip(chunks.birth.tolist(), chunks.owner.tolist(), strict=True))
    return {op: chunks.owners[by_birth[births[0]]].category for op, births in chunks.ops.items()}


def test_copies_in_another_layout_made_in_the_backward_pass() -> None:
    copy, result = "da-1-TransposeNHWCToNCHW-LayoutOptimizer", "dw-0-0-TransposeNCHWToNHWC-LayoutOptimizer"
    step = unseen_step()
    step.run(result, [(0x60000, 512)])
    trace = on_accelerator(step)
    found = categories_by_op(trace, FACTS)
    assert (found[copy], found[result]) == ("activation_gradients", "weight_gradients")
    # BUT a copy of what the op reads of the forward pass is a temporary
    reads_forward = {**FACTS.graphs[0].ops, "da": dataclasses.replace(BACKWARD, forward_inputs=(1,))}
    assert categories_by_op(trace, dataclasses.replace(FACTS, graphs=graph(**reads_forward)))[copy] == "workspace"


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
    facts = TraceFacts(graphs=graph(a=FORWARD_A, b=FORWARD_B, da=BACKWARD, dw=GRADIENT, update=OpFact("m/a", "update")))
    module = Module("inference_train_1__", "train", (BufferAllocation(1024, False, buffers),))
    snapshot = ledger_of(allocating(1024, modules=(module,)), facts)
    assert {row.layer: row.bytes for row in snapshot.saved_for_backward} == {"m/a": 50 + 400, "m/b": 100}
    assert rows(snapshot) == {
        ("m/a", "activations"): 50 + 400,
        ("m/b", "activations"): 100,
        ("m/a", "activation_gradients"): 70,
        ("m/a", "workspace"): 30,
        (None, "workspace"): 1024 - 580 - 70,
    }


def allocating(*sizes: int, modules: tuple[Module, ...], op: str | None = None) -> AllocationTrace:
    """A step that requests these bytes without an op's name, as compiled modules do, or with their function's."""
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
    # GIVEN a result, in whose allocation a temporary lies before it, and a result that borrows a neighbor's name
    temporary, result = buffer("a", 512, 0, 2, 0), buffer("b", 512, 3, 9, 0)
    borrowed = buffer("b", 1024, 3, 9, 0, named=False)
    planned = (BufferAllocation(512, True, (temporary, result)), BufferAllocation(1024, True, (borrowed,)))
    ops = {op: OpFact("m/a", "forward", line=line) for op, line in (("a", "train.py:1"), ("b", "train.py:2"))}
    trace = allocating(512, 1024, modules=(Module("a_train__.1", "", planned),))
    # THEN older tensors like these, which Python holds, have their lines
    new, old = (
        tuple(TensorFact("held_tensors", size, at + size, (size,), "int8", "list") for size in (512, 1024))
        for at in (0x10000 - 512, 0x900000)
    )
    new = (new[0], dataclasses.replace(new[1], address=0x20000))
    trace = dataclasses.replace(trace, start_in_use=1536, in_use=trace.in_use + 1536)
    facts = TraceFacts(graphs=graph(**ops), tensors=old, tensors_at_end=new)
    assert [(group.bytes, group.line) for group in ledger_of(trace, facts).held_tensors] == [
        (1024, None),
        (512, "train.py:2"),
    ]


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
    chunks = attributed(trace, facts).chunks
    columns = zip(chunks.requested.tolist(), chunks.owner.tolist(), strict=True)
    found = {size: chunks.owners[owner].category for size, owner in columns}
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
    snapshot = ledger_of(trace, facts)
    assert snapshot.mode == mode and "XLA allocates their 2048 bytes" in snapshot.not_available[-1]


def test_of_two_modules_that_request_the_same_size_the_one_of_the_function_counts() -> None:
    # GIVEN a profile with the module of an earlier training, which also requests 43,008 bytes
    modules = tuple(
        Module(f"{name}.9", name, (BufferAllocation(43_008, False, (buffer(op, 43_008, 0, 1, 0),)),))
        for name, op in (("earlier", "a"), ("step", "b"))
    )
    facts = TraceFacts(graphs=graph(a=FORWARD_A, b=FORWARD_B))

    def layers(function: str, size: int = 43_008) -> set[str | None]:
        return {layer for layer, _ in rows(ledger_of(allocating(size, modules=modules, op=function), facts))}

    assert (layers("__inference_step_631"), layers("__inference_earlier_7")) == ({"m/b"}, {"m/a"})
    assert layers("__inference_other_7") == layers("__inference_step_631", 43_264) == {None}
