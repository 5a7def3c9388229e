"""Installs the wrappers while at least one observer needs them."""

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from tb_memplugin.recorder.base import abandon_in_child
from tb_memplugin.recorder.watch.call_notes import call_notes
from tb_memplugin.recorder.watch.datasets import data_pipelines, makes_iterator
from tb_memplugin.recorder.watch.frames import TRAINER_METHODS
from tb_memplugin.recorder.watch.inputs import (
    function_call,
    input_notes,
    makes_model,
    next_element,
    returns_data,
    takes_data,
)
from tb_memplugin.recorder.watch.layer_calls import (
    layer_call,
    optimizer_apply,
    optimizer_apply_gradients,
    tape_gradient,
)
from tb_memplugin.recorder.watch.layers import packages

Wrapper: TypeAlias = Callable[..., Any]
"""Called instead of a method, with the method itself before its arguments."""


class Hooks:
    """Counts observers; the first one installs the wrappers and the last one removes them. Thread-safe."""

    def __init__(self) -> None:
        self._users = 0
        self._originals: list[tuple[Any, str, Any, Any]] = []
        self._lock = threading.Lock()

    def acquire(self) -> None:
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
        with self._lock:
            self._users = max(0, self._users - 1)
            if not self._users:
                self._restore()

    @property
    def busy(self) -> bool:
        """Whether a thread, maybe this one, is inside a method; a finalizer must not wait for that."""
        return self._lock.locked()

    def _abandon(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._restore()
        call_notes.abandon()

    def _install(self) -> None:
        for (owner, name), wrapper in places().items():
            original = vars(owner)[name]
            replacement = _wrapped(original, wrapper)
            setattr(owner, name, replacement)
            self._originals.append((owner, name, original, replacement))
        input_notes.active = data_pipelines.active = True

    def _restore(self) -> None:
        call_notes.active = input_notes.active = data_pipelines.active = False
        for owner, name, original, replacement in reversed(self._originals):
            # If somebody else wrapped our wrapper, theirs stays and calls ours, which then only calls the original.
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
        self._originals.clear()


def _wrapped(original: Any, wrapper: Wrapper) -> Any:
    # functools.wraps keeps Keras's module name; AutoGraph does not convert functions of that module.
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper(original, self, *args, **kwargs)

    return call


def places() -> dict[tuple[Any, str], Wrapper]:
    """(class that defines a method, its name) to the wrapper, for each method that this TensorFlow and Keras have."""
    import tensorflow as tf
    from tensorflow.python.data.ops import iterator_ops, multi_device_iterator_ops, optional_ops
    from tensorflow.python.eager.polymorphic_function import polymorphic_function

    methods: list[tuple[Any, str, Wrapper]] = [
        *((tf.GradientTape, name, tape_gradient) for name in ("gradient", "jacobian", "batch_jacobian")),
        (getattr(iterator_ops, "OwnedIterator", None), "_next_internal", next_element),
        (getattr(iterator_ops, "OwnedIterator", None), "__init__", makes_iterator),
        (getattr(multi_device_iterator_ops, "OwnedMultiDeviceIterator", None), "__init__", makes_iterator),
        (getattr(optional_ops, "_OptionalImpl", None), "get_value", returns_data),
        (getattr(polymorphic_function, "Function", None), "_call", function_call),
    ]
    for keras in packages():
        methods += [(keras.layers.Layer, "__call__", layer_call), (keras.Model, "__init__", makes_model)]
        methods += [(keras.Model, name, takes_data) for name in TRAINER_METHODS]
        optimizers = keras.optimizers
        if hasattr(optimizers.Optimizer, "apply"):
            methods += [
                (one, "apply", optimizer_apply) for one in (optimizers.Optimizer, optimizers.LossScaleOptimizer)
            ]
        else:
            kinds = (optimizers.Optimizer, optimizers.legacy.Optimizer)
            methods += [(one, "apply_gradients", optimizer_apply_gradients) for one in kinds]
    found: dict[tuple[Any, str], Wrapper] = {}
    for kind, name, wrapper in methods:
        owner = next((one for one in getattr(kind, "__mro__", ())[:-1] if name in vars(one)), None)
        if owner is not None:
            found[owner, name] = wrapper
    return found


hooks = Hooks()
abandon_in_child(hooks)
