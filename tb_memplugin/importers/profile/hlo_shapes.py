"""Shapes of the buffers of an XLA module."""

from collections.abc import Sequence
from typing import Any

from tb_memplugin.model import TensorShape
from tb_memplugin.model.tensors import tensor_shape

_DTYPES = {
    1: "bool",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "uint8",
    7: "uint16",
    8: "uint32",
    9: "uint64",
    10: "float16",
    11: "float32",
    12: "float64",
    15: "complex64",
    16: "bfloat16",
    18: "complex128",
    19: "float8_e5m2",
    20: "float8_e4m3fn",
}
"""Number in XLA's PrimitiveType to the name of the dtype."""


def buffer_shape(shape: Any, index: Sequence[int], size: int) -> TensorShape | None:
    """The shape of a buffer of `size` bytes.

    Args:
        shape: ShapeProto of the instruction that defines it.
        index: The buffer's place in a result that is a tuple, perhaps of tuples.
        size: Its bytes.
    """
    for place in index:
        if not 0 <= place < len(shape.tuple_shapes):
            return None
        shape = shape.tuple_shapes[place]
    return tensor_shape(tuple(shape.dimensions), _DTYPES.get(shape.element_type), size)
