"""What `probe` checks before it trains, and what it does with the model. tests/integration/test_probe.py trains."""

import pathlib
from types import SimpleNamespace
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.errors import RecordingError
from tb_memplugin.recorder.devices import Device
from tb_memplugin.training import probing
from tb_memplugin.training.probing import (
    Examples,
    OutOfMemoryError,
    SharedValues,
    checked_devices,
    checked_sizes,
    record,
    train,
)

X, Y = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
OOM = "OOM when allocating tensor with shape[16,64] and type float on GPU:0 by allocator GPU_0_bfc"


def make_model(**compiled: Any) -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)], name="net")
    model.compile("sgd", "mse", **compiled)
    return model


def without_optimizer() -> Any:
    model = make_model()
    model.optimizer = None
    return model


def unbuilt() -> Any:
    model = keras.Sequential([keras.layers.Dense(2)], name="net")
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(("given", "sizes"), [((8, 4), (4, 8)), ([1], (1,)), (np.asarray([2, 9]), (2, 9)), ({3}, (3,))])
def test_batch_sizes_are_put_in_order(given: Any, sizes: tuple[int, ...]) -> None:
    assert checked_sizes(given) == sizes
    assert all(type(size) is int for size in checked_sizes(given))


@pytest.mark.parametrize("given", [(), 4, None, (4, 4), (0,), (-1, 4), (True,), (1.0,), "48", (2, "4")])
def test_other_batch_sizes_are_received(given: Any) -> None:
    with pytest.raises(RecordingError, match=r"batch_sizes must be distinct positive integers, such as \(4, 8\)") as e:
        checked_sizes(given)
    assert f"Received: {given!r}" in str(e.value)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (object(), "model must be a Keras model. Received: object"),
        (keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)], name="net"), "model 'net' is not compiled. Call"),
        (without_optimizer(), "model 'net' is not compiled. Call"),
        (unbuilt(), "model 'net' has no weights yet. Call it once, or model.build, first"),
        (make_model(), ""),
    ],
)
def test_a_model_is_a_compiled_one_of_keras(monkeypatch: pytest.MonkeyPatch, model: Any, said: str) -> None:
    readable(monkeypatch, "GPU:0")
    if not said:
        # Devices whose map cannot be read are left out.
        assert [device.name for device in checked_devices(model)] == ["GPU:0"]
        return
    with pytest.raises(RecordingError) as raised:
        checked_devices(model)
    assert str(raised.value).startswith(said)


def readable(monkeypatch: pytest.MonkeyPatch, *names: str, of: tuple[str, ...] = ("GPU:0", "GPU:1")) -> None:
    """Devices of which only some have an allocator whose map can be read."""

    class Maps:
        def __init__(self, devices: list[str], report: Any) -> None:
            assert devices == list(of)
            report("The map of one is unknown.")

        def available(self, device: str) -> bool:
            return device in names

    devices = [Device(name, None, None) for name in of]
    monkeypatch.setattr(probing, "choose_devices", lambda chosen: (devices, [] if devices else ["No statistics."]))
    monkeypatch.setattr(probing, "MemoryMaps", Maps)


@pytest.mark.parametrize(("of", "why"), [(("GPU:0",), "The map of one is unknown."), ((), "No statistics.")])
def test_without_a_readable_allocator_it_says_why(
    monkeypatch: pytest.MonkeyPatch, of: tuple[str, ...], why: str
) -> None:
    readable(monkeypatch, of=of)
    with pytest.raises(RecordingError) as raised:
        checked_devices(make_model())
    assert str(raised.value) == f"The probe needs an allocator that can be read. {why}"


