"""Which buffers of a compiled module grow with the batch, and at which moments most bytes are
live."""

import dataclasses

import numpy as np
import pytest
from map_cases import memory_map
from trace_cases import FACTS, Recorder, graph

from tb_memplugin.attribution.module_sizes import ModuleChunk, ModuleContents, ModuleSizes
from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.attribution.post_mortems import OomEvent, post_mortem, running_module, with_module
from tb_memplugin.attribution.step import AttributedStep
from tb_memplugin.schema import (
    AllocationTrace,
    Buffer,
    BufferAllocation,
    MemoryMap,
    Module,
    ModuleMoment,
    OpFact,
    TensorShape,
    TraceFacts,
    VariableFact,
)

BATCH = 16
OUTPUT = OpFact(
    "m/a",
    "forward",
    output_shapes=((-1, 128, 64),),
    batch_powers=((1, 0, 0),),
    output_dtypes=("float32",),
)
STATIC = OpFact(
    "m/b",
    "forward",
    output_shapes=((128, 128),),
    batch_powers=((0, 0),),
    output_dtypes=("float32",),
)
SQUARE = OpFact(
    "m/c",
    "forward",
    output_shapes=((-1, -1, 4),),
    batch_powers=((1, 1, 0),),
    output_dtypes=("float32",),
)
GRADIENT = OpFact("m/a", "backward", gradient_of="m/a", is_gradient=True, output_shapes=((64, 64),))
WEIGHT = VariableFact("w", "weights", "m/a", True, 64 * 64 * 4, "GPU:0", None, None, (64, 64))


def buffer(
    op: str, size: int, shape: tuple[int, ...] | None, dtype: str = "float32", **more
) -> Buffer:
    known = None if shape is None else TensorShape(shape, dtype)
    return Buffer(
        (op,),
        (),
        more.get("offset", 0),
        size,
        more.get("start", 0),
        more.get("end", 9),
        True,
        False,
        False,
        known,
    )


def traced(buffers: tuple[Buffer, ...], size: int) -> tuple[AllocationTrace, TraceFacts]:
    step = Recorder()
    step.event(1, 0x10000, size, None)
    module = Module("a_step__.1", "", (BufferAllocation(size, False, buffers),))
    facts = dataclasses.replace(
        FACTS, graphs=graph(a=OUTPUT, b=STATIC, c=SQUARE, dw=GRADIENT), variables=(WEIGHT,)
    )
    return dataclasses.replace(step.trace(), modules=(module,)), facts


def moments(*buffers: Buffer, size: int) -> tuple[ModuleMoment, ...]:
    classifier = Classifier(*traced(buffers, size))
    return ModuleSizes(classifier.window, BATCH).moments(classifier.plans)


@pytest.mark.parametrize(
    ("op", "shape", "dtype", "grows"),
    [
        ("a", (BATCH, 128, 64), "float32", True),
        ("a", (BATCH * 128, 64), "float32", True),  # joined by XLA
        ("a", (64, 128, BATCH), "float32", True),  # in another layout
        ("b", (128, 128), "float32", False),  # though 16 divides it
        ("dw", (64, 64), "float32", False),
        ("unknown", (64, 64), "float32", False),  # as large as a weight
        ("unknown", (BATCH, 33, 5), "float32", True),
        ("unknown", (33, 31, 5), "float32", False),
        ("unknown", (6400,), "uint8", True),  # a kernel's scratch space
    ],
)
def test_a_buffer_grows_with_the_batch_that_its_shape_holds(op, shape, dtype, grows) -> None:
    (moment,) = moments(buffer(op, 6400, shape, dtype), size=6400)
    assert (moment.fixed_bytes, moment.batch_bytes) == ((0, 6400) if grows else (6400, 0))


def test_a_buffer_of_each_example_by_each_other_leaves_the_size_unknown() -> None:
    square = buffer("c", BATCH * BATCH * 16, (BATCH, BATCH, 4))
    assert moments(square, buffer("a", 6400, (BATCH, 128, 64), offset=4096), size=20_000) == ()


def test_moments_are_those_with_most_bytes_at_some_batch_size() -> None:
    # GIVEN activations, then gradients of weights that take more than these at a small batch
    found = moments(
        buffer("a", 40_000, (BATCH, 128, 64), start=0, end=4),
        buffer("b", 2_000, (128, 128), offset=40_000, start=0, end=4),
        buffer("a", 1_600, (BATCH, 128, 64), offset=42_000, start=2, end=3),
        buffer("dw", 24_000, (64, 64), start=5, end=9),
        size=44_000,
    )
    assert [(one.chunk, one.fixed_bytes, one.batch_bytes) for one in found] == [
        (0, 2_000, 41_600),
        (0, 24_000, 0),
    ]


