"""Steps that are trained with a plan's changes leave the model and the process as before."""

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.fit import Measured, PlanOption
from tb_memplugin.training import MeasuredSteps, measuring

X, Y = np.ones((8, 3), np.float32), np.ones((8, 2), np.float32)
OFF = "disable_meta_optimizer"


def option(kind: Any, **changed: Any) -> PlanOption:
    values = {"segments": (), "batch_size": 8, "accumulation": 1, **changed}
    return PlanOption(
        kind, kind, peak_bytes=0, low_bytes=0, high_bytes=0, fits=True, extra_time=None, **values
    )


@pytest.fixture
def model() -> Any:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(4, "relu", name="one")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(2, name="two")(hidden), name="net")
    model.compile("adam", "mse", metrics=["mae"])
    return model


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is trained: the model's settings, the batch size and the number of steps."""
    found: list[Any] = []
    train = measuring.train

    def observed(model: Any, examples: Any, size: int, steps: int, callback: Any) -> None:
        off = tf.config.optimizer.get_experimental_options().get(OFF, False)
        parts = model.optimizer.gradient_accumulation_steps or 1
        found.append((model, bool(model.jit_compile), parts, size, steps, off))
        train(model, examples, size, steps, callback)

    monkeypatch.setattr(measuring, "train", observed)
    monkeypatch.setattr(measuring, "checked_devices", lambda model: [SimpleNamespace(name="CPU:0")])
    statistics = SimpleNamespace(reset_peak=lambda device: None, memory_info=lambda device: (1, 7))
    monkeypatch.setattr(measuring, "allocator", statistics)
    return found


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (option("none"), (False, 1, 8, 6, False)),
        (option("xla"), (True, 1, 8, 6, False)),
        (option("graph_optimizer"), (False, 1, 8, 6, True)),
        (option("accumulate", batch_size=4, accumulation=2), (False, 2, 4, 12, False)),
        (option("recompute", segments=(("one",),)), (False, 1, 8, 6, False)),
    ],
    ids=lambda one: getattr(one, "kind", ""),
)
def test_steps_are_trained_with_the_change_and_leave_the_training_as_it_was(
    model: Any, trained: list[Any], chosen: PlanOption, expected: Any
) -> None:
    weights, optimizer, loss = (
        [np.asarray(one) for one in model.variables],
        model.optimizer,
        model.loss,
    )
    found = MeasuredSteps(model, (X, Y))(chosen)
    assert found.peak == (7, 7, 7) and found.seconds and found.seconds > 0, found
    (only,) = trained
    assert only[1:] == expected and (only[0] is model) is not bool(chosen.segments)
    # THEN the model is as it was, and so is the process
    assert (
        model.optimizer is optimizer
        and model.loss is loss
        and not optimizer.built
        and not model.jit_compile
    )
    assert all(
        (one == np.asarray(other)).all()
        for one, other in zip(weights, model.variables, strict=True)
    )
    assert not tf.config.optimizer.get_experimental_options().get(OFF, False)
    # AND its losses are those of a model that was not trained before
    other = keras.models.clone_model(model)
    other.set_weights(weights)
    other.compile("adam", "mse", metrics=["mae"])
    assert model.train_on_batch(X, Y) == other.train_on_batch(X, Y)
    assert model.train_on_batch(X, Y) == other.train_on_batch(X, Y)


def test_what_fails_or_takes_too_long_is_said(
    model: Any, trained: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = MeasuredSteps(model, (X, Y))
    monkeypatch.setattr(
        measuring, "train", lambda *_: (_ for _ in ()).throw(measuring.OutOfMemoryError("no"))
    )
    assert str(measure(option("graph_optimizer"))) == "not trained: memory ran out."
    assert not tf.config.optimizer.get_experimental_options().get(OFF, False)
    monkeypatch.setattr(
        measuring, "train", lambda *_: (_ for _ in ()).throw(ValueError("of the\nuser"))
    )
    assert measure(option("none")) == Measured(None, None, "ValueError: of the user")
    monkeypatch.setattr(measuring, "MOST_SECONDS", 0.0)
    assert "trainings of more than 0 s" in str(measure(option("none"))) and not trained
