"""Chunks of a step and older ones: from a memory map, or from what Python knows."""

import dataclasses

import numpy as np
from map_cases import memory_map
from trace_cases import Recorder

from tb_memplugin.attribution.owners.step_chunks import StepChunks, ages_after, owned_map
from tb_memplugin.attribution.trace.lifetimes import Chunks, all_chunks
from tb_memplugin.schema import MISSING, OWNER_SOURCES, ChunkOwner
from tb_memplugin.schema.trace import AllocationTrace, TensorFact, TraceFacts, VariableFact


def variable(address: int | None, size: int) -> VariableFact:
    return VariableFact(f"v{address}", "weights", "m/a", True, size, "GPU:0", address, address)


def tensor(address: int, size: int) -> TensorFact:
    return TensorFact("inputs", size, address)


def step_from(in_use: int) -> AllocationTrace:
    step = Recorder(in_use)
    step.run("a", [(0x20000, 100)], [(0x9000, 2000)])
    return step.trace()


def old(found: Chunks) -> dict[int, tuple[int, int]]:
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
    found = all_chunks(trace, TraceFacts(variables=(variable(0x1000, 4000), variable(0x70000, 100))))
    assert old(found) == {0x1000: (4096, 3000), 0x9000: (2048, 1999), 0xB000: (256, 1)}
    assert int(found.allocated[found.live(-1)].sum()) == start.in_use_bytes
    assert found.death[found.address == 0x9000].tolist() == [1]
    assert found.death[found.address == 0xB000].tolist() == [len(trace)]


def test_without_a_map_known_chunks_have_their_rounded_requests() -> None:
    facts = TraceFacts(variables=(variable(0x1000, 3000), variable(None, 50)), tensors=(tensor(0x5000, 300),))
    assert old(all_chunks(step_from(1 << 20), facts)) == {
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
    assert old(all_chunks(step_from(1 << 20), facts)) == {0x9000: (2048, 2000), 0x1000: (3072, 3000)}


def test_without_a_map_tensors_that_do_not_fit_are_left_out_and_variables_stay() -> None:
    facts = TraceFacts(variables=(variable(0x1000, 3000),), tensors=(tensor(0x5000, 300), tensor(0x6000, 100)))
    fits = 2048 + 3072 + 512 + 256
    assert set(old(all_chunks(step_from(fits), facts))) == {0x9000, 0x1000, 0x5000, 0x6000}
    assert set(old(all_chunks(step_from(fits - 1), facts))) == {0x9000, 0x1000}
    assert set(old(all_chunks(step_from(2048 + 3072 - 1), facts))) == {0x9000, 0x5000, 0x6000}


OWNERS = (
    ChunkOwner("m/a", "weights", True),
    ChunkOwner("m/a", "activations", True),
    ChunkOwner(None, "unattributed", None),
)


def step_chunks() -> StepChunks:
    """Two permanent chunks, one allocated by the first event and freed by the third, one without an owner."""
    address, allocated, requested = [0x100, 0x400, 0x800, 0xC00], [256, 512, 512, 256], [200, 500, 500, 100]
    columns = (address, allocated, requested, [-1, 0, -1, 1], [3, 2, 3, 3], [0, 1, 2, 1])  # birth, death, owner
    return StepChunks(7, "train", *map(np.asarray, columns), OWNERS, 3, {})


def test_chunks_of_the_map_have_the_owners_of_the_step_at_its_moment() -> None:
    chunks = [(0x100, 256, 200), (0x200, 512, MISSING), (0x400, 512, 500), (0x800, 512, 500), (0xC00, 256, MISSING)]
    at_end = memory_map(chunks, [(0x100, 0xD00 - 0x100)])
    ages = {(0x100, 256): 3, (0x800, 256): 1}
    owned = owned_map(at_end, step_chunks(), 0, ages)
    assert owned.owner.tolist() == [0, -1, 1, -1, -1]
    sources = [OWNER_SOURCES[source] for source in owned.source.tolist()]
    assert (sources[0], sources[2]) == ("variable", "trace")
    assert owned.since.tolist() == [3, MISSING, 7, MISSING, MISSING]  # of another size: its age is not that chunk's
    assert (owned.step, owned.phase, owned.owners) == (7, "train", OWNERS)
    assert owned_map(at_end, step_chunks(), -1, ages).owner.tolist() == [0, -1, -1, -1, -1]


def test_ages_of_chunks_continue_from_step_to_step() -> None:
    ages = ages_after({(0x100, 256): 3, (0xC00, 256): 3}, step_chunks())
    assert ages == {(0x100, 256): 3, (0x800, 512): 7, (0xC00, 256): 7}
