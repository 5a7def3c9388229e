"""The variables of an optimizer, and which of the model's variables each serves."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tb_memplugin.recorder.base import (
    asked,
    attribute,
    attributes,
    contained,
    note_code,
    own,
    own_list,
)


class Slot(NamedTuple):
    variable: Any
    of: Any | None  # the model's variable that it serves; None for scalars such as a step counter


def slots(optimizer: Any, served: Iterable[Any] = ()) -> list[Slot]:
    """Every variable of a Keras optimizer, including those of an inner optimizer, each once. Keras
    keeps slots in lists parallel to the optimizer's trainable variables; names repeat. Optimizers
    of Keras 2 do not refer to the model's variables that they serve, so these are given."""
    by_key = {}
    for variable in served:
        container = own(variable, "_distributed_container")
        key = attribute(variable if container is None else container(), "_unique_id")
        by_key[key] = variable
    by_id: dict[int, Slot] = {}
    for one in _with_inner(optimizer):
        for slot in _own_slots(one, by_key):
            by_id.setdefault(id(slot.variable), slot)
    for variable in all_variables(optimizer):
        by_id.setdefault(id(variable), Slot(variable, None))
    return list(by_id.values())


def _with_inner(optimizer: Any) -> Iterator[Any]:
    while optimizer is not None:
        yield optimizer
        optimizer = own(optimizer, "inner_optimizer", own(optimizer, "_optimizer"))


def all_variables(optimizer: Any) -> list[Any]:
    """The variables of an optimizer and of those inside it, as Keras tracks them; none of None."""
    if optimizer is None:
        return []
    if own(optimizer, "_variables") is None and own(optimizer, "_weights") is None:
        return asked(optimizer, _stated_variables) or []
    return [
        variable
        for one in _with_inner(optimizer)
        for name in ("_variables", "_weights")
        for variable in own_list(one, name)
    ]


def _stated_variables(optimizer: Any) -> list[Any]:
    note_code()
    variables = optimizer.variables
    return list(variables if isinstance(variables, (list, tuple)) else variables())


def _own_slots(optimizer: Any, by_key: Mapping[Any, Any]) -> Iterator[Slot]:
    served = own_list(optimizer, "_trainable_variables")
    # Keras 2: key of a variable to its place in the lists
    keys = own(optimizer, "_index_dict")
    if keys:
        served = [by_key.get(key) for key in sorted(keys, key=keys.__getitem__)]
    listed = {id(variable) for variable in own_list(optimizer, "_variables")}
    for name in attributes(optimizer):
        values = own_list(optimizer, name)
        is_parallel = len(values) == len(served)
        if not is_parallel or name in ("_variables", "_trainable_variables"):
            continue
        for variable, of in zip(values, served, strict=True):
            # Adafactor omits from its variables the scalar placeholders for weights that it does
            # not factor.
            if id(variable) in listed or (variable is not of and _is_variable(variable)):
                yield Slot(variable, of)
    # of a legacy optimizer of Keras 2
    for key, named in (own(optimizer, "_slots") or {}).items():
        for variable in contained(named) or ():
            yield Slot(variable, by_key.get(key))


def _is_variable(value: Any) -> bool:
    return attribute(value, "value") is not None and attribute(value, "assign") is not None
