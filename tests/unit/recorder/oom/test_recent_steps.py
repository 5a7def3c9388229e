"""The owners of chunks at a failure, from hand-made traced steps."""

import dataclasses

import numpy as np
import pytest
from map_cases import memory_map
from reading_cases import MIB, make_layer
from requests_cases import make_traced
from trace_cases import graph

from tb_memplugin.attribution.oom.post_mortem import OomEvent
from tb_memplugin.attribution.owners.step_chunks import StepChunks
from tb_memplugin.importers.allocator.oom_log import Request
from tb_memplugin.model import MISSING, ChunkOwner, MemoryMap, Oom, Phase
from tb_memplugin.model.trace import OpFact, TensorFact, TraceFacts, VariableFact
from tb_memplugin.recorder.oom.recent_steps import RecentSteps

GPU = "GPU:0"
INPUTS = ChunkOwner(None, "inputs", None)
ACTIVATIONS = ChunkOwner("net/conv", "activations", True)
GRADIENTS = ChunkOwner("net/conv", "weight_gradients", True)
LAYER = dataclasses.replace(make_layer("net/conv", True, 1000), output_shape=(-1, 64))


def step_of(
    *chunks: tuple[int, int, int, int, ChunkOwner], step: int = 1, phase: Phase = "train", **ops: tuple[int, ...]
) -> StepChunks:
    """A step with chunks (address, bytes, birth, death, owner)."""
    address, size, birth, death, _ = (np.asarray(column) for column in zip(*chunks, strict=True))
    owners = tuple(dict.fromkeys(owner for *_, owner in chunks))
    return StepChunks(
        step=step,
        phase=phase,
        address=address.astype(np.int64),
        allocated=size.astype(np.int64),
        requested=size.astype(np.int64),
        birth=birth.astype(np.int64),
        death=death.astype(np.int64),
        owner=np.asarray([owners.index(chunk[4]) for chunk in chunks]),
        owners=owners,
        events=20,
        ops=ops,
    )


def in_use(*chunks: tuple[int, int]) -> MemoryMap:
    """A map with chunks in use (address, bytes)."""
    return memory_map([(address, size, size) for address, size in chunks], [(0, 1 << 40)])


def failed(requested: int | None, op: str | None = "conv", phase: Phase = "train", **fields: object) -> OomEvent:
    return OomEvent("1", "failed", GPU, 0.0, 9, phase, requested, op, **fields)  # type: ignore[arg-type]


def owners_of(oom: Oom) -> list[ChunkOwner | None]:
    assert oom.map is not None
    return [oom.map.owners[number] if number >= 0 else None for number in oom.map.owner.tolist()]


def test_facts_are_those_of_the_devices_last_step() -> None:
    recent = RecentSteps()
    first, last = TraceFacts(mode="eager"), TraceFacts(mode="xla")
    for facts in (first, last):
        recent.add(GPU, step_of((0, MIB, 1, 2, INPUTS)), facts)
    assert recent.facts(GPU) is last
    assert recent.facts("GPU:1") == TraceFacts()


@pytest.mark.parametrize(
    ("about", "uncertain", "exact"),
    [
        (None, 100, (None, 0)),
        (1000, 0, (1000, 0)),
        (2000, 100, (2100, 0)),  # the only size within the uncertainty
        (2201, 100, (2201, 100)),  # none is within it
        (3050, 100, (3050, 100)),  # two are
        (4000, 100, (4000, 100)),  # that of a chunk from before the step is not counted
        (5000, 100, (5000, 100)),  # nor that of another device
    ],
)
def test_a_rounded_size_is_exact_if_traced_chunks_have_one_size_near_it(
    about: int | None, uncertain: int, exact: tuple[int | None, int]
) -> None:
    recent = RecentSteps()
    chunks = [(0, 2100, 0, 9, INPUTS), (1, 3000, 1, 9, INPUTS), (2, 3100, 2, 9, INPUTS), (3, 4000, -1, 9, INPUTS)]
    recent.add(GPU, step_of(*chunks), TraceFacts())
    recent.add(GPU, step_of(chunks[0]), TraceFacts())
    recent.add("GPU:1", step_of((0, 5000, 1, 9, INPUTS)), TraceFacts())
    assert recent.exact_bytes(Request(requested_bytes=about, uncertain_bytes=uncertain), GPU) == exact


