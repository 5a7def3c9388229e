"""One pass through a segment in which Keras's variables are given tensors, so that a second pass repeats the first."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from tb_memplugin.errors import RecomputationError

Run = Callable[[list[Any], Callable[[str], None]], list[Any]]
"""Runs a segment's layers on flat tensors and returns flat tensors; calls back with the name of each layer that ran."""


class RecordingScope(keras.StatelessScope):  # type: ignore[misc]
    """A stateless scope that remembers which variables were read without a given value, and which were updated."""

    def __init__(self, values: Iterable[tuple[Any, Any]] = ()) -> None:
        super().__init__(state_mapping=list(values), collect_losses=True)
        self.unknown: dict[int, Any] = {}
        self.updated: dict[int, Any] = {}

    def get_current_value(self, variable: Any) -> Any:
        value = super().get_current_value(variable)
        if value is None:
            self.unknown[id(variable)] = variable
        return value

    def add_update(self, update: tuple[Any, Any]) -> None:
        self.updated[id(update[0])] = update[0]
        super().add_update(update)


@dataclass(frozen=True)
class Passed:
    """What a pass returned."""

    outputs: list[Any]
    losses: list[tuple[Any, Any]]
    """Each loss with the layer that added it."""
    updates: list[tuple[Any, Any]]
    """Each updated variable with its last value."""
    unknown: list[Any]
    """Variables that the pass read and that had no value in `values`."""

    def differentiable(self) -> list[Any]:
        """Outputs and losses that have gradients."""
        return [tensor for tensor in (*self.outputs, *(loss for _, loss in self.losses)) if is_floating(tensor)]


class _Context(keras.layers.Layer):  # type: ignore[misc]
    """Calls a function as Keras calls a layer: layers inside inherit `training`, and no dtype is cast."""

    def __init__(self) -> None:
        super().__init__(name="recomputed", autocast=False, dtype="float32")

    def call(self, *tensors: Any, training: Any = None) -> Any:
        return self.function(list(tensors), training)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        """Nothing: the layers inside have put their masks on their outputs."""


def call_in_context(function: Callable[[list[Any], Any], Any], tensors: Sequence[Any], training: Any = None) -> Any:
    """Call `function(tensors, training)`, `training` being the caller's unless it is given."""
    context = _Context()
    object.__setattr__(context, "function", function)
    return context(*tensors) if training is None else context(*tensors, training=training)


def exact_pass(
    run: Run,
    layers: Sequence[Any],
    tensors: Sequence[Any],
    masks: Sequence[Any],
    values: Iterable[tuple[Any, Any]],
    after: Callable[[str], None] = lambda name: None,
) -> Passed:
    """Run a segment on tensors with these masks and with these values of variables. No variable changes."""
    for tensor, mask in zip(tensors, masks, strict=True):
        if mask is not None:
            tensor._keras_mask = mask
    with RecordingScope(values) as scope:
        outputs = run(list(tensors), after)
    every = [sub for layer in layers for sub in layer._flatten_layers()]
    losses = []
    for loss in scope.losses:
        owners = [layer for layer in every if id(loss) in layer._loss_ids]
        losses.append(((owners or layers)[0], loss))
        for owner in owners:
            owner._loss_ids.discard(id(loss))
    updates = [(variable, scope.get_current_value(variable)) for variable in scope.updated.values()]
    return Passed(outputs, losses, updates, list(scope.unknown.values()))


def is_floating(tensor: Any) -> bool:
    """Whether a tensor can have a gradient."""
    dtype = getattr(tensor, "dtype", None)
    return bool(getattr(dtype, "is_floating", False) or getattr(dtype, "is_complex", False))


def refuse(layer: str, why: str, instead: str = "") -> RecomputationError:
    """The error for a layer that cannot be recomputed exactly."""
    return RecomputationError(f"Layer {layer} cannot be recomputed exactly: {why}. {instead}".rstrip())
