"""The batch size of a traced or failed step, from the shapes of its tensors: Keras leaves that dimension open."""

import collections
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tb_memplugin.attribution.step_chunks import StepChunks
from tb_memplugin.attribution.xla import BufferAssignments
from tb_memplugin.model import Layer, LayerTable, Phase
from tb_memplugin.model.layers import example_bytes
from tb_memplugin.model.trace import AllocationTrace, Module


class Traced(NamedTuple):
    """A traced step on one device.

    Attributes:
        trace: The allocator's events.
        chunks: The step's chunks with their owners, None if unknown.
        plans: Buffer assignments of its compiled modules, None if unknown.
    """

    trace: AllocationTrace
    chunks: StepChunks | None
    plans: BufferAssignments | None = None


def batch_size(traced: Iterable[Traced], table: LayerTable) -> int | None:
    """Examples in a batch: the most frequent leading dimension of tensors that depend on it, None if there are none.

    The first of these sources that has any decides: saved activations in the shape of their layer's output; the same in
    compiled modules, by size; inputs, if all have the same leading dimension; other tensors in the shape of a layer's
    output, unless they have the size of weights; saved activations in another layout or without a shape, by size. Only
    outputs with no other open dimension count, e.g. ``[-1, 48, 48, 64]``.
    """
    for sizes in _by_source(list(traced), table):
        counts = collections.Counter(sizes)
        if counts:
            most = max(counts.values())
            return max(size for size, count in counts.items() if count == most)
    return None


def _by_source(steps: Sequence[Traced], table: LayerTable) -> Iterator[list[int]]:
    """What each source says. The next one is read only if it is asked for."""
    yield _saved(steps, table)
    yield _planned(steps, table)
    yield _inputs(steps)
    yield _shaped(steps, table)
    yield _sized(steps, table)


def _saved(steps: Iterable[Traced], table: LayerTable) -> list[int]:
    """Leading dimensions of saved activations in the shape of their layer's output."""
    tails = {layer.path: layer.output_shape[1:] for layer in table.layers if layer.output_shape and _is_open(layer)}
    sizes = []
    for trace, chunks, _ in steps:
        for birth, layer, category in _allocated(chunks):
            shape = dimensions(trace.text(int(trace.shape[birth])))
            # Mixed precision casts the kernel, which may have the shape of the layer's output.
            is_cast = (trace.text(int(trace.op[birth])) or "").rpartition("/")[2].startswith("Cast")
            is_saved = category == "activations" and not is_cast and trace.region[birth] == _index(trace, "output")
            if is_saved and shape and shape[0] > 0 and layer in tails and shape[1:] == tails[layer]:
                sizes.append(shape[0])
    return sizes


