"""Tracks which of Keras's step functions were made while layers were observed.

Keras keeps these functions with the model from one `fit` to the next. The layers of a function that was traced while
nothing was observed are unknown, so it is remade before recording; Keras traces it again, with the same result.
"""

import weakref
from typing import Any

NAMES = ("train_function", "test_function", "predict_function")
"""Attributes of a model that hold its step functions, one per phase."""

_unseen: "weakref.WeakSet[Any]" = weakref.WeakSet()
_noted: "weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]]" = weakref.WeakKeyDictionary()


def original(function: Any) -> Any:
    """The function that a guard wraps, or the function itself."""
    return getattr(function, "tb_memplugin_original", function)


def note(model: Any) -> None:
    """Note that the model's current functions, except the unseen ones, were made while it was observed."""
    known = _noted.setdefault(model, weakref.WeakSet())
    known.update(function for _, function in _functions(model) if function not in _unseen)


def any_noted(model: Any) -> bool:
    """Whether any function of the model was noted."""
    return model in _noted


def mark_unseen(model: Any) -> None:
    """Mark the model's current functions that were not noted as made while it was not observed."""
    known = _noted.get(model, ())
    _unseen.update(function for _, function in _functions(model) if function not in known)


def remake_unseen(model: Any, name: str) -> None:
    """Make the named function again if it is marked; at once, because a training loop is about to call it."""
    function = original(getattr(model, name, None))
    if function is not None and function in _unseen:
        setattr(model, name, None)
        getattr(model, f"make_{name}")()


def _functions(model: Any) -> list[tuple[str, Any]]:
    functions = ((name, original(getattr(model, name, None))) for name in NAMES)
    return [(name, function) for name, function in functions if function is not None]
