"""Estimates of fixes for a failed allocation: the bytes that each would free or add at the failure. Pure.

Later requests of the step may fail all the same, so whether a fix is enough is unknown. `prediction.fixes` simulates
whole steps, if they were recorded.
"""

import math
from collections.abc import Sequence

import numpy as np

from tb_memplugin.allocator import fit as bfc
from tb_memplugin.allocator.rules import rounded_bytes
from tb_memplugin.attribution.batch import dimensions, weight_elements
from tb_memplugin.attribution.oom_event import OomEvent
from tb_memplugin.model import FREE, Fix, Layer, MemoryMap, Verdict
from tb_memplugin.model.units import format_bytes

_WITH_THE_BATCH = ("activations", "activation_gradients", "inputs")
"""Categories that grow with the batch."""
_ONLY_FOR_TRAINING = ("optimizer_state", "weight_gradients", "activations")
"""Categories that a layer does not need once it and all layers before it are frozen."""


def possible_fixes(
    event: OomEvent,
    memory_map: MemoryMap,
    verdict: Verdict,
    layers: Sequence[Layer],
    batch_size: int | None,
) -> tuple[Fix, ...]:
    """The fixes that apply to a failed request of known size; parameters as in `post_mortem`."""
    rounded = rounded_bytes((event.requested_bytes or 0) + event.uncertain_bytes)
    free = (memory_map.pool_bytes or 0) - (memory_map.in_use_bytes or 0)
    unreserved = bfc.unreserved_bytes(memory_map) or 0
    usable = free + (unreserved if unreserved < rounded else 0)
    sizes = memory_map.bytes[memory_map.state == FREE]
    largest = max(int(sizes.max()) if len(sizes) else 0, unreserved if unreserved < rounded else 0)
    short = rounded - (largest if verdict == "fragmentation" else usable)
    fixes: list[Fix | None] = []
    if verdict == "fragmentation":
        fixes.append(_one_piece(usable, largest, len(sizes), rounded, bfc.gives_regions_back(memory_map)))
    fixes.append(_smaller_batch(event, memory_map, short, batch_size, layers))
    fixes.append(_freezing(memory_map, layers, short))
    if verdict == "capacity":
        fixes.append(Fix("limit", f"{format_bytes(short)} more memory, with all else unchanged.", short))
    return tuple(fix for fix in fixes if fix is not None)


def _one_piece(usable: int, largest: int, chunks: int, rounded: int, is_gpu: bool) -> Fix:
    sentence = (
        f"The same free memory in one piece: {format_bytes(usable)} were free in {chunks} chunks of at most "
        f"{format_bytes(largest)}."
    )
    if is_gpu:
        sentence += " TF_GPU_ALLOCATOR=cuda_malloc_async joins pieces."
    return Fix("one_piece", sentence, usable - largest)


def _of_weights(event: OomEvent, layers: Sequence[Layer]) -> bool:
    """Whether the request is a gradient with the size of its layer's weights, so not a tensor of the batch."""
    layer = next((layer for layer in layers if layer.path == event.layer), None)
    if layer is None or "gradient" not in (event.op or ""):
        return False
    sizes = dimensions(event.shape)
    return sizes is not None and math.prod(sizes) in weight_elements(layer)


def _smaller_batch(
    event: OomEvent, memory_map: MemoryMap, short: int, batch_size: int | None, layers: Sequence[Layer]
) -> Fix | None:
    """The largest batch that would have fit, by the bytes of an example at the failure.

    None if more bytes have no owner than are known to grow with the batch: an example may take much more then.
    """
    if not batch_size or batch_size < 2 or event.compiled:
        return None
    with_batch = [number for number, owner in enumerate(memory_map.owners) if owner.category in _WITH_THE_BATCH]
    bytes_with_batch = int(memory_map.bytes[np.isin(memory_map.owner, with_batch)].sum())
    if (event.shape or "").startswith((f"[{batch_size},", f"[{batch_size}]")) and not _of_weights(event, layers):
        bytes_with_batch += event.requested_bytes or 0
    each = bytes_with_batch / batch_size
    ownerless = int(memory_map.bytes[(memory_map.state != FREE) & (memory_map.owner < 0)].sum())
    if each < 1 or ownerless > bytes_with_batch:
        return None
    fewer = -int(-short // each)
    measured = f"An example takes {format_bytes(int(each))}, measured at the failure"
    if fewer >= batch_size:
        freed = int(each * (batch_size - 1))
        sentence = f"{measured}: even a batch of 1 instead of {batch_size} would only free {format_bytes(freed)}."
        return Fix("batch", sentence, freed)
    sentence = f"A batch of {batch_size - fewer} instead of {batch_size}. {measured}."
    return Fix("batch", sentence, int(each * fewer))


def _freezing(memory_map: MemoryMap, layers: Sequence[Layer], short: int) -> Fix | None:
    """Freezing as few layers as needed, from the model's first on.

    Frozen layers have no gradients and no optimizer state, and save nothing for the backward pass if no layer before
    them is trained. That frees whole chunks, rounding included.
    """
    owned = memory_map.owner >= 0
    by_owner = np.zeros(len(memory_map.owners), np.int64)
    np.add.at(by_owner, memory_map.owner[owned], memory_map.bytes[owned])
    for_training: dict[str, int] = {}
    for owner, size in zip(memory_map.owners, by_owner.tolist(), strict=True):
        if owner.layer is not None and owner.category in _ONLY_FOR_TRAINING:
            for_training[owner.layer] = for_training.get(owner.layer, 0) + size
    freed, frozen = 0, []
    for layer in layers:
        freed += for_training.get(layer.path, 0)
        if layer.trainable_weight_bytes:
            frozen.append(layer.path)
        if frozen and freed >= short:
            break
    if not frozen or not freed:
        return None
    which = f"the first {len(frozen)} trainable layers (to {frozen[-1]})" if len(frozen) > 1 else frozen[0]
    sentence = f"Freezing {which} would free {format_bytes(freed)}: gradients, optimizer state and saved activations."
    return Fix("freezing", sentence, freed)