class Calls(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.sizes.append(batch)


@pytest.mark.parametrize(("executions", "steps"), [(1, 3), (2, 2)])
def test_as_many_steps_are_trained_as_asked_for(executions: int, steps: int) -> None:
    model, calls = make_model(steps_per_execution=executions, run_eagerly=True), Calls()
    train(model, Examples((X, Y), 4), 8, steps, calls)
    assert len(calls.sizes) == steps and int(model.optimizer.iterations) == steps * executions


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.ResourceExhaustedError(None, None, OOM),
        tf.errors.InvalidArgumentError(None, None, "shapes"),
        KeyError("a bug"),
    ],
)
def test_a_failed_allocation_has_an_error_that_holds_no_tensor_and_others_are_the_programs_own(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    model, out_of_memory = make_model(), isinstance(error, tf.errors.ResourceExhaustedError)
    monkeypatch.setattr(model, "fit", mock.Mock(side_effect=error))
    with pytest.raises(OutOfMemoryError if out_of_memory else type(error)) as raised:
        train(model, Examples((X, Y), 4), 8, 3, Calls())
    if out_of_memory:
        assert "OOM when allocating" in str(raised.value)
        assert raised.value.__cause__ is None and raised.value.__context__ is None
    else:
        assert raised.value is error


@pytest.mark.parametrize("compiled", [True, False])
def test_the_values_of_all_variables_are_shared_in_the_first_compiled_step_only(compiled: bool) -> None:
    model = make_model(jit_compile=compiled)
    shared = SharedValues((X[:1], Y[:1]))
    shared.set_model(model)
    shared.on_train_batch_begin(0)
    # THEN it holds a reference to the weights, the optimizer's variables and the metrics'
    assert (len(shared._values) >= 5) is compiled
    assert model.optimizer.built is compiled
    shared.on_train_batch_begin(1)
    assert shared._values == []
    shared._values = ["x"]
    shared.on_train_end()
    assert shared._values == []


class Recorded:
    """Stands in for the recorder and the run that it writes; `trained` are the steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, requests: list[bool], fails: int | None = None) -> None:
        self.trained: list[tuple[int, int]] = []
        self.directory = ""
        self.arguments: dict[str, Any] = {}
        self.closed = 0
        self.fails = fails
        self.run = SimpleNamespace(
            requests=[SimpleNamespace(first=first) for first in requests], notes=("The disk is full.",)
        )
        monkeypatch.setattr(probing, "MemoryCallback", self.callback)
        monkeypatch.setattr(probing, "train", self.train)
        monkeypatch.setattr(probing, "Runs", lambda directory: {".": self.run})

    def callback(self, directory: str, **arguments: Any) -> Any:
        self.directory, self.arguments = directory, arguments
        assert pathlib.Path(directory).is_dir()
        return self

    def close(self) -> None:
        self.closed += 1

    def train(self, model: Any, examples: Any, size: int, steps: int, callback: Any) -> None:
        assert callback is self
        self.trained.append((size, steps))
        if size == self.fails:
            raise OutOfMemoryError("OOM")


def recorded(model: Any, log_dir: Any = None) -> Any:
    return record(model, None, (4, 8), Device("GPU:0", None, None), log_dir, mock.Mock())  # type: ignore[arg-type]


def test_each_batch_size_has_a_step_that_compiles_and_three_traced_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    found = Recorded(monkeypatch, [True, False])
    model = make_model()
    model.optimizer.iterations.assign(10)
    assert recorded(model) is found.run
    assert found.trained == [(4, 4), (8, 4)]
    assert found.arguments == {"trace_steps": [11, 12, 13, 15, 16, 17], "devices": ["GPU:0"]}
    # AND the temporary run is gone, while one with a directory stays
    assert found.closed == 1 and not pathlib.Path(found.directory).exists()
    recorded(make_model(), str(tmp_path))
    assert found.directory == str(tmp_path) and tmp_path.is_dir()


NOT_RECORDED = r"The probe's steps could not be recorded\. The disk is full\."


@pytest.mark.parametrize(
    ("requests", "fails", "said"),
    [
        ([], None, NOT_RECORDED),
        ([True, True], None, NOT_RECORDED),
        ([False], 8, r"with batch size 8. Pass smaller batch_sizes than \(4, 8\), or free"),
    ],
)
def test_a_run_without_a_typical_step_or_enough_memory_says_why(
    monkeypatch: pytest.MonkeyPatch, requests: list[bool], fails: int | None, said: str
) -> None:
    found = Recorded(monkeypatch, requests, fails)
    with pytest.raises(RecordingError, match=said):
        recorded(make_model())
    assert found.closed == 1 and not pathlib.Path(found.directory).exists()


DATASET = tf.data.Dataset.from_tensor_slices((np.ones((40, 3), np.float32), np.ones(40))).batch(16)


@pytest.mark.parametrize(
    ("data", "batch_size", "recorded_sizes", "size"),
    [
        ((X, Y), None, [4, 8], 32),  # what Keras takes for arrays
        (DATASET, None, [4, 8], 16),
        (DATASET, 64, [4, 8], 64),
        ((X, Y), 8, [4, 8], 8),
        ((X, Y), 7, [4], 7),
        ((X, Y), 4, [4], 4),
        ((X, Y), 3, [3], 3),
    ],
)
def test_steps_of_a_training_are_recorded_with_batches_no_larger_than_its_own(
    monkeypatch: pytest.MonkeyPatch, data: Any, batch_size: int | None, recorded_sizes: list[int], size: int
) -> None:
    asked: list[Any] = []

    def probe(model: Any, given: Any, sizes: list[int]) -> str:
        assert given is data
        asked.append(sizes)
        return "run"

    monkeypatch.setattr(probing, "probe", probe)
    assert probing.recorded_steps(None, data, batch_size) == ("run", size)
    assert asked == [recorded_sizes]
    monkeypatch.undo()
    with pytest.raises(RecordingError, match="batch_sizes must be distinct positive integers"):
        probing.recorded_steps(None, data, 0)
