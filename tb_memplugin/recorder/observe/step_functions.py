"""Tracks which of Keras's step functions were made while layers were observed.

Keras keeps these functions with the model from one `fit` to the next. The layers of a function that was traced while
nothing was observed are unknown, so it is remade before recording; Keras traces it again, with the same result.
"""

import weakref
from collections.abc import Iterable
from typing import Any

NAMES = ("train_function", "test_function", "predict_function")
"""Attributes of a model that hold its step functions, one per phase."""

_noted: "weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]]" = weakref.WeakKeyDictionary()


def original(function: Any) -> Any:
    """The function that a guard wraps, or the function itself."""
    return getattr(function, "tb_memplugin_original", function)


def note(model: Any) -> None:
    """Note that the model's current functions were made while it was observed."""
    known = _noted.setdefault(model, weakref.WeakSet())
    known.update(function for _, function in _functions(model))


def any_noted(model: Any) -> bool:
    """Whether any function of the model was noted."""
    return model in _noted


def unnoted(model: Any) -> list[str]:
    """Names of the model's functions that were not noted."""
    known = _noted.get(model, ())
    return [name for name, function in _functions(model) if function not in known]


def remake(model: Any, names: Iterable[str]) -> None:
    """Make functions again, at once: the caller may be in a training loop that needs them."""
    for name in names:
        setattr(model, name, None)
        getattr(model, f"make_{name}")()


def _functions(model: Any) -> list[tuple[str, Any]]:
    functions = ((name, original(getattr(model, name, None))) for name in NAMES)
    return [(name, function) for name, function in functions if function is not None]
