"""Tensors that Python holds are found, and remembered, so that Python's objects are seldom searched."""

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from tb_memplugin.recorder.heap import objects as heap
from tb_memplugin.recorder.watch import HeldTensors

history: list[Any] = []


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int | None]]:
    """Generations that the garbage collector was asked for. Collections ask, so there are only those of the test."""
    asked: list[int | None] = []
    original = gc.get_objects

    def get_objects(generation: int | None = None) -> Any:
        asked.append(generation)
        return original(generation=generation)

    monkeypatch.setattr(gc, "get_objects", get_objects)
    gc.disable()
    yield asked
    gc.enable()


@pytest.mark.parametrize("between", ["tensor", "error", "nothing"])
def test_a_tensor_that_another_thread_makes_while_a_collection_starts_is_found(between, searched, monkeypatch) -> None:
    held = HeldTensors()
    held.watch()
    in_use, kept = {"CPU:0": 41_000}, []
    held.find(in_use, [])

    def interrupt(phase: str, info: dict[str, int]) -> None:
        # GIVEN something that happens after the young objects were listed and before the collection moves them
        if phase == "start" and between == "tensor":
            thread = threading.Thread(target=lambda: kept.append(tf.random.uniform([7000, 10])))
            thread.start()
            thread.join()

    if between == "error":
        monkeypatch.setattr(heap, "objects_of", lambda *_: 1 / 0)
        kept.append(tf.random.uniform([7000, 10]))
    gc.callbacks.append(interrupt)
    try:
        gc.collect(1)
    finally:
        gc.callbacks.remove(interrupt)
    searched.clear()
    # WHEN the next window opens
    sizes = {fact.requested_bytes for _, fact in held.find(in_use, [])}
    # THEN it is known, by a search of all objects, which does not happen otherwise
    assert (280_000 in sizes) == (None in searched) == (between != "nothing")
    held.unwatch()


@pytest.mark.parametrize("generation", [1, 2])
def test_a_tensor_that_grew_old_before_the_next_window_is_found(generation: int, searched: list[int | None]) -> None:
    held = HeldTensors()
    held.watch()
    kept, in_use = [tf.random.uniform([1000, 10])], {"CPU:0": 41_000}
    held.find(in_use, [])
    searched.clear()
    for rows in (2000, 3000, 4000):
        # GIVEN a kept tensor that a collection moved to the oldest generation, while as many bytes were freed elsewhere
        kept.append(tf.random.uniform([rows, 10]))
        gc.collect(generation)
        gc.collect(generation)
        # WHEN the next window opens
        sizes = {fact.requested_bytes for _, fact in held.find(in_use, [])}
        # THEN it is known, without a search of all objects
        assert rows * 40 in sizes and None not in searched
    assert len(kept) == 4
    held.unwatch()


def test_watching_keeps_nothing_alive_and_ends_with_its_owner() -> None:
    before = list(gc.callbacks)
    held = HeldTensors()
    held.watch()
    held.watch()
    assert len(gc.callbacks) == len(before) + 1
    tensor = tf.random.uniform([1000, 10])
    reference = weakref.ref(tensor)
    gc.collect()
    del tensor
    assert reference() is None
    held.unwatch()
    assert gc.callbacks == before
    held.watch()
    del held
    gc.collect()
    gc.collect()
    assert gc.callbacks == before


def test_a_model_that_grew_old_is_found_though_its_young_variables_explain_the_bytes() -> None:
    import keras

    model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(100)])
    gc.collect(1)
    gc.collect(1)
    for variable in model.variables:
        variable._value = tf.Variable(variable._value)  # younger than their model
    held = HeldTensors()
    held.find({"CPU:0": 40_400}, [])
    assert any(found is model for found in held.models())
