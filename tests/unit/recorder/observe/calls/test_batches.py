"""The batch of a step: from what its call was given, from an iterator's specification, and from Keras's own count."""

import gc
import threading
import types
import weakref
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute.values import PerReplica

from tb_memplugin.model.trace import BatchFacts
from tb_memplugin.recorder.observe.calls.batches import BatchNotes, FunctionInputs, running_batch

FLOAT = "float32"


def facts_of(values: Any) -> BatchFacts:
    """What a window knows in which a call was given some values."""
    notes = BatchNotes()
    notes.begin([])
    notes.given(values)
    return notes.end()


def pairs(size: int, remainder: bool = False) -> Any:
    x, y = np.ones((10, 3), np.float32), np.ones(10, np.int64)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(size, drop_remainder=remainder)


@pytest.mark.parametrize(
    ("values", "size", "components"),
    [
        ([(tf.ones((8, 3)),), {}], 8, [((8, 3), FLOAT)]),
        ([(tf.ones((8, 3)), tf.ones((8,), tf.int32)), {}], 8, [((8, 3), FLOAT), ((8,), "int32")]),
        ([(), {"x": np.ones((5, 2), np.float16)}], 5, [((5, 2), "float16")]),
        # If a layer's arguments differ, its first one is the input.
        ([(tf.ones((2, 3)), tf.ones((8, 3)))], 2, [((2, 3), FLOAT), ((8, 3), FLOAT)]),
        ([({"a": tf.ones((2, 3)), "b": tf.ones((8, 3))},)], None, [((2, 3), FLOAT), ((8, 3), FLOAT)]),
        # Neither scalars nor variables nor other objects belong to it.
        ([(tf.constant(1.0), tf.Variable(tf.ones(7)), "x", None, object(), 5), {}], None, []),
        ([(tf.ones((0, 3)),)], None, [((0, 3), FLOAT)]),
    ],
)
def test_a_batch_is_what_the_call_was_given(values: Any, size: int | None, components: Any) -> None:
    assert facts_of(values) == BatchFacts(size, tuple(components))


@pytest.mark.parametrize("iterates", [False, True])
@pytest.mark.parametrize(("remainder", "first"), [(False, -1), (True, 4)])
def test_an_iterator_gives_what_its_data_set_makes(iterates: bool, remainder: bool, first: int) -> None:
    data = pairs(4, remainder)
    expected = (((first, 3), FLOAT), ((first,), "int64"))
    assert facts_of([(iter(data) if iterates else data,), {}]) == BatchFacts(4, expected)


def test_a_spec_of_unknown_rank_is_left_out() -> None:
    data = tf.data.Dataset.from_generator(list, output_signature=tf.TensorSpec(None, tf.float32))
    assert facts_of([data]).components == ()


def test_no_more_than_a_hundred_tensors_are_examined() -> None:
    assert len(facts_of([[tf.ones(2)] * 150]).components) == 100


def test_the_calls_of_a_window_must_agree_and_none_outside_of_it_counts() -> None:
    notes = BatchNotes()
    notes.given([(tf.ones((2, 1)),), {}])
    for sizes, expected in (((3, 3), 3), ((3, 4), None), ((), None)):
        notes.begin([])
        notes.given([(), {}])
        for size in sizes:
            notes.given([(tf.ones((size, 1)),), {}])
        assert notes.end().size == expected and not notes.active


def test_the_call_that_takes_gradients_counts() -> None:
    notes = BatchNotes()
    notes.begin([])
    notes.given([(tf.ones((1, 3)),), {}])  # a policy acts
    with tf.GradientTape():
        notes.given([(tf.ones((9, 3)),), {}])
    assert notes.end() == BatchFacts(9, (((9, 3), FLOAT),))


def test_a_batch_size_that_the_program_names_is_believed() -> None:
    notes = BatchNotes()
    notes.begin([])
    notes.given([(tf.ones((20, 64, 3)),), {}])
    assert notes.end(64) == BatchFacts(64, (((20, 64, 3), FLOAT),))


def test_values_that_cannot_be_read_are_left_out() -> None:
    class Broken:
        @property
        def shape(self) -> Any:
            raise RuntimeError

    assert facts_of([(tf.ones((2, 1)), Broken())]).size == 2
    assert facts_of([(Broken(),)]) == BatchFacts()


