"""Tensors that Python holds are found, and remembered, so that Python's objects are seldom searched."""

import gc
from typing import Any

import pytest
import tensorflow as tf

from tb_memplugin.recorder.held_tensors import HeldTensors


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
        return {fact.requested_bytes for _, fact in held.find(in_use, {"CPU:0": 500}, [], [])}

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


def test_nothing_is_searched_where_variables_explain_all(searched: list[int | None]) -> None:
    held = HeldTensors()
    assert held.find({"CPU:0": 1_000_000}, {"CPU:0": 999_000}, [], []) == ()
    assert not searched


def test_batches_that_are_new_in_every_window_do_not_bring_a_full_search_each(searched: list[int | None]) -> None:
    held = HeldTensors()
    for _ in range(16):
        held.find({"CPU:0": 10**9}, {"CPU:0": 10**6}, [], [])
        held._left = {}
    assert searched.count(None) <= 4


def test_data_of_a_model_and_of_a_dataset_is_input() -> None:
    import keras

    model = keras.Sequential([keras.Input((7, 5)), keras.layers.Dense(3)])
    batch, constant = tf.random.uniform([11, 7, 5]), tf.random.uniform([13, 17])
    facts = {fact.requested_bytes: fact for _, fact in HeldTensors().find({"CPU:0": 10**6}, {}, [], [model])}
    assert facts[11 * 7 * 5 * 4].category == "inputs"
    assert facts[13 * 17 * 4].category == "other_state"
    del batch, constant
