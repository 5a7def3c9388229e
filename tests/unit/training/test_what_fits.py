"""How `print_what_fits` ends, and what it finds in a traceback."""

import gc
import pathlib
import time
import types
from typing import Any

import numpy as np
import pytest

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")

from tb_memplugin.errors import RecordingError  # noqa: E402
from tb_memplugin.fit import Asked  # noqa: E402
from tb_memplugin.training import asked_steps, print_what_fits, what_fits  # noqa: E402
from tb_memplugin.training.compiled_steps import CompiledSteps  # noqa: E402
from tb_memplugin.training.probing import BatchSizeAnswer, Examples  # noqa: E402

OOM = types.SimpleNamespace(failed=True, phase="train", during="step")


def printed(
    measure: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch, oom: Any = OOM, seconds: float = 60
) -> str:
    monkeypatch.setattr(what_fits, "Runs", lambda log_dir: {".": types.SimpleNamespace(ooms=[oom])})
    monkeypatch.setattr(what_fits, "_measure", measure)
    print_what_fits(RuntimeError(), "runs/exp1", seconds)
    return str(capsys.readouterr().err).partition("Ctrl+C ends it.\n")[2]


def raising(error: BaseException) -> Any:
    def measure(*_: Any) -> None:
        raise error

    return measure


