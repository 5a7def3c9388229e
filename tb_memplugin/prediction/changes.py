"""What freezing, another optimizer or another precision changes in a recorded step. Pure.

Optimizer state and weight gradients follow exactly from the weights. What else changes is an estimate with its range:
which activations are saved, when gradients are freed, what half precision copies.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tb_memplugin.model import ChunkOwner, Integers, Layer, StepRequests
from tb_memplugin.model.units import format_bytes
from tb_memplugin.prediction.conditions import SLOTS, Conditions, matching
from tb_memplugin.prediction.sized_steps import LEFT_OUT

_OF_TRAINING = ("optimizer_state", "weight_gradients")
_OF_PASSES = ("activations", "activation_gradients", "workspace")


@dataclasses.dataclass(frozen=True)
class Change:
    """What conditions other than batch size and capacity change.

    Attributes:
        extra: Additional long-lived chunks: owner and size of each.
        transient_bytes: Least and most additional bytes at the peak.
        frozen: Layers that are frozen in addition.
        unsaved: Layers that save no activations any more, as no layer before them is trained.
        without_slots: Whether the recorded optimizer state of layers goes.
        halved: Whether activations have two bytes instead of four.
        is_estimate: Whether the change is not exact.
        sentences: What is assumed.
    """

    extra: tuple[tuple[ChunkOwner, int], ...] = ()
    transient_bytes: tuple[int, int] = (0, 0)
    frozen: frozenset[str] = frozenset()
    unsaved: frozenset[str] = frozenset()
    without_slots: bool = False
    halved: bool = False
    is_estimate: bool = False
    sentences: tuple[str, ...] = ()

    def most(self, requests: StepRequests, sizes: Integers) -> Integers:
        """The sizes after the change, with all that may stay."""
        gone = np.asarray(
            [
                (owner.layer in self.frozen and owner.category in _OF_TRAINING)
                or (self.without_slots and owner.category == "optimizer_state" and owner.layer is not None)
                for owner in requests.owners
            ],
            bool,
        )
        return np.where(gone[requests.owner], LEFT_OUT, sizes)

    def least(self, requests: StepRequests, sizes: Integers) -> Integers:
        """The sizes after the change, without all that may go."""
        kept = self.most(requests, sizes)
        unsaved = np.asarray(
            [owner.layer in self.unsaved and owner.category in _OF_PASSES[:2] for owner in requests.owners], bool
        )
        kept = np.where(unsaved[requests.owner], LEFT_OUT, kept)
        if self.halved:
            of_passes = np.asarray(
                [owner.layer is not None and owner.category in _OF_PASSES for owner in requests.owners], bool
            )
            kept = np.where(of_passes[requests.owner] & (kept > 0), kept // 2, kept)
        return kept


def change_of(conditions: Conditions, layers: Sequence[Layer], requests: StepRequests) -> Change:
    """The change that conditions make to the program of a recorded step.

    Args:
        conditions: The conditions; their patterns are valid.
        layers: The model's layers, in order.
        requests: The recorded step.
    """
    frozen = (
        {layer.path for layer in matching(layers, conditions.freeze) if layer.trainable} if conditions.freeze else set()
    )
    thawed = (
        [layer for layer in matching(layers, conditions.unfreeze) if layer.trainable_weight_bytes < layer.weight_bytes]
        if conditions.unfreeze
        else []
    )
    sentences: list[str] = []
    extra: list[tuple[ChunkOwner, int]] = []
    transient = (0, 0)
    slots = _slots(requests, layers)
    unsaved: set[str] = set()
    if conditions.freeze:
        unsaved = _before_first_trained(layers, frozen)
        sentences.append(
            f"{len(frozen)} layers are frozen: their optimizer state and weight gradients go. Whether their "
            "activations are saved is left to the range."
            if frozen
            else f"No trainable layer matches {conditions.freeze!r:.80}, so nothing is frozen."
        )
    if conditions.optimizer is not None:
        slots = SLOTS[conditions.optimizer]
        kept = [layer for layer in layers if layer.trainable_weight_bytes and layer.path not in frozen]
        extra += [(_slot(layer), layer.trainable_weight_bytes) for layer in kept for _ in range(slots)]
        sentences.append(f"{conditions.optimizer} keeps {slots} slots for each trainable weight.")
    if conditions.unfreeze:
        weights = [layer.weight_bytes - layer.trainable_weight_bytes for layer in thawed]
        extra += [(_slot(layer), size) for layer, size in zip(thawed, weights, strict=True) for _ in range(slots)]
        saved = _saved_after(layers, thawed, requests.batch_size)
        transient = (max(weights, default=0), sum(weights) + 2 * saved)
        sentences.append(
            f"{len(thawed)} layers are unfrozen: {slots} slots for each weight. Their gradients and saved activations, "
            f"at most {format_bytes(transient[1])}, are left to the range."
            if thawed
            else f"No frozen layer matches {conditions.unfreeze!r:.80}, so nothing is unfrozen."
        )
    if conditions.accumulate:
        sums = [layer for layer in layers if layer.trainable_weight_bytes]
        extra += [(ChunkOwner(layer.path, "other_state", None), layer.trainable_weight_bytes) for layer in sums]
        total = sum(layer.trainable_weight_bytes for layer in sums)
        transient = (transient[0], transient[1] + 2 * total)
        sentences.append(
            "The sums of the gradients take as many bytes as the trainable weights, and up to twice as many more while "
            "their means are computed and applied."
        )
    halved = conditions.precision not in (None, "float32")
    if halved:
        copies = sum(layer.weight_bytes for layer in layers) // 2
        transient = (transient[0], transient[1] + copies)
        sentences.append(
            f"{conditions.precision}: activations, their gradients and workspace have between half and all of their "
            "bytes, and copies of weights may come on top. Weights and optimizer state stay in float32."
        )
    return Change(
        extra=tuple(extra),
        transient_bytes=transient,
        frozen=frozenset(frozen),
        unsaved=frozenset(unsaved),
        without_slots=conditions.optimizer is not None,
        halved=halved,
        is_estimate=bool(frozen or thawed or halved),
        sentences=tuple(sentences),
    )


def _slot(layer: Layer) -> ChunkOwner:
    return ChunkOwner(layer.path, "optimizer_state", True)


def _slots(requests: StepRequests, layers: Sequence[Layer]) -> int:
    """Slots that the recorded optimizer keeps for each weight."""
    state = sum(layer.optimizer_bytes for layer in layers)
    weights = sum(layer.trainable_weight_bytes for layer in layers)
    return round(state / weights) if weights else 0


def _before_first_trained(layers: Sequence[Layer], frozen: set[str]) -> set[str]:
    """Layers before the first one that is still trained."""
    before: set[str] = set()
    for layer in layers:
        if layer.trainable_weight_bytes and layer.path not in frozen:
            break
        before.add(layer.path)
    return before


def _saved_after(layers: Sequence[Layer], thawed: Sequence[Layer], batch_size: int | None) -> int:
    """Bytes of the outputs from the first unfrozen layer up to the first one that is trained already."""
    first = {layer.path for layer in thawed[:1]}
    total, counts = 0, False
    for layer in layers:
        if layer.trainable_weight_bytes and layer not in thawed:
            break
        counts = counts or layer.path in first
        if counts:
            total += layer.output_bytes or 0
    return total
