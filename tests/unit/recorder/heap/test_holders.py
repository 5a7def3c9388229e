"""The search from the program's modules and running functions down to tensors, arrays and iterators.

How holders are described is in test_retaining_path.py.
"""

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.heap import holders
from tb_memplugin.recorder.heap.holders import Kept, find_holders, kept_objects
from tb_memplugin.recorder.watch.frames import running_functions


class Tensor:
    """Replaces a tensor: only its identity matters."""


class Data:
    """Keeps arrays in a dict, which the garbage collector does not track."""

    def __init__(self) -> None:
        self.seen: dict[int, Any] = {}


KEPT = Data()
ITERATORS: list[Any] = []


def hold_many(count: int) -> list[str]:
    history = [Tensor() for _ in range(count)]
    return [text for text, _ in find_holders(list(history), seconds=5.0).values()]


def test_many_tensors_at_once_and_none_without_a_holder() -> None:
    assert hold_many(3000) == ["list `history` in hold_many() in test_holders.py"] * 3000
    assert find_holders([Tensor()], seconds=5.0) == {}


def test_what_refers_to_nothing_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a list of many numbers and texts before the list with the tensor
    looked_into: list[type] = []
    children = holders._children
    monkeypatch.setattr(holders, "_children", lambda value: looked_into.append(type(value)) or children(value))
    ITERATORS.append([[*range(1000), *map(str, range(1000)), sys, len], [Tensor()]])
    found = find_holders(list(ITERATORS[0][1]), seconds=5.0)
    ITERATORS.clear()
    # THEN only what the garbage collector tracks was looked into
    assert found and list in looked_into
    assert not {int, str, type(sys), type(len)} & set(looked_into)


def test_the_search_stops_at_its_time_limit() -> None:
    times = iter(range(10**6))
    history = [Tensor() for _ in range(200_000)]
    assert find_holders([history[-1]], seconds=20, clock=lambda: float(next(times))) == {}
    assert next(times) < 40
    assert kept_objects(seconds=-1) == ([], [])


def test_reading_variables_keeps_no_value_alive() -> None:
    def reads() -> weakref.ref[Any]:
        tensor = Tensor()
        for _ in running_functions():
            pass
        return weakref.ref(tensor)

    reference = reads()
    gc.collect()
    assert reference() is None

    def runs_on() -> bool:
        tensor = Tensor()
        reference = weakref.ref(tensor)
        for _ in running_functions():
            pass
        del tensor, _
        return reference() is None

    assert runs_on()

    def reads_locals() -> dict[str, Any]:
        mine = locals()
        assert "reads_locals" not in [frame.f_code.co_name for frame, _ in running_functions()]
        return mine

    assert reads_locals() == {}


def test_arrays_and_iterators_are_summed_by_the_object_that_keeps_them() -> None:
    KEPT.seen.update({number: np.zeros((1 << 20,)) for number in range(3)})
    KEPT.seen[3] = KEPT.seen[0][1:]  # no memory of its own
    ITERATORS.extend(iter(tf.data.Dataset.range(3)) for _ in range(4))
    try:
        arrays, iterators = kept_objects(seconds=10)
    finally:
        KEPT.seen.clear()
        ITERATORS.clear()
    assert Kept("dict in attribute `seen` of Data", 4, 3 << 23) in arrays
    assert Kept(f"list `ITERATORS` in module {__name__}", 4, None) in iterators