@pytest.mark.parametrize(
    ("measure", "ends"),
    [
        (raising(KeyboardInterrupt()), ""),
        (raising(RecordingError("no device.")), "Not measured: no device.\n"),
        (raising(ValueError("two\nlines")), "Not measured: ValueError: two lines\n"),
        (raising(what_fits.TimeIsUpError()), "Stopped after 60 s.\n"),
    ],
)
def test_nothing_is_raised(
    measure: Any, ends: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert printed(measure, capsys, monkeypatch) == ends


def test_no_trial_begins_when_the_time_is_up_and_what_is_predicted_is_printed(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = types.SimpleNamespace(
        jit_compile=False, distribute_strategy=types.SimpleNamespace(num_replicas_in_sync=1)
    )
    device = types.SimpleNamespace(name="GPU:0", capacity_bytes=1 << 30)
    answer = BatchSizeAnswer(38, types.SimpleNamespace(), None, None, ("Not verified: no time.",))  # type: ignore[arg-type]

    def verifying(*arguments: Any) -> None:
        arguments[-1](answer)
        raise AssertionError("a trial began")

    monkeypatch.setattr(what_fits, "_call_in", lambda error: {"self": model, "x": np.ones((9, 2))})
    monkeypatch.setattr(what_fits, "checked_devices", lambda *_: [device])
    monkeypatch.setattr(
        what_fits, "recorded_steps", lambda *_: (types.SimpleNamespace(requests=(), ask=None), 9)
    )
    known: Any = types.SimpleNamespace(
        bounded_by=lambda evidence: known,
        reason_against=lambda conditions: None,
        predict=lambda conditions: types.SimpleNamespace(fits=None),
    )
    monkeypatch.setattr(what_fits, "Predictor", types.SimpleNamespace(of=lambda *_: known))
    monkeypatch.setattr(what_fits, "largest_of", verifying)
    unknown = dict.fromkeys(("requests", "op", "requested_bytes", "shape"))
    oom = types.SimpleNamespace(**vars(OOM), device="GPU:0", batch_size=96, **unknown)
    monkeypatch.setattr(what_fits, "beyond_batch", lambda *_: None)
    said = printed(what_fits._measure, capsys, monkeypatch, oom, seconds=0)
    assert said.startswith(
        "largest batch size: 38\n  Not verified: no time.\n\n    batch_size = 38"
    )
    assert said.endswith("\nStopped after 0 s.\n")


@pytest.mark.parametrize(
    "fields", [{"phase": "validation"}, {"phase": None, "during": "building"}, {"failed": False}]
)
def test_only_training_steps_are_measured(
    fields: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    oom = types.SimpleNamespace(**{**vars(OOM), **fields})
    assert printed(raising(ValueError()), capsys, monkeypatch, oom) == "" == capsys.readouterr().out


@pytest.mark.parametrize("filtering", [True, False])
def test_the_arguments_of_fit_are_found_in_the_traceback(filtering: bool) -> None:
    class Stop(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            raise ValueError("stop")

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = keras.ops.ones((20, 3)), keras.ops.ones((20, 1))
    enabled = keras.config.is_traceback_filtering_enabled()
    (
        keras.config.enable_traceback_filtering
        if filtering
        else keras.config.disable_traceback_filtering
    )()
    try:
        model.fit(x, y, verbose=0, callbacks=[Stop()])
    except ValueError as error:
        try:
            raise RuntimeError("later") from error
        except RuntimeError as later:
            found = what_fits._call_in(later)
    finally:
        (
            keras.config.enable_traceback_filtering
            if enabled
            else keras.config.disable_traceback_filtering
        )()
    assert found is not None and found["self"] is model
    data = what_fits._data_of(found)
    assert [part.shape[0] for part in data] == [8, 8]
    assert what_fits._call_in(RuntimeError()) is None
    gc.collect()


def test_no_question_is_asked_that_may_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(self: Any, model: Any, size: int, segments: Any, accumulates: bool) -> Asked:
        asked.append(size)
        time.sleep(0.2)
        return Asked(1, "")

    monkeypatch.setattr(asked_steps, "_program", lambda model: ())
    monkeypatch.setattr(CompiledSteps, "_answer", answer)
    steps = CompiledSteps(model := keras.Sequential(), None, "CPU:0", time.perf_counter() + 0.3)
    assert (
        [steps(size).temporary_bytes for size in (8, 16, 8)] == [1, None, 1]
        and asked == [8]
        and model
    )


def test_a_loop_of_ones_own_is_told_what_to_call(capsys: pytest.CaptureFixture[str]) -> None:
    print_what_fits(
        RuntimeError(),
        str(pathlib.Path(__file__).parents[2] / "fixtures" / "runs" / "out_of_memory"),
    )
    said = capsys.readouterr().err.partition("Ctrl+C ends it.\n")[2]
    assert said.startswith("Not measured: the failed step is none of `fit` or `train_on_batch`, ")
    assert (
        said.endswith("call tb_memplugin.largest_batch_size(model, data).\n")
        and said.count("\n") == 1
    )


class Data(keras.utils.PyDataset):  # type: ignore[misc, name-defined]
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return np.ones((8, 40, 3), "float32"), np.ones((8, 1), "float32")


@pytest.mark.parametrize(("power", "factor"), [(1, 35.0), (2, 306.25), (3, 40.0)])
def test_the_lengths_of_the_failed_batch_follow_from_its_request(
    power: int, factor: float, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN steps with sequences of 40, and a request that was so many times as large
    model = keras.Sequential([keras.Input((None, 3)), keras.layers.Dense(1)])
    examples = Examples(what_fits._data_of({"x": Data()}), 8)
    axes = what_fits._open_axes(model, Data(), examples)
    assert axes == [(0, 1)] and examples.shapes == [(8, 40, 3), (8, 1)]

    def recorded(model: Any, batch: Any, size: int) -> Any:
        step = types.SimpleNamespace(device="GPU:0", batch_size=4, length=batch[0].shape[1])
        return types.SimpleNamespace(requests=[step]), size

    monkeypatch.setattr(what_fits, "recorded_steps", recorded)
    monkeypatch.setattr(
        what_fits, "stretch", lambda steps, *_: factor / (steps[0].length / 40) ** power
    )
    usable = types.SimpleNamespace(reason_against=lambda conditions: None)
    monkeypatch.setattr(what_fits, "Predictor", types.SimpleNamespace(of=lambda *_: usable))
    oom: Any = types.SimpleNamespace(device="GPU:0", batch_size=16)
    # THEN lengths that steps confirm are those of the failed batch, and others are unknown
    if power == 3:
        with pytest.raises(RecordingError, match="The failed batch was unlike them"):
            what_fits._recorded(model, examples, axes, oom)
        return
    run, resized = what_fits._recorded(model, examples, axes, oom)
    length = 1400 if power == 1 else 700
    assert resized.shapes == [(8, length, 3), (8, 1)] and run.requests[0].length == length
    assert capsys.readouterr().err == (
        f"The failed batch was unlike the first one: (batch, {length}, 3) instead of "
        "(batch, 40, 3).\n"
    )


def test_open_axes_of_a_data_set_are_those_of_its_specification() -> None:
    shapes = ((2, None, 3), (2, 1), (None, None))
    specs = tuple(tf.TensorSpec(shape) for shape in shapes)
    data = tf.data.Dataset.from_generator(
        lambda: iter([(np.ones((2, 5, 3)), np.ones((2, 1)), np.ones((2, 5)))]),
        output_signature=specs,
    )
    assert what_fits._open_axes(None, data, Examples(data, 8)) == [(0, 1), (2, 1)]
