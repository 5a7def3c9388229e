"""Batches from a few examples: whatever form the data has, and without touching the user's dataset."""

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.errors import RecordingError
from tb_memplugin.training.probing import Examples, copied

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.arange(6)


def plain(batch: Any) -> Any:
    return tf.nest.map_structure(lambda leaf: np.asarray(leaf).tolist(), batch)


@pytest.mark.parametrize(
    ("data", "batch"),
    [
        (X, (X[:2].tolist(),)),
        (tf.constant(X), (X[:2].tolist(),)),
        ({"a": X, "b": Y}, ({"a": X[:2].tolist(), "b": [0, 1]},)),
        ((X,), (X[:2].tolist(),)),
        ((X, Y), (X[:2].tolist(), [0, 1])),
        ((X, Y, X[:, 0]), (X[:2].tolist(), [0, 1], [0.0, 2.0])),
        ((X, Y, None), (X[:2].tolist(), [0, 1])),
        ((X, None, None), (X[:2].tolist(),)),
        (([X, Y], Y), ([X[:2].tolist(), [0, 1]], [0, 1])),
        (np.asarray(["a", "b", "c"]), (["a", "b"],)),
        (np.asarray([b"a", "b"], object), ([b"a", "b"],)),
    ],
)
def test_a_batch_has_the_form_of_the_data(data: Any, batch: Any) -> None:
    assert plain(Examples(data, 4).batch(2)) == batch


def test_no_more_examples_are_kept_than_asked_for_and_an_empty_batch_is_skipped() -> None:
    examples = Examples((X, Y), 4)
    assert plain(examples.batch(100)[1]) == [0, 1, 2, 3]
    # AND they are a copy
    values = X.copy()
    examples = Examples(values, 4)
    values[:] = -1
    assert plain(examples.batch(1)) == ([[0.0, 1.0]],)
    data = tf.data.Dataset.from_tensor_slices([0, 2, 0, 1]).map(lambda count: tf.range(count) + count)
    assert plain(Examples(data, 9).batch(9)) == [2, 3, 1]


@pytest.mark.parametrize("data", [None, "text", b"bytes", lambda: X, iter([X]), (), (X, Y, Y, Y)])
def test_data_of_another_kind_is_refused_with_its_type(data: Any) -> None:
    with pytest.raises(RecordingError, match=r"data must be a tf.data.Dataset of batches") as raised:
        Examples(data, 4)
    received = f"a tuple of {len(data)}" if isinstance(data, tuple) else type(data).__name__
    assert str(raised.value).endswith(f"Received: {received}")


EMPTY = "data is empty. Pass at least one batch with one example"


LEAVES = [
    None,
    3.5,
    tf.constant(2),
    tf.ragged.constant([[1], [2, 3]]),
    tf.sparse.eye(3),
    np.asarray([{}], object),
    object(),
]
FIRST = "each with the examples as its first dimension. Received: "


@pytest.mark.parametrize(
    ("data", "said"),
    [
        *(((leaf,), f"{FIRST}.*{re.escape(repr(leaf)[:20])}") for leaf in LEAVES),
        ((X, Y[:5]), r"must have the same number of examples. Received: \[5, 6\]"),
        (([],), "Received: no array"),
        (X[:0], EMPTY),
        (tf.data.Dataset.from_tensor_slices(X[:0]).batch(2), EMPTY),
    ],
)
def test_data_without_examples_or_of_different_lengths_is_refused_with_its_value(data: Any, said: str) -> None:
    with pytest.raises(RecordingError, match=said):
        Examples(data, 4)


@pytest.mark.parametrize(("count", "read"), [(1, 2), (2, 2), (3, 4), (6, 6), (9, 6)])
def test_no_more_batches_are_read_than_needed(count: int, read: int) -> None:
    seen: list[int] = []

    def rows() -> Any:
        for number in range(6):
            seen.append(number)
            yield X[number], Y[number]

    spec = (tf.TensorSpec((2,), tf.float32), tf.TensorSpec((), tf.int64))
    options = tf.data.Options()
    options.autotune.enabled = False  # which would prefetch
    data = tf.data.Dataset.from_generator(rows, output_signature=spec).batch(2).with_options(options)
    examples = Examples(data, count)
    assert plain(examples.batch(100)[1]) == list(range(min(count, 6)))
    assert seen == list(range(read))


@pytest.mark.parametrize(("size", "rows"), [(1, [0]), (3, [0, 1, 2]), (4, [0, 1, 2, 0]), (7, [0, 1, 2, 0, 1, 2, 0])])
def test_batches_repeat_the_examples_to_any_size(size: int, rows: list[int]) -> None:
    batches = Examples((X, Y), 3).batches(size)
    assert batches.element_spec[0].shape.as_list() == [None, 2]
    for x, y in batches.take(2):
        assert y.numpy().tolist() == rows and x.numpy().tolist() == X[rows].tolist()


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data,
        lambda data: data.repeat(2),
        lambda data: data.interleave(lambda batch: tf.data.Dataset.from_tensors(batch)),
    ],
)
def test_taking_examples_does_not_change_what_a_dataset_yields_later(change: Any) -> None:
    def later(take: bool) -> list[Any]:
        tf.random.set_seed(3)
        data = change(tf.data.Dataset.range(100).shuffle(100, seed=7).batch(10))
        if take:
            Examples(data, 15)
        return [batch.numpy().tolist() for batch in data] + [batch.numpy().tolist() for batch in data]

    assert later(take=True) == later(take=False)


def test_a_copy_fills_a_cache_of_its_own_and_looks_up_in_the_datasets_table() -> None:
    calls: list[int] = []

    def count(value: Any) -> Any:
        calls.append(1)
        return value

    data = tf.data.Dataset.range(4).map(lambda value: tf.py_function(count, [value], tf.int64)).cache()
    assert len(list(copied(data))) == 4 and len(calls) == 4
    # THEN the original fills its own
    assert len(list(data)) == 4 and len(calls) == 8
    assert len(list(data)) == 4 and len(calls) == 8
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [7, 8]), 0)
    data = tf.data.Dataset.from_tensor_slices([1, 0]).map(table.lookup)
    assert [int(value) for value in copied(data)] == [8, 7]


def test_a_dataset_that_cannot_be_copied_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**arguments: Any) -> Any:
        raise tf.errors.FailedPreconditionError(None, None, "it is larger than 2 GiB")

    monkeypatch.setattr(tf.raw_ops, "DatasetToGraphV2", fail)
    with pytest.raises(RecordingError, match=r"it is larger than 2 GiB.*Pass a batch of arrays instead"):
        Examples(tf.data.Dataset.range(3).batch(2), 2)
