"""Batch sizes, from the shapes of tensors."""

import math

import numpy as np
import pytest
from reading_cases import make_layer

from tb_memplugin.attribution.batch import Traced, batch_size
from tb_memplugin.attribution.step_chunks import StepChunks
from tb_memplugin.model import Category, ChunkOwner, Layer, LayerTable
from tb_memplugin.model.trace import AllocationTrace, Intervals

Row = tuple[str, str, str | None, Category]
"""(op, shape, layer, category) of a result."""


def square(path: str, width: int = 64) -> Layer:
    made = make_layer(path, True, width * width + width)
    return Layer(**{**vars(made), "output_shape": (-1, width)})


TABLE = LayerTable(0, 0.0, "", (square("net/a"), square("net/b")), "Adam", 0, 0)


def traced(rows: list[Row], owners: bool = True) -> Traced:
    strings = ["output", *dict.fromkeys(text for op, shape, _, _ in rows for text in (op, shape))]
    count = len(rows)
    zeros, empty = np.zeros(count, np.int64), np.zeros(0, np.int64)
    none = Intervals(empty, empty, empty, empty)
    trace = AllocationTrace(
        device="CPU:0",
        allocator="bfc",
        time_ps=np.arange(count),
        kind=np.ones(count, np.int64),
        address=np.arange(count) * 4096,
        allocated=zeros + 256,
        requested=zeros + 256,
        op=np.asarray([strings.index(op) for op, _, _, _ in rows]),
        region=zeros,
        shape=np.asarray([strings.index(shape) for _, shape, _, _ in rows]),
        dtype=zeros,
        in_use=zeros,
        available=zeros,
        fragmentation=np.full(count, math.nan),
        thread=zeros,
        strings=tuple(strings),
        ops=none,
        calls=none,
        layers=none,
        threads=("t",),
        start_in_use=0,
        missed=0,
    )
    known = tuple(ChunkOwner(layer, category, None) for _, _, layer, category in rows)
    seen = StepChunks(
        step=0,
        phase="train",
        address=trace.address,
        allocated=trace.allocated,
        requested=trace.requested,
        birth=np.arange(count),
        death=zeros + count,
        owner=np.arange(count),
        owners=known,
        events=count,
        ops={},
    )
    return Traced(trace, seen if owners else None)


FORWARD: list[Row] = [
    ("net/a/Relu", "[64,64]", "net/a", "activations"),
    ("net/b/Relu", "[64,64]", "net/b", "activations"),
]
BACKWARD: list[Row] = [
    (f"gradient_tape/net/{name}/MatMul", "[64,64]", f"net/{name}", "weight_gradients") for name in "ab"
]


def test_batch_size_equal_to_the_layer_width_follows_from_saved_activations() -> None:
    assert batch_size([traced([*FORWARD, *BACKWARD])], TABLE) == 64
    # Without owners, such a tensor may be a gradient.
    assert batch_size([traced([*FORWARD, *BACKWARD], owners=False)], TABLE) is None


def test_smaller_batch_is_found_among_gradients_in_the_layers_shape() -> None:
    held = [(op, "[8,64]", layer, category) for op, _, layer, category in FORWARD]
    assert batch_size([traced([*held, *BACKWARD * 3])], TABLE) == 8
    assert batch_size([traced([*held, *BACKWARD * 3], owners=False)], TABLE) == 8


def test_cast_kernel_is_not_an_output() -> None:
    casts: list[Row] = [(f"net/{name}/Cast/Cast", "[64,64]", f"net/{name}", "activations") for name in "ab"]
    held = [(op, "[8,64]", layer, category) for op, _, layer, category in FORWARD]
    assert batch_size([traced([*casts, *casts, *held])], TABLE) == 8


@pytest.mark.parametrize(
    ("shapes", "batch"), [(["[64,64]", "[64]"], 64), (["[64,64]", "[32]"], None), (["[64,64]", "[]"], 64)]
)
def test_batch_size_of_a_compiled_step_follows_from_its_inputs(shapes: list[str], batch: int | None) -> None:
    rows: list[Row] = [("GatherV2", shape, None, "inputs") for shape in shapes]
    assert batch_size([traced(rows)], TABLE) == batch


def test_batch_size_is_unknown_without_tensors() -> None:
    assert batch_size([], TABLE) is None and batch_size([traced([("x", "[]", None, "workspace")])], TABLE) is None
