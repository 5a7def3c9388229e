"""The summary API: what it accepts, what it refuses, and which step and device it records."""

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from reading_cases import make_snapshot

import tb_memplugin
from tb_memplugin import summary
from tb_memplugin.errors import RecordingError

STEPS = {
    "default": 7,
    "integer": 0,
    "numpy": np.int64(9),
    "tensor": tf.constant(11, tf.int64),
    "largest": 2**53 - 1,
}


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Any:
    """A default writer, and a function that closes it and reads the run."""
    writer = tf.summary.create_file_writer(str(tmp_path / "run" / "memory"))

    def read() -> Any:
        writer.close()
        return tb_memplugin.load(tmp_path)["run"]

    with writer.as_default():
        yield read


@pytest.fixture(autouse=True)
def no_default_step() -> Any:
    before = tf.summary.experimental.get_step()
    tf.summary.experimental.set_step(None)
    yield
    tf.summary.experimental.set_step(before)


def test_a_step_is_any_integer_or_the_default_one(run: Any) -> None:
    tf.summary.experimental.set_step(STEPS["default"])
    assert summary.layer_activations({"a": 1})
    for step in list(STEPS.values())[1:]:
        assert summary.layer_activations({"a": 1}, step=step)
    assert run().activations.step.tolist() == sorted(map(int, STEPS.values()))


@pytest.mark.parametrize("step", [True, -1, 2**53, "x", [1], float("inf"), float("nan")])
def test_a_step_that_is_none_is_received(run: Any, step: Any) -> None:
    for record in (
        lambda: summary.layer_activations({"a": 1}, step=step),
        lambda: summary.allocator_snapshot({"device": "GPU:0", "in_use_bytes": 1}, step=step),
    ):
        with pytest.raises(
            RecordingError, match=r"step must be an integer from 0 to 2\*\*53 - 1\. Received: step="
        ) as e:
            record()
        assert repr(step) in str(e.value)


def test_without_any_step_it_says_what_to_do(run: Any) -> None:
    with pytest.raises(
        RecordingError,
        match=r"the step is unknown: "
        r"pass "
        r"the "
        r"`step` "
        r"argument "
        r"or "
        r"call tf.summary",
    ):
        summary.layer_activations({"a": 1})


@pytest.mark.parametrize("given", [{}, [("a", 1)], None, "a"])
def test_activations_are_a_mapping_of_layers_to_bytes(run: Any, given: Any) -> None:
    with pytest.raises(
        RecordingError, match="bytes_by_layer must map layer paths to bytes"
    ) as raised:
        summary.layer_activations(given, step=1)
    assert f"Received: {given!r}" in str(raised.value)
    with pytest.raises(RecordingError, match="bytes of layer 'net/conv'"):
        summary.layer_activations({"net/conv": -1}, step=1)


def test_with_the_switch_nothing_is_recorded_or_checked(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TB_MEMPLUGIN", "0")
    assert summary.layer_activations({}, step=-1) is False
    assert summary.allocator_snapshot({}, step=-1) is False


def test_without_a_writer_nothing_is_recorded_but_input_is_checked() -> None:
    assert summary.layer_activations({"a": 1}, step=1) is False
    assert summary.allocator_snapshot({"device": "GPU:0", "in_use_bytes": 1}, step=1) is False
    with pytest.raises(RecordingError):
        summary.layer_activations({"a": -1}, step=1)
    with pytest.raises(RecordingError):
        summary.allocator_snapshot({"device": "GPU:0"}, step=1)


def test_a_snapshot_and_a_mapping_keep_their_device_and_get_the_step(run: Any) -> None:
    made = make_snapshot(3)
    assert summary.allocator_snapshot(made, step=5, device=made.device)
    assert summary.allocator_snapshot({"device": "GPU:1", "in_use_bytes": 300}, step=6)
    first, second = run().snapshots
    assert (first.step, first.device, first.in_use_bytes) == (5, made.device, made.in_use_bytes)
    assert (second.step, second.device, second.in_use_bytes) == (6, "GPU:1", 300)


def test_a_snapshot_of_another_device_is_refused(run: Any) -> None:
    for given in (make_snapshot(3), {"device": make_snapshot(3).device, "in_use_bytes": 1}):
        with pytest.raises(
            RecordingError,
            match=f"the snapshot is of {make_snapshot(3).device}. Received: device='G",
        ):
            summary.allocator_snapshot(given, step=1, device="GPU:77")


@pytest.mark.parametrize(
    ("gpus", "named", "device"), [(0, None, "CPU:0"), (1, None, "GPU:0"), (2, "GPU:1", "GPU:1")]
)
def test_statistics_are_of_the_named_or_the_only_device(
    run: Any, monkeypatch: pytest.MonkeyPatch, gpus: int, named: str | None, device: str
) -> None:
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [None] * gpus)
    assert summary.allocator_snapshot({"current": 256, "peak": 512}, step=1, device=named)
    monkeypatch.undo()
    (found,) = run().snapshots
    assert (found.device, found.in_use_bytes) == (device, 512)


def test_statistics_of_one_of_several_gpus_need_its_name(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [None] * 2)
    with pytest.raises(
        RecordingError, match="this process has 2 GPUs: pass the one of the statistics"
    ):
        summary.allocator_snapshot({"current": 256, "peak": 512}, step=1)
