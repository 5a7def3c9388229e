"""The post-mortem of a failed allocation: why it failed, who held the memory, what would have let it pass. Pure."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from tb_memplugin.analysis import bfc
from tb_memplugin.analysis.batch import dimensions, weight_elements
from tb_memplugin.analysis.owner_join import ledger_of
from tb_memplugin.model import FREE, AllocatorMap, Layer, LedgerRow, Oom, OomStatus, Phase, Remedy, Verdict
from tb_memplugin.units import format_bytes

_WITH_THE_BATCH = ("activations", "activation_gradients", "inputs")
"""Categories that grow with the number of examples in a batch."""
_ONLY_FOR_TRAINING = ("optimizer_state", "weight_gradients", "activations")
"""Categories of a layer that it need not hold once it and all before it are frozen."""


@dataclasses.dataclass(frozen=True)
class Death:
    """What is known of the failed allocation beside the chunks; fields as in `Oom`.

    Attributes:
        uncertain_bytes: By how much the request may be larger or smaller than said.
        compiled: Whether a compiled module asked for it, for all of its layers in one piece.
    """

    identifier: str
    status: OomStatus
    device: str
    wall_time: float
    step: int | None = None
    phase: Phase | None = None
    requested_bytes: int | None = None
    op: str | None = None
    layer: str | None = None
    shape: str | None = None
    uncertain_bytes: int = 0
    compiled: bool = False
    notes: tuple[str, ...] = ()


def post_mortem(
    death: Death, taken: AllocatorMap | None, layers: Sequence[Layer] = (), batch_size: int | None = None
) -> Oom:
    """The post-mortem.

    Args:
        death: What failed.
        taken: The chunks then, with their owners where they are known.
        layers: The model's layers in its order.
        batch_size: Examples in a batch, None if it was not observed.
    """
    verdict: Verdict | None = None
    reason = ""
    ledger: tuple[LedgerRow, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    if taken is not None:
        ledger = ledger_of(taken)
        verdict, reason = _verdict(taken, death)
        if death.requested_bytes is not None and verdict is not None:
            remedies = _remedies(death, taken, verdict, ledger, layers, batch_size)
    free, largest = _free(taken)
    return Oom(
        identifier=death.identifier,
        status=death.status,
        step=death.step,
        phase=death.phase,
        device=death.device,
        wall_time=death.wall_time,
        requested_bytes=death.requested_bytes,
        free_bytes=free,
        largest_free_bytes=largest,
        in_use_bytes=None if taken is None else taken.in_use_bytes,
        pool_bytes=None if taken is None else taken.pool_bytes,
        capacity_bytes=None if taken is None else taken.capacity_bytes,
        verdict=verdict,
        reason=reason,
        op=death.op,
        layer=death.layer,
        shape=death.shape,
        ledger=ledger,
        remedies=remedies,
        map=taken,
        not_available=_not_available(death, taken),
    )


def _not_available(death: Death, taken: AllocatorMap | None) -> tuple[str, ...]:
    """Sentences on what is not known of the failure."""
    notes = [*death.notes, *(() if taken is None else taken.not_available)]
    if death.compiled:
        notes.append(
            "The request's own layer and what a smaller batch would free are not available, because a compiled module "
            "asks for the memory of all its layers in one piece, planned for its batch."
        )
    if death.uncertain_bytes:
        notes.append(
            "The exact size of the request is not available, because XLA's message rounds it: it may differ by "
            f"{format_bytes(death.uncertain_bytes)}."
        )
    if death.requested_bytes is None:
        notes.append("The size of the request is not available, because TensorFlow did not get to say it.")
    return tuple(dict.fromkeys(notes))


def _free(taken: AllocatorMap | None) -> tuple[int | None, int | None]:
    """Free bytes and the largest free block; this one is unknown if blocks may be missing from the list."""
    if taken is None:
        return None, None
    if taken.complete:
        sizes = bfc.free_sizes(taken)
        return int(sizes.sum()), int(sizes.max()) if len(sizes) else 0
    known = taken.pool_bytes is not None and taken.in_use_bytes is not None
    return ((taken.pool_bytes or 0) - (taken.in_use_bytes or 0) if known else None), None


def _verdict(taken: AllocatorMap, death: Death) -> tuple[Verdict | None, str]:
    if death.requested_bytes is not None:
        least, most = (death.requested_bytes + sign * death.uncertain_bytes for sign in (-1, 1))
        verdict, reason = bfc.verdict(taken, death.requested_bytes)
        if bfc.verdict(taken, least)[0] == bfc.verdict(taken, most)[0]:
            return verdict, reason
        return None, f"The verdict is not available, because the request is not known exactly enough. {reason}"
    sizes = bfc.free_sizes(taken)
    largest = int(sizes.max()) if len(sizes) else 0
    if taken.complete and largest == int(sizes.sum()) and not bfc.unreserved_bytes(taken):
        return "capacity", (
            f"The size of the request is not known, but it was more than the {format_bytes(largest)} that were free, "
            "all in one block."
        )
    return None, (
        "The verdict is not available, because the size of the request is not known; it was more than the largest free "
        f"block of {format_bytes(largest)}, with {format_bytes(int(sizes.sum()))} free in all."
    )


# --- what would have let it pass -------------------------------------------------------------------------------------


def _remedies(
    death: Death,
    taken: AllocatorMap,
    verdict: Verdict,
    ledger: Sequence[LedgerRow],
    layers: Sequence[Layer],
    batch_size: int | None,
) -> tuple[Remedy, ...]:
    rounded = bfc.rounded_bytes((death.requested_bytes or 0) + death.uncertain_bytes)
    free = (taken.pool_bytes or 0) - (taken.in_use_bytes or 0)
    unreserved = bfc.unreserved_bytes(taken) or 0
    usable = free + (unreserved if unreserved < rounded else 0)
    sizes = taken.bytes[taken.state == FREE]
    largest = max(int(sizes.max()) if len(sizes) else 0, unreserved if unreserved < rounded else 0)
    short = rounded - (largest if verdict == "fragmentation" else usable)
    found: list[Remedy | None] = []
    if verdict == "fragmentation":
        found.append(_one_piece(usable, largest, len(sizes), rounded, bfc.gives_regions_back(taken)))
    found.append(_smaller_batch(death, taken, short, batch_size, layers))
    found.append(_freezing(ledger, layers, short))
    if verdict == "capacity":
        found.append(
            Remedy("limit", f"{format_bytes(short)} more memory, with all else as it was.", short, enough=True)
        )
    return tuple(remedy for remedy in found if remedy is not None)


def _one_piece(usable: int, largest: int, blocks: int, rounded: int, is_gpu: bool) -> Remedy:
    sentence = (
        f"The same free memory in one piece: {format_bytes(usable)} were free in {blocks} blocks of at most "
        f"{format_bytes(largest)}."
    )
    if is_gpu:
        sentence += " The allocator of TF_GPU_ALLOCATOR=cuda_malloc_async joins pieces."
    return Remedy("one_piece", sentence, usable - largest, usable >= rounded)


def _of_weights(death: Death, layers: Sequence[Layer]) -> bool:
    """Whether the request has the size of its layer's weights: a gradient, in a layer as wide as the batch is large."""
    layer = next((layer for layer in layers if layer.path == death.layer), None)
    if layer is None or "gradient" not in (death.op or ""):
        return False
    sizes = dimensions(death.shape)
    return sizes is not None and math.prod(sizes) in weight_elements(layer)


