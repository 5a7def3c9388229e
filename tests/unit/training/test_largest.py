"""The search for the largest batch size, with predictions from a line, and its answer as it is read."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import requests_cases
from reading_cases import MIB

import tb_memplugin
from tb_memplugin import BatchSizeAnswer
from tb_memplugin.errors import RecordingError, RequestError
from tb_memplugin.fit import Conditions
from tb_memplugin.recorder.devices.statistics import Device
from tb_memplugin.training import largest
from tb_memplugin.training.probing import OutOfMemoryError


def test_an_answer_is_read_as_text(tmp_path: pathlib.Path) -> None:
    requests_cases.write_run(tmp_path / "traced")
    predicted = tb_memplugin.what_if(tb_memplugin.load(tmp_path)["traced"])
    answer = BatchSizeAnswer(1024, predicted, True, 3 << 30, ("Batch size 1,024 is predicted.", "a <b> sentence"))
    assert str(answer) == "largest batch size: 1,024\n  Batch size 1,024 is predicted.\n  a <b> sentence"
    assert repr(answer) == "<BatchSizeAnswer batch_size=1024, verified=True, measured peak 3.0 GiB>"
    assert "a &lt;b&gt; sentence" in answer._repr_html_() and "<b>" not in answer._repr_html_()
    none = dataclasses.replace(answer, batch_size=None, verified=None, peak_bytes=None)
    assert str(none).startswith("largest batch size: unknown or none\n")
    assert repr(none) == "<BatchSizeAnswer batch_size=None, verified=None, measured peak –>"


class Predictor:
    """Predicts from a line: so many bytes, and so many for each example; the step's range is 10% wide."""

    def __init__(self, base: int, each: int, known: bool = True, high: bool = True) -> None:
        self.base, self.each, self.known, self.high = base, each, known, high
        self.capacities: list[int | None] = []

    def largest_batch_size(self, conditions: Conditions) -> int | None:
        assert conditions.capacity_bytes is not None
        self.capacities.append(conditions.capacity_bytes)
        size = (conditions.capacity_bytes - self.base) // self.each
        return size if size > 0 else None

    def what_if(self, conditions: Conditions) -> Any:
        size = conditions.batch_size
        peak = None if size is None else self.base + size * self.each
        high = None if peak is None or not self.high else peak * 11 // 10
        assumptions = () if self.known else ("How the peak grows is unknown.",)
        prediction = SimpleNamespace(peak_bytes=peak, high_bytes=high, assumptions=assumptions)
        return SimpleNamespace(prediction=prediction, conditions=conditions)


def search(
    monkeypatch: pytest.MonkeyPatch,
    predictor: Predictor,
    peak: Callable[[int], int | None],
    capacity: int,
    own: int | None = None,
) -> tuple[BatchSizeAnswer, list[int], list[str]]:
    """The answer, the batch sizes that were tried, and the parts of the progress; `peak` is what a step needs."""
    tried: list[int] = []

    def train(model: Any, examples: Any, size: int, steps: int, peaks: Any) -> None:
        assert steps == 2
        tried.append(size)
        measured = peak(size)
        if measured is None:
            raise OutOfMemoryError("OOM")
        monkeypatch.setattr(largest.allocator, "memory_info", lambda device: (0, measured))
        peaks.on_train_end()

    monkeypatch.setattr(largest, "train", train)
    monkeypatch.setattr(largest, "restored", lambda model: contextlib.nullcontext())
    progress = mock.Mock()
    device = Device("GPU:0", own, None)
    answer = largest._search(None, None, device, predictor, capacity, progress)  # type: ignore[arg-type]
    return answer, tried, [call.args[0] for call in progress.part.call_args_list]


def test_a_prediction_that_holds_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, tried, parts = search(monkeypatch, Predictor(0, MIB), lambda size: size * MIB, 1024 * MIB)
    assert (answer.batch_size, answer.verified, answer.peak_bytes) == (1024, True, 1024 * MIB)
    assert answer.sentences == (
        "Batch size 1,024 is predicted to need 1.0 GiB of 1.0 GiB.",
        "Verified: two steps ran, with a peak of 1.0 GiB.",
    )
    assert tried == [1024] and parts == ["verification of batch size 1,024"]
    assert answer.predicted.conditions == Conditions(batch_size=1024, capacity_bytes=1024 * MIB)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("needed", "said"),
    [
        (None, "Memory ran out in the steps with batch size 100."),
        (105 * MIB, "Batch size 100 does not fit: its steps needed 105 MiB."),
    ],
)
def test_a_prediction_that_does_not_hold_is_followed_by_a_lower_one(
    monkeypatch: pytest.MonkeyPatch, needed: int | None, said: str
) -> None:
    predictor = Predictor(0, MIB)
    answer, tried, _ = search(monkeypatch, predictor, lambda size: needed if size > 96 else size * MIB, 100 * MIB)
    assert (answer.batch_size, answer.verified, answer.peak_bytes) == (95, True, 95 * MIB)
    assert tried == [100, 95] and answer.sentences[1] == said
    # AND what is predicted is said for the whole capacity
    assert answer.sentences[2] == "Batch size 95 is predicted to need 95.0 MiB of 100 MiB."
    assert predictor.capacities == [100 * MIB, 95 * MIB]


