"""What `probe`, `largest_batch_size` and `plan` do with a model and data.
tests/integration/test_probe.py trains."""

import contextlib
import dataclasses
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import requests_cases
import tensorflow as tf
from reading_cases import MIB

import tb_memplugin
from tb_memplugin import BatchSizeAnswer
from tb_memplugin.errors import RecordingError, RequestError
from tb_memplugin.fit import Conditions
from tb_memplugin.recorder.devices import Device
from tb_memplugin.schema import owned
from tb_memplugin.training import largest, largest_batch_size, probing
from tb_memplugin.training.asked_steps import checked_sizes
from tb_memplugin.training.probing import (
    Examples,
    OutOfMemoryError,
    checked_devices,
    copied,
    record,
    train,
)
from tb_memplugin.training.saved_state import restored

X, Y = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
OOM = "OOM when allocating tensor with shape[16,64] and type float on GPU:0 by allocator GPU_0_bfc"


def make_model(optimizer: str = "sgd", **compiled: Any) -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)], name="net")
    model.compile(optimizer, "mse", **compiled)
    return model


def without_optimizer() -> Any:
    model = make_model()
    model.optimizer = None
    return model


def unbuilt() -> Any:
    model = keras.Sequential([keras.layers.Dense(2)], name="net")
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(
    ("given", "sizes"), [((8, 4), (4, 8)), ([1], (1,)), (np.asarray([2, 9]), (2, 9)), ({3}, (3,))]
)
def test_batch_sizes_are_put_in_order(given: Any, sizes: tuple[int, ...]) -> None:
    assert checked_sizes(given) == sizes
    assert all(type(size) is int for size in checked_sizes(given))


@pytest.mark.parametrize(
    "given", [(), 4, None, (4, 4), (0,), (-1, 4), (True,), (1.0,), "48", (2, "4")]
)
def test_other_batch_sizes_are_received(given: Any) -> None:
    with pytest.raises(
        RecordingError,
        match=r"batch_sizes must be distinct positive integers, such as \(4, 8\)",
    ) as e:
        checked_sizes(given)
    assert f"Received: {given!r}" in str(e.value)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (object(), "model must be a Keras model. Received: object"),
        (
            keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)], name="net"),
            "model 'net' is not compiled. Call",
        ),
        (without_optimizer(), "model 'net' is not compiled. Call"),
        (unbuilt(), "model 'net' has no weights yet. Call it once, or model.build, first"),
        (make_model(), ""),
    ],
)
def test_a_model_is_a_compiled_one_of_keras(
    monkeypatch: pytest.MonkeyPatch, model: Any, said: str
) -> None:
    readable(monkeypatch, "GPU:0")
    if not said:
        # Devices whose map cannot be read are left out.
        assert [device.name for device in checked_devices(model)] == ["GPU:0"]
        return
    with pytest.raises(RecordingError) as raised:
        checked_devices(model)
    assert str(raised.value).startswith(said)


def readable(
    monkeypatch: pytest.MonkeyPatch, *names: str, of: tuple[str, ...] = ("GPU:0", "GPU:1")
) -> None:
    """Devices of which only some have an allocator whose map can be read."""

    class Maps:
        def __init__(self, devices: list[str], report: Any) -> None:
            assert devices == list(of)
            report("The map of one is unknown.")

        def available(self, device: str) -> bool:
            return device in names

        def read(self, device: str) -> bytes | None:
            return None

    devices = [Device(name, None, None) for name in of]
    monkeypatch.setattr(
        probing, "choose_devices", lambda chosen: (devices, [] if devices else ["No statistics."])
    )
    monkeypatch.setattr(probing, "MemoryMaps", Maps)


@pytest.mark.parametrize(
    ("of", "why"), [(("GPU:0",), "The map of one is unknown."), ((), "No statistics.")]
)
def test_without_a_readable_allocator_it_says_why(monkeypatch, of, why) -> None:
    readable(monkeypatch, of=of)
    with pytest.raises(RecordingError) as raised:
        checked_devices(make_model())
    assert str(raised.value) == f"The probe needs an allocator that can be read. {why}"


EXHAUSTED = tf.errors.ResourceExhaustedError(None, None, OOM)


