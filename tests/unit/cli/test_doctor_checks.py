"""What the checks of `tb-memplugin doctor` find wrong."""

import dataclasses
import functools
import itertools
from types import SimpleNamespace
from typing import Any
from unittest import mock

import keras
import pytest
import tensorflow as tf
from reading_cases import make_snapshot

from tb_memplugin.cli import doctor as checks
from tb_memplugin.recorder.devices.statistics import Device
from tb_memplugin.schema import LedgerRow, Replay

MIB = 1 << 20
BUS = "0000:65:00.0"


def snapshot(weights: int, unattributed: int, replayed: int | None = 5, chunks: int = 7) -> Any:
    rows = (LedgerRow("dense", "weights", True, weights, 0), LedgerRow(None, "unattributed", None, unattributed, 0))
    replay = None if replayed is None else Replay(replayed, 5, chunks, 7, 0)
    return dataclasses.replace(make_snapshot(0), ledger=rows, in_use_bytes=weights + unattributed, replay=replay)


@pytest.mark.parametrize(
    ("snapshots", "said"),
    [
        ([snapshot(100 * MIB, MIB)], []),
        ([], ["no step was traced"]),
        ([snapshot(99 * MIB, 0)], ["weights are 103,809,024 B, Keras counts 104,857,600 B"]),
        ([snapshot(100 * MIB, 100 * MIB)], ["50.0% of the bytes in use have no owner"]),
        ([snapshot(100 * MIB, 0, replayed=4)], ["the replay reproduces 4 of 5 addresses"]),
        ([snapshot(100 * MIB, 0, chunks=6)], ["the replay reproduces 5 of 5 addresses"]),
        ([snapshot(1, 0), snapshot(100 * MIB, 7 * MIB)], ["6.5% of the bytes in use have no owner"]),  # the last one's
    ],
)
def test_a_wrong_recording_is_said(snapshots: Any, said: list[str]) -> None:
    assert checks._wrong(snapshots, 100 * MIB) == said
    assert checks._wrong([snapshot(95 * MIB, 5 * MIB, replayed=None)], 95 * MIB) == []  # at the limit, not replayed


