"""The conditions of a prediction. Pure."""

import dataclasses
from collections.abc import Sequence

from tb_memplugin.model import Layer
from tb_memplugin.prediction.pattern_syntax import PatternError
from tb_memplugin.prediction.patterns import layer_pattern

SLOTS = {
    "sgd": 0,
    "momentum": 1,
    "rmsprop": 1,
    "adagrad": 1,
    "lion": 1,
    "adam": 2,
    "adamw": 2,
    "adamax": 2,
    "nadam": 2,
    "adadelta": 2,
    "ftrl": 2,
}
"""Slots that Keras's optimizers keep for each weight; ``momentum`` is SGD with momentum."""
PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")


@dataclasses.dataclass(frozen=True)
class Conditions:
    """What is different from the recorded run; None for no difference.

    Attributes:
        batch_size: Examples in a batch.
        capacity_bytes: The allocator's limit.
        freeze, unfreeze: Regular expressions for paths of layers.
        optimizer: One of `SLOTS`.
        precision: One of `PRECISIONS`.
        frozen: Paths of layers to freeze, in addition to those that match `freeze`.
        accumulate: Whether the optimizer sums gradients over several batches.
    """

    batch_size: int | None = None
    capacity_bytes: int | None = None
    freeze: str | None = None
    unfreeze: str | None = None
    optimizer: str | None = None
    precision: str | None = None
    frozen: tuple[str, ...] = ()
    accumulate: bool = False


RECORDED = Conditions()
"""As in the recorded run."""


def matching(layers: Sequence[Layer], pattern: str) -> list[Layer]:
    """The layers with weights whose path matches a regular expression anywhere.

    Raises:
        PatternError: The pattern is no supported regular expression.
    """
    wanted = layer_pattern(pattern)
    return [layer for layer in layers if layer.parameters and wanted.found_in(layer.path)]


def pattern_error(conditions: Conditions) -> str | None:
    """What is wrong with the conditions' regular expressions, as a sentence; None if nothing is."""
    for name in ("freeze", "unfreeze"):
        pattern = getattr(conditions, name)
        try:
            layer_pattern(pattern or "")
        except PatternError as error:
            return f"{name} {error}. Received: {pattern!r:.80}"
    return None