@pytest.mark.parametrize(
    "error", [EXHAUSTED, tf.errors.InvalidArgumentError(None, None, "shapes"), KeyError("a bug")]
)
def test_a_failed_allocation_has_an_error_that_holds_no_tensor_and_others_are_the_programs_own(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    model, out_of_memory = make_model(), error is EXHAUSTED
    monkeypatch.setattr(model, "fit", mock.Mock(side_effect=error))
    with pytest.raises(OutOfMemoryError if out_of_memory else type(error)) as raised:
        train(model, Examples((X, Y), 4), 8, 3, keras.callbacks.Callback())
    if out_of_memory:
        assert "OOM when allocating" in str(raised.value)
        assert raised.value.__cause__ is None and raised.value.__context__ is None
    else:
        assert raised.value is error


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
    monkeypatch, requests, fails, said
) -> None:
    def train(
        model: Any, examples: Any, size: int, steps: int, callback: Any, guarded: bool
    ) -> None:
        assert guarded and steps == 4 and pathlib.Path(made.call_args.args[0]).is_dir()
        if size == fails:
            raise OutOfMemoryError("OOM")

    run = SimpleNamespace(
        requests=[SimpleNamespace(first=first) for first in requests], notes=("The disk is full.",)
    )
    made = mock.Mock()
    monkeypatch.setattr(probing, "MemoryCallback", made)
    monkeypatch.setattr(probing, "train", train)
    monkeypatch.setattr(probing, "Runs", lambda directory: {".": run})
    with pytest.raises(RecordingError, match=said):
        record(make_model(), None, (4, 8), [Device("GPU:0", None, None)], None, mock.Mock())  # type: ignore[arg-type]
    # THEN the temporary run is gone; each size has a step that compiles and three traced ones
    assert made().close.called and not pathlib.Path(made.call_args_list[0].args[0]).exists()
    assert made.call_args_list[0].kwargs == {
        "trace_steps": [1, 2, 3, 5, 6, 7],
        "devices": ["GPU:0"],
    }


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
    monkeypatch: pytest.MonkeyPatch,
    data: Any,
    batch_size: int | None,
    recorded_sizes: list[int],
    size: int,
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


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("runs")
    requests_cases.write_run(directory / "traced")
    return directory


def test_an_answer_is_read_as_text(logdir: pathlib.Path) -> None:
    predicted = tb_memplugin.what_if(tb_memplugin.load(logdir)["traced"])
    answer = BatchSizeAnswer(
        1024, predicted, True, 3 << 30, ("Batch size 1,024 is predicted.", "a <b> sentence")
    )
    assert str(answer) == (
        "largest batch size: 1,024\n  Batch size 1,024 is predicted.\n  a <b> sentence"
    )
    assert repr(answer) == "<BatchSizeAnswer batch_size=1024, verified=True, measured peak 3.0 GiB>"
    assert "a &lt;b&gt; sentence" in answer._repr_html_() and "<b>" not in answer._repr_html_()
    none = dataclasses.replace(answer, batch_size=None, verified=None, peak_bytes=None)
    assert str(none).startswith("largest batch size: unknown or none\n")
    assert repr(none) == "<BatchSizeAnswer batch_size=None, verified=None, measured peak –>"


class Predictor:
    """Predicts from a line: so many bytes, and so many for each example; the step's range is 10%
    wide."""

    batch_size = 8

    def __init__(
        self,
        base: int,
        each: int,
        known: bool = True,
        high: bool = True,
        largest: int | None = None,
    ) -> None:
        self.base, self.each, self.known, self.high, self.largest = base, each, known, high, largest
        self.capacities: list[int | None] = []
        self.asked: list[int | None] = []
        self.answers = 0  # how many of the questions to XLA's compiler tell something new

    def largest_batch_size(self, conditions: Conditions) -> int | None:
        assert conditions.capacity_bytes is not None
        self.capacities.append(conditions.capacity_bytes)
        size = self.largest or (conditions.capacity_bytes - self.base) // self.each
        return size if size > 0 else None

    def reason_against(self, conditions: Conditions) -> str | None:
        return (
            None
            if self.known or conditions.batch_size in (None, self.batch_size)
            else "How the peak grows is unknown."
        )

    def ask(self, conditions: Conditions) -> bool:
        self.asked.append(conditions.batch_size)
        return len(self.asked) <= self.answers

    def what_if(self, conditions: Conditions) -> Any:
        size = conditions.batch_size
        peak = None if size is None else self.base + size * self.each
        high = None if peak is None or not self.high else peak * 11 // 10
        prediction = SimpleNamespace(peak_bytes=peak, high_bytes=high)
        prediction.method = "compiled" if self.answers else "estimate"
        return SimpleNamespace(prediction=prediction, conditions=conditions)


