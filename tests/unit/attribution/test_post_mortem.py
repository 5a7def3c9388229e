"""Post-mortems of failures made by hand: owners of chunks known by size only, verdict and
ledger."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from map_cases import memory_map
from reading_cases import DEVICE, MIB, START, make_layer, make_map

from tb_memplugin.attribution import (
    ModuleContents,
    OomEvent,
    OwnerMatching,
    StepChunks,
    largest_tensors,
    observed_batch,
    post_mortem,
    tensors_of_map,
)
from tb_memplugin.schema import (
    IN_USE,
    ChunkOwner,
    Layer,
    LedgerRow,
    MemoryMap,
    TensorGroup,
    TensorShape,
)

DEATH = OomEvent("1", "failed", DEVICE, START, 5, "train", 9 * MIB, shape="[16,32] float")
MAP = make_map(5, capacity=16 * MIB)


def test_memory_at_failure_sums_to_the_bytes_in_use() -> None:
    oom = post_mortem(DEATH, MAP)
    assert [(row.layer, row.category, row.bytes) for row in oom.ledger] == [
        ("model/head", "activations", 4 * MIB - 412),
        ("model/backbone", "weights", 3 * MIB - 100),
        (None, "unattributed", MIB),
        ("model/head", "rounding", 412),
        ("model/backbone", "rounding", 100),
    ]
    assert oom.verdict == "capacity" and (oom.free_bytes, oom.largest_free_bytes) == (
        8 * MIB,
        6 * MIB,
    )


def test_the_chunk_of_a_running_module_has_the_owners_of_what_is_in_it() -> None:
    # GIVEN a failure beside a compiled module's chunk, which has no owner of its own, and another
    # chunk
    chunks = memory_map([(77, 9 * MIB, 8 * MIB), (1 << 32, MIB, MIB)], [(77, 1 << 40)])
    module = (
        LedgerRow("net/first", "activations", True, 6 * MIB, 0),
        LedgerRow("net/second", "activation_gradients", True, 2 * MIB, 0),
    )
    oom = post_mortem(
        DEATH, dataclasses.replace(chunks, in_use_bytes=10 * MIB), module=ModuleContents(module)
    )
    assert {(row.layer, row.category): row.bytes for row in oom.ledger} == {
        ("net/first", "activations"): 6 * MIB,
        ("net/second", "activation_gradients"): 2 * MIB,
        (None, "rounding"): MIB,
        (None, "unattributed"): MIB,
    }
    assert any("is inferred" in note for note in oom.not_available)
    # THEN a chunk of another size holds something else
    smaller = post_mortem(
        DEATH, dataclasses.replace(chunks, in_use_bytes=10 * MIB), module=ModuleContents(module[:1])
    )
    assert {row.layer for row in smaller.ledger} == {None} and smaller.not_available == ()


def test_an_unknown_or_rounded_request_has_a_verdict_only_if_all_that_it_may_be_have_the_same() -> (
    None
):
    unknown = dataclasses.replace(DEATH, requested_bytes=None)
    assert post_mortem(unknown, MAP).verdict is None
    one_block = dataclasses.replace(
        MAP, state=np.asarray([IN_USE, IN_USE, IN_USE, IN_USE, 0]), in_use_bytes=10 * MIB
    )
    oom = post_mortem(unknown, one_block)
    assert oom.verdict == "capacity" and "a single chunk" in oom.reason
    assert any("size of the request" in text for text in oom.not_available)
    # GIVEN 8 MiB free in total
    rough = dataclasses.replace(DEATH, requested_bytes=9 * MIB, uncertain_bytes=MIB // 2)
    oom = post_mortem(rough, MAP)
    assert oom.verdict == "capacity" and any(
        "by at most 512 KiB" in sentence for sentence in oom.not_available
    )
    close = post_mortem(dataclasses.replace(rough, requested_bytes=8 * MIB), MAP)
    assert close.verdict is None and close.reason.startswith(
        "The size of the request is not known exactly enough. "
    )


def test_bytes_without_a_chunk_are_unattributed_and_a_failure_without_chunks_keeps_its_notes() -> (
    None
):
    partial = dataclasses.replace(
        MAP, in_use_bytes=10 * MIB, complete=False, owners=(ChunkOwner("a", "weights", True),) * 2
    )
    oom = post_mortem(DEATH, partial)
    assert sum(row.bytes for row in oom.ledger) == 10 * MIB
    assert oom.largest_free_bytes is None and oom.free_bytes == 6 * MIB
    oom = post_mortem(dataclasses.replace(DEATH, notes=("The chunks are unknown: …",)), None)
    assert (oom.requested_bytes, oom.verdict, oom.ledger, oom.map) == (9 * MIB, None, (), None)
    assert oom.not_available == ("The chunks are unknown: …",)


def test_a_library_that_found_no_memory_fails_outside_of_the_pool() -> None:
    event = dataclasses.replace(DEATH, requested_bytes=None, shape=None, library="cuBLAS")
    oom = post_mortem(event, MAP)
    # THEN nothing is said of a request, and the pool is no reason but what it holds
    assert oom.verdict is None and oom.requested_bytes is None
    assert oom.reason.startswith(
        "cuBLAS found no memory for itself outside of TensorFlow's pool, which holds 16.0 MiB. "
        "Leave it some: tf.config.experimental.set_memory_growth"
    )
    assert not [note for note in oom.not_available if "size of the request" in note]


def test_compiled_modules_request_has_a_note() -> None:
    oom = post_mortem(dataclasses.replace(DEATH, compiled=True), MAP, batch_size=16)
    assert oom.verdict == "capacity" and oom.batch_size == 16
    assert any("all its layers in one piece" in sentence for sentence in oom.not_available)


INPUTS = ChunkOwner(None, "inputs", None)
FIRST = ChunkOwner("net/first", "activations", True)
SECOND = ChunkOwner("net/second", "activations", True)


def step_of(chunks, ops=None):
    """A step with chunks (bytes, birth, death, owner)."""
    owners = tuple(dict.fromkeys(owner for *_, owner in chunks))
    size, birth, death = (np.asarray([chunk[column] for chunk in chunks]) for column in range(3))
    owner = np.asarray([owners.index(chunk[3]) for chunk in chunks])
    return StepChunks(
        3,
        "train",
        np.arange(len(chunks)) << 32,
        size,
        size,
        birth,
        death,
        owner,
        owners,
        20,
        ops or {},
    )


def failed(op: str | None, requested: int | None, **more: Any) -> OomEvent:
    return OomEvent(
        "1",
        "failed",
        "GPU:0",
        0.0,
        **{"phase": "train", "requested_bytes": requested, "op": op, **more},
    )


def chunks_of(*sizes: int) -> MemoryMap:
    return memory_map(
        [((at << 32) + 77, size, size) for at, size in enumerate(sizes)], [(77, 1 << 40)]
    )


def owners_of(
    sizes: tuple[int, ...], step: StepChunks, failure: OomEvent, scale: float
) -> list[ChunkOwner | None]:
    """The owners of live chunks of these sizes, of a batch that is `scale` times that of the
    step."""
    join = OwnerMatching(chunks_of(*sizes), [step], failure)
    join.same_size(scale)
    taken = join.result()
    return [taken.owners[number] if number >= 0 else None for number in taken.owner.tolist()]


# A batch, the same in another layout, and what two layers make of it.
STEP = step_of(
    [(MIB, 0, 9, INPUTS), (MIB, 1, 9, FIRST), (6 * MIB, 3, 8, FIRST), (8 * MIB, 5, 7, SECOND)],
    {"conv": (3,)},
)


def test_the_scale_decides_between_two_requests_of_one_op() -> None:
    # GIVEN an op that requested 1 MiB and 8 MiB, and fails requesting 32 MiB with four times the
    # batch
    step = step_of(
        [
            (MIB, 1, 9, SECOND),
            (8 * MIB, 2, 9, SECOND),
            (2 * MIB, 0, 9, FIRST),
            (4 * MIB, 0, 9, INPUTS),
        ],
        {"grad/Einsum": (1, 2)},
    )
    sizes = (8 * MIB, 16 * MIB, 4 * MIB)
    assert owners_of(sizes, step, failed("grad/Einsum", 32 * MIB), 4.0) == [FIRST, INPUTS, SECOND]


def test_chunks_of_a_size_get_the_owners_that_as_many_always_had() -> None:
    found = owners_of((128 * MIB, 128 * MIB), STEP, failed("new", 768 * MIB), 128.0)
    assert sorted(found, key=str) == sorted([INPUTS, FIRST], key=str)


def test_few_extra_chunks_of_a_size_stay_without_owner() -> None:
    owners = [
        ChunkOwner(f"net/{name}", kind, True)
        for name in "ab"
        for kind in ("activations", "workspace")
    ]
    step = step_of(
        [(MIB, birth, 15, owner) for birth, owner in zip((0, 1, 2, 6), owners, strict=True)],
        {"conv": (6,)},
    )
    for count, expected in ((4, owners), (5, [*owners, None]), (6, [None] * 6)):
        found = owners_of((MIB,) * count, step, failed("conv", MIB), 1.0)
        assert sorted(found, key=str) == sorted(expected, key=str)


def test_shapes_of_a_larger_batch_follow_from_those_of_a_traced_step() -> None:
    # GIVEN a traced step with a batch of 4, and chunks of a failed step with a batch of 32
    step = step_of([(MIB, 0, 9, INPUTS), (6 * MIB, 3, 8, FIRST), (2 * MIB, 3, 8, SECOND)])
    shapes = {
        (INPUTS, MIB): TensorShape((4, 256, 256), "float32"),
        (FIRST, 6 * MIB): TensorShape((4, 3, 128, 1024), "float32"),
        (SECOND, 2 * MIB): None,  # the step had chunks of several shapes
    }
    join = OwnerMatching(
        chunks_of(8 * MIB, 48 * MIB, 48 * MIB, 16 * MIB), [step], failed("new", 768 * MIB)
    )
    join.same_size(8.0)
    found = largest_tensors(tensors_of_map(join.result(), [shapes], 8.0))
    assert found == (
        TensorGroup("net/first", "activations", (32, 3, 128, 1024), "float32", 2, 96 * MIB),
        TensorGroup(None, "inputs", (32, 256, 256), "float32", 1, 8 * MIB),
    )


def test_op_without_a_request_in_the_traced_step_still_marks_the_point() -> None:
    # GIVEN a step that allocates the second layer's chunk after freeing the first one's, and an op
    # in between
    step = step_of([(MIB, 0, 5, FIRST), (MIB, 6, 9, SECOND)])
    step = dataclasses.replace(step, started={"call/mul": 8})
    assert owners_of((4 * MIB,), step, failed("mul", 4 * MIB), 4.0) == [SECOND]


def test_a_failed_request_as_in_a_traced_step_has_the_traced_batch() -> None:
    assert observed_batch([STEP], failed("conv", 6 * MIB), None, 8) == 8
    # AND another one has none: the op may have requested more for any other reason
    assert observed_batch([STEP], failed("conv", 12 * MIB), None, 8) is None
    assert observed_batch([STEP], failed("conv", 6 * MIB, phase="validation"), None, 8) is None
    assert observed_batch([STEP], failed("conv", 6 * MIB), None, None) is None


def test_ambiguous_owners_are_not_given() -> None:
    # GIVEN a step in which two chunks of a size were the batch and the first layer's, and later two
    # of two layers
    both = step_of(
        [(MIB, 0, 5, INPUTS), (MIB, 1, 5, FIRST), (MIB, 8, 12, FIRST), (MIB, 9, 12, SECOND)]
    )
    assert owners_of((MIB, MIB), both, failed(None, None), 1.0) == [None, None]


@pytest.mark.parametrize(
    ("shape", "batch"),
    [
        ("[2048,8,8,4] float", 2048),
        ("[2048,8,8,5] float", None),
        (None, None),
        ("[] float", None),
        ("[8]", None),
    ],
)
def test_batch_follows_from_a_tensor_in_the_shape_of_its_layers_output(
    shape: str | None, batch: int | None
) -> None:
    layer = make_layer("net/first", True, 100)
    assert observed_batch([], failed("conv", MIB, shape=shape), layer, 8) == batch
    assert observed_batch([], failed("conv", MIB, shape=shape), None, 8) is None


def test_batch_is_unknown_from_a_tensor_as_large_as_the_weights() -> None:
    square = Layer(
        **{**vars(make_layer("net/first", True, 32 * 32 + 32)), "output_shape": (-1, 32)}
    )
    for examples, batch in ((32, None), (31, 31)):
        assert (
            observed_batch([], failed("conv", MIB, shape=f"[{examples},32] float"), square, 8)
            == batch
        )