ACTIVATIONS, SCRATCH = BATCH * 128 * 64 * 4, 128 * 128 * 4
BUFFERS = (
    buffer("a", ACTIVATIONS, (64, 128, BATCH), end=4),
    buffer("b", SCRATCH, (128, 128), offset=ACTIVATIONS, end=4),
    buffer("a", 1600, (BATCH, 25), offset=ACTIVATIONS + SCRATCH, start=5),
)
RECORDED = ACTIVATIONS + SCRATCH
LATER = 3 * ACTIVATIONS + SCRATCH


def module_chunk(*buffers: Buffer, size: int = RECORDED) -> ModuleChunk:
    trace, facts = traced(buffers, size)
    chunk = AttributedStep(trace, facts, step=1, phase="train", wall_time=0.0).module_chunk(BATCH)
    assert chunk is not None
    return chunk


def test_a_chunk_of_another_batch_size_has_more_of_what_grows_only() -> None:
    chunk = module_chunk(*BUFFERS)
    assert (
        chunk.contents(BATCH) == chunk.contents(None) == chunk.recorded
        and chunk.recorded.of_batch is None
    )
    for requested in (None, LATER + 100, LATER // 2):
        rows, tensors, of_batch = chunk.contents(3 * BATCH, requested)
        assert sum(row.bytes for row in rows) == (requested or LATER) and of_batch == BATCH
        largest = rows[0]
        assert (largest.layer, largest.category) == ("m/a", chunk.recorded.ledger[0].category)
        # THEN shapes have the batch where they had it
        shapes = {one.shape: one.bytes for one in tensors}
        assert shapes == {(64, 128, 3 * BATCH): 3 * ACTIVATIONS, (128, 128): SCRATCH}
        if requested != LATER // 2:
            assert largest.bytes == 3 * ACTIVATIONS
            assert (
                sum(row.bytes for row in rows if row.layer is None) == (requested or LATER) - LATER
            )
    # AND where the compiler left bytes unused, it leaves as large a share of a larger chunk
    loose = module_chunk(*BUFFERS, size=RECORDED * 5 // 4)
    assert sum(row.bytes for row in loose.contents(3 * BATCH).ledger) == LATER * 5 // 4
    # AND nothing is said of what grows with the square of the batch
    square = buffer("c", BATCH * BATCH * 16, (BATCH, BATCH, 4))
    assert module_chunk(square, size=8192).contents(3 * BATCH) == ModuleContents()


def map_of(*sizes: int) -> MemoryMap:
    """A full pool of chunks without owners."""
    places = np.cumsum([4096, *sizes]).tolist()
    chunks = memory_map(
        [(at, size, size) for at, size in zip(places, sizes, strict=False)], [(4096, sum(sizes))]
    )
    return dataclasses.replace(chunks, in_use_bytes=sum(sizes))


@pytest.mark.parametrize(
    ("size", "known"), [(LATER, True), (LATER * 51 // 50, True), (LATER * 11 // 10, False)]
)
def test_a_running_module_of_another_batch_size_is_the_chunk_of_about_its_size(
    size: int, known: bool
) -> None:
    found = running_module(map_of(RECORDED // 2, size), module_chunk(*BUFFERS), 3 * BATCH)
    assert (sum(row.bytes for row in found.ledger) == size) is known
    event = OomEvent("1", "failed", "GPU:0", 0.0, 1, "train", requested_bytes=1 << 30)
    oom = post_mortem(event, map_of(RECORDED // 2, size), 3 * BATCH, None, found)
    owned = {row.layer: row.bytes for row in oom.ledger if row.category != "unattributed"}
    assert (owned["m/a"] == 3 * ACTIVATIONS) if known else owned == {}
    assert any(f"scaled from batch size {BATCH}" in note for note in oom.not_available) is known


def test_the_request_of_a_module_of_another_batch_size_is_an_estimate() -> None:
    event = OomEvent("1", "failed", "GPU:0", 0.0, 1, "train", requested_bytes=LATER, compiled=True)
    chunk = module_chunk(*BUFFERS)
    found = with_module(event, chunk, 3 * BATCH)
    assert (
        sum(row.bytes for row in found.request_ledger)
        == sum(one.bytes for one in found.request_tensors)
        == LATER
    )
    assert f"batch size {BATCH}" in found.notes[0]
    # AND is unknown without the batch, or without a recorded module
    assert with_module(event, chunk, None) is with_module(event, None, 3 * BATCH) is event