def search(
    monkeypatch: pytest.MonkeyPatch,
    predictor: Predictor,
    peak: Callable[[int], int | None],
    capacity: int | str | None,
    own: int | None = None,
    model: Any = None,
) -> tuple[BatchSizeAnswer, list[int]]:
    """The answer and the batch sizes that were tried; `peak` is what a step needs, `own` the
    device's capacity."""
    tried: list[int] = []
    measured: list[Any] = []

    def train(model: Any, examples: Any, size: int, steps: int, callback: Any) -> None:
        assert steps == 2
        tried.append(size)
        for step in range(steps):
            callback.on_train_batch_begin(step, {})
        measured[:] = [peak(size)]
        if measured == [None]:
            raise probing.OutOfMemoryError("OOM")
        callback.on_train_end({})

    monkeypatch.setattr(probing, "train", train)
    monkeypatch.setattr(probing, "restored", lambda model: contextlib.nullcontext())
    monkeypatch.setattr(probing, "checked_devices", lambda model: [Device("GPU:0", own, None)])
    monkeypatch.setattr(probing, "record", lambda *arguments: SimpleNamespace(ask=None))
    monkeypatch.setattr(probing, "device_of", lambda run, device: "GPU:0")
    monkeypatch.setattr(largest.Predictor, "of", lambda run, device, ask: predictor)
    monkeypatch.setattr(largest, "answer_of", lambda of, conditions: of.what_if(conditions))
    # The peak is reset before each step and read at the end: it is that of the last one.
    monkeypatch.setattr(probing.allocator, "reset_peak", lambda device: measured.clear())
    monkeypatch.setattr(probing.allocator, "memory_info", lambda device: (0, *measured))
    return largest_batch_size(model, np.ones((2, 3)), capacity), tried


def test_the_batch_of_replicas_is_of_equal_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = SimpleNamespace(distribute_strategy=SimpleNamespace(num_replicas_in_sync=4))
    needed = lambda size: size * MIB  # noqa: E731
    answer, tried = search(monkeypatch, Predictor(0, MIB), needed, 1023 * MIB, model=model)
    assert (answer.batch_size, tried) == (1020, [1020])
    assert "(255 for each of 4 replicas)" in answer.sentences[-1]


def test_a_prediction_that_holds_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, tried = search(monkeypatch, Predictor(0, MIB), lambda size: size * MIB, 1024 * MIB)
    assert (answer.batch_size, answer.verified, answer.peak_bytes) == (1024, True, 1024 * MIB)
    assert answer.sentences == (
        "Batch size 1,024 is predicted to need 1.0 GiB of 1.0 GiB.",
        "Verified: two steps ran, with a peak of 1.0 GiB.",
    )
    assert tried == [1024]
    assert answer.predicted.conditions == Conditions(batch_size=1024, capacity_bytes=1024 * MIB)  # type: ignore[attr-defined]


@pytest.mark.parametrize("answers", [0, 1, 2, 3, 9])
def test_the_compiler_is_asked_until_it_tells_nothing_new_three_times_at_most(
    monkeypatch, answers: int
) -> None:
    predictor = Predictor(0, MIB)
    predictor.answers = answers
    answer, tried = search(monkeypatch, predictor, lambda size: size * MIB, 100 * MIB)
    assert predictor.asked == [100] * min(answers + 1, 3) and tried == [100]
    assert answer.sentences[0].endswith(", as XLA's compiler plans it.") is (answers > 0)