# --- functions --------------------------------------------------------------------------------------------------------


def of_function(values: Any, *inputs: tuple[int, ...]) -> int | None:
    """The batch size of a call of a function whose model was given these shapes."""
    notes, known = BatchNotes(), FunctionInputs()
    known.model_inputs.update(inputs)
    notes.begin([])
    notes.given([values, {}], tf.function(lambda: None), known)
    return notes.end().size


def test_a_function_has_the_batch_that_its_model_is_given() -> None:
    boxes = [tf.ones((6, 4))] * 8
    assert of_function((tf.ones((8, 32, 32, 3)), boxes), (8, 32, 32, 3)) == 8
    assert of_function((tf.ones((8, 32, 32, 3)), boxes)) is None
    # Patches of images, and a table beside the batch.
    assert of_function((tf.ones((8, 32, 32, 3)), tf.ones(8)), (8 * 64, 48)) == 8
    assert of_function((tf.ones((8, 32)), tf.ones(4)), (8, 32), (3, 32)) == 8


def test_either_of_joined_dimensions_may_be_the_batch() -> None:
    rollout = (tf.ones((20, 64, 32)), tf.ones((20, 64, 4)))
    assert of_function(rollout, (1280, 32)) is None
    assert of_function(rollout, (20, 64, 32)) == 20
    # A label for each sequence says which one it is.
    assert of_function((tf.ones((20, 64, 32)), tf.ones(20)), (1280, 32)) == 20


def test_a_data_set_decides_between_candidates() -> None:
    notes, known, data = BatchNotes(), FunctionInputs(), iter(pairs(4))
    known.model_inputs.add((12, 1))
    notes.iterated(data)
    for size, expected in ((4, 4), (5, None)):
        notes.begin([])
        notes.given([(tf.ones((size, 3, 1)),), {}], tf.function(lambda: None), known)
        known.model_inputs.add((15, 1))
        assert notes.end().size == expected


def test_a_function_may_take_its_data_from_around_it() -> None:
    data = pairs(4)

    @tf.function  # type: ignore[untyped-decorator]
    def epoch() -> None:
        for _ in data:
            pass

    notes = BatchNotes()
    notes.begin([])
    notes.given([(), {}], epoch, None)
    assert notes.end().size == 4


def test_a_function_shows_while_it_is_traced_what_its_model_is_given() -> None:
    notes, function = BatchNotes(), tf.function(lambda: None)
    mark = notes.tracing()
    assert notes.function_called(function, mark) is None
    notes.model_called((tf.ones((8, 3)), tf.ones((2, 2))), {})
    notes.model_called((), {"inputs": tf.ones((9, 3))})
    notes.backward_passes += 1
    known = notes.function_called(function, mark)
    assert known is not None and known.trains and known.model_inputs == {(8, 3), (9, 3)}
    # AND it keeps that when it is called again
    assert notes.function_called(function, notes.tracing()) is known


def test_replicas_have_their_parts() -> None:
    for size, expected in ((8, 8), (7, None)):
        value = PerReplica((tf.ones((8, 3)), tf.ones((size, 3))))
        assert facts_of([(value,), {}]).size == expected


# --- Keras's own count ------------------------------------------------------------------------------------------------


def model(**compiled: Any) -> Any:
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse", run_eagerly=True, **compiled)
    return made


@pytest.mark.parametrize(("executions", "size"), [(1, 6), (2, 3)])
def test_an_open_batch_is_as_large_as_keras_counts(executions: int, size: int) -> None:
    other, trained = model(), model(steps_per_execution=executions)
    trained._loss_tracker.count.assign(10.0)
    notes = BatchNotes()
    notes.begin([other, trained])
    notes.given([pairs(4)])
    trained._loss_tracker.count.assign_add(6.0)
    assert notes.end().size == size


def test_a_model_that_is_dropped_in_the_window_is_freed() -> None:
    dropped, trained = model(), model()
    notes, gone = BatchNotes(), weakref.ref(dropped)
    notes.begin([dropped, trained])
    del dropped
    gc.collect()
    assert gone() is None
    trained._loss_tracker.count.assign_add(6.0)
    assert notes.end().size == 6