def test_without_tensorflow_the_checks_of_viewing_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda _: None)
    found = {check.name: check for check in checks.checks()}
    assert list(found) == ["switch", "TensorFlow", "TensorBoard"]
    assert not found["TensorFlow"].ok and "pip install 'tensorflow" in found["TensorFlow"].sentence
    # AND the switch is found, and a check that raises is a line
    monkeypatch.setenv("TB_MEMPLUGIN", "0")
    ok, sentence = checks._switch()
    assert not ok and "unset it" in sentence
    assert checks._run("x", lambda: (True, str(1 // 0))).sentence.startswith("ZeroDivisionError: ")


def devices(monkeypatch: pytest.MonkeyPatch, *names: str, notes: tuple[str, ...] = (), bus: str | None = None) -> None:
    found = [Device(name, None, bus) for name in names]
    monkeypatch.setattr(checks.allocator, "choose_devices", lambda chosen: (found, list(notes)))


@pytest.mark.parametrize(
    ("names", "notes", "expected"),
    [
        (("CPU:0",), (), (True, "CPU:0: statistics can be read")),
        (("GPU:0", "GPU:1"), (), (True, "GPU:0, GPU:1: statistics can be read")),
        ((), (), (False, "no device keeps statistics")),
        ((), ("Set a variable.", "Or two."), (False, "Set a variable. Or two.")),
        (("GPU:0",), ("Not GPU:1.",), (False, "Not GPU:1.")),
    ],
)
def test_the_statistics_of_each_device_are_read(monkeypatch, names, notes, expected) -> None:
    devices(monkeypatch, *names, notes=notes)
    read: list[str] = []
    monkeypatch.setattr(checks.allocator, "memory_info", read.append)
    assert checks._allocator() == expected
    assert read == list(names)


@pytest.mark.parametrize(
    ("names", "readable", "note", "expected"),
    [
        (("CPU:0",), ("CPU:0",), None, (True, "CPU:0: can be read, and agrees with the statistics")),
        (("CPU:0",), (), None, (False, "the map of CPU:0 could not be read")),
        (("CPU:0",), (), "It is of another version.", (False, "It is of another version.")),
        (("CPU:0",), ("CPU:0",), "It is of another version.", (False, "It is of another version.")),
        # A GPU that was not used yet has no map.
        (("CPU:0", "GPU:1"), ("CPU:0",), None, (True, "CPU:0, GPU:1: can be read, and agrees with the statistics")),
        (("CPU:0", "CPU:1"), ("CPU:0",), None, (False, "the map of CPU:1 could not be read")),
        (("GPU:0", "GPU:1"), ("GPU:1",), None, (False, "the map of GPU:0 could not be read")),
    ],
)
def test_the_map_of_each_device_is_read(monkeypatch, names, readable, note, expected) -> None:
    class Maps:
        def __init__(self, given: list[str], report: Any) -> None:
            assert given == list(names)
            if note is not None:
                report(note)

        def read(self, device: str) -> bytes | None:
            return b"map" if device in readable else None

    devices(monkeypatch, *names)
    monkeypatch.setattr(checks, "MemoryMaps", Maps)
    assert checks._memory_map() == expected


@pytest.mark.parametrize(
    ("bus", "installed", "answers", "ok", "sentence"),
    [
        (None, True, True, True, "not needed: no GPU is recorded"),
        (BUS, False, True, False, "other processes' memory on the GPU stays unknown: pip install nvidia-ml-py"),
        (BUS, True, False, False, "NVIDIA's driver does not answer nvidia-ml-py: see whether nvidia-smi works here"),
        (BUS, True, True, True, "answers for GPU:0, GPU:1"),
    ],
)
def test_the_driver_is_asked_if_a_gpu_is_recorded(monkeypatch, bus, installed, answers, ok, sentence) -> None:
    driver = mock.Mock(answers=answers, figures={})
    driver.read.side_effect = lambda: driver.figures.update({"GPU:1": None, "GPU:0": None})
    made = mock.Mock(return_value=driver)
    devices(monkeypatch, "GPU:1", "GPU:0", bus=bus)
    monkeypatch.setattr(checks, "Driver", made)
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: installed or None)
    assert checks._driver() == (ok, sentence)
    asked = bool(bus and installed)
    assert made.call_args_list == [mock.call({"GPU:1": bus, "GPU:0": bus})] * asked
    assert driver.open.call_count == driver.close.call_count == asked


@pytest.mark.parametrize(
    ("gpus", "visible", "file", "expected"),
    [
        (["first", "second"], None, True, (True, "A100, second")),
        ([], None, False, (True, "none; CPU:0 is recorded")),
        ([], "-1", True, (True, "none; CPU:0 is recorded")),
        ([], "", True, (True, "none; CPU:0 is recorded")),
        ([], None, True, (False, "there is a GPU, but TensorFlow cannot use it: pip install 'tensorflow[and-cuda]'")),
        ([], "0", True, (False, "there is a GPU, but TensorFlow cannot use it: pip install 'tensorflow[and-cuda]'")),
    ],
)
def test_a_gpu_that_tensorflow_cannot_use_is_said(monkeypatch, tmp_path, gpus, visible, file, expected) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [SimpleNamespace(name=name) for name in gpus])
    # An unknown GPU has no other name than TensorFlow's.
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", lambda gpu: {"device_name": "A100"} if gpu.name == "first" else {}
    )
    monkeypatch.setattr(checks, "_DRIVER_FILES", (str(tmp_path / "missing"), str(tmp_path if file else "missing")))
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert checks._gpu() == expected


@pytest.mark.parametrize(
    ("version", "cuda", "expected"),
    [
        ("2.16.0", True, (True, "version 2.16.0, built with CUDA")),
        ("2.21.1", False, (True, "version 2.21.1, built without CUDA")),
        ("3.0.0-rc1", False, (True, "version 3.0.0-rc1, built without CUDA")),
        ("2.15.1", False, (False, "version 2.15.1 is older than 2.16: pip install -U tensorflow")),
        ("1.99.0", False, (False, "version 1.99.0 is older than 2.16: pip install -U tensorflow")),
    ],
)
def test_the_version_of_tensorflow_must_be_recent(monkeypatch, version, cuda, expected) -> None:
    grown: list[Any] = []
    monkeypatch.setattr(tf, "__version__", version)
    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: {"is_cuda_build": cuda})
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["first", "second"])
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, on: grown.append((gpu, on)))
    assert checks._tensorflow() == expected
    assert grown == [("first", True), ("second", True)]  # other processes may use the GPUs