@pytest.mark.parametrize(
    ("needed", "said"),
    [
        (None, "Memory ran out in the steps with batch size 100."),
        (105 * MIB, "Batch size 100 does not fit: its steps needed 105 MiB."),
    ],
)
def test_a_prediction_that_does_not_hold_is_followed_by_a_lower_one(
    monkeypatch, needed, said
) -> None:
    predictor = Predictor(0, MIB)
    answer, tried = search(
        monkeypatch, predictor, lambda size: needed if size > 96 else size * MIB, 100 * MIB
    )
    assert (answer.batch_size, answer.verified, answer.peak_bytes) == (95, True, 95 * MIB)
    assert tried == [100, 95] and answer.sentences[1] == said
    # AND what is predicted is said for the whole capacity
    assert answer.sentences[2] == "Batch size 95 is predicted to need 95.0 MiB of 100 MiB."
    assert predictor.capacities == [100 * MIB, 95 * MIB]


@pytest.mark.parametrize(
    ("most", "fits", "tried", "said"),
    [
        (
            99,
            95,
            [20, 95],
            "Batch size 95 is larger in proportion, and verified: a peak of 95.0 MiB.",
        ),
        (50, 20, [20, 95], "Memory ran out in the steps with batch size 95."),
    ],
)
def test_a_larger_size_is_tried_if_the_measured_peak_leaves_much_of_the_limit(
    monkeypatch, most, fits, tried, said
) -> None:
    # GIVEN a prediction that only a fifth fits, as it takes scratch space for needed
    predictor = Predictor(0, MIB, largest=20)
    answer, sizes = search(
        monkeypatch, predictor, lambda size: size * MIB if size <= most else None, 100 * MIB
    )
    assert (answer.batch_size, answer.verified, answer.peak_bytes) == (fits, True, fits * MIB)
    assert sizes == tried and said in answer.sentences


NONE_FITS = "No batch is predicted to fit into 100 MiB."


@pytest.mark.parametrize(
    ("predictor", "needed", "tried", "verified", "sentences", "said"),
    [
        (Predictor(101 * MIB, MIB), 0, [], None, 1, NONE_FITS),
        (Predictor(101 * MIB, MIB, False), 0, [], None, 1, "How the peak grows is unknown."),
        # A prediction that stays the same with 95% of the capacity: a refuted size is not tried
        # again.
        (Predictor(0, 40 * MIB), None, [2, 1], None, None, NONE_FITS),
        (Predictor(0, MIB), 101 * MIB, [100, 95, 90], False, 6, None),
    ],
)
def test_without_a_prediction_that_holds_in_three_tries_the_size_is_unknown(
    monkeypatch, predictor, needed, tried, verified, sentences, said
) -> None:
    answer, sizes = search(monkeypatch, predictor, lambda size: needed, 100 * MIB)
    assert sizes == tried and (answer.batch_size, answer.verified, answer.peak_bytes) == (
        None,
        verified,
        None,
    )
    assert len(answer.sentences) == (sentences or len(answer.sentences)) and answer.sentences[
        -1
    ].endswith(said or "")


@pytest.mark.parametrize(
    ("capacity", "own", "high", "tried"),
    [
        (100, None, True, True),
        (100, 120, True, True),  # the predicted 100 MiB may become 110
        (100, 110, True, True),  # and the capacity is not larger than the device's own ...
        (100, 100, True, True),  # nor if they are equal
        (100, 99, True, False),
        (100, 105, False, True),
        # For a larger device only what surely fits here is tried.
        (200, 111, True, True),
        (200, 110, True, False),
        (200, 109, True, False),
        (200, 105, False, False),
    ],
)
def test_a_batch_that_the_device_may_not_hold_is_not_tried(
    monkeypatch, capacity, own, high, tried
) -> None:
    predictor = Predictor(0, MIB, high=high, largest=100)
    answer, sizes = search(
        monkeypatch, predictor, lambda size: size * MIB, capacity * MIB, own and own * MIB
    )
    assert (answer.batch_size, answer.verified, bool(sizes)) == (
        100,
        True if tried else None,
        tried,
    )
    assert tried or answer.sentences[-1].startswith(f"Not verified: GPU:0 has only {own}")