def _planned(steps: Iterable[Traced], table: LayerTable) -> list[int]:
    """Bytes of saved activations in compiled modules, divided by those of one example."""
    bytes_each = {layer.path: result_bytes(layer, 1) for layer in table.layers}
    sizes = []
    for trace, _, plans in steps:
        if plans is None:
            continue
        for module in _run_modules(trace):
            end = plans.forward_end(module)
            for buffer in (buffer for allocation in module.allocations for buffer in allocation.buffers):
                layer, category = plans.role(buffer, end)
                each = bytes_each.get(layer or "")
                if category == "activations" and buffer.named and each and buffer.bytes % each == 0 and buffer.bytes:
                    sizes.append(buffer.bytes // each)
    return sizes


def _run_modules(trace: AllocationTrace) -> list[Module]:
    """The modules that ran, by the size of their largest allocation; all of them if none did.

    A profile contains the process's earlier modules as well, such as those for other batch sizes.
    """
    requested = set(trace.requested[trace.kind > 0].tolist())
    ran = [
        module
        for module in trace.modules
        if max((allocation.bytes for allocation in module.allocations), default=-1) in requested
    ]
    return ran or list(trace.modules)


def _inputs(steps: Iterable[Traced]) -> list[int]:
    """The leading dimension of the inputs, if all have the same."""
    first = set()
    for trace, chunks, _ in steps:
        for birth, _, category in _allocated(chunks):
            shape = dimensions(trace.text(int(trace.shape[birth]))) if category == "inputs" else None
            if shape:
                first.add(shape[0])
    return [size for size in first if size > 0] if len(first) == 1 else []


def _shaped(steps: Iterable[Traced], table: LayerTable) -> list[int]:
    """Leading dimensions of tensors in the shape of a layer's output, except those with the size of its weights."""
    tails = {layer.output_shape[1:] for layer in table.layers if layer.output_shape and _is_open(layer)}
    weights = {size for layer in table.layers for size in weight_elements(layer)}
    sizes = []
    for trace, _, _ in steps:
        for at in trace.shape[trace.region == _index(trace, "output")].tolist():
            shape = dimensions(trace.text(at))
            if shape and shape[0] > 0 and shape[1:] in tails and math.prod(shape) not in weights:
                sizes.append(shape[0])
    return sizes


def _sized(steps: Iterable[Traced], table: LayerTable) -> list[int]:
    """Bytes of saved activations, divided by those of one example. GPU kernels may give no shape or another layout."""
    bytes_each = {layer.path: result_bytes(layer, 1) for layer in table.layers}
    sizes = []
    for trace, chunks, _ in steps:
        for birth, layer, category in _allocated(chunks):
            each, requested = bytes_each.get(layer or ""), int(trace.requested[birth])
            if category == "activations" and each and requested and requested % each == 0:
                size, shape = requested // each, dimensions(trace.text(int(trace.shape[birth])))
                if shape is None or shape[0] == size:
                    sizes.append(size)
    return sizes


def _allocated(chunks: StepChunks | None) -> Iterator[tuple[int, str | None, str]]:
    """(number of the allocating event, layer, category) of every chunk that the step allocated."""
    if chunks is None:
        return
    for row in np.flatnonzero(chunks.birth >= 0).tolist():
        owner = chunks.owners[int(chunks.owner[row])]
        yield int(chunks.birth[row]), owner.layer, owner.category


def _is_open(layer: Layer) -> bool:
    """Whether the leading dimension of the layer's output is open and not the only one."""
    shape = layer.output_shape
    return shape is not None and len(shape) > 1 and shape[0] == -1


def _index(trace: AllocationTrace, text: str) -> int:
    return trace.strings.index(text) if text in trace.strings else -2  # -2 is no index


def dimensions(shape: str | None) -> tuple[int, ...] | None:
    """The dimensions of a shape as TensorFlow writes it: ``[16,224,224,64]``, perhaps followed by a dtype."""
    try:
        return tuple(int(size) for size in shape.partition("]")[0].lstrip("[").split(",")) if shape else None
    except ValueError:
        return None


def weight_elements(layer: Layer) -> tuple[int, ...]:
    """Numbers of elements of the layer's weights, or their gradients: with a bias and without."""
    return (layer.parameters, layer.parameters - layer.output_shape[-1]) if layer.output_shape else ()


# --- a step that failed ----------------------------------------------------------------------------------------------


def observed_batch(
    history: Sequence[StepChunks],
    phase: Phase | None,
    op: str | None,
    requested: int | None,
    shape: str | None,
    layer: Layer | None,
    traced_batch: int | None,
    scale: float,
) -> int | None:
    """Examples in the batch of a failed step, None if unknown.

    This is the traced batch times `scale` if the failed op also ran in a traced training step; a scale of 1 counts only
    if the op requested memory there. Otherwise it is the leading dimension of the failed tensor, if that has the shape
    of its layer's output.

    Args:
        history: Chunks of traced steps.
        phase, op, requested, shape, layer: Of the failed request.
        traced_batch: Examples in the batch of the traced steps.
        scale: Batch of the failed step as a multiple of the traced batch.
    """
    known = any(
        step.points(op, requested) or (scale != 1.0 and step.point(op, requested) is not None)
        for step in history
        if step.phase == phase == "train"
    )
    if known and traced_batch is not None:
        batch = traced_batch * scale
        return round(batch) if abs(batch - round(batch)) < 1e-6 else None
    return batch_of(shape, layer)


def batch_of(shape: str | None, layer: Layer | None) -> int | None:
    """Leading dimension of a tensor in the shape of the layer's output; None for others, and if it may be a gradient of
    the layer's weights."""
    sizes = dimensions(shape) or ()
    if layer is None or layer.output_shape is None or not _is_open(layer) or sizes[1:] != layer.output_shape[1:]:
        return None
    return None if math.prod(sizes) in weight_elements(layer) else sizes[0]


def result_bytes(layer: Layer, batch_size: int) -> int | None:
    """Bytes of the layer's output for a batch; None if other dimensions are open."""
    each = example_bytes(layer) if _is_open(layer) else None
    return None if each is None else batch_size * each
