"""How many examples a traced step worked on: Keras leaves the batch open, the shapes of the results tell it."""

import collections
import math
from collections.abc import Iterable

from tb_memplugin.model import LayerTable
from tb_memplugin.trace import AllocationTrace


def batch_size(traces: Iterable[AllocationTrace], table: LayerTable) -> int | None:
    """The leading dimension that most results of the shape of a layer's output have, None if there are none.

    Only outputs whose sole open dimension is the first one are looked for, e.g. ``[-1, 48, 48, 64]``; of a square
    layer, a gradient of its weights has such a shape too, and is left out.
    """
    tails = {
        layer.output_shape[1:]
        for layer in table.layers
        if layer.output_shape and len(layer.output_shape) > 1 and layer.output_shape[0] == -1
    }
    weights = {
        size
        for layer in table.layers
        if layer.output_shape
        for size in (layer.parameters, layer.parameters - layer.output_shape[-1])
    }
    counted: collections.Counter[int] = collections.Counter()
    for trace in traces:
        for at in trace.shape[trace.region == _index(trace, "output")].tolist():
            shape = _parse(trace.text(at))
            if shape and shape[0] > 0 and shape[1:] in tails and math.prod(shape) not in weights:
                counted[shape[0]] += 1
    if not counted:
        return None
    most = max(counted.values())
    return max(size for size, count in counted.items() if count == most)


def _index(trace: AllocationTrace, text: str) -> int:
    return trace.strings.index(text) if text in trace.strings else -2  # -2 is no index


def _parse(text: str | None) -> tuple[int, ...] | None:
    try:
        return tuple(int(size) for size in text.strip("[]").split(",")) if text else None
    except ValueError:
        return None