def _smaller_batch(
    death: Death, taken: AllocatorMap, short: int, batch_size: int | None, layers: Sequence[Layer]
) -> Remedy | None:
    """The largest batch that would have passed, by the bytes of an example as they lay there."""
    if not batch_size or batch_size < 2 or death.compiled:
        return None
    with_batch = [number for number, owner in enumerate(taken.owners) if owner.category in _WITH_THE_BATCH]
    bytes_with_batch = int(taken.bytes[np.isin(taken.owner, with_batch)].sum())
    if (death.shape or "").startswith((f"[{batch_size},", f"[{batch_size}]")) and not _of_weights(death, layers):
        bytes_with_batch += death.requested_bytes or 0
    each = bytes_with_batch / batch_size
    if each < 1:
        return None
    fewer = -int(-short // each)
    measured = f"An example takes {format_bytes(int(each))}, measured at the failure"
    if fewer >= batch_size:
        freed = int(each * (batch_size - 1))
        sentence = f"{measured}: even a batch of 1 instead of {batch_size} would free {format_bytes(freed)} only."
        return Remedy("batch", sentence, freed, enough=False)
    sentence = f"A batch of {batch_size - fewer} instead of {batch_size}. {measured}."
    return Remedy("batch", sentence, int(each * fewer), enough=True)


def _freezing(ledger: Sequence[LedgerRow], layers: Sequence[Layer], short: int) -> Remedy | None:
    """The fewest trainable layers from the model's beginning on whose freezing would free enough.

    A frozen layer has no gradients and no optimizer state; what layers hold for the backward pass is held no more where
    nothing before them is trained.
    """
    held: dict[str, int] = {}
    for row in ledger:
        if row.layer is not None and row.category in _ONLY_FOR_TRAINING:
            held[row.layer] = held.get(row.layer, 0) + row.bytes
    freed, frozen = 0, []
    for layer in layers:
        freed += held.get(layer.path, 0)
        if layer.trainable_weight_bytes:
            frozen.append(layer.path)
        if frozen and freed >= short:
            break
    if not frozen or not freed:
        return None
    enough = freed >= short
    which = f"the first {len(frozen)} trainable layers (to {frozen[-1]})" if len(frozen) > 1 else frozen[0]
    sentence = (
        f"Freezing {which}: their gradients, optimizer state and results held for the backward pass were "
        f"{format_bytes(freed)}{'' if enough else ', which is not enough'}."
    )
    return Remedy("freezing", sentence, freed, enough)
