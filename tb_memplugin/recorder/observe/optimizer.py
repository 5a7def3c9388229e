"""Matches an optimizer's variables to the model's variables that they serve."""

import dataclasses
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass(frozen=True)
class Slot:
    """A variable of an optimizer.

    Attributes:
        variable: The optimizer's variable.
        of: The model's variable that it serves; None for scalars such as the step counter and the learning rate.
        accumulates_gradients: Whether it accumulates gradients over steps.
    """

    variable: Any
    of: Any | None
    accumulates_gradients: bool


def slots(optimizer: Any) -> list[Slot]:
    """Every variable of a Keras optimizer, including those of an inner optimizer, each once.

    Keras keeps slots in lists parallel to the optimizer's trainable variables. Names are not used, because they repeat.
    """
    by_id: dict[int, Slot] = {}
    for one in _with_inner(optimizer):
        for slot in _parallel_slots(one):
            by_id.setdefault(id(slot.variable), slot)
    for variable in optimizer.variables:
        by_id.setdefault(id(variable), Slot(variable, None, False))
    return list(by_id.values())


def _with_inner(optimizer: Any) -> Iterator[Any]:
    yield optimizer
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        yield from _with_inner(inner)


def _parallel_slots(optimizer: Any) -> Iterator[Slot]:
    served = list(getattr(optimizer, "_trainable_variables", ()))
    own = {id(variable) for variable in getattr(optimizer, "_variables", ())}
    for name, value in vars(optimizer).items():
        if (
            not isinstance(value, (list, tuple))
            or len(value) != len(served)
            or name in ("_variables", "_trainable_variables")
        ):
            continue
        for variable, of in zip(value, served, strict=True):
            if id(variable) in own or _is_unlisted_placeholder(variable, of):
                yield Slot(variable, of, name == "_accumulated_gradients")


def _is_unlisted_placeholder(variable: Any, of: Any) -> bool:
    # Adafactor keeps scalar placeholders for weights that it does not factor, and omits them from its variables.
    return variable is not of and hasattr(variable, "value") and hasattr(variable, "assign")
