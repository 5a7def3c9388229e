"""How many examples a traced step worked on: Keras leaves the batch open, the shapes of tensors tell it."""

import collections
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tb_memplugin.analysis.owner_memory import DTYPE_BYTES, SeenStep
from tb_memplugin.analysis.xla import Plans
from tb_memplugin.model import Layer, LayerTable
from tb_memplugin.trace import AllocationTrace


class Traced(NamedTuple):
    """A traced step on one device.

    Attributes:
        trace: Its events.
        seen: Whose its chunks were, None if that is not known.
        plans: Whose the buffers of its compiled modules were, None if that is not known.
    """

    trace: AllocationTrace
    seen: SeenStep | None
    plans: Plans | None = None


def batch_size(traced: Iterable[Traced], table: LayerTable) -> int | None:
    """The leading dimension of what depends on the batch, None if nothing says it.

    The surest word counts: what layers hold for the backward pass in the shape of their outputs; the same in a compiled
    module, by its size; what was read as input, if all of it has the same first dimension; anything in the shape of a
    layer's output that has not the size of weights, which in a square layer is nothing where the batch is as large as
    the layer is wide. Only outputs whose sole open dimension is the first one are looked for, e.g.
    ``[-1, 48, 48, 64]``.
    """
    steps = list(traced)
    for found in (_held(steps, table), _planned(steps, table), _read(steps), _shaped(steps, table)):
        counted = collections.Counter(found)
        if counted:
            most = max(counted.values())
            return max(size for size, count in counted.items() if count == most)
    return None


def _held(steps: Iterable[Traced], table: LayerTable) -> list[int]:
    """Leading dimensions of the forward results of layers, as their owners are known."""
    tails = {layer.path: layer.output_shape[1:] for layer in table.layers if layer.output_shape and _is_open(layer)}
    found = []
    for trace, seen, _ in steps:
        for birth, layer, category in _born(seen):
            shape = _parse(trace.text(int(trace.shape[birth])))
            # The kernel in another dtype, which mixed precision makes, has a shape of the layer's as well.
            is_cast = (trace.text(int(trace.op[birth])) or "").rpartition("/")[2].startswith("Cast")
            is_held = category == "activations" and not is_cast and trace.region[birth] == _index(trace, "output")
            if is_held and shape and shape[0] > 0 and layer in tails and shape[1:] == tails[layer]:
                found.append(shape[0])
    return found


def _planned(steps: Iterable[Traced], table: LayerTable) -> list[int]:
    """The same of what compiled modules hold: bytes by those of one example."""
    each = {
        layer.path: math.prod(layer.output_shape[1:]) * DTYPE_BYTES.get(layer.output_dtype or "", 0)
        for layer in table.layers
        if layer.output_shape and _is_open(layer) and min(layer.output_shape[1:]) > 0
    }
    found = []
    for trace, _, plans in steps:
        if plans is None:
            continue
        for module in trace.modules:
            end = plans.forward_end(module)
            for buffer in (buffer for allocation in module.allocations for buffer in allocation.buffers):
                layer, category = plans.role(buffer, end)
                size = each.get(layer or "", 0)
                if category == "activations" and buffer.named and size and buffer.bytes % size == 0 and buffer.bytes:
                    found.append(buffer.bytes // size)
    return found


def _read(steps: Iterable[Traced]) -> list[int]:
    """The first dimension of everything that was read as input, if that is the same."""
    first = set()
    for trace, seen, _ in steps:
        for birth, _, category in _born(seen):
            shape = _parse(trace.text(int(trace.shape[birth]))) if category == "inputs" else None
            if shape:
                first.add(shape[0])
    return [size for size in first if size > 0] if len(first) == 1 else []


def _shaped(steps: Iterable[Traced], table: LayerTable) -> list[int]:
    """Leading dimensions of results that have the shape of a layer's output and not the size of its weights."""
    tails = {layer.output_shape[1:] for layer in table.layers if layer.output_shape and _is_open(layer)}
    weights = {
        size
        for layer in table.layers
        if layer.output_shape
        for size in (layer.parameters, layer.parameters - layer.output_shape[-1])
    }
    found = []
    for trace, _, _ in steps:
        for at in trace.shape[trace.region == _index(trace, "output")].tolist():
            shape = _parse(trace.text(at))
            if shape and shape[0] > 0 and shape[1:] in tails and math.prod(shape) not in weights:
                found.append(shape[0])
    return found


def _born(seen: SeenStep | None) -> Iterator[tuple[int, str | None, str]]:
    """(number of the allocation, layer, category) of every chunk of the step."""
    if seen is None:
        return
    for row in np.flatnonzero(seen.birth >= 0).tolist():
        owner = seen.owners[int(seen.owner[row])]
        yield int(seen.birth[row]), owner.layer, owner.category


def _is_open(layer: Layer) -> bool:
    """Whether the first dimension of the layer's output is open, and not the only one."""
    shape = layer.output_shape
    return shape is not None and len(shape) > 1 and shape[0] == -1


def _index(trace: AllocationTrace, text: str) -> int:
    return trace.strings.index(text) if text in trace.strings else -2  # -2 is no index


def _parse(text: str | None) -> tuple[int, ...] | None:
    try:
        return tuple(int(size) for size in text.strip("[]").split(",")) if text else None
    except ValueError:
        return None
