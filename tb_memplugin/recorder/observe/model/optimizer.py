"""Matches an optimizer's variables to the model's variables that they serve."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Slot:
    """A variable of an optimizer.

    Attributes:
        variable: The optimizer's variable.
        of: The model's variable that it serves; None for scalars such as the step counter and the learning rate.
    """

    variable: Any
    of: Any | None


def slots(optimizer: Any, served: Iterable[Any] = ()) -> list[Slot]:
    """Every variable of a Keras optimizer, including those of an inner optimizer, each once.

    Keras keeps slots in lists parallel to the optimizer's trainable variables. Names are not used, because they repeat.

    Args:
        optimizer: The optimizer.
        served: The model's variables: optimizers of Keras 2 do not refer to those that they serve.
    """
    by_id: dict[int, Slot] = {}
    by_key = {_key_of_keras_2(variable): variable for variable in served}
    for one in _with_inner(optimizer):
        for slot in (*_parallel_slots(one, by_key), *_slots_by_key(one, by_key)):
            by_id.setdefault(id(slot.variable), slot)
    for variable in all_variables(optimizer):
        by_id.setdefault(id(variable), Slot(variable, None))
    return list(by_id.values())


def all_variables(optimizer: Any) -> list[Any]:
    """The optimizer's variables; a legacy optimizer of Keras 2 has a method for them."""
    variables = optimizer.variables
    return list(variables if isinstance(variables, (list, tuple)) else variables())


def _with_inner(optimizer: Any) -> Iterator[Any]:
    yield optimizer
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        yield from _with_inner(inner)


def _parallel_slots(optimizer: Any, by_key: Mapping[Any, Any]) -> Iterator[Slot]:
    served = list(getattr(optimizer, "_trainable_variables", ()))
    keys = getattr(optimizer, "_index_dict", None)  # Keras 2: key of a variable to its place in the lists
    if keys:
        served = [by_key.get(key) for key in sorted(keys, key=keys.__getitem__)]
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
                yield Slot(variable, of)


def _slots_by_key(optimizer: Any, by_key: Mapping[Any, Any]) -> Iterator[Slot]:
    """The slots of a legacy optimizer of Keras 2."""
    for key, by_name in getattr(optimizer, "_slots", {}).items():
        for variable in by_name.values():
            yield Slot(variable, by_key.get(key))


def _key_of_keras_2(variable: Any) -> Any:
    """The key by which an optimizer of Keras 2 knows a variable."""
    container = getattr(variable, "_distributed_container", None)
    return getattr(variable if container is None else container(), "_unique_id", None)


def _is_unlisted_placeholder(variable: Any, of: Any) -> bool:
    # Adafactor keeps scalar placeholders for weights that it does not factor, and omits them from its variables.
    return variable is not of and hasattr(variable, "value") and hasattr(variable, "assign")
