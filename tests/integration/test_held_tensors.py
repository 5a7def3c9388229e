"""Tensors that Python holds are found, and remembered, so that Python's objects are seldom searched."""

import gc
from typing import Any

import pytest
import tensorflow as tf

from tb_memplugin.recorder.observe.held_tensors import HeldTensors

history: list[Any] = []


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Generations of which the garbage collector was asked."""
    asked: list[int | None] = []
    original = gc.get_objects

    def get_objects(generation: int | None = None) -> Any:
        asked.append(generation)
        return original(generation=generation)

    monkeypatch.setattr(gc, "get_objects", get_objects)
    return asked


def test_all_objects_are_searched_once_and_young_ones_when_something_is_new(searched: list[int | None]) -> None:
    held = HeldTensors()
    first = tf.random.uniform([1000, 10])
    in_use = {"CPU:0": 41_000}

    def found() -> set[int]:
        return {fact.requested_bytes for _, fact in held.find(in_use, {"CPU:0": 500}, [])}

    assert 40_000 in found()
    assert None in searched
    searched.clear()
    assert 40_000 in found()
    assert not searched
    second = tf.random.uniform([3000, 10])
    in_use["CPU:0"] += 120_000
    assert {40_000, 120_000} <= found()
    assert searched == [0, 1]
    del first, second
    assert not {40_000, 120_000} & found()


def test_a_tensor_that_grew_old_before_the_next_window_is_found(searched: list[int | None]) -> None:
    held = HeldTensors()
    kept, in_use = [tf.random.uniform([1000, 10])], {"CPU:0": 41_000}
    held.find(in_use, {"CPU:0": 500}, [])
    for rows in (2000, 3000, 4000):
        # GIVEN a kept tensor that a collection moved to the oldest generation
        kept.append(tf.random.uniform([rows, 10]))
        in_use["CPU:0"] += rows * 40
        gc.collect()
        searched.clear()
        # WHEN the next window opens
        sizes = {fact.requested_bytes for _, fact in held.find(in_use, {"CPU:0": 500}, [])}
        # THEN it is known, after a search of all objects
        assert rows * 40 in sizes and searched == [0, 1, None]
    assert len(kept) == 4


def test_nothing_is_searched_where_variables_explain_all(searched: list[int | None]) -> None:
    held = HeldTensors()
    assert held.find({"CPU:0": 1_000_000}, {"CPU:0": 999_000}, []) == ()
    assert not searched


def test_batches_that_are_new_in_every_window_do_not_bring_a_full_search_each(searched: list[int | None]) -> None:
    held = HeldTensors()
    for _ in range(16):
        held.find({"CPU:0": 10**9}, {"CPU:0": 10**6}, [])
        held._left = {}
    assert searched.count(None) <= 4


def test_the_source_of_a_tensor_tells_its_category_and_not_its_shape() -> None:
    import keras

    model = keras.Sequential([keras.Input((7, 5)), keras.layers.Dense(3)])
    data, captured, kept = tf.random.uniform([11, 7, 5]), tf.random.uniform([13, 17]), tf.random.uniform([19, 7, 5])
    dataset = tf.data.Dataset.from_tensor_slices(data)
    graph = tf.function(lambda: captured + 1.0).get_concrete_function().graph
    found = HeldTensors().find({"CPU:0": 10**6}, {}, [], [graph])
    categories = {fact.shape: fact.category for _, fact in found}
    assert categories[11, 7, 5] == "inputs"
    assert categories[13, 17] == "other_state"
    assert categories[19, 7, 5] == "held_tensors"
    del model, dataset, kept


def test_tensors_that_appear_in_a_window_are_told_at_its_end_with_what_holds_them() -> None:
    held = HeldTensors()
    history.append(tf.random.uniform([23, 29]))
    held.find({"CPU:0": 10**4}, {}, [])
    history.append(tf.random.uniform([31, 37]))
    at_start, added = held.finish([])
    words = {fact.shape: fact.held_by for _, fact in (*at_start, *added)}
    assert (31, 37) not in {fact.shape for _, fact in at_start}
    assert words[31, 37] == f"list `history` in module {__name__}"
    assert words[23, 29] == f"list `history` in module {__name__}"
    history.clear()