def test_the_last_three_steps_of_a_phase_count() -> None:
    recent = RecentSteps()
    sizes = [1000, 2000, 3000, 4000]
    for number, size in enumerate(sizes):
        recent.add(GPU, step_of((0, size, 1, 9, INPUTS), step=number), TraceFacts())
    recent.add(GPU, step_of((0, 5000, 1, 9, INPUTS), phase="validation"), TraceFacts())
    found = [recent.exact_bytes(Request(requested_bytes=size, uncertain_bytes=1), GPU)[1] for size in [*sizes, 5000]]
    assert found == [1, 0, 0, 0, 0]


def test_the_newest_step_decides_the_owner_of_a_place() -> None:
    recent = RecentSteps()
    recent.add(GPU, step_of((0, MIB, -1, 20, INPUTS)), TraceFacts())
    recent.add(GPU, step_of((0, MIB, -1, 20, ACTIVATIONS)), TraceFacts())
    oom = recent.post_mortem(failed(8 * MIB), in_use((0, MIB)), TraceFacts(), (), None)
    assert owners_of(oom) == [ACTIVATIONS]


def test_a_step_of_the_failures_phase_comes_before_newer_ones_of_others() -> None:
    recent = RecentSteps()
    recent.add(GPU, step_of((0, MIB, -1, 20, ACTIVATIONS)), TraceFacts())
    recent.add(GPU, step_of((0, MIB, -1, 20, INPUTS), phase="validation"), TraceFacts())
    recent.add("GPU:1", step_of((0, MIB, -1, 20, GRADIENTS)), TraceFacts())
    assert owners_of(recent.post_mortem(failed(8 * MIB), in_use((0, MIB)), TraceFacts(), (), None)) == [ACTIVATIONS]


@pytest.mark.parametrize(("pass_name", "owner"), [("forward", None), ("backward", GRADIENTS)])
def test_no_chunk_is_a_gradient_while_a_forward_op_fails(pass_name: str, owner: ChunkOwner | None) -> None:
    recent = RecentSteps()
    recent.add(GPU, step_of((0, MIB, 3, 20, GRADIENTS), (MIB, 8 * MIB, 5, 20, ACTIVATIONS), conv=(5,)), TraceFacts())
    facts = TraceFacts(graphs=graph(conv=OpFact("net/conv", pass_name)))  # type: ignore[arg-type]
    assert owners_of(recent.post_mortem(failed(8 * MIB), in_use((0, MIB)), facts, (), None)) == [owner]


def test_variables_come_before_earlier_steps_and_tensors_where_their_mode_puts_them() -> None:
    recent = RecentSteps()
    recent.add(GPU, step_of((0, MIB, -1, 20, INPUTS), (MIB, MIB, -1, 20, ACTIVATIONS)), TraceFacts())
    variable = VariableFact("kernel", "weights", "net/conv", True, MIB, GPU, 0, 0)
    tensor = TensorFact("held_tensors", MIB, MIB)
    held = ChunkOwner(None, "held_tensors", None)
    for mode, second in (("graph", held), ("eager", ACTIVATIONS)):
        facts = TraceFacts(mode=mode, variables=(variable,), tensors=(tensor,))  # type: ignore[arg-type]
        oom = recent.post_mortem(failed(8 * MIB), in_use((0, MIB), (MIB, MIB)), facts, (), None)
        assert owners_of(oom) == [ChunkOwner("net/conv", "weights", True), second]


