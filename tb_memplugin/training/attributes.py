"""Saves the attributes of a compiled model, its optimizer and its metrics, and restores them."""

import contextlib
from collections.abc import Iterator
from typing import Any

_OF_COMPILE = ("_compile_metrics", "_compile_loss", "_loss_tracker")
_STEP_FUNCTIONS = ("train_function", "test_function", "predict_function")
_OF_PROXIES = (  # what TensorFlow knows of a tracked dictionary
    *("_self_non_string_key", "_self_external_modification", "_self_last_wrapped_dict_snapshot"),
    *("_self_unconditional_checkpoint_dependencies", "_self_unconditional_dependency_names"),
    "_self_unconditional_deferred_dependencies",
)


@contextlib.contextmanager
def same_attributes(model: Any) -> Iterator[None]:
    """Restore at the end of the block which variables, metrics and step functions a compiled model
    has; there are no step functions in it."""
    objects = [model, *optimizers(model), *(getattr(model, name, None) for name in _OF_COMPILE)]
    objects += [getattr(one, "_tracker", None) for one in objects]
    saved = [_Attributes(one) for one in objects if hasattr(one, "__dict__")]
    try:
        for name in _STEP_FUNCTIONS:
            setattr(model, name, None)  # the model's own ones must not be traced for other batches
        yield
    finally:
        for attributes in saved:
            attributes.restore()


def optimizers(model: Any) -> Iterator[Any]:
    """The optimizer and the one that it wraps for loss scaling."""
    optimizer = model.optimizer
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "inner_optimizer", None)


class _Attributes:
    """The attributes of an object, with the contents of its lists, dictionaries and sets at any
    depth."""

    def __init__(self, owner: Any) -> None:
        self._contents: dict[int, tuple[Any, Any, Any]] = {}
        self._proxies: list[tuple[Any, dict[str, Any]]] = []
        self._save(vars(owner))

    def _save(self, value: Any) -> None:
        wrapped = getattr(value, "__wrapped__", None)
        # in a proxy of TensorFlow's, whose attributes are not in its `__dict__`
        if isinstance(wrapped, dict):
            values = {name: getattr(value, name) for name in _OF_PROXIES if hasattr(value, name)}
            self._proxies.append((value, values))
            for inner in values.values():
                self._save(inner)
            value = wrapped
        kind = next((kind for kind in (list, dict, set) if issubclass(type(value), kind)), None)
        if kind is None or id(value) in self._contents:
            return
        # Methods of the base classes: those of Keras and TensorFlow track each change.
        contents: Any = kind.copy(value)
        self._contents[id(value)] = (kind, value, contents)
        for inner in contents.values() if kind is dict else contents:
            self._save(inner)
        if hasattr(value, "__dict__"):
            self._save(vars(value))  # TensorFlow's lists keep their items there

    def restore(self) -> None:
        for proxy, values in self._proxies:
            for name, value in values.items():
                setattr(proxy, name, value)
        for kind, value, contents in self._contents.values():
            kind.clear(value)
            (list.extend if kind is list else kind.update)(value, contents)
