"""The rules of the ledger on small traces made by hand.

Lifetimes, categories, closure, and traces that do not hold together.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_cases import ACTIONS, FACTS, Recorder, any_step, graph, ledger_of, one_step, rows

from tb_memplugin.analysis.lifetimes import chunks
from tb_memplugin.analysis.pool import proven_pool
from tb_memplugin.trace import Earlier, KnownChunk, OpFact, TraceFacts, VariableFact


def test_categories_follow_from_role_and_lifetime() -> None:
    snapshot = ledger_of(one_step().trace(), FACTS)
    assert snapshot.in_use_bytes == 4096 + 16384 + 1024
    assert rows(snapshot) == {
        ("m/a", "activations"): 4096,
        ("m/a", "activation_gradients"): 16384,
        ("m/a", "weight_gradients"): 1024,
    }
    assert snapshot.rounding_bytes == 24
    assert [(row.layer, row.bytes) for row in snapshot.held_for_backward] == [("m/a", 4096)]


def test_a_forward_result_that_nothing_waits_for_is_workspace() -> None:
    step = Recorder()
    step.run("a", [(0x1000, 256)])
    step.run("b", [(0x9000, 8192)], [(0x9000, 8192)])
    step.run("da", [(0x20000, 256)])
    assert rows(ledger_of(step.trace(), FACTS))["m/b", "workspace"] == 8192


def test_what_helps_an_op_is_its_workspace_whatever_it_calls_itself() -> None:
    step = Recorder()
    step.run("dw", [(0x9000, 8192)], [(0x9000, 8192)], region=None, asker="CollectiveAdapterImpl::TempChunk")
    assert rows(ledger_of(step.trace(), FACTS)) == {("m/a", "workspace"): 8192}


def test_a_forward_op_that_is_suspended_does_not_move_the_end_of_the_forward_pass() -> None:
    # GIVEN an op of a frozen layer that nothing waits for, and whose thread sleeps until the backward pass is over
    step = Recorder()
    step.run("a", [(0x1000, 4096)])
    step.overlapping("b", [(0x9000, 8192)], lasts=100)
    step.run("da", [(0x20000, 16384)])
    step.run("dw", [(0x30000, 1000)], [(0x1000, 4096), (0x20000, 16384), (0x30000, 1000)])
    step.time += 100
    step.run("unknown", [], [(0x9000, 8192)])
    snapshot = ledger_of(step.trace(), FACTS)
    assert rows(snapshot)["m/a", "activations"] == 4096
    assert {row.layer: row.bytes for row in snapshot.held_for_backward} == {"m/a": 4096}


def test_what_was_there_before_is_named_by_address_and_the_rest_is_shown() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 1000, "GPU:0", 0x100, 0x100)
    facts = TraceFacts(trainable=FACTS.trainable, graphs=FACTS.graphs, variables=(variable,))
    snapshot = ledger_of(one_step(start=500_000).trace(), facts)
    found = rows(snapshot)
    assert found["m/a", "weights"] == 1024
    assert found[None, "unattributed"] == 500_000 - 1024
    assert sum(found.values()) == snapshot.in_use_bytes == 500_000 + 21_504


def test_what_was_there_before_and_what_a_layer_read_last_is_what_the_step_was_given() -> None:
    # GIVEN a batch made before the window, which the backward pass reads; and a chunk that an unknown op drops
    step = Recorder(12288)
    step.run("a", [(0x1000, 4096)])
    step.run("da", [(0x20000, 16384)], [(0x90000, 8192), (0x1000, 4096)])
    step.run("unknown", [], [(0xA0000, 4096)])
    snapshot = ledger_of(step.trace(), FACTS)
    assert rows(snapshot)[None, "inputs"] == 8192
    assert rows(snapshot)[None, "unattributed"] == 4096
    # THEN it is held for the backward pass, too
    assert {row.layer: row.bytes for row in snapshot.held_for_backward} == {None: 8192, "m/a": 4096}


def test_batches_that_wait_are_no_weights_although_none_is_made_in_the_window() -> None:
    # GIVEN weights of 1 MiB that nothing bounds, a batch that the step reads, and as many bytes as of another one
    mib = 1 << 20
    step = Recorder(3 * mib + 256)
    step.run("a", [(0x1000, 4096)])
    step.run("da", [], [(16 * mib, mib), (0x1000, 4096)])
    weights = VariableFact("w", "weights", "m/a", True, mib, "GPU:0", 32 * mib, 32 * mib)
    earlier = Earlier(chunks={1 << 40: KnownChunk(256, 4, "other_state")})

    def found(quiet: int) -> dict[tuple[str | None, str], int]:
        known = dataclasses.replace(FACTS, variables=(weights,), earlier=earlier, quiet_bytes=quiet)
        return rows(ledger_of(step.trace(), known))

    # THEN they are the weights' only if they were there before the first batch was asked for
    assert found(quiet=mib)["m/a", "weights"] == 2 * mib - 256
    assert found(quiet=0)["m/a", "weights"] == mib


def test_a_variables_new_buffer_counts_as_weights_once_the_old_one_is_gone() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 2048, "GPU:0", 0x100, 0x8000)
    update = OpFact("m/a", "update", assigns="w")
    facts = TraceFacts(trainable=FACTS.trainable, graphs=graph(assign=update), variables=(variable,))
    step = Recorder(2048)
    step.run("assign", [(0x8000, 2048)], [(0x100, 2048)], region="temp")
    found = rows(ledger_of(step.trace(), facts))
    assert found == {("m/a", "weights"): 2048, ("m/a", "workspace"): 2048}


def test_a_trace_that_misses_events_names_only_what_was_there_before() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 1000, "GPU:0", 0x100, 0x100)
    facts = TraceFacts(trainable=FACTS.trainable, graphs=FACTS.graphs, variables=(variable,))
    snapshot = ledger_of(one_step(start=4096).trace(missed=2), facts)
    assert rows(snapshot).keys() == {("m/a", "weights"), (None, "unattributed")}
    assert sum(rows(snapshot).values()) == snapshot.in_use_bytes
    assert snapshot.held_for_backward == ()
    assert any("misses events" in sentence for sentence in snapshot.not_available)


def test_owners_that_do_not_fit_into_the_bytes_in_use_are_not_told() -> None:
    variable = VariableFact("w", "weights", "m/a", True, 10_000_000, "GPU:0", 0x100, 0x100)
    snapshot = ledger_of(one_step(start=4096).trace(), TraceFacts(variables=(variable,)))
    assert rows(snapshot) == {(None, "unattributed"): snapshot.in_use_bytes}
    assert any("owners are not available" in sentence for sentence in snapshot.not_available)


def test_without_any_facts_the_ledger_still_closes() -> None:
    snapshot = ledger_of(one_step().trace(), TraceFacts())
    assert sum(row.bytes for row in snapshot.ledger) == snapshot.in_use_bytes


def test_freeing_what_is_not_there_is_a_contradiction() -> None:
    step = Recorder()
    step.run("a", [(0x1000, 4096)], [(0x1000, 4096), (0x1000, 4096)])
    assert chunks(step.trace()).strays == 1


def test_chunks_from_before_the_window_are_told_from_new_ones() -> None:
    step = Recorder(4096)
    step.run("a", [(0x2000, 512)], [(0x1000, 4096)])
    found = chunks(step.trace())
    assert found.birth.tolist() == [0, -1]
    assert found.death.tolist() == [2, 1]


@settings(max_examples=80, deadline=None)
@given(ACTIONS, st.integers(0, 10**6))
def test_every_ledger_sums_to_the_bytes_in_use(actions: list[tuple[int, int]], start: int) -> None:
    trace = any_step(actions, start).trace()
    snapshot = ledger_of(trace, FACTS)
    assert snapshot.in_use_bytes == max(start, int(trace.in_use.max()))
    assert sum(row.bytes for row in snapshot.ledger) == snapshot.in_use_bytes
    assert all(row.bytes > 0 for row in snapshot.ledger)


def test_pool_is_told_only_where_the_events_prove_it() -> None:
    pool, largest = 30 << 20, 12 << 20
    step = Recorder(4 << 20)
    for number in range(40):
        step.event(1, 0x100000 * number, 25_600 * (number % 7 + 1))
    trace = step.trace()
    free = pool - trace.in_use
    figures = [float(f"{value:.6g}") for value in (free - largest) / free]
    object.__setattr__(trace, "fragmentation", np.asarray(figures))
    assert proven_pool(trace, len(trace) - 1) == (pool, largest, 0)
    object.__setattr__(trace, "fragmentation", np.linspace(0.1, 0.9, len(trace)))
    assert proven_pool(trace, len(trace) - 1).bytes is None


@pytest.mark.parametrize("event", [-1])
def test_nothing_is_proven_before_the_first_event(event: int) -> None:
    assert proven_pool(one_step().trace(), event) == (None, None, 0)