@pytest.mark.parametrize(
    ("capacity", "own", "limit"),
    [("2GiB", 1 << 30, 2 << 30), (5 << 20, None, 5 << 20), (None, 1 << 30, 1 << 30)],
)
def test_the_capacity_is_the_given_one_or_the_devices(monkeypatch, capacity, own, limit) -> None:
    predictor = Predictor(0, MIB)
    search(monkeypatch, predictor, lambda size: MIB, capacity, own)
    assert predictor.capacities[0] == limit
    # AND without one it says what to pass
    with pytest.raises(
        RecordingError,
        match=r"The capacity of GPU:0 is unknown. Pass capacity, for example '24GiB'",
    ):
        search(monkeypatch, predictor, lambda size: MIB, None)
    with pytest.raises(RequestError):
        search(monkeypatch, predictor, lambda size: MIB, "much", 1 << 30)


def test_a_run_is_planned_for_its_own_or_another_batch_size_and_needs_no_data(
    logdir: pathlib.Path,
) -> None:
    run = tb_memplugin.load(logdir)["traced"]
    own, other = (
        tb_memplugin.plan(run, budget="1TiB"),
        tb_memplugin.plan(run, budget="1TiB", batch_size=16),
    )
    assert (own.batch_size, other.batch_size) == (4, 16)
    assert (
        own.peak_bytes is not None
        and other.peak_bytes == tb_memplugin.what_if(run, batch_size=16).peak_bytes
    )
    assert other.peak_bytes is not None and other.peak_bytes > own.peak_bytes
    with pytest.raises(RequestError, match="a batch size is an integer"):
        tb_memplugin.plan(run, budget="1TiB", batch_size=0)
    with pytest.raises(RequestError, match="A run needs no data"):
        tb_memplugin.plan(run, [1, 2], budget="8GiB")
    with pytest.raises(RequestError, match="data is missing"):
        tb_memplugin.plan(object(), budget="8GiB")


def test_nothing_is_probed_while_recording_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_MEMPLUGIN", "0")
    with pytest.raises(RecordingError, match="TB_MEMPLUGIN=0"):
        tb_memplugin.plan(object(), [1], budget="8GiB")


def test_a_plan_for_a_run_imports_no_tensorflow(logdir: pathlib.Path) -> None:
    code = (
        "import sys, tb_memplugin; (run,) = "
        "tb_memplugin.load(sys.argv[1]).values();tb_memplugin.plan(run, "
        "budget='8GiB');print([name for name in ('tensorflow', 'keras') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(logdir)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_contents_of_lists_and_dictionaries_at_any_depth_are_restored() -> None:
    # GIVEN a model with an attribute of each kind, which TensorFlow puts into wrappers that track
    # them
    model = make_model("adam")
    model.table, model.names, model.seen = {"a": [1, {"b": 2}]}, ["x"], {1}
    variables = len(model.optimizer.variables)
    # WHEN it is trained, as often as one likes, and all of them change
    for _ in range(2):
        with restored(model):
            model.train_on_batch(X, Y)
            model.table["a"][1]["b"] = 3
            model.table["a"].append(4)
            model.table["c"] = 5
            model.names.append("y")
            model.seen.add(2)
        # THEN they are as before, and the optimizer has no slots
        assert {key: list(value) for key, value in model.table.items()} == {"a": [1, {"b": 2}]}
        assert (list(model.names), set(model.seen)) == (["x"], {1})
        assert len(model.optimizer.variables) == variables and not model.optimizer.built


def test_the_model_is_restored_after_an_error_as_well() -> None:
    model = make_model(run_eagerly=True)
    before = [value.copy() for value in model.get_weights()]
    with pytest.raises(KeyError), restored(model):
        model.fit(X, Y, verbose=0)
        assert not all(
            (new == old).all() for new, old in zip(model.get_weights(), before, strict=True)
        )
        raise KeyError
    assert all((new == old).all() for new, old in zip(model.get_weights(), before, strict=True))
    assert int(model.optimizer.iterations) == 0


ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)
LABELS = np.arange(6)


def plain(batch: Any) -> Any:
    return tf.nest.map_structure(lambda leaf: np.asarray(leaf).tolist(), batch)


