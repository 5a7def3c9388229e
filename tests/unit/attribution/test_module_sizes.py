"""Which buffers of a compiled module grow with the batch, and at which moments most bytes are live."""

import dataclasses

import pytest
from trace_cases import FACTS, Recorder, graph

from tb_memplugin.attribution.module_sizes import ModuleSizes
from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.schema import Buffer, BufferAllocation, Module, ModuleMoment, OpFact, TensorShape, VariableFact

BATCH = 16
OUTPUT = OpFact("m/a", "forward", output_shapes=((-1, 128, 64),), batch_powers=((1, 0, 0),), output_dtypes=("float32",))
STATIC = OpFact("m/b", "forward", output_shapes=((128, 128),), batch_powers=((0, 0),), output_dtypes=("float32",))
SQUARE = OpFact("m/c", "forward", output_shapes=((-1, -1, 4),), batch_powers=((1, 1, 0),), output_dtypes=("float32",))
GRADIENT = OpFact("m/a", "backward", gradient_of="m/a", is_gradient=True, output_shapes=((64, 64),))
WEIGHT = VariableFact("w", "weights", "m/a", True, 64 * 64 * 4, "GPU:0", None, None, (64, 64))


def buffer(op: str, size: int, shape: tuple[int, ...] | None, dtype: str = "float32", **more) -> Buffer:
    known = None if shape is None else TensorShape(shape, dtype)
    return Buffer(
        (op,), (), more.get("offset", 0), size, more.get("start", 0), more.get("end", 9), True, False, False, known
    )


def moments(*buffers: Buffer, size: int) -> tuple[ModuleMoment, ...]:
    step = Recorder()
    step.event(1, 0x10000, size, None)
    module = Module("a_step__.1", "", (BufferAllocation(size, False, buffers),))
    facts = dataclasses.replace(FACTS, graphs=graph(a=OUTPUT, b=STATIC, c=SQUARE, dw=GRADIENT), variables=(WEIGHT,))
    classifier = Classifier(dataclasses.replace(step.trace(), modules=(module,)), facts)
    return ModuleSizes(classifier, BATCH).moments()


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
    assert [(one.chunk, one.fixed_bytes, one.batch_bytes) for one in found] == [(0, 2_000, 41_600), (0, 24_000, 0)]