NONE_FITS = "No batch is predicted to fit into 100 MiB."


@pytest.mark.parametrize(
    ("predictor", "needed", "tried", "verified", "sentences", "said"),
    [
        (Predictor(101 * MIB, MIB), 0, [], None, 1, NONE_FITS),
        (Predictor(101 * MIB, MIB, False), 0, [], None, 1, "How the peak grows is unknown."),
        # A prediction that stays the same with 95% of the capacity: a refuted size is not tried again.
        (Predictor(0, 40 * MIB), None, [2, 1], None, None, NONE_FITS),
        (Predictor(0, MIB), 101 * MIB, [100, 95, 90], False, 6, None),
    ],
)
def test_without_a_prediction_that_holds_in_three_tries_the_size_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
    predictor: Predictor,
    needed: int | None,
    tried: list[int],
    verified: bool | None,
    sentences: int | None,
    said: str | None,
) -> None:
    answer, sizes, _ = search(monkeypatch, predictor, lambda size: needed, 100 * MIB)
    assert sizes == tried and (answer.batch_size, answer.verified, answer.peak_bytes) == (None, verified, None)
    assert len(answer.sentences) == (sentences or len(answer.sentences)) and answer.sentences[-1].endswith(said or "")


@pytest.mark.parametrize(
    ("own", "high", "verified"),
    [
        (None, True, True),
        (120 * MIB, True, True),  # the predicted 100 MiB may become 110
        (110 * MIB, True, True),  # and the capacity is not larger than the device's own ...
        (100 * MIB, True, True),  # nor if they are equal
        (99 * MIB, True, None),
        (105 * MIB, False, True),
    ],
)
def test_a_batch_that_the_device_may_not_hold_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, own: int | None, high: bool, verified: bool | None
) -> None:
    predictor = Predictor(0, MIB, high=high)
    answer, tried, _ = search(monkeypatch, predictor, lambda size: size * MIB, 100 * MIB, own)
    assert (answer.batch_size, answer.verified, bool(tried)) == (100, verified, verified is not None)
    if not verified:
        assert answer.sentences[-1] == "Not verified: GPU:0 has only 99.0 MiB."


@pytest.mark.parametrize(
    ("own", "high", "tried"),
    [(111 * MIB, True, True), (110 * MIB, True, False), (109 * MIB, True, False), (105 * MIB, False, False)],
)
def test_for_a_larger_device_only_what_surely_fits_here_is_tried(
    monkeypatch: pytest.MonkeyPatch, own: int, high: bool, tried: bool
) -> None:
    predictor = Predictor(0, MIB, high=high)
    monkeypatch.setattr(predictor, "largest_batch_size", lambda conditions: 100)
    answer, sizes, _ = search(monkeypatch, predictor, lambda size: size * MIB, 200 * MIB, own)
    assert bool(sizes) is tried and answer.batch_size == 100
    assert answer.verified is (True if tried else None)


def test_the_peak_is_that_of_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(largest.allocator, "reset_peak", lambda device: calls.append(device))
    monkeypatch.setattr(largest.allocator, "memory_info", lambda device: (3, 7))
    peaks = largest._Peaks("GPU:1")
    peaks.on_train_batch_begin(0)
    peaks.on_train_batch_begin(1)
    peaks.on_train_end()
    assert calls == ["GPU:1", "GPU:1"] and peaks.typical == 7


def asked(monkeypatch: pytest.MonkeyPatch, capacity: Any, own: int | None) -> Any:
    """The capacity that is searched for, with everything else left out."""
    found: list[Any] = []

    monkeypatch.setattr(largest, "checked_devices", lambda model: [Device("GPU:0", own, None)])
    monkeypatch.setattr(largest, "restored", lambda model: contextlib.nullcontext())
    monkeypatch.setattr(largest, "record", lambda *arguments: None)
    monkeypatch.setattr(largest.Predictor, "of", lambda run, device: None)
    monkeypatch.setattr(largest, "_search", lambda *arguments: found.append(arguments[4]) or "answer")
    assert largest.largest_batch_size(None, np.ones((2, 3)), capacity) == "answer"
    return found[0]


@pytest.mark.parametrize(
    ("capacity", "own", "limit"), [("2GiB", 1 << 30, 2 << 30), (5 << 20, None, 5 << 20), (None, 1 << 30, 1 << 30)]
)
def test_the_capacity_is_the_given_one_or_the_devices(
    monkeypatch: pytest.MonkeyPatch, capacity: Any, own: int | None, limit: int
) -> None:
    assert asked(monkeypatch, capacity, own) == limit
    # AND without one it says what to pass
    with pytest.raises(RecordingError, match=r"The capacity of GPU:0 is unknown. Pass capacity, for example '24GiB'"):
        asked(monkeypatch, None, None)
    with pytest.raises(RequestError):
        asked(monkeypatch, "much", 1 << 30)
