"""Constants of function graphs, such as NumPy arrays that a traced function or a layer uses.

TensorFlow allocates each when it first runs the function, without naming an op, and keeps it as long as the function.
"""

import math
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

MIN_BYTES = 1024
"""Smaller constants are not read: most graphs have hundreds, of shapes and axes."""


class GraphConstant(NamedTuple):
    """One constant: the name of its op, shape, name of its dtype, and bytes. An op would keep the graph alive."""

    op: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int


_known: "weakref.WeakKeyDictionary[Any, tuple[int, list[GraphConstant]]]" = weakref.WeakKeyDictionary()


def constants_of(graph: Any) -> list[GraphConstant]:
    """The constants of a function graph with at least `MIN_BYTES`."""
    version, constants = _known.get(graph, (-1, []))
    if version != graph.version:
        constants = list(_read(graph))
        _known[graph] = graph.version, constants
    return constants


def _read(graph: Any) -> Iterator[GraphConstant]:
    for op in graph.get_operations():
        if op.type == "Const":
            tensor = op.outputs[0]
            shape = tuple(tensor.shape.as_list()) if tensor.shape.rank else ()
            size = math.prod(shape) * int(tensor.dtype.size)
            if size >= MIN_BYTES and tensor.dtype.name != "string":
                yield GraphConstant(op.name, shape, tensor.dtype.name, size)
