"""The layers of a model, their tensors, and the names of optimizers and models that the program no
longer uses.

TensorFlow still keeps variables of the latter. Their rows in a breakdown have layer paths that
begin with such a name.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from tb_memplugin.schema.fields import MAX_BYTES, MAX_LAYERS, Bounds, Most, Size, Step

DTYPE_BYTES: Mapping[str, int] = {
    **dict.fromkeys(
        ("bool", "int8", "uint8", "qint8", "quint8", "float8_e5m2", "float8_e4m3fn"), 1
    ),
    **dict.fromkeys(("int16", "uint16", "qint16", "quint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "qint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""Name of a dtype to the bytes of an element. Strings, resources and variants have contents
elsewhere."""


@dataclasses.dataclass(frozen=True)
class TensorShape:
    """Dimensions of a tensor, and the name of its dtype, e.g. ``float32``."""

    shape: Annotated[tuple[int, ...], Bounds(0, MAX_BYTES)]
    dtype: str


def tensor_shape(
    sizes: Sequence[int] | None, dtype: str | None, requested_bytes: int
) -> TensorShape | None:
    """The shape, if a tensor of these dimensions and dtype takes exactly the requested bytes."""
    element = DTYPE_BYTES.get(dtype or "")
    if sizes is None or dtype is None or element is None or min(sizes, default=0) < 0:
        return None
    return (
        TensorShape(tuple(sizes), dtype) if math.prod(sizes) * element == requested_bytes else None
    )


def dimensions(shape: str | None) -> tuple[int, ...] | None:
    """The dimensions of a shape as TensorFlow writes it: ``[16,224,224,64]``, perhaps followed by a
    dtype."""
    try:
        return (
            tuple(int(size) for size in shape.partition("]")[0].lstrip("[").split(","))
            if shape
            else None
        )
    except ValueError:
        return None


def matches(shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether a tensor of these dimensions can be an output of that shape."""
    return len(shape) == len(sizes) and all(
        known in (-1, size) for known, size in zip(shape, sizes, strict=True)
    )


_NAME = re.compile(r".+( replaced at step \d+|, no longer used)")

CompiledWith: TypeAlias = Literal["keras", "tf_keras", "none"]
Recomputed: TypeAlias = Literal["exact", "resampled"]


def replaced_optimizer(name: str, step: int) -> str:
    """Name of an optimizer that another one replaced at a step."""
    return f"{name} replaced at step {step}"


def unused(name: str) -> str:
    """Name of a model, or of an optimizer without a known last step, that no longer exists."""
    return f"{name}, no longer used"


def former_name(layer: str | None) -> str | None:
    """The name that a layer path begins with if it is of a former optimizer or model; None for
    other paths."""
    name = (layer or "").partition("/")[0]
    return name if _NAME.fullmatch(name) else None


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer of a model; its figures exclude those of layers inside it.

    Attributes:
        path: Layer path: its place in the model's tree, e.g. ``sequential/vgg16/block1_conv2``.
        type: Class of the layer, e.g. ``Conv2D``.
        trainable: Whether it has trainable weights; for a layer without weights, its own flag.
        parameters: Number of elements of its weights.
        weight_bytes: Bytes of its weights (elements × size of the dtype), frozen and trainable.
        trainable_weight_bytes: Bytes of its trainable weights.
        optimizer_bytes: Bytes of the optimizer's slots for its weights.
        output_shape: Shape of its (first) output; -1 for unknown dimensions such as the batch.
        output_dtype: Dtype of its output.
        output_bytes: Bytes of its outputs for one batch.
        unit: Number of the layers between two neighboring cut points of the layer graph, in the
            order of the forward pass: those with one number, or with consecutive ones, can be
            recomputed together. None if it cannot be recomputed, or only with the layer that it is
            in.
        recomputed: How it runs a second time in the backward pass, None if it does not: ``exact``
            as in the first pass; ``resampled`` with statistics that are updated once more and
            random numbers of its own."""

    path: str
    type: str
    trainable: bool
    parameters: Size
    weight_bytes: Size
    trainable_weight_bytes: Size
    optimizer_bytes: Size
    output_shape: Annotated[tuple[int, ...] | None, Bounds(-1, MAX_BYTES)]
    output_dtype: str | None
    output_bytes: Size | None
    unit: Size | None = None
    recomputed: Recomputed | None = None


@dataclasses.dataclass(frozen=True)
class LayerTable:
    """The model's layers from `step` on, until the next table of the session.

    Attributes:
        step: First step for which the table is valid.
        wall_time: Time of the table, in seconds since the epoch.
        reason: Why the table was made, as a sentence, e.g. "block5_conv1 and 2 more became
            trainable".
        layers: In the order of the model.
        optimizer: Class name of the optimizer, None before it is built.
        other_optimizer_bytes: Bytes of optimizer variables that belong to no layer (step counter,
            learning rate).
        other_state_bytes: Bytes of metrics, seeds and other variables of the model that are not
            weights.
        compiled_with: Package of the Keras whose `compile` the model has been given; ``none`` of a
            model that was not compiled, as in a loop of one's own; None if that is unknown."""

    step: Step
    wall_time: float
    reason: str
    layers: Annotated[tuple[Layer, ...], Most(MAX_LAYERS)]
    optimizer: str | None
    other_optimizer_bytes: Size
    other_state_bytes: Size
    compiled_with: CompiledWith | None = None


def recorded_precision(layers: Iterable[Layer]) -> str | None:
    """Keras's dtype policy of a model, e.g. ``mixed_float16``, by the layers with weights; None if
    it is unknown.

    In mixed precision, layers compute in half precision with weights in float32; the last one often
    is in float32."""
    found = {
        (layer.output_dtype, layer.weight_bytes // layer.parameters)
        for layer in layers
        if layer.parameters and DTYPE_BYTES.get(layer.output_dtype or "")
    }
    for half in ("float16", "bfloat16"):
        sizes = {size for dtype, size in found if dtype == half}
        if sizes:
            return f"mixed_{half}" if max(sizes) == 4 else half
    return "float32" if any(dtype == "float32" for dtype, _ in found) else None


def example_bytes(layer: Layer) -> int | None:
    """Bytes of the layer's output for one example; None if its dtype or other dimensions than the
    first are unknown."""
    shape, size = layer.output_shape, DTYPE_BYTES.get(layer.output_dtype or "")
    if shape is None or size is None or len(shape) < 2 or min(shape[1:]) < 1:
        return None
    return math.prod(shape[1:]) * size


def unfreezing_bytes(layer: Layer) -> int:
    """Bytes of a frozen layer's weights that would be trained if it were not frozen."""
    statistics, channels = 0, layer.output_shape[-1] if layer.output_shape else 0
    if (
        layer.type == "BatchNormalization"
        and channels > 0
        and layer.parameters in [n * channels for n in (2, 3, 4)]
    ):
        # The moving mean and variance of a frozen batch normalization are never trained.
        statistics = layer.weight_bytes * 2 * channels // layer.parameters
    return layer.weight_bytes - layer.trainable_weight_bytes - statistics
