"""Jobs run once their module is imported, and change nothing about how it is."""

import contextlib
import importlib
import logging
import pathlib
import sys
import types
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import keras
import pytest
import tensorflow as tf

import tb_memplugin
from tb_memplugin.recorder.automatic import AutomaticRecording, Wrapping
from tb_memplugin.recorder.automatic import programs as automatic
from tb_memplugin.recorder.automatic.programs import AfterImport
from tb_memplugin.recorder.watch import hooks

NAME = "tb_memplugin_test_module"


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    yield tmp_path
    sys.meta_path[:] = before
    sys.modules.pop(NAME, None)


def write(folder: pathlib.Path, code: str) -> None:
    (folder / f"{NAME}.py").write_text(code, encoding="utf-8")
    importlib.invalidate_caches()


def test_the_job_runs_once_after_the_modules_code_or_at_once(folder: pathlib.Path) -> None:
    write(folder, "value = 5")
    seen: list[int] = []
    AfterImport({NAME: lambda module: seen.append(module.value)}).install()
    assert seen == []
    module = importlib.import_module(NAME)
    importlib.reload(module)
    assert seen == [5]
    # THEN the loader is the one that the module would have had
    assert vars(module.__loader__).keys() == {"name", "path"}
    # AND if it is imported already, the job runs at once
    AfterImport({NAME: lambda module: seen.append(-module.value)}).install()
    assert seen == [5, -5]


def test_a_failing_import_fails_as_before_and_a_failing_job_does_not_fail_it(
    folder: pathlib.Path,
) -> None:
    write(folder, "raise ValueError(7)")
    seen: list[ModuleType] = []
    AfterImport({NAME: seen.append}).install()
    with pytest.raises(ValueError, match="7"):
        importlib.import_module(NAME)
    write(folder, "value = 77")
    importlib.import_module(NAME)
    assert len(seen) == 1
    # AND a job that fails changes nothing
    del sys.modules[NAME]
    write(folder, "value = 888")
    AfterImport({NAME: lambda module: module.missing}).install()
    assert importlib.import_module(NAME).value == 888


class Loop:
    """A loop that counts its steps."""

    def __init__(self, model: Any) -> None:
        self.model, self.steps = model, 0
        self.errors: list[type] = []

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        self.steps += 1
        try:
            yield
        except BaseException as error:
            self.errors.append(type(error))
            raise


class Recording(AutomaticRecording):
    """With loops that record nothing, and texts in place of callbacks."""

    on = True

    def __init__(self) -> None:
        super().__init__("runs", "name")
        self.loops: dict[int, Loop] = {}

    def records(self) -> bool:
        return self.on

    def callback_for(self, model: Any) -> Any:
        return f"callback of {id(model)}"

    def loop_for(self, owner: Any, model: Any) -> Any:
        return self.loops.setdefault(id(owner), Loop(model))


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    """What TensorFlow's methods report to while the test runs."""
    recording = Recording()
    monkeypatch.setattr(recording, "see_failures", lambda: None)
    wrapping = Wrapping(recording)
    wrapping._functions(tf)
    yield recording
    wrapping.remove()


def training_step(model: Any, optimizer: Any = None, forward: Any = None, check: Any = None) -> Any:
    """A function that takes gradients, and updates the variables by an optimizer or, after a check,
    by hand."""

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((forward or model)(x) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        if optimizer is not None:
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        else:
            with tf.control_dependencies([check(x)] if check else []):
                for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
                    variable.assign_sub(0.01 * gradient)
        return loss

    return step


def make_model() -> Any:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])


X = tf.ones((4, 3))


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_function_that_trains_is_a_loop_from_its_first_call_on(
    recording: Recording, by_hand: bool
) -> None:
    model = make_model()
    step = training_step(model, None if by_hand else keras.optimizers.SGD(0.01))
    losses = [float(step(X))]
    (loop,) = recording.loops.values()
    assert (loop.steps, loop.model) == (1, model)
    losses += [float(step(X)) for _ in range(2)]
    assert losses[0] > losses[1] > losses[2] > 0
    assert loop.steps == 3 and list(recording.loops.values()) == [loop]
    assert not recording.is_inside and list(recording.notes()) == []
    # AND calls are observed only while a function is unknown
    users = hooks._users
    seen: list[int] = []
    traced = tf.function(lambda: seen.append(hooks._users))
    for _ in range(2):
        traced()
    assert seen == [users + 1] and hooks._users == users


