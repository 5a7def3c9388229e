"""What is known of the chunks that earlier windows left."""

import dataclasses
from typing import Any

import pytest
from map_cases import memory_map
from trace_cases import FACTS, Recorder, ledger_of, rows

from tb_memplugin.recorder.helper.history import ChunkHistory
from tb_memplugin.schema import (
    MISSING,
    AllocationTrace,
    KnownChunk,
    MemoryMap,
    TraceFacts,
)

REGION = (0, 1 << 20)
EMPTY = TraceFacts()


def map_of(*chunks: tuple[int, int, int]) -> MemoryMap:
    """A map of chunks in use (address, bytes, requested bytes)."""
    return memory_map(chunks, [REGION])


def traced(start: MemoryMap) -> AllocationTrace:
    """A step that begins with the map and makes 256 bytes that stay."""
    step = Recorder(start.in_use_bytes or 0).runs("a +90000:200")
    return dataclasses.replace(step.trace(), start_map=start, end_map=start)


def chunk_history(handle_bytes: int | None = None) -> Any:
    return ChunkHistory(handle_bytes)


def known(history: Any, *chunks: tuple[int, int, int]) -> dict[int, KnownChunk]:
    return dict(history.add_to(EMPTY, traced(map_of(*chunks))).earlier.chunks)


def test_chunks_that_a_step_leaves_are_remembered_until_it_frees_them() -> None:
    history = chunk_history()
    first = Recorder().runs("a +1000:1000 +2000:500 -2000")
    history.remember(first.trace())
    assert known(history, (0x1000, 1024, 1000)) == {0x1000: KnownChunk(1024, 1000, "other_state")}
    second = Recorder(1024).runs("a -1000:1000")
    history.remember(second.trace())
    assert known(history, (0x1000, 1024, 1000)) == {}


def remembered(*allocated: tuple[int, int]) -> Any:
    """The history after a step that made chunks (address, requested bytes)."""
    history, step = chunk_history(), Recorder()
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


def test_chunks_of_the_first_batches_are_inputs_and_those_of_resource_handles_state() -> None:
    history = chunk_history(handle_bytes=64)
    before = map_of((0, 1024, 1000))
    after = map_of((0, 1024, 1000), (0x1000, 4096, 4000), (0x3000, 256, 64))
    history.first_batches(before, after)
    earlier = history.add_to(EMPTY, traced(after)).earlier
    assert earlier.chunks == {0x1000: KnownChunk(4096, 4000, "inputs")}  # not the iterator's handle
    assert (earlier.input_sizes, earlier.handle_bytes) == ({4000}, 64)
    # AND free chunks are none
    history = chunk_history()
    history.first_batches(map_of(), memory_map([(0, 1024, MISSING)], [REGION]))
    assert history.add_to(EMPTY, traced(map_of())).earlier.chunks == {}
    start = map_of((0, 256, 64), (0x1000, 256, 64), (0x2000, 512, 300))
    trace = traced(start)
    facts = chunk_history(handle_bytes=64).add_to(FACTS, trace)
    assert rows(ledger_of(trace, facts)) == {
        (None, "other_state"): 2 * 64,
        (None, "unattributed"): 300,
        (None, "rounding"): 2 * (256 - 64) + 512 - 300,
        ("m/a", "activations"): 200,
        ("m/a", "rounding"): 56,
    }
