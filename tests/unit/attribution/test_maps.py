"""Chunks of a step and older ones: from a memory map, or from what Python knows."""

import dataclasses

import numpy as np
from map_cases import memory_map
from trace_cases import Recorder, attributed, graph

from tb_memplugin.attribution import StepChunks, ages_after
from tb_memplugin.schema import (
    MISSING,
    OWNER_SOURCES,
    AllocationTrace,
    ChunkOwner,
    OpFact,
    TensorFact,
    TraceFacts,
    VariableFact,
)


def variable(address: int | None, size: int) -> VariableFact:
    return VariableFact(f"v{address}", "weights", "m/a", True, size, "GPU:0", address, address)


def tensor(address: int, size: int) -> TensorFact:
    return TensorFact("inputs", size, address)


def step_from(in_use: int) -> AllocationTrace:
    step = Recorder(in_use)
    step.run("a", [(0x20000, 100)], [(0x9000, 2000)])
    return step.trace()


def chunks_of(trace: AllocationTrace, facts: TraceFacts) -> StepChunks:
    chunks = attributed(trace, facts).chunks
    assert chunks is not None
    return chunks


def old(found: StepChunks) -> dict[int, tuple[int, int]]:
    """Address to (bytes, requested bytes) of the older chunks."""
    rows = np.flatnonzero(found.birth == -1)
    columns = (found.address[rows], found.allocated[rows], found.requested[rows])
    return {
        address: (size, asked) for address, size, asked in zip(*(column.tolist() for column in columns), strict=True)
    }


def test_with_a_map_every_chunk_in_use_is_known_with_its_sizes() -> None:
    chunks = [(0x1000, 4096, 3000), (0x9000, 2048, 1999), (0xA000, 1024, MISSING), (0xB000, 256, 1)]
    start = memory_map(chunks, [(0, 1 << 20)])
    trace = dataclasses.replace(step_from(6400), start_map=start, end_map=start)
    # GIVEN variables at other addresses, with other sizes
    found = chunks_of(trace, TraceFacts(variables=(variable(0x1000, 4000), variable(0x70000, 100))))
    assert old(found) == {0x1000: (4096, 3000), 0x9000: (2048, 1999), 0xB000: (256, 1)}
    assert int(found.allocated[found.live(0)].sum()) == start.in_use_bytes
    assert found.death[found.address == 0x9000].tolist() == [1]
    assert found.death[found.address == 0xB000].tolist() == [len(trace)]


def test_without_a_map_known_chunks_have_their_rounded_requests() -> None:
    facts = TraceFacts(variables=(variable(0x1000, 3000), variable(None, 50)), tensors=(tensor(0x5000, 300),))
    assert old(chunks_of(step_from(1 << 20), facts)) == {
        0x9000: (2048, 2000),
        0x1000: (3072, 3000),
        0x5000: (512, 300),
    }


def test_without_a_map_a_chunk_counts_once() -> None:
    # GIVEN two variables and a tensor that share one buffer, and a variable whose buffer the step frees
    facts = TraceFacts(
        variables=(variable(0x1000, 3000), variable(0x1000, 3000), variable(0x9000, 1500)),
        tensors=(tensor(0x1000, 3000),),
    )
    assert old(chunks_of(step_from(1 << 20), facts)) == {0x9000: (2048, 2000), 0x1000: (3072, 3000)}


def test_without_a_map_tensors_that_do_not_fit_are_left_out_and_variables_stay() -> None:
    facts = TraceFacts(variables=(variable(0x1000, 3000),), tensors=(tensor(0x5000, 300), tensor(0x6000, 100)))
    fits = 2048 + 3072 + 512 + 256
    assert set(old(chunks_of(step_from(fits), facts))) == {0x9000, 0x1000, 0x5000, 0x6000}
    assert set(old(chunks_of(step_from(fits - 1), facts))) == {0x9000, 0x1000}
    assert set(old(chunks_of(step_from(2048 + 3072 - 1), facts))) == {0x9000, 0x5000, 0x6000}


def test_chunks_of_the_map_have_the_owners_of_the_step_at_its_moment() -> None:
    # GIVEN a variable's chunk, one without an owner, and a step that allocates two and frees one of them
    at_start = [(0x100, 256, 200), (0x200, 512, MISSING), (0x400, 512, MISSING), (0x800, 512, 500)]
    regions = [(0x100, 0x900)]
    start = memory_map([*at_start, (0x600, 512, MISSING)], regions)
    end = memory_map([*at_start[:2], (0x400, 512, 450), *at_start[3:], (0x600, 512, MISSING)], regions)
    step = Recorder(256 + 512)
    step.event(1, 0x400, 450, "a", "output")
    step.event(1, 0x200, 500, "a", "output")
    step.event(-1, 0x200, 500)
    trace = dataclasses.replace(step.trace(), start_map=start, end_map=end)
    facts = TraceFacts(graphs=graph(a=OpFact("m/a", "forward", True)), variables=(variable(0x100, 200),))
    made = attributed(trace, facts)
    ages = {(0x100, 256): 3, (0x800, 256): 1}
    owned = made.map(ages, 0)
    weights, saved = ChunkOwner("m/a", "weights", True), ChunkOwner("m/a", "activations", None)
    owners = [owned.owners[owner] if owner >= 0 else None for owner in owned.owner.tolist()]
    by_address = dict(zip(owned.address.tolist(), zip(owners, owned.source, owned.since, strict=True), strict=True))
    source = OWNER_SOURCES.index
    assert by_address[0x100] == (weights, source("variable"), 3)
    assert by_address[0x400] == (saved, source("trace"), 0)
    assert by_address[0x800] == (None, source("none"), MISSING)  # of another size: its age is not that chunk's
    assert (owned.step, owned.phase) == (0, "train")
    assert made.map(ages, -1).owner.tolist().count(-1) == len(start) - 1
    assert (made.map(ages).owner >= 0).sum() == 3  # at the peak


def test_ages_of_chunks_continue_from_step_to_step() -> None:
    columns = ([0x100, 0x400, 0x800, 0xC00], [256, 512, 512, 256], [200, 500, 500, 100], [-1, 0, -1, 1], [3, 2, 3, 3])
    owners = (ChunkOwner("m/a", "weights", True),)
    chunks = StepChunks(7, "train", *map(np.asarray, columns), np.zeros(4, np.int64), owners, 3, {})
    ages = ages_after({(0x100, 256): 3, (0xC00, 256): 3}, chunks)
    assert ages == {(0x100, 256): 3, (0x800, 512): 7, (0xC00, 256): 7}