def test_the_loop_is_of_the_largest_layer_that_no_other_calls(recording: Recording) -> None:
    small, large = make_model(), keras.Sequential([keras.Input((3,)), keras.layers.Dense(50)])
    training_step(large, forward=lambda x: tf.reduce_sum(small(x)) + large(x))(X)
    (loop,) = recording.loops.values()
    assert loop.model is large


def test_an_update_alone_is_a_step_and_gradients_alone_are_none(recording: Recording) -> None:
    weight, optimizer = keras.Variable(1.0), keras.optimizers.SGD(0.01)
    update = tf.function(lambda gradient: optimizer.apply_gradients([(gradient, weight)]))

    @tf.function
    def gradients() -> Any:
        with tf.GradientTape() as tape:
            loss = weight.value**2
        return tape.gradient(loss, weight.value)

    counts = tf.function(lambda: weight.assign(2.0))
    for _ in range(2):
        update(tf.constant(1.0))
        assert float(gradients()) == pytest.approx(2 * float(weight))
        counts()
    # THEN the loop, which has no layers, has no model
    assert [(loop.model, loop.steps) for loop in recording.loops.values()] == [(None, 2)]


def test_functions_inside_a_function_or_a_recorded_call_are_left_alone(
    recording: Recording,
) -> None:
    model = make_model()
    inner = training_step(model)

    @tf.function
    def outer(x: Any) -> Any:
        return inner(x)

    outer(X)
    outer(X)
    (loop,) = recording.loops.values()
    assert (loop.steps, loop.model) == (2, model)
    with recording.inside():
        training_step(make_model())(X)
    assert len(recording.loops) == 1


def test_what_is_not_recorded_runs_as_before(recording: Recording) -> None:
    # GIVEN a recorder of the program's own
    recording.on = False
    step = training_step(make_model())
    losses = [float(step(X)) for _ in range(3)]
    assert (
        losses[0] > losses[1] > losses[2]
        and recording.loops == {}
        and list(recording.notes()) == []
    )


def test_the_step_begins_when_the_function_has_been_traced_and_before_it_runs(
    recording: Recording,
) -> None:
    model, seen = make_model(), []

    def look(x: Any) -> Any:
        return tf.py_function(
            lambda: seen.append([loop.steps for loop in recording.loops.values()]), [], []
        )

    def traced(x: Any) -> Any:
        seen.append(len(recording.loops))
        return model(x)

    training_step(model, forward=traced, check=look)(X)
    assert seen == [0, [1]]


def test_a_first_call_that_fails_is_a_step_unless_it_fails_while_it_is_traced(
    recording: Recording,
) -> None:
    model = make_model()
    users = hooks._users
    step = training_step(model, check=lambda x: tf.debugging.assert_less(x, 0.5))
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        step(X)
    (loop,) = recording.loops.values()
    assert (loop.model, loop.steps, loop.errors) == (model, 1, [raised.type])
    # AND a further call is one as well
    step(X / 4)
    assert loop.steps == 2
    # AND one that trains nothing, or is not traced to its end, is none
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(lambda: tf.debugging.assert_less(X, 0.5))()
    with pytest.raises(Exception, match="division by zero"):
        training_step(model, check=lambda x: [1 / 0])(X)
    assert list(recording.loops.values()) == [loop] and hooks._users == users
    assert not recording.is_inside


def test_a_fault_of_ours_is_logged_and_changes_nothing(recording, monkeypatch, caplog) -> None:
    def fail(*arguments: Any, **named: Any) -> Any:
        raise KeyError("ours")

    step = training_step(make_model())
    monkeypatch.setattr(recording, "loop_for", fail)
    with caplog.at_level(logging.DEBUG, "tb_memplugin"):
        losses = [float(step(X)) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]
    assert next(recording.notes()).startswith("Something could not be recorded")
    assert any(
        record.exc_info and isinstance(record.exc_info[1], KeyError) for record in caplog.records
    )
    monkeypatch.setattr(recording, "records", fail)
    training_step(make_model())(X)


class Model:
    """The methods of a Keras model, which return what they were called with."""

    def fit(self, x: Any = None, epochs: int = 1, callbacks: Any = None) -> Any:
        return x, epochs, callbacks

    def evaluate(self, x: Any = None, callbacks: Any = None) -> Any:
        return callbacks

    predict = evaluate

    def train_on_batch(self, x: Any) -> Any:
        return x


