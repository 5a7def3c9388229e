"""Protects variables from a compiled step that runs out of memory.

XLA writes the new values of a step's variables over the old ones. If the step's memory cannot be allocated, TensorFlow
has given the old values away and frees them, although the variables still use them; the process crashes later. XLA
leaves values alone that something else refers to.
"""

from collections.abc import Mapping
from typing import Any

import keras

from tb_memplugin.recorder.probing.saved_state import variables_of


class SharedValues(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Refers to the values of all variables during the first step, which therefore needs room for a second copy.

    Later steps need no more than the first one, so they do not fail.

    Args:
        batch: A batch, from which metrics and the optimizer make their variables before the first step.
    """

    def __init__(self, batch: Any) -> None:
        super().__init__()
        self._batch = batch
        self._values: list[Any] = []

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Take the references, or drop them once a step has run."""
        first, self._batch = self._batch, None
        self._values = []
        if first is not None and self.model.jit_compile:
            self.model._symbolic_build(data_batch=first)  # Keras does so itself under other backends than TensorFlow's
            self._values = [variable.read_value() for variable in variables_of(self.model)]

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Drop the references."""
        self._values = []
