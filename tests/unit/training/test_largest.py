"""The search for the largest batch size, with predictions from a line, and its answer as it is read."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import requests_cases
from reading_cases import MIB

import tb_memplugin
from tb_memplugin import BatchSizeAnswer
from tb_memplugin.errors import RecordingError, RequestError
from tb_memplugin.fit import Conditions
from tb_memplugin.recorder.devices import Device
from tb_memplugin.training import largest_batch_size, probing


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

    def __init__(self, base: int, each: int, known: bool = True, high: bool = True, largest: int | None = None) -> None:
        self.base, self.each, self.known, self.high, self.largest = base, each, known, high, largest
        self.capacities: list[int | None] = []

    def largest_batch_size(self, conditions: Conditions) -> int | None:
        assert conditions.capacity_bytes is not None
        self.capacities.append(conditions.capacity_bytes)
        size = self.largest or (conditions.capacity_bytes - self.base) // self.each
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
    capacity: int | str | None,
    own: int | None = None,
) -> tuple[BatchSizeAnswer, list[int]]:
    """The answer and the batch sizes that were tried; `peak` is what a step needs, `own` the device's capacity."""
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
    monkeypatch.setattr(probing, "record", lambda *arguments: None)
    monkeypatch.setattr(probing.Predictor, "of", lambda run, device: predictor)
    # The peak is reset before each step and read at the end: it is that of the last one.
    monkeypatch.setattr(probing.allocator, "reset_peak", lambda device: measured.clear())
    monkeypatch.setattr(probing.allocator, "memory_info", lambda device: (0, *measured))
    return largest_batch_size(None, np.ones((2, 3)), capacity), tried


def test_a_prediction_that_holds_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, tried = search(monkeypatch, Predictor(0, MIB), lambda size: size * MIB, 1024 * MIB)
    assert (answer.batch_size, answer.verified, answer.peak_bytes) == (1024, True, 1024 * MIB)
    assert answer.sentences == (
        "Batch size 1,024 is predicted to need 1.0 GiB of 1.0 GiB.",
        "Verified: two steps ran, with a peak of 1.0 GiB.",
    )
    assert tried == [1024]
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
    answer, tried = search(monkeypatch, predictor, lambda size: needed if size > 96 else size * MIB, 100 * MIB)
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
    monkeypatch, predictor, needed, tried, verified, sentences, said
) -> None:
    answer, sizes = search(monkeypatch, predictor, lambda size: needed, 100 * MIB)
    assert sizes == tried and (answer.batch_size, answer.verified, answer.peak_bytes) == (None, verified, None)
    assert len(answer.sentences) == (sentences or len(answer.sentences)) and answer.sentences[-1].endswith(said or "")


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
def test_a_batch_that_the_device_may_not_hold_is_not_tried(monkeypatch, capacity, own, high, tried) -> None:
    predictor = Predictor(0, MIB, high=high, largest=100)
    answer, sizes = search(monkeypatch, predictor, lambda size: size * MIB, capacity * MIB, own and own * MIB)
    assert (answer.batch_size, answer.verified, bool(sizes)) == (100, True if tried else None, tried)
    assert tried or answer.sentences[-1].startswith(f"Not verified: GPU:0 has only {own}")


@pytest.mark.parametrize(
    ("capacity", "own", "limit"), [("2GiB", 1 << 30, 2 << 30), (5 << 20, None, 5 << 20), (None, 1 << 30, 1 << 30)]
)
def test_the_capacity_is_the_given_one_or_the_devices(
    monkeypatch: pytest.MonkeyPatch, capacity: Any, own: int | None, limit: int
) -> None:
    predictor = Predictor(0, MIB)
    search(monkeypatch, predictor, lambda size: MIB, capacity, own)
    assert predictor.capacities[0] == limit
    # AND without one it says what to pass
    with pytest.raises(RecordingError, match=r"The capacity of GPU:0 is unknown. Pass capacity, for example '24GiB'"):
        search(monkeypatch, predictor, lambda size: MIB, None)
    with pytest.raises(RequestError):
        search(monkeypatch, predictor, lambda size: MIB, "much", 1 << 30)
