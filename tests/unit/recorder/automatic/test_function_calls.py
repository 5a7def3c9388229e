"""Which calls of a `tf.function` are steps of a custom loop, and what happens to the others."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import keras
import pytest
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

from tb_memplugin.recorder.automatic.function_calls import places
from tb_memplugin.recorder.automatic.recording import AutomaticRecording
from tb_memplugin.recorder.observe.calls.hooks import hooks


class Loop:
    """A loop that counts its steps."""

    def __init__(self, model: Any, first_step: int) -> None:
        self.model, self.first_step = model, first_step
        self.steps = 0

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        self.steps += 1
        yield


class Recording(AutomaticRecording):
    """With loops that record nothing."""

    on = True
    full = False

    def __init__(self) -> None:
        super().__init__("runs", "name")
        self.loops: dict[int, Loop] = {}

    def records(self) -> bool:
        return self.on

    def loop_for(self, owner: Any, model: Any, first_step: int = 0) -> Any:
        if self.full:
            return None
        return self.loops.setdefault(id(owner), Loop(model, first_step))


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Recording:
    """What TensorFlow's methods report to while the test runs."""
    recording = Recording()
    for owner, name, wrapper in places(recording):
        monkeypatch.setattr(owner, name, wrapper(getattr(owner, name)))
    return recording


def training_step(model: Any, optimizer: Any = None) -> Any:
    """A function that takes gradients, and updates the variables by an optimizer or by hand."""

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        if optimizer is not None:
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        else:
            for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
                variable.assign_sub(0.01 * gradient)
        return loss

    return step


def make_model() -> Any:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])


X = tf.ones((4, 3))


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_function_that_trains_is_a_loop_from_its_second_call_on(recording: Recording, by_hand: bool) -> None:
    model = make_model()
    step = training_step(model, None if by_hand else keras.optimizers.SGD(0.01))
    losses = [float(step(X)) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2] > 0
    (loop,) = recording.loops.values()
    assert (loop.steps, loop.first_step, loop.model) == (2, 1, model)
    assert not recording.is_inside and list(recording.notes()) == []


def test_the_loop_is_of_the_largest_layer_that_no_other_calls(recording: Recording) -> None:
    small, large = make_model(), keras.Sequential([keras.Input((3,)), keras.layers.Dense(50)])

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(small(X)) + tf.reduce_sum(large(X))
        for variable, gradient in zip(large.variables, tape.gradient(loss, large.variables), strict=True):
            variable.assign_sub(gradient)

    step()
    (loop,) = recording.loops.values()
    assert loop.model is large


def test_a_loop_without_layers_has_no_model(recording: Recording) -> None:
    weight = tf.Variable(1.0)

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = weight**2
        weight.assign_sub(0.01 * tape.gradient(loss, weight))

    step()
    step()
    (loop,) = recording.loops.values()
    assert (loop.model, loop.steps) == (None, 1)


def test_an_update_alone_is_a_step_and_gradients_alone_are_none(recording: Recording) -> None:
    weight, optimizer = keras.Variable(1.0), keras.optimizers.SGD(0.01)

    @tf.function
    def update(gradient: Any) -> None:
        optimizer.apply_gradients([(gradient, weight)])

    @tf.function
    def gradients() -> Any:
        with tf.GradientTape() as tape:
            loss = weight.value**2
        return tape.gradient(loss, weight.value)

    @tf.function
    def counts() -> Any:
        return weight.assign(2.0)

    for _ in range(2):
        update(tf.constant(1.0))
        assert float(gradients()) == pytest.approx(2 * float(weight))
        counts()
    assert [loop.steps for loop in recording.loops.values()] == [1]


def test_a_forward_pass_that_changes_statistics_is_no_step(recording: Recording) -> None:
    layer = keras.layers.BatchNormalization()
    layer.build((None, 3))

    @tf.function
    def forward(x: Any) -> Any:
        return layer(x, training=True)

    before = layer.moving_mean.numpy()
    forward(X)
    assert (layer.moving_mean.numpy() != before).all() and recording.loops == {}


def test_functions_inside_a_function_are_left_alone(recording: Recording) -> None:
    model = make_model()
    inner = training_step(model)

    @tf.function
    def outer(x: Any) -> Any:
        return inner(x)

    outer(X)
    outer(X)
    (loop,) = recording.loops.values()
    assert (loop.steps, loop.model) == (1, model)


def test_a_function_of_a_call_that_is_recorded_is_left_alone(recording: Recording) -> None:
    step = training_step(make_model())
    with recording.inside():
        step(X)
    assert recording.loops == {}


@pytest.mark.parametrize("full", [False, True])
def test_what_is_not_recorded_runs_as_before(recording: Recording, full: bool) -> None:
    # GIVEN too many models, or a recorder of the program's own
    recording.on, recording.full = full, full
    step = training_step(make_model())
    losses = [float(step(X)) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2] and recording.loops == {}
    assert list(recording.notes()) == []


@pytest.mark.parametrize("opened", [False, True])
def test_a_first_call_that_fails_is_a_loop_only_if_a_run_was_opened_for_it(recording: Recording, opened: bool) -> None:
    model = make_model()

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x))
        gradients = tape.gradient(loss, model.trainable_variables)
        with tf.control_dependencies([tf.debugging.assert_less(x, 0.5)]):
            for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
                variable.assign_sub(gradient)
        return loss

    recording._failure_run = "name" if opened else None
    with pytest.raises(tf.errors.InvalidArgumentError):
        step(X)
    loops = [(loop.model, loop.first_step, loop.steps) for loop in recording.loops.values()]
    assert loops == [(model, 1, 0)] * opened
    # AND one that trains nothing is none
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(lambda: tf.debugging.assert_less(X, 0.5))()
    assert len(recording.loops) == opened
    assert not recording.is_inside


def test_calls_are_observed_only_while_a_function_is_unknown(recording: Recording) -> None:
    users = hooks._users
    seen: list[int] = []

    @tf.function
    def step() -> None:
        seen.append(hooks._users)  # as it is traced

    for _ in range(2):
        step()
    assert seen == [users + 1] and hooks._users == users


def test_a_fault_of_ours_is_logged_and_changes_nothing(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any, **named: Any) -> Any:
        raise KeyError("ours")

    step = training_step(make_model())
    monkeypatch.setattr(recording, "loop_for", fail)
    with caplog.at_level(logging.DEBUG, "tb_memplugin"):
        losses = [float(step(X)) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]
    assert next(recording.notes()).startswith("Something could not be recorded")
    assert any(record.exc_info and isinstance(record.exc_info[1], KeyError) for record in caplog.records)
    monkeypatch.setattr(recording, "records", fail)
    training_step(make_model())(X)


def test_gradients_of_no_step_are_counted(recording: Recording) -> None:
    weight = tf.Variable(3.0)

    def gradient() -> float:
        with tf.GradientTape() as tape:
            loss = weight**2
        return float(tape.gradient(loss, weight))

    assert gradient() == 6.0 and recording.unseen == 1
    with recording.inside():
        gradient()
    recording.on = False
    gradient()
    recording.on = True
    training_step(make_model())(X)
    assert recording.unseen == 1


def test_the_wrapped_methods_are_tensorflows(recording: Recording) -> None:
    found = [(owner, name) for owner, name, _ in places(recording)]
    assert found == [(Function, "__call__"), (tf.GradientTape, "gradient")]