@pytest.mark.parametrize("registered", [False, True])
def test_the_tab_must_be_registered(monkeypatch: pytest.MonkeyPatch, registered: bool) -> None:
    own, other = mock.Mock(value="tb_memplugin.plugin:MemoryPlugin"), mock.Mock(value="tensorboard.plugins.x:Y")
    points = [other, own] if registered else [other]
    monkeypatch.setattr(checks.importlib.metadata, "entry_points", lambda group: points)
    monkeypatch.setattr(checks.importlib.metadata, "version", lambda name: f"of {name}")
    ok, sentence = checks._tensorboard()
    assert (ok, own.load.call_count, other.load.call_count) == (registered, int(registered), 0)
    expected = "version of tensorboard loads the Memory tab" if registered else "the Memory tab is not registered in"
    assert sentence.startswith(expected)


@pytest.mark.parametrize(
    ("off", "statistics", "recorded"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_a_training_is_recorded_if_nothing_stands_in_its_way(monkeypatch, off, statistics, recorded) -> None:
    asked: list[float] = []

    def record(seconds: float) -> tuple[bool, str]:
        asked.append(seconds)
        return True, "fine"

    for name in ("_tensorflow", "_tensorboard", "_gpu", "_memory_map", "_driver"):
        monkeypatch.setattr(checks, name, lambda: (True, "fine"))
    monkeypatch.setattr(checks, "_allocator", lambda: (statistics, "statistics"))
    monkeypatch.setattr(checks, "_recording", record)
    monkeypatch.setenv("TB_MEMPLUGIN", "0" if off else "1")
    found = [check.name for check in checks.checks()]
    assert found == [
        *("switch", "TensorFlow", "TensorBoard", "GPU", "allocator", "memory map", "GPU driver"),
        *(["recording"] if recorded else []),
    ]
    assert asked == ([2.0] if recorded else [])


class Recorder(keras.callbacks.Callback):  # type: ignore[misc]
    """In place of the recorder: counts steps."""

    def __init__(self, directory: str, trace_steps: Any) -> None:
        super().__init__()
        self.steps, self.closed, self.trace_steps = 0, False, trace_steps
        made.append(self)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1

    def close(self) -> None:
        self.closed = True


made: list[Recorder] = []


@pytest.mark.parametrize(
    ("seconds", "steps", "weights", "expected"),
    [
        # Steps 0 to 10, the last of which is traced, and the next one; 64 * 256 + 256 and 256 * 8 + 8 floats.
        (0.0, 12, 4 * 18_696, (True, "5 steps recorded; weights equal Keras's count, 0.0% unattributed, the replay")),
        # The 15 s have passed before the 16th step.
        (15.0, 16, 4, (False, "weights are 4 B, Keras counts 74,784 B; a note")),
        (0.0, 12, None, (False, "nothing was recorded; a warning above says why")),
    ],
)
def test_a_training_ends_after_its_time_and_a_step_behind_the_last_traced_one(
    monkeypatch: pytest.MonkeyPatch, seconds: float, steps: int, weights: int | None, expected: tuple[bool, str]
) -> None:
    made.clear()
    monkeypatch.setattr("tb_memplugin.recorder.loop.MemoryCallback", Recorder)
    run = None
    if weights is not None:
        run = SimpleNamespace(
            snapshots=[snapshot(weights, 0)], notes=("a note",), samples=SimpleNamespace(step=range(5))
        )
    monkeypatch.setattr(checks, "load", lambda directory: {} if run is None else {".": run})
    monkeypatch.setattr(keras.Model, "compile", functools.partialmethod(keras.Model.compile, run_eagerly=True))
    moments = itertools.count(100.0)  # a second for each step
    monkeypatch.setattr(checks, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    ok, sentence = checks._recording(seconds)
    (recorder,) = made
    assert (recorder.steps, recorder.closed, recorder.trace_steps) == (steps, True, (3, 10))
    assert ok is expected[0] and sentence.startswith(expected[1])


def test_facts_say_whether_the_step_was_replayed() -> None:
    found = snapshot(75 * MIB, 25 * MIB)
    assert checks._facts(found) == (
        "weights equal Keras's count, 25.0% unattributed, the replay reproduces all 5 addresses"
    )
    assert checks._facts(dataclasses.replace(found, replay=None)).endswith("25.0% unattributed, not replayed")
    assert checks._unattributed(dataclasses.replace(found, ledger=(), in_use_bytes=0)) == 0
