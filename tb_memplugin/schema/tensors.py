"""Shapes and dtypes of tensors."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Annotated

from tb_memplugin.schema.fields import MAX_BYTES, Bounds

DTYPE_BYTES: Mapping[str, int] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "qint8": 1,
    "qint16": 2,
    "qint32": 4,
    "quint8": 1,
    "quint16": 2,
    "float8_e5m2": 1,
    "float8_e4m3fn": 1,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
"""Name of a dtype to the bytes of an element. Strings, resources and variants have contents elsewhere."""


@dataclasses.dataclass(frozen=True)
class TensorShape:
    """Dimensions of a tensor, and the name of its dtype, e.g. ``float32``."""

    shape: Annotated[tuple[int, ...], Bounds(0, MAX_BYTES)]
    dtype: str


def tensor_shape(sizes: Sequence[int] | None, dtype: str | None, requested_bytes: int) -> TensorShape | None:
    """The shape, if a tensor of these dimensions and dtype takes exactly the requested bytes."""
    element = DTYPE_BYTES.get(dtype or "")
    if sizes is None or dtype is None or element is None or min(sizes, default=0) < 0:
        return None
    return TensorShape(tuple(sizes), dtype) if math.prod(sizes) * element == requested_bytes else None


def dimensions(shape: str | None) -> tuple[int, ...] | None:
    """The dimensions of a shape as TensorFlow writes it: ``[16,224,224,64]``, perhaps followed by a dtype."""
    try:
        return tuple(int(size) for size in shape.partition("]")[0].lstrip("[").split(",")) if shape else None
    except ValueError:
        return None


def matches(shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether a tensor of these dimensions can be an output of that shape."""
    return len(shape) == len(sizes) and all(known in (-1, size) for known, size in zip(shape, sizes, strict=True))