def keras_with(model: type) -> Any:
    return types.SimpleNamespace(Model=model)


class CallbackList:
    def __init__(self, *callbacks: Any) -> None:
        self.callbacks = callbacks


@pytest.fixture
def models() -> Iterator[Recording]:
    models = Recording()
    wrapping = Wrapping(models)
    wrapping.models(keras_with(Model))
    yield models
    wrapping.remove()


def test_a_callback_is_added_however_callbacks_are_passed(models: Recording) -> None:
    model, given = Model(), ["theirs"]
    ours = f"callback of {id(model)}"
    assert model.fit(7) == (7, 1, [ours])
    assert model.fit(7, 2, given) == (7, 2, ["theirs", ours])
    assert model.fit(x=7, callbacks=("theirs",)) == (7, 1, ["theirs", ours])
    assert model.evaluate(callbacks=None) == [ours]
    assert model.predict(7, "theirs") == ["theirs", ours]
    assert given == ["theirs"]


def test_a_callback_is_not_added_twice_nor_to_a_list_of_the_programs_own_which_is_said(
    models, tmp_path
) -> None:
    theirs = tb_memplugin.MemoryCallback(tmp_path)
    assert Model().fit(callbacks=[theirs])[2] == [theirs]
    ready = CallbackList(theirs)
    assert Model().evaluate(callbacks=ready) is ready
    (own,) = models.notes()
    assert own.startswith("The program records itself")
    ready = CallbackList("theirs")
    assert Model().fit(callbacks=ready)[2] is ready
    _, note = models.notes()
    assert note.startswith("1 call of `fit`") and "CallbackList" in note


def test_a_fault_of_ours_changes_nothing(
    models: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "callback_for", lambda model: 1 // 0)
    assert Model().fit(7, callbacks=["theirs"]) == (7, 1, ["theirs"])
    assert "could not be recorded" in next(models.notes())


def test_removal_restores_the_methods() -> None:
    before = dict(vars(Model))
    wrapping = Wrapping(Recording())
    wrapping.models(keras_with(Model))
    wrapping.models(keras_with(Model))  # as tf_keras, where it is the same package
    assert vars(Model)["fit"].__wrapped__ is before["fit"]
    wrapping.remove()
    assert dict(vars(Model)) == before


def test_the_calls_of_further_models_are_the_steps_of_one_run(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic, "MAX_RUNS", 1)
    recording = AutomaticRecording(str(tmp_path), "name")
    wrapping = Wrapping(recording)
    package = keras_with(type("Model", (Model,), dict(vars(Model))))
    wrapping.models(package)
    try:
        for _ in range(3):
            package.Model().fit(1)
        recording.close()
        package.Model().fit(1)  # what fits is measured now
    finally:
        wrapping.remove()
    assert recording.names == ["name", "name-more"] and recording.latest == "name-more"
    assert "of run name-more" in next(recording.notes())
    assert tb_memplugin.load(tmp_path)["name-more"].samples.step.tolist() == [0, 1]


def test_functions_of_one_code_share_a_run_that_knows_the_slots_of_earlier_optimizers(
    tmp_path: Any,
) -> None:
    recording = AutomaticRecording(str(tmp_path), "name", {"trace_steps": ()})
    wrapping = Wrapping(recording)
    wrapping._functions(tf)
    model = make_model()
    try:
        for _ in range(4):  # for each training a new function of the same code, and a new Adam
            step = training_step(model, keras.optimizers.Adam())
            for _ in range(3):
                step(X)
        other = training_step(model, keras.optimizers.Adam(), forward=lambda x: model(x))
        other(X)
        recording.close()
    finally:
        wrapping.remove()
    assert recording.names == ["name"]
    run = tb_memplugin.load(tmp_path)["name"]
    assert run.samples.step.tolist() == list(range(13))
    (counters,) = run.counters
    rows = list(zip(counters.kind, counters.count.tolist(), counters.bytes.tolist(), strict=True))
    replaced = [row[1:] for row in rows if row[0] == "optimizers_replaced"]
    # Slots of 2 x (3 x 2 + 2) float32, beside a step count of 8 bytes and a learning rate.
    slots = 4 * 2 * (3 * 2 + 2) + 8 + 4
    assert replaced == [(number, number * slots) for number in range(1, 5)]
    # AND each is a training of its own: one less is told than there were
    assert sum(kind == "earlier_sessions" for kind, *_ in rows) >= 4