@pytest.mark.parametrize(
    ("data", "batch"),
    [
        (ROWS, (ROWS[:2].tolist(),)),
        (tf.constant(ROWS), (ROWS[:2].tolist(),)),
        ({"a": ROWS, "b": LABELS}, ({"a": ROWS[:2].tolist(), "b": [0, 1]},)),
        ((ROWS,), (ROWS[:2].tolist(),)),
        ((ROWS, LABELS), (ROWS[:2].tolist(), [0, 1])),
        ((ROWS, LABELS, ROWS[:, 0]), (ROWS[:2].tolist(), [0, 1], [0.0, 2.0])),
        ((ROWS, LABELS, None), (ROWS[:2].tolist(), [0, 1])),
        ((ROWS, None, None), (ROWS[:2].tolist(),)),
        (([ROWS, LABELS], LABELS), ([ROWS[:2].tolist(), [0, 1]], [0, 1])),
        (np.asarray(["a", "b", "c"]), (["a", "b"],)),
        (np.asarray([b"a", "b"], object), ([b"a", "b"],)),
    ],
)
def test_a_batch_has_the_form_of_the_data(data: Any, batch: Any) -> None:
    assert plain(Examples(data, 4).batch(2)) == batch


def test_arrays_are_kept_whole_as_fit_does_and_of_a_dataset_as_many_examples_as_asked_for() -> None:
    assert plain(Examples((ROWS, LABELS), 4).batch(100)[1]) == [0, 1, 2, 3, 4, 5]
    assert plain(Examples(tf.data.Dataset.from_tensor_slices(LABELS).batch(3), 4).batch(100)) == [
        0,
        1,
        2,
        3,
    ]
    # AND a batch is a copy, which does not keep the arrays
    values = ROWS.copy()
    batch = Examples(values, 4).batch(1)
    values[:] = -1
    assert plain(batch) == ([[0.0, 1.0]],) and batch[0].base is None
    # AND an empty batch is skipped
    data = tf.data.Dataset.from_tensor_slices([0, 2, 0, 1]).map(
        lambda count: tf.range(count) + count
    )
    assert plain(Examples(data, 9).batch(9)) == [2, 3, 1]


@pytest.mark.parametrize(
    "data", [None, "text", b"bytes", lambda: ROWS, iter([ROWS]), (), (ROWS, LABELS, LABELS, LABELS)]
)
def test_data_of_another_kind_is_refused_with_its_type(data: Any) -> None:
    with pytest.raises(
        RecordingError, match=r"data must be a tf.data.Dataset of batches"
    ) as raised:
        Examples(data, 4)
    received = f"a tuple of {len(data)}" if isinstance(data, tuple) else type(data).__name__
    assert str(raised.value).endswith(f"Received: {received}")


EMPTY = "data is empty. Pass at least one batch with one example"
TENSORS = [tf.constant(2), tf.ragged.constant([[1], [2, 3]]), tf.sparse.eye(3)]
LEAVES = [None, 3.5, *TENSORS, np.asarray([{}], object), object()]
FIRST = "each with the examples as its first dimension. Received: "


@pytest.mark.parametrize(
    ("data", "said"),
    [
        *(((leaf,), f"{FIRST}.*{re.escape(repr(leaf)[:20])}") for leaf in LEAVES),
        ((ROWS, LABELS[:5]), r"must have the same number of examples. Received: \[5, 6\]"),
        (([],), "Received: no array"),
        (ROWS[:0], EMPTY),
        (tf.data.Dataset.from_tensor_slices(ROWS[:0]).batch(2), EMPTY),
    ],
)
def test_data_without_examples_or_of_different_lengths_is_refused_with_its_value(
    data: Any, said: str
) -> None:
    with pytest.raises(RecordingError, match=said):
        Examples(data, 4)


