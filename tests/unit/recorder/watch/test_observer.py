"""The history of a device's chunks from one traced step to the next, and whether several replicas of a model train."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from map_cases import memory_map
from trace_cases import FACTS, Recorder, ledger_of, rows

from tb_memplugin.recorder.base import Faults
from tb_memplugin.recorder.watch import LayerWatch
from tb_memplugin.recorder.watch.observer import ChunkHistory
from tb_memplugin.schema import MISSING, AllocationTrace, KnownChunk, MemoryMap, TraceFacts, VariableFact

REGION = (0, 1 << 20)
EMPTY = TraceFacts()


def map_of(*chunks: tuple[int, int, int]) -> MemoryMap:
    """A map of chunks in use (address, bytes, requested bytes)."""
    return memory_map(chunks, [REGION])


def traced(start: MemoryMap) -> AllocationTrace:
    """A step that begins with the map and makes 256 bytes that stay."""
    step = Recorder(start.in_use_bytes or 0)
    step.run("a", [(0x90000, 200)])
    return dataclasses.replace(step.trace(), start_map=start, end_map=start)


def known(history: ChunkHistory, *chunks: tuple[int, int, int]) -> dict[int, KnownChunk]:
    return dict(history.add_to(EMPTY, traced(map_of(*chunks))).earlier.chunks)


def test_chunks_that_a_step_leaves_are_remembered_until_it_frees_them() -> None:
    history = ChunkHistory()
    first = Recorder()
    first.run("a", [(0x1000, 1000), (0x2000, 500)], [(0x2000, 500)])
    history.remember(first.trace())
    assert known(history, (0x1000, 1024, 1000)) == {0x1000: KnownChunk(1024, 1000, "other_state")}
    second = Recorder(1024)
    second.run("a", [], [(0x1000, 1000)])
    history.remember(second.trace())
    assert known(history, (0x1000, 1024, 1000)) == {}


def remembered(*allocated: tuple[int, int]) -> ChunkHistory:
    """The history after a step that made chunks (address, requested bytes)."""
    history, step = ChunkHistory(), Recorder()
    step.run("a", list(allocated))
    history.remember(step.trace())
    return history


@pytest.mark.parametrize("now", [(0x1000, 1024, 900), (0x1000, 2048, 1000), (0x1400, 1024, 1000)])
def test_a_chunk_that_was_replaced_is_forgotten(now: tuple[int, int, int]) -> None:
    history = remembered((0x1000, 1000))
    assert known(history, now) == {}
    # THEN for good
    assert known(history, (0x1000, 1024, 1000)) == {}


def test_without_a_map_nothing_is_forgotten_and_a_steps_chunk_does_not_become_a_batch() -> None:
    history, later = remembered((0x1000, 1000)), Recorder(1024)
    later.run("a", [(0x5000, 100)])
    assert set(history.add_to(EMPTY, later.trace()).earlier.chunks) == {0x1000}
    history.first_batches(map_of(), map_of((0x1000, 1024, 1000)))
    assert known(history, (0x1000, 1024, 1000))[0x1000].category == "other_state"


def test_chunks_of_the_first_batches_are_inputs() -> None:
    history = ChunkHistory(handle_bytes=64)
    before = map_of((0, 1024, 1000))
    after = map_of((0, 1024, 1000), (0x1000, 4096, 4000), (0x3000, 256, 64))
    history.first_batches(before, after)
    earlier = history.add_to(EMPTY, traced(after)).earlier
    assert earlier.chunks == {0x1000: KnownChunk(4096, 4000, "inputs")}  # not the iterator's handle
    assert (earlier.input_sizes, earlier.handle_bytes) == ({4000}, 64)
    # AND free chunks are none
    history = ChunkHistory()
    history.first_batches(map_of(), memory_map([(0, 1024, MISSING)], [REGION]))
    assert history.add_to(EMPTY, traced(map_of())).earlier.chunks == {}


def test_chunks_of_resource_handles_are_state() -> None:
    start = map_of((0, 256, 64), (0x1000, 256, 64), (0x2000, 512, 300))
    trace = traced(start)
    facts = ChunkHistory(handle_bytes=64).add_to(FACTS, trace)
    assert rows(ledger_of(trace, facts)) == {
        (None, "other_state"): 2 * 64,
        (None, "unattributed"): 300,
        (None, "rounding"): 2 * (256 - 64) + 512 - 300,
        ("m/a", "activations"): 200,
        ("m/a", "rounding"): 56,
    }


def variable(name: str, size: int, address: int) -> VariableFact:
    return VariableFact(name, "weights", f"m/{name}", True, size, "GPU:0", address, address)


def addresses(chunks: list[tuple[int, int, int]], *variables: VariableFact) -> list[int | None]:
    facts = ChunkHistory().add_to(TraceFacts(variables=variables), traced(map_of(*chunks)))
    return [fact.start_address for fact in facts.variables]


def test_a_copy_on_read_variable_is_matched_by_its_size() -> None:
    chunks = [(0, 1024, 1000), (0x1000, 1024, 900), (0x2000, 5120, 5000)]
    assert addresses(chunks, variable("embedding", 5000, 0x70000), variable("w", 1000, 0)) == [0x2000, 0]
    # AND also if another chunk is at the copy's address
    assert addresses(chunks, variable("embedding", 5000, 0x1000)) == [0x2000]


def test_variables_of_one_size_are_not_matched_to_more_chunks_of_it() -> None:
    chunks = [(0, 1024, 1000), (0x1000, 1024, 1000), (0x2000, 1024, 1000)]
    lost = [variable("one", 1000, 0x70000), variable("other", 1000, 0x70000)]
    assert addresses(chunks, *lost) == [0x70000, 0x70000]
    # BUT if a third variable has one of the chunks, the two others are theirs
    places = addresses(chunks, *lost, variable("third", 1000, 0x1000))
    assert sorted(places[:2]) == [0, 0x2000] and places[2] == 0x1000


class Model:
    """Stands for a model: its strategy has `count` replicas, -1 for no strategy, and a variable `parts` parts."""

    name = "model"

    def __init__(self, count: int, parts: int) -> None:
        part = SimpleNamespace(handle=object())
        one = SimpleNamespace(values=(part,) * parts) if parts > 1 else part
        self.variables = [SimpleNamespace(handle=object()), one]
        if count >= 0:
            self.distribute_strategy = SimpleNamespace(num_replicas_in_sync=count)


def watching(model: Any) -> LayerWatch:
    watch = LayerWatch(Faults())
    watch._model = lambda: model
    return watch


@pytest.mark.parametrize(
    ("count", "parts", "replicated"),
    [(1, 1, False), (-1, 1, False), (2, 1, True), (1, 2, True), (-1, 2, True), (4, 4, True)],
)
def test_replicas_are_known_by_the_strategy_and_by_the_variables(count: int, parts: int, replicated: bool) -> None:
    assert watching(Model(count, parts)).replicated is replicated


def test_without_a_model_the_scope_of_the_loop_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    assert not watching(None).replicated
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: SimpleNamespace(num_replicas_in_sync=2))
    assert watching(None).replicated
    # AND a strategy that says no number of replicas is none
    model = Model(-1, 1)
    model.distribute_strategy = SimpleNamespace()
    assert not watching(model).replicated
