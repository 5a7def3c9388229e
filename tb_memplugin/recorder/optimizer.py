"""Which variable of the model each of an optimizer's variables belongs to."""

import dataclasses
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass(frozen=True)
class Slot:
    """A variable of an optimizer.

    Attributes:
        variable: The optimizer's variable.
        of: The model's variable that it serves; None for the step counter, the learning rate and the like.
        accumulates_gradients: Whether it collects gradients over steps, rather than being state of the update rule.
    """

    variable: Any
    of: Any | None
    accumulates_gradients: bool


def slots(optimizer: Any) -> list[Slot]:
    """Every variable of a Keras optimizer, those of an optimizer inside it too, each once.

    Keras keeps slots in lists that run parallel to the optimizer's trainable variables; names are not used, because
    they repeat.
    """
    found: dict[int, Slot] = {}
    for one in _with_inner(optimizer):
        for slot in _parallel_slots(one):
            found.setdefault(id(slot.variable), slot)
    for variable in optimizer.variables:
        found.setdefault(id(variable), Slot(variable, None, False))
    return list(found.values())


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
    # Adafactor keeps scalar variables for what it does not factor and does not list them among its variables.
    return variable is not of and hasattr(variable, "value") and hasattr(variable, "assign")
