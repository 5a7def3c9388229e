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


def change_of(conditions: Conditions, layers: Sequence[Layer]) -> Change:
    """The change that conditions make to a recorded program.

    Args:
        conditions: The conditions; their patterns are valid.
        layers: The model's layers, in order.
    """
    change = _freezing(Change(), conditions, layers)
    slots = _slots(layers)
    if conditions.optimizer is not None:
        slots = SLOTS[conditions.optimizer]
        change = _other_optimizer(change, conditions.optimizer, layers)
    if conditions.unfreeze is not None:
        change = _unfreezing(change, conditions.unfreeze, layers, slots)
    if conditions.accumulate:
        change = _accumulating(change, layers)
    if conditions.precision not in (None, "float32"):
        change = _half_precision(change, str(conditions.precision), layers)
    return change


def _freezing(change: Change, conditions: Conditions, layers: Sequence[Layer]) -> Change:
    pattern, named = conditions.freeze, set(conditions.frozen)
    if pattern is None and not named:
        return change
    matched = {layer.path for layer in matching(layers, pattern)} if pattern is not None else set()
    frozen = {layer.path for layer in layers if layer.trainable_weight_bytes and layer.path in matched | named}
    sentence = (
        f"{_layers(len(frozen))} frozen: their optimizer state and weight gradients are removed. The range covers "
        "whether their activations are saved."
        if frozen
        else f"No trainable layer matches {pattern!r:.80}, so nothing is frozen."
    )
    return dataclasses.replace(
        change,
        frozen=frozenset(frozen),
        unsaved=frozenset(_before_first_trained(layers, frozen)),
        is_estimate=bool(frozen),
        sentences=(*change.sentences, sentence),
    )


def _other_optimizer(change: Change, optimizer: str, layers: Sequence[Layer]) -> Change:
    slots = SLOTS[optimizer]
    kept = [layer for layer in layers if layer.trainable_weight_bytes and layer.path not in change.frozen]
    return dataclasses.replace(
        change,
        extra=(*change.extra, *((_slot(layer), layer.trainable_weight_bytes) for layer in kept for _ in range(slots))),
        without_slots=True,
        sentences=(*change.sentences, f"{optimizer} keeps {slots} slots for each trainable weight."),
    )


def _unfreezing(change: Change, pattern: str, layers: Sequence[Layer], slots: int) -> Change:
    thawed = [layer for layer in matching(layers, pattern) if layer.trainable_weight_bytes < layer.weight_bytes]
    if not thawed:
        sentence = f"No frozen layer matches {pattern!r:.80}, so nothing is unfrozen."
        return dataclasses.replace(change, sentences=(*change.sentences, sentence))
    weights = [layer.weight_bytes - layer.trainable_weight_bytes for layer in thawed]
    most = sum(weights) + 2 * _saved_after(layers, thawed)
    sentence = (
        f"{_layers(len(thawed))} unfrozen: {slots} slots for each weight. The range covers their gradients and saved "
        f"activations, at most {format_bytes(most)}."
    )
    added = ((_slot(layer), size) for layer, size in zip(thawed, weights, strict=True) for _ in range(slots))
    return dataclasses.replace(
        change,
        extra=(*change.extra, *added),
        transient_bytes=_plus(change.transient_bytes, (max(weights), most)),
        is_estimate=True,
        sentences=(*change.sentences, sentence),
    )


def _accumulating(change: Change, layers: Sequence[Layer]) -> Change:
    sums = [layer for layer in layers if layer.trainable_weight_bytes]
    added = ((ChunkOwner(layer.path, "other_state", None), layer.trainable_weight_bytes) for layer in sums)
    sentence = (
        "The accumulated gradients take as many bytes as the trainable weights, and up to twice as many more while "
        "their means are computed and applied."
    )
    return dataclasses.replace(
        change,
        extra=(*change.extra, *added),
        transient_bytes=_plus(change.transient_bytes, (0, 2 * sum(layer.trainable_weight_bytes for layer in sums))),
        sentences=(*change.sentences, sentence),
    )


def _half_precision(change: Change, precision: str, layers: Sequence[Layer]) -> Change:
    sentence = (
        f"{precision}: activations, their gradients and workspace take between half and all of their recorded bytes, "
        "plus copies of weights. Weights and optimizer state stay in float32."
    )
    return dataclasses.replace(
        change,
        transient_bytes=_plus(change.transient_bytes, (0, sum(layer.weight_bytes for layer in layers) // 2)),
        halved=True,
        is_estimate=True,
        sentences=(*change.sentences, sentence),
    )


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def _plus(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _slot(layer: Layer) -> ChunkOwner:
    return ChunkOwner(layer.path, "optimizer_state", True)


def _slots(layers: Sequence[Layer]) -> int:
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


def _saved_after(layers: Sequence[Layer], thawed: Sequence[Layer]) -> int:
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
