"""Bytes in the buffers and caches of input pipelines, as TensorFlow's own model of them has it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.watch import batches as module
from tb_memplugin.recorder.watch.batches import DataPipelines
from tb_memplugin.recorder.watch.wrappers import makes_iterator


@pytest.fixture
def pipelines() -> DataPipelines:
    made = DataPipelines()
    made.active = True
    return made


def cached() -> Any:
    """A dataset that caches four batches of 1 KiB."""
    return tf.data.Dataset.from_tensor_slices(np.zeros((4, 256), np.float32)).cache()


def test_a_full_cache_has_the_bytes_of_its_elements(pipelines: DataPipelines) -> None:
    iterator = iter(cached())
    pipelines.note(iterator)
    assert pipelines.buffered_bytes() == 0
    list(iterator)
    found = pipelines.buffered_bytes()
    assert found is not None and 4096 <= found < 4096 + 512  # and what describes them


def test_without_iterators_or_with_too_many_the_bytes_are_unknown(
    pipelines: DataPipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pipelines.buffered_bytes() is None
    iterators = [iter(cached()) for _ in range(2)]
    for iterator in iterators:
        pipelines.note(iterator)
    monkeypatch.setattr(module, "MAX_ITERATORS", 2)
    assert pipelines.buffered_bytes() == 0
    monkeypatch.setattr(module, "MAX_ITERATORS", 1)
    assert pipelines.buffered_bytes() is None
    # AND iterators that are gone do not count
    del iterator, iterators[1]
    assert pipelines.buffered_bytes() == 0


def test_while_a_function_is_traced_nothing_is_read_and_no_iterator_noted(pipelines: DataPipelines) -> None:
    data, found = cached(), []
    iterator = iter(data)
    pipelines.note(iterator)

    @tf.function
    def step() -> Any:
        inside = iter(data)
        pipelines.note(inside)
        found.append(pipelines.buffered_bytes())
        return next(inside)

    step()
    assert found == [None] and list(pipelines._iterators.values()) == [iterator]


class Node(SimpleNamespace):
    pass


def node(name: str, elements: int, size: int) -> Node:
    return Node(name=name, buffered_elements=elements, buffered_bytes=size)


def test_a_cache_that_iterators_share_counts_once(pipelines: DataPipelines, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("Prefetch", 2, 100), node("MemoryCacheImpl", 4, 4000), node("MemoryCacheImpl", 8, 50)]
    iterators = [Node(nodes=nodes[:2]), Node(nodes=nodes)]
    monkeypatch.setattr(module, "_nodes", lambda iterator: iterator.nodes)
    for iterator in iterators:
        pipelines.note(iterator)
    assert pipelines.buffered_bytes() == 2 * 100 + 4000 + 50
    # AND without the model of one of them, nothing is known
    iterators[1].nodes = None
    assert pipelines.buffered_bytes() is None


def test_only_the_first_iterator_is_read_as_it_is_made_while_notes_are_wanted(
    pipelines: DataPipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(module, "_nodes", seen.append)
    iterators = [iter(cached()) for _ in range(2)]
    for made in (DataPipelines(), pipelines):
        for iterator in iterators:
            made.note(iterator)
    assert len(seen) == 1 and seen[0] is iterators[0]


def test_an_iterator_without_a_model_has_no_nodes() -> None:
    data = cached()
    options = tf.data.Options()
    options.autotune.enabled = False
    assert module._nodes(object()) is None
    assert module._nodes(iter(data.with_options(options))) is None
    assert module._nodes(iter(data))


def test_a_fault_stops_the_notes_and_not_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    class Iterator:
        def __init__(self, value: int) -> None:
            self.value = value

    noted: list[Any] = []
    monkeypatch.setattr(module.data_pipelines, "active", True)
    monkeypatch.setattr(module.data_pipelines, "note", noted.append)
    original = Iterator.__init__
    monkeypatch.setattr(Iterator, "__init__", lambda self, value: makes_iterator(original, self, value))
    made = Iterator(3)
    assert made.value == 3 and noted == [made] and module.data_pipelines.active

    def fail(iterator: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(module.data_pipelines, "note", fail)
    assert Iterator(4).value == 4 and not module.data_pipelines.active