@pytest.mark.parametrize("with_map", [False, True])
@pytest.mark.parametrize(
    ("given", "traced", "shape", "batch"),
    [
        (64, 16, None, 64),  # as the step was given it
        (64, None, None, 64),
        (None, 16, "[48,64] float", 48),  # as the failed tensor has it
        (None, None, "[48,64] float", 48),
        (None, 16, None, None),
        (None, None, None, None),
    ],
)
def test_the_batch_is_the_given_one_or_that_of_the_failed_tensor(
    given: int | None, traced: int | None, shape: str | None, batch: int | None, with_map: bool
) -> None:
    event = failed(None, op="new", layer="net/conv", shape=shape)
    chunks = in_use((0, MIB)) if with_map else None
    recent = RecentSteps()
    recent.add(GPU, step_of((0, 4096, 1, 20, INPUTS)), TraceFacts())
    oom = recent.post_mortem(event, chunks, TraceFacts(), (make_layer("net", True, 9), LAYER), traced, given)
    assert oom.batch_size == batch
    assert (oom.map is None) is not with_map


@pytest.mark.parametrize("given", [64, None])
def test_chunks_that_grew_with_the_batch_have_the_owners_of_the_smaller_ones(given: int | None) -> None:
    # GIVEN a traced step whose chunks are a fourth as large, at other places
    recent = RecentSteps()
    recent.add(
        GPU,
        step_of((7, MIB, 0, 20, INPUTS), (8, 3 * MIB, 1, 20, ACTIVATIONS), (9, 5 * MIB, 2, 20, ACTIVATIONS), conv=(2,)),
        TraceFacts(),
    )
    chunks = in_use((0, 4 * MIB), (16 * MIB, 12 * MIB))
    oom = recent.post_mortem(failed(20 * MIB), chunks, TraceFacts(), (), 16, given)
    # THEN the batch says so; without it nothing is guessed from sizes
    assert owners_of(oom) == ([INPUTS, ACTIVATIONS] if given else [None, None])
    assert oom.batch_size == given


@pytest.mark.parametrize(("given", "owner"), [(64, ACTIVATIONS), (None, None)])
def test_a_given_batch_explains_a_chunk_among_many_unknown_ones(given: int | None, owner: ChunkOwner | None) -> None:
    recent = RecentSteps()
    recent.add(GPU, step_of((8, 3 * MIB, 1, 20, ACTIVATIONS)), TraceFacts())
    chunks = in_use((0, 12 * MIB), (1 << 30, 101 * MIB), (2 << 30, 103 * MIB))
    oom = recent.post_mortem(failed(None, op="new"), chunks, TraceFacts(), (), 16, given)
    assert owners_of(oom) == [owner, None, None]


def test_results_of_layers_in_validation_are_known_by_their_size() -> None:
    # 32 examples of 64 numbers of 4 bytes
    event = failed(MIB, phase="validation")
    oom = RecentSteps().post_mortem(event, in_use((0, 32 * 64 * 4)), TraceFacts(), (LAYER,), None, 32)
    assert owners_of(oom) == [ChunkOwner("net/conv", "workspace", True)]


@pytest.mark.parametrize(("batch", "verdict"), [(4, "fragmentation"), (64, "capacity"), (None, "fragmentation")])
def test_a_step_that_does_not_fit_in_one_piece_fails_for_want_of_memory(batch: int | None, verdict: str) -> None:
    # GIVEN a failure beside enough free memory in pieces, and a traced step of batch 4 that needs 15.5 MiB at least
    requests = make_traced()[3].requests
    fields = {"step": 9, "phase": requests.phase, "requested_bytes": 6 * MIB}
    event = OomEvent("1", "failed", requests.device, 5.0, **fields)  # type: ignore[arg-type]
    pieces = memory_map(
        [(0, 4 * MIB, MISSING), (4 * MIB, 56 * MIB, 56 * MIB), (60 * MIB, 4 * MIB, MISSING)], [(0, 64 * MIB)], 64 * MIB
    )
    recent = RecentSteps()
    recent.keep_requests(dataclasses.replace(requests, first=True))
    assert recent.needed_bytes(event, 4) is None  # the first step makes variables, and tries algorithms
    recent.keep_requests(requests)
    needed = recent.needed_bytes(event, batch)
    oom = recent.post_mortem(event, pieces, TraceFacts(), (), 4, batch)
    # THEN the verdict is that of the whole step
    assert (needed is None) == (batch is None) and oom.verdict == verdict
    assert ("Even with free memory in one piece, the step needs" in oom.reason) == (verdict == "capacity")