@pytest.mark.parametrize(("count", "read"), [(1, 2), (2, 2), (3, 4), (6, 6), (9, 6)])
def test_no_more_batches_are_read_than_needed(count: int, read: int) -> None:
    seen: list[int] = []

    def rows() -> Any:
        for number in range(6):
            seen.append(number)
            yield ROWS[number], LABELS[number]

    spec = (tf.TensorSpec((2,), tf.float32), tf.TensorSpec((), tf.int64))
    options = tf.data.Options()
    options.autotune.enabled = False  # which would prefetch
    data = (
        tf.data.Dataset.from_generator(rows, output_signature=spec).batch(2).with_options(options)
    )
    examples = Examples(data, count)
    assert plain(examples.batch(100)[1]) == list(range(min(count, 6)))
    assert seen == list(range(read))


@pytest.mark.parametrize(
    ("size", "rows"), [(1, [0]), (3, [0, 1, 2]), (4, [0, 1, 2, 0]), (7, [0, 1, 2, 0, 1, 2, 0])]
)
def test_batches_repeat_the_examples_to_any_size(size: int, rows: list[int]) -> None:
    batches = Examples(tf.data.Dataset.from_tensor_slices((ROWS, LABELS)).batch(2), 3).batches(size)
    assert batches.element_spec[0].shape.as_list() == [None, 2]
    for x, y in batches.take(2):
        assert y.numpy().tolist() == rows and x.numpy().tolist() == ROWS[rows].tolist()


def test_what_a_probe_holds_is_no_batch_and_only_the_next_batch_is_made_ahead(
    tmp_path: pathlib.Path,
) -> None:
    rows = np.ones((8, 64), np.float32)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    # GIVEN as many examples as the larger batch has
    run = probing.probe(model, (rows, rows[:, :1]), (4, 8), tmp_path)
    for step in run.requests:
        if not step.first:
            # THEN a step holds its batch and at most the next one, and what the probe holds does
            # not grow with a batch
            size = (step.batch_size or 0) * 64 * 4
            inputs = owned(step, lambda owner: owner.category == "inputs") & (
                step.requested >= size
            )
            batches = inputs & (step.batch_power == 1)
            assert (step.requested[batches] == size).all()
            assert batches.any()
            # The batch of the step before may be freed late, on another thread; none is made too
            # early.
            assert (batches & (step.birth >= 0)).sum() <= 2
            assert (batches & (step.death >= step.events)).sum() <= 2
            # TensorFlow may use an array in place.
            held = 8 * 64 * 4 + 256 * (step.batch_size == 8)
            assert step.requested[inputs & ~batches].tolist() in ([], [held])


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data,
        lambda data: data.repeat(2),
        lambda data: data.interleave(tf.data.Dataset.from_tensors),
    ],
)
def test_taking_examples_does_not_change_what_a_dataset_yields_later(change: Any) -> None:
    def later(take: bool) -> list[Any]:
        tf.random.set_seed(3)
        data = change(tf.data.Dataset.range(100).shuffle(100, seed=7).batch(10))
        if take:
            Examples(data, 15)
        return [batch.numpy().tolist() for batch in data] + [
            batch.numpy().tolist() for batch in data
        ]

    assert later(take=True) == later(take=False)


def test_a_copy_fills_a_cache_of_its_own_and_looks_up_in_the_datasets_table() -> None:
    calls: list[int] = []

    def count(value: Any) -> Any:
        calls.append(1)
        return value

    data = (
        tf.data.Dataset.range(4).map(lambda value: tf.py_function(count, [value], tf.int64)).cache()
    )
    assert len(list(copied(data))) == 4 and len(calls) == 4
    # THEN the original fills its own
    assert len(list(data)) == 4 and len(calls) == 8
    assert len(list(data)) == 4 and len(calls) == 8
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [7, 8]), 0)
    data = tf.data.Dataset.from_tensor_slices([1, 0]).map(table.lookup)
    assert [int(value) for value in copied(data)] == [8, 7]


def test_a_dataset_that_cannot_be_copied_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(**arguments: Any) -> Any:
        raise tf.errors.FailedPreconditionError(None, None, "it is larger than 2 GiB")

    monkeypatch.setattr(tf.raw_ops, "DatasetToGraphV2", fail)
    with pytest.raises(
        RecordingError,
        match=r"it is larger than 2 GiB.*Pass a batch of arrays instead",
    ):
        Examples(tf.data.Dataset.range(3).batch(2), 2)
