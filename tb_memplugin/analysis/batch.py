"""How many examples a traced step worked on: Keras leaves the batch open, the shapes of tensors tell it."""

import collections
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tb_memplugin.analysis.seen_step import SeenStep
from tb_memplugin.analysis.xla import Plans
from tb_memplugin.model import Layer, LayerTable, Phase
from tb_memplugin.trace import AllocationTrace

_DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "uint8": 1, "bool": 1}


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
            shape = dimensions(trace.text(int(trace.shape[birth])))
            # The kernel in another dtype, which mixed precision makes, has a shape of the layer's as well.
            is_cast = (trace.text(int(trace.op[birth])) or "").rpartition("/")[2].startswith("Cast")
            is_held = category == "activations" and not is_cast and trace.region[birth] == _index(trace, "output")
            if is_held and shape and shape[0] > 0 and layer in tails and shape[1:] == tails[layer]:
                found.append(shape[0])
    return found


def _planned(steps: Iterable[Traced], table: LayerTable) -> list[int]:
    """The same of what compiled modules hold: bytes by those of one example."""
    each = {layer.path: result_bytes(layer, 1) for layer in table.layers}
    found = []
    for trace, _, plans in steps:
        if plans is None:
            continue
        for module in trace.modules:
            end = plans.forward_end(module)
            for buffer in (buffer for allocation in module.allocations for buffer in allocation.buffers):
                layer, category = plans.role(buffer, end)
                size = each.get(layer or "")
                if category == "activations" and buffer.named and size and buffer.bytes % size == 0 and buffer.bytes:
                    found.append(buffer.bytes // size)
    return found


def _read(steps: Iterable[Traced]) -> list[int]:
    """The first dimension of everything that was read as input, if that is the same."""
    first = set()
    for trace, seen, _ in steps:
        for birth, _, category in _born(seen):
            shape = dimensions(trace.text(int(trace.shape[birth]))) if category == "inputs" else None
            if shape:
                first.add(shape[0])
    return [size for size in first if size > 0] if len(first) == 1 else []


def _shaped(steps: Iterable[Traced], table: LayerTable) -> list[int]:
    """Leading dimensions of results that have the shape of a layer's output and not the size of its weights."""
    tails = {layer.output_shape[1:] for layer in table.layers if layer.output_shape and _is_open(layer)}
    weights = {size for layer in table.layers for size in weight_elements(layer)}
    found = []
    for trace, _, _ in steps:
        for at in trace.shape[trace.region == _index(trace, "output")].tolist():
            shape = dimensions(trace.text(at))
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


def dimensions(shape: str | None) -> tuple[int, ...] | None:
    """Those of a shape as TensorFlow writes it: ``[16,224,224,64]``, perhaps with a dtype after it."""
    try:
        return tuple(int(size) for size in shape.partition("]")[0].lstrip("[").split(",")) if shape else None
    except ValueError:
        return None


def weight_elements(layer: Layer) -> tuple[int, ...]:
    """Elements that weights of the layer, or their gradients, may have: all of them, or all without a bias."""
    return (layer.parameters, layer.parameters - layer.output_shape[-1]) if layer.output_shape else ()


# --- a step that failed ----------------------------------------------------------------------------------------------


def observed_batch(
    seen: Sequence[SeenStep],
    phase: Phase | None,
    op: str | None,
    requested: int | None,
    shape: str | None,
    layer: Layer | None,
    traced_batch: int | None,
    scale: float,
) -> int | None:
    """Examples in the batch of a step that failed, None if nothing says so.

    The traced batch, scaled; of a step that failed elsewhere than a traced one has been, the first dimension of a
    tensor that has the shape of its layer's results. Where an op fails that asked for nothing in the traced step, only
    a scale that is not 1 was told by something.
    """
    known = any(
        step.points(op, requested) or (scale != 1.0 and step.point(op, requested) is not None)
        for step in seen
        if step.phase == phase == "train"
    )
    if known and traced_batch is not None:
        batch = traced_batch * scale
        return round(batch) if abs(batch - round(batch)) < 1e-6 else None
    return batch_of(shape, layer)


def batch_of(shape: str | None, layer: Layer | None) -> int | None:
    """Examples that a tensor of the layer is made of: its first dimension, if it has the shape of the layer's results.

    None also where it may be a gradient of the layer's weights.
    """
    sizes = dimensions(shape) or ()
    if layer is None or layer.output_shape is None or not _is_open(layer) or sizes[1:] != layer.output_shape[1:]:
        return None
    return None if math.prod(sizes) in weight_elements(layer) else sizes[0]


def result_bytes(layer: Layer, batch_size: int) -> int | None:
    """Bytes of the layer's results for a batch; None where its shape leaves more open than that."""
    shape, size = layer.output_shape, _DTYPE_BYTES.get(layer.output_dtype or "")
    if shape is None or size is None or not _is_open(layer) or min(shape[1:]) < 1:
        return None
    return batch_size * math.prod(shape[1:]) * size
