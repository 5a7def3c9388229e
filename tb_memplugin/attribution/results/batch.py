"""The batch of a traced or failed step. Pure."""

import math
from collections.abc import Collection, Sequence

from tb_memplugin.attribution.owners.step_chunks import StepChunks
from tb_memplugin.model import Layer, Phase
from tb_memplugin.model.layers import example_bytes
from tb_memplugin.model.tensors import DTYPE_BYTES, dimensions
from tb_memplugin.model.trace import BatchFacts, TensorSpec


def component_bytes(spec: TensorSpec, size: int) -> int | None:
    """Bytes of a tensor of a batch with `size` examples; None if other dimensions are open or the dtype is unknown."""
    shape, dtype = spec
    if dtype not in DTYPE_BYTES or -1 in shape[1:]:
        return None
    return size * math.prod(shape[1:]) * DTYPE_BYTES[dtype]


def component_sizes(batch: BatchFacts, size: int) -> Collection[int]:
    """Bytes of the tensors of a batch with `size` examples, as far as they are known."""
    leading = [spec for spec in batch.components if spec[0][0] in (-1, size)]
    return {each for spec in leading if (each := component_bytes(spec, size)) is not None}


def _is_open(layer: Layer) -> bool:
    """Whether the leading dimension of the layer's output is open and not the only one."""
    shape = layer.output_shape
    return shape is not None and len(shape) > 1 and shape[0] == -1


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
) -> int | None:
    """Examples in the batch of a failed step that was not recorded, None if unknown.

    This is the traced batch if the failed op requested as much in a traced training step. Otherwise it is the leading
    dimension of the failed tensor, if that has the shape of its layer's output.

    Args:
        history: Chunks of traced steps.
        phase, op, requested, shape, layer: Of the failed request.
        traced_batch: Examples in the batch of the traced steps.
    """
    same = any(
        point.scale == 1.0 for step in history if step.phase == phase == "train" for point in step.points(op, requested)
    )
    return traced_batch if same and traced_batch is not None else batch_of(shape, layer)


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
