"""The rules of the ledger where the host does not see ops run, as on a GPU, and of the compiler's plans."""

import dataclasses

import numpy as np
from trace_cases import BACKWARD, FACTS, FORWARD_A, FORWARD_B, GRADIENT, LIMIT, Recorder, graph, ledger_of, rows

from tb_memplugin.analysis.attribution import attribute
from tb_memplugin.analysis.op_names import OpNames
from tb_memplugin.analysis.pool import proven_pool
from tb_memplugin.analysis.xla import Plans
from tb_memplugin.trace import AllocationTrace, Buffer, Intervals, Module, OpFact, PlannedAllocation, TraceFacts

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


def test_the_forward_pass_ends_at_its_last_allocation_where_no_op_is_seen_to_run() -> None:
    snapshot = ledger_of(on_accelerator(unseen_step()), FACTS)
    held = {row.layer: row.bytes for row in snapshot.held_for_backward}
    assert held == {"m/a": 4096 + 2048}
    assert rows(snapshot)["m/a", "activations"] == 4096 + 2048


def test_a_copy_of_the_input_for_a_weights_gradient_is_no_gradient() -> None:
    found = rows(ledger_of(on_accelerator(unseen_step()), FACTS))
    assert found["m/a", "weight_gradients"] == 1024


def test_copies_in_another_layout_made_in_the_backward_pass() -> None:
    trace = on_accelerator(unseen_step())
    names = OpNames(trace, FACTS)
    reads_forward = dataclasses.replace(BACKWARD, forward_inputs=(1,))
    known = OpNames(trace, dataclasses.replace(FACTS, graphs=graph(da=reads_forward)))
    gradient = names.fact("da-1-TransposeNHWCToNCHW-LayoutOptimizer")
    forward_data = known.fact("da-1-TransposeNHWCToNCHW-LayoutOptimizer")
    result = names.fact("dw-0-0-TransposeNCHWToNHWC-LayoutOptimizer")
    assert gradient is not None and gradient.relayout and not gradient.awaited
    assert forward_data is not None and forward_data.relayout and forward_data.awaited
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


def test_a_batch_that_the_host_sent_is_input() -> None:
    assert rows(ledger_of(received("IteratorGetNext/_3"), FACTS)) == {(None, "inputs"): 4096}


def test_a_batch_that_an_iterator_deals_out_to_devices_is_input() -> None:
    deals = received("placeholder/_7", "placeholder_1/_5", beside=("MultiDeviceIteratorFromStringHandle",))
    assert rows(ledger_of(deals, FACTS)) == {(None, "inputs"): 4096}


def test_what_else_may_have_been_sent_has_no_owner_it_could_be_wrong_about() -> None:
    assert (None, "inputs") not in rows(ledger_of(received("IteratorGetNext/_3", "layer/Cast/_5"), FACTS))
    assert (None, "inputs") not in rows(ledger_of(received("placeholder/_7"), FACTS))
    assert (None, "inputs") not in rows(ledger_of(received(), FACTS))


def with_fragmentation(pool: int, largest: int) -> AllocationTrace:
    step = Recorder(4 << 20)
    for number in range(8):
        step.event(1, 0x100000 * number, 25_600 * (number % 7 + 1))
    trace = step.trace()
    free = pool - trace.in_use
    figures = [float(f"{value:.6g}") for value in (free - largest) / free]
    return dataclasses.replace(trace, fragmentation=np.asarray(figures))


def test_an_allocator_that_does_not_grow_has_its_whole_limit_as_pool() -> None:
    trace = with_fragmentation(LIMIT, 700 << 20)
    pool = proven_pool(trace, len(trace) - 1, grows=False)
    assert pool.bytes == LIMIT
    assert pool.largest_free_bytes is not None
    assert 0 < pool.uncertain < 4096
    assert abs(pool.largest_free_bytes - (700 << 20)) <= pool.uncertain
    assert pool.largest_free_bytes <= LIMIT - trace.in_use[-1]
    snapshot = attribute(trace, FACTS, step=0, phase="train", wall_time=0.0, capacity_bytes=None, grows=False)
    assert snapshot.pool_bytes == LIMIT
    sentence = f"The largest free block is known to ± {pool.uncertain} bytes only"
    assert any(note.startswith(sentence) for note in snapshot.not_available)


def test_a_pool_that_the_events_contradict_is_not_told() -> None:
    trace = with_fragmentation(300 << 20, 200 << 20)
    assert proven_pool(trace, len(trace) - 1, grows=False).bytes is None
    assert proven_pool(with_fragmentation(LIMIT, 700 << 20), 7).bytes in (None, LIMIT)


def test_the_largest_block_is_not_told_where_six_digits_say_too_little() -> None:
    trace = with_fragmentation(LIMIT, 256)
    assert proven_pool(trace, len(trace) - 1, grows=False)[:2] == (LIMIT, None)


def buffer(op: str, size: int, start: int, end: int, offset: int, *readers: str, **more: bool) -> Buffer:
    return Buffer((op,), readers, offset, size, start, end, more.get("named", True), False, more.get("constant", False))


def test_plan_with_results_made_again_in_the_backward_pass() -> None:
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
    module = Module("inference_train_1__", "train", (PlannedAllocation(1000, False, buffers),))
    trace = dataclasses.replace(any_trace(), modules=(module,))
    facts = TraceFacts(graphs=graph(a=FORWARD_A, b=FORWARD_B, da=BACKWARD, dw=GRADIENT, update=OpFact("m/a", "update")))
    plans = Plans(trace.modules, OpNames(trace, facts), facts.variables)
    held = [(part.layer, part.bytes) for part in plans.held(module, module.allocations[0])]
    assert sorted(held) == [("m/a", 50), ("m/a", 400), ("m/b", 100)]
    parts = plans.parts(module, module.allocations[0])
    assert sum(part.bytes for part in parts) == 1000
    assert ("m/a", "workspace", 30) in parts


def any_trace() -> AllocationTrace:
    step = Recorder()
    step.run("a", [(0x1000, 256)])
    return step.trace()
