"""Installs the wrappers while at least one observer needs them."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

from tb_memplugin.recorder.base.process import abandon_in_child
from tb_memplugin.recorder.observe.calls.datasets import data_pipelines
from tb_memplugin.recorder.observe.calls.inputs import input_notes, places
from tb_memplugin.recorder.observe.calls.layer_calls import (
    layer_call,
    optimizer_apply,
    optimizer_apply_gradients,
    tape_gradient,
)
from tb_memplugin.recorder.observe.graph.call_notes import call_notes
from tb_memplugin.recorder.observe.model.layers import packages


class Hooks:
    """Counts observers; the first one installs the wrappers and the last one removes them. Thread-safe."""

    def __init__(self) -> None:
        self._users = 0
        self._originals: list[tuple[Any, str, Any, Any]] = []
        self._lock = threading.Lock()

    def acquire(self) -> None:
        """Install the wrappers if they are not; pair it with `release`."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                call_notes.active = True
                try:
                    self._install()
                except Exception:
                    self._restore()
                    self._users = 0
                    raise

    def release(self) -> None:
        """Remove the wrappers after the last observer."""
        with self._lock:
            self._users = max(0, self._users - 1)
            if not self._users:
                self._restore()

    @property
    def busy(self) -> bool:
        """Whether a thread, maybe this one, is inside a method; a finalizer must not wait for that."""
        return self._lock.locked()

    def _abandon(self) -> None:
        """Remove the wrappers in a forked child."""
        self._lock = threading.Lock()
        self._users = 0
        self._restore()
        call_notes.abandon()

    def _install(self) -> None:
        import tensorflow as tf

        for keras in packages():
            self._wrap(keras.layers.Layer, "__call__", layer_call)
            for optimizer, name, wrapper in _optimizers(keras):
                owner = next(kind for kind in optimizer.__mro__ if name in vars(kind))
                if not any(owner is kind for kind, *_ in self._originals):
                    self._wrap(owner, name, wrapper)
        for name in ("gradient", "jacobian", "batch_jacobian"):
            self._wrap(tf.GradientTape, name, tape_gradient)
        for owner, name, wrapper in places():
            self._wrap(owner, name, wrapper)
        input_notes.active = data_pipelines.active = True

    def _wrap(self, owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        original = vars(owner)[name]
        replacement = wrapper(original)
        setattr(owner, name, replacement)
        self._originals.append((owner, name, original, replacement))

    def _restore(self) -> None:
        call_notes.active = input_notes.active = data_pipelines.active = False
        for owner, name, original, replacement in reversed(self._originals):
            # If somebody else wrapped our wrapper, theirs stays and calls ours, which then only calls the original.
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
        self._originals.clear()


def _optimizers(keras: Any) -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """(class, name of the method that updates variables, its wrapper) of a package's optimizers."""
    if hasattr(keras.optimizers.Optimizer, "apply"):
        yield keras.optimizers.Optimizer, "apply", optimizer_apply
        yield keras.optimizers.LossScaleOptimizer, "apply", optimizer_apply
    else:
        yield keras.optimizers.Optimizer, "apply_gradients", optimizer_apply_gradients
        yield keras.optimizers.legacy.Optimizer, "apply_gradients", optimizer_apply_gradients


hooks = Hooks()
abandon_in_child(hooks)
