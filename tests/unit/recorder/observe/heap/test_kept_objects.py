"""NumPy arrays and iterators that the program keeps, by holder."""

from typing import Any

import numpy as np
import tensorflow as tf

from tb_memplugin.recorder.observe.heap.kept_objects import Kept, kept_objects


class Data:
    """Keeps arrays in a dict, which the garbage collector does not track."""

    def __init__(self) -> None:
        self.seen: dict[int, Any] = {}


KEPT = Data()
ITERATORS: list[Any] = []


def test_arrays_are_summed_by_the_object_that_keeps_them() -> None:
    KEPT.seen.update({number: np.zeros((1 << 20,)) for number in range(3)})
    KEPT.seen[3] = KEPT.seen[0][1:]  # no memory of its own
    try:
        arrays, _ = kept_objects(seconds=10)
    finally:
        KEPT.seen.clear()
    assert Kept("dict in attribute `seen` of Data", 4, 3 << 23) in arrays


def test_iterators_are_counted() -> None:
    ITERATORS.extend(iter(tf.data.Dataset.range(3)) for _ in range(4))
    try:
        _, iterators = kept_objects(seconds=10)
    finally:
        ITERATORS.clear()
    assert Kept(f"list `ITERATORS` in module {__name__}", 4, None) in iterators


def test_it_stops_at_its_time_limit() -> None:
    assert kept_objects(seconds=-1) == ([], [])