@pytest.mark.parametrize("examples", [0.0, 5.0, -4.0])
def test_a_count_that_is_no_number_of_batches_is_none(examples: float) -> None:
    trained = model(steps_per_execution=2)
    notes = BatchNotes()
    notes.begin([trained])
    trained._loss_tracker.count.assign_add(examples)
    assert notes.end().size is None


def test_a_batch_of_known_size_is_not_counted() -> None:
    trained = model()
    notes = BatchNotes()
    notes.begin([trained])
    notes.given([(tf.ones((9, 3)),), {}])
    trained._loss_tracker.count.assign_add(6.0)
    assert notes.end().size == 9


def test_a_replica_has_its_part_of_the_batch() -> None:
    trained = model()
    trained._distribute_strategy = SimpleNamespace(num_replicas_in_sync=3)
    notes = BatchNotes()
    notes.begin([trained])
    trained._loss_tracker.count.assign_add(6.0)
    assert notes.end().size == 2


def test_steps_of_the_programs_own_may_count_something_else() -> None:
    class Own(keras.Sequential):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            return {}

    trained = Own([keras.Input((3,)), keras.layers.Dense(1)])
    trained.compile("sgd", "mse")
    notes = BatchNotes()
    notes.begin([trained, keras.Sequential(), type("Other", (), {})()])
    trained._loss_tracker.count.assign_add(6.0)
    assert notes.end().size is None


# --- calls that fail --------------------------------------------------------------------------------------------------


def running(module: str, size: Any, call: Any, end: int = 0, **says: Any) -> Any:
    """Call a function below a method that trains on data with a batch size, in the first of two steps."""
    package = types.ModuleType(module)
    package.call = call  # type: ignore[attr-defined]
    exec("def fit(epoch_iterator, end_step):\n    return call()\n", vars(package))
    adapter = None if size is None else SimpleNamespace(batch_size=size, **says)
    return package.fit(SimpleNamespace(data_adapter=adapter, num_batches=2), end)


@pytest.mark.parametrize(
    ("module", "given", "size"),
    [
        ("keras.src.trainer", 32, 32),
        ("keras.src.trainer", 0, None),
        ("keras.src.trainer", "32", None),
        ("keras.src.trainer", None, None),
        ("own", 32, None),
    ],
)
def test_the_batch_of_a_training_method_is_that_of_its_data(module: str, given: Any, size: int | None) -> None:
    thread = threading.get_ident()
    assert running(module, given, lambda: running_batch(thread)) == BatchFacts(size)
    assert running_batch(thread) == BatchFacts()


@pytest.mark.parametrize(
    ("says", "size"),
    [
        ({"has_partial_batch": True, "partial_batch_size": 7}, 7),
        ({"has_partial_batch": False}, 32),
        ({"has_partial_batch": None, "partial_batch_size": None}, None),
    ],
)
def test_the_last_batch_may_be_smaller(says: Any, size: int | None) -> None:
    thread = threading.get_ident()
    assert running("keras.src.trainer", 32, lambda: running_batch(thread), 1, **says) == BatchFacts(size)
    assert running("keras.src.trainer", 32, lambda: running_batch(thread), 0, **says) == BatchFacts(32)


def test_the_batch_of_a_generator_is_that_of_the_batches_that_keras_looked_at() -> None:
    thread = threading.get_ident()
    batch = (np.ones((6, 3)), np.ones(6))
    found = running("keras.src.trainer", 0, lambda: running_batch(thread), _first_batches=[batch])
    assert found == BatchFacts(6)


def test_a_failed_call_has_the_batch_that_it_was_given_or_that_of_its_training() -> None:
    notes = BatchNotes()
    notes.call_failed([(tf.ones((9, 3)),), {}])
    assert notes.failed == BatchFacts(9, (((9, 3), FLOAT),))
    running("keras.src.trainer", 32, lambda: notes.call_failed([(pairs(4),), {}]))
    assert notes.failed == BatchFacts(32, (((-1, 3), FLOAT), ((-1,), "int64")))
    running("keras.src.trainer", 32, lambda: notes.call_failed([(tf.ones((9, 3)),), {}]))
    assert notes.failed is not None and notes.failed.size == 9
