"""The holder of an object is found from the program's modules and running functions, and described.

pytest makes functions with an assertion read their own variables, and the search skips such functions. So helper
functions hold the tensors.
"""

import collections
import functools
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tb_memplugin.recorder.observe.graph.frames import running_functions
from tb_memplugin.recorder.observe.heap import holders
from tb_memplugin.recorder.observe.heap.holders import find_holders

kept_by_module: list[Any] = []
HERE = "test_holders.py"


class Tensor:
    """Replaces a tensor: only its identity matters."""


class Owner:
    def __init__(self) -> None:
        self.outputs: Any = None


class Slotted:
    __slots__ = ("cache",)


class WithClassAttribute:
    kept: list[Any] = []  # noqa: RUF012


@pytest.fixture(autouse=True)
def clear_kept() -> Iterator[None]:
    yield
    kept_by_module.clear()
    WithClassAttribute.kept.clear()


def holder_of(tensor: Any) -> str | None:
    holder = find_holders([tensor], seconds=5.0).get(id(tensor))
    return None if holder is None else holder.text


def test_a_list_of_a_module() -> None:
    kept_by_module.append(Tensor())
    assert holder_of(kept_by_module[0]) == f"list `kept_by_module` in module {__name__}"


def test_a_tuple_in_a_list_of_a_module() -> None:
    kept_by_module.append((Tensor(), 1.0))
    assert holder_of(kept_by_module[0][0]) == f"tuple in list `kept_by_module` in module {__name__}"


def hold(make: Callable[[Any], Any]) -> str | None:
    tensor = Tensor()
    results = make(tensor)
    holder = holder_of(tensor)
    del results
    return holder


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda tensor: [tensor], "list"),
        (lambda tensor: {"loss": tensor}, "dict"),
        (lambda tensor: collections.deque([tensor]), "deque"),
        (lambda tensor: {"losses": [tensor]}, "list in dict"),
    ],
)
def test_a_container_of_a_running_function(make: Callable[[Any], Any], kind: str) -> None:
    assert hold(make) == f"{kind} `results` in hold() in {HERE}"


def test_a_variable_alone() -> None:
    assert hold(lambda tensor: None) == f"variable `tensor` in holder_of() in {HERE}"


def owner_of(tensor: Any) -> Owner:
    owner = Owner()
    owner.outputs = tensor
    return owner


def slotted(tensor: Any) -> Slotted:
    owner = Slotted()
    owner.cache = tensor
    return owner


def with_dict(tensor: Any) -> Owner:
    owner = Owner()
    vars(owner)["outputs"] = tensor
    return owner


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (owner_of, "attribute `outputs` of Owner"),
        (with_dict, "attribute `outputs` of Owner"),
        (slotted, "attribute `cache` of Slotted"),
        (lambda tensor: owner_of([tensor]), "list in attribute `outputs` of Owner"),
        (lambda tensor: [owner_of({"losses": [tensor]})], "list in attribute `outputs` of Owner"),
        (lambda tensor: functools.partial(print, tensor), "tuple in attribute `args` of partial"),
        (lambda tensor: closure([tensor]), "list in variable `history` of <lambda>()"),
    ],
)
def test_an_attribute_is_preferred_to_the_variable_that_leads_to_it(make: Callable[[Any], Any], expected: str) -> None:
    assert hold(make) == expected


def closure(history: list[Any]) -> Callable[[], Any]:
    return lambda: history


def test_a_class_attribute() -> None:
    WithClassAttribute.kept.append(Tensor())
    assert holder_of(WithClassAttribute.kept[0]) == "list in attribute `kept` of class WithClassAttribute"


def hold_many(count: int) -> list[str]:
    history = [Tensor() for _ in range(count)]
    return [holder.text for holder in find_holders(list(history), seconds=5.0).values()]


def test_many_tensors_at_once_and_none_without_a_holder() -> None:
    assert hold_many(3000) == [f"list `history` in hold_many() in {HERE}"] * 3000
    assert find_holders([Tensor()], seconds=5.0) == {}


def test_what_refers_to_nothing_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a list of many numbers and texts before the list with the tensor
    looked_into: list[type] = []
    children = holders._children
    monkeypatch.setattr(holders, "_children", lambda value: looked_into.append(type(value)) or children(value))
    tensor = Tensor()
    kept_by_module.append([[*range(1000), *map(str, range(1000)), sys, len], [tensor]])
    assert holder_of(tensor) is not None
    # THEN only what the garbage collector tracks was looked into
    assert list in looked_into
    assert not {int, str, type(sys), type(len)} & set(looked_into)


def test_the_search_stops_at_its_time_limit() -> None:
    times = iter(range(10**6))
    history = [Tensor() for _ in range(200_000)]
    holders = find_holders([history[-1]], seconds=20, clock=lambda: float(next(times)))
    assert holders == {}
    assert next(times) < 40


def test_reading_variables_keeps_no_value_alive() -> None:
    def reads() -> weakref.ref[Any]:
        tensor = Tensor()
        for _ in running_functions():
            pass
        return weakref.ref(tensor)

    reference = reads()
    gc.collect()
    assert reference() is None


def test_reading_variables_keeps_no_value_while_the_function_runs() -> None:
    def runs_on() -> bool:
        tensor = Tensor()
        reference = weakref.ref(tensor)
        for _ in running_functions():
            pass
        del tensor, _
        return reference() is None

    assert runs_on()


def test_a_function_that_reads_its_own_variables_is_skipped() -> None:
    def reads_locals() -> dict[str, Any]:
        mine = locals()
        later = [frame.f_code.co_name for frame, _ in running_functions()]
        assert "reads_locals" not in later
        return mine

    assert reads_locals() == {}
