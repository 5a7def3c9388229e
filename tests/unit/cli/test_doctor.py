"""What `tb-memplugin doctor` finds wrong, its lines and its exit codes; integration tests run it as
it is."""

import dataclasses
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf
from reading_cases import make_snapshot

from tb_memplugin.cli import doctor, main
from tb_memplugin.schema import LedgerRow, Replay

MIB = 1 << 20
BUS = "0000:65:00.0"


def snapshot(weights: int, unattributed: int, replayed: int | None = 5, chunks: int = 7) -> Any:
    rows = (
        LedgerRow("dense", "weights", True, weights, 0),
        LedgerRow(None, "unattributed", None, unattributed, 0),
    )
    replay = None if replayed is None else Replay(replayed, 5, chunks, 7, 0)
    return dataclasses.replace(
        make_snapshot(0), ledger=rows, in_use_bytes=weights + unattributed, replay=replay
    )


def lines(monkeypatch: pytest.MonkeyPatch, capsys: Any, **patched: Any) -> list[str]:
    """What the command prints with some checks replaced, `fine` for the others."""
    checks = ("tensorflow", "tensorboard", "gpu", "allocator", "memory_map", "driver", "recording")
    for name in checks:
        if name not in patched:
            monkeypatch.setattr(doctor, f"_{name}", lambda *_: (True, "fine"))
        elif patched[name] is not None:
            monkeypatch.setattr(doctor, f"_{name}", patched[name])
    code = main(["doctor"])
    said = capsys.readouterr().out.splitlines()
    assert code == any(line.startswith("!!") for line in said)
    return said


def test_each_check_is_a_line_and_a_recording_needs_an_allocator_and_the_switch(
    monkeypatch, capsys
) -> None:
    said = lines(monkeypatch, capsys)
    names = [
        "switch",
        "TensorFlow",
        "TensorBoard",
        "GPU",
        "allocator",
        "memory map",
        "GPU driver",
        "recording",
    ]
    assert [line[4:].partition(":")[0] for line in said] == names and all(
        line.startswith("ok  ") for line in said
    )
    said = lines(monkeypatch, capsys, allocator=lambda: (False, "set a variable"))
    assert "!!  allocator: set a variable" in said and len(said) == 7
    said = lines(monkeypatch, capsys, gpu=lambda: (True, str(1 // 0)))
    assert "!!  GPU: ZeroDivisionError: integer division or modulo by zero" in said
    monkeypatch.setenv("TB_MEMPLUGIN", "0")
    said = lines(monkeypatch, capsys)
    assert said[0].startswith("!!  switch: TB_MEMPLUGIN=0 turns recording off") and len(said) == 7
    # AND without TensorFlow the checks of viewing remain
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    said = lines(monkeypatch, capsys, tensorflow=doctor_tensorflow)
    assert len(said) == 3 and "pip install 'tensorflow" in said[1]


doctor_tensorflow = doctor._tensorflow


@pytest.mark.parametrize(
    ("snapshots", "said"),
    [
        ([snapshot(100 * MIB, MIB)], []),
        ([], ["no step was traced"]),
        ([snapshot(99 * MIB, 0)], ["weights are 103,809,024 B, Keras counts 104,857,600 B"]),
        ([snapshot(100 * MIB, 100 * MIB)], ["50.0% of the bytes in use have no owner"]),
        ([snapshot(100 * MIB, 0, replayed=4)], ["the replay reproduces 4 of 5 addresses"]),
        ([snapshot(100 * MIB, 0, chunks=6)], ["the replay reproduces 5 of 5 addresses"]),
        # the last one's
        (
            [snapshot(1, 0), snapshot(100 * MIB, 7 * MIB)],
            ["6.5% of the bytes in use have no owner"],
        ),
    ],
)
def test_a_wrong_recording_is_said(snapshots: Any, said: list[str]) -> None:
    assert doctor._wrong(snapshots, 100 * MIB) == said
    # at the limit, not replayed
    assert doctor._wrong([snapshot(95 * MIB, 5 * MIB, replayed=None)], 95 * MIB) == []


class Maps:
    """In place of the recorder's maps: only some devices have one; each may say why."""

    readable: tuple[str, ...] = ()
    note = ""

    def __init__(self, devices: list[str], report: Any) -> None:
        if self.note:
            report(self.note)

    def read(self, device: str) -> bytes | None:
        return b"map" if device in self.readable else None


@pytest.mark.parametrize(
    ("devices", "notes", "maps", "note", "statistics", "read"),
    [
        (
            "CPU:0",
            (),
            "CPU:0",
            "",
            "CPU:0: statistics can be read",
            "CPU:0: can be read, and agrees with the stat",
        ),
        ("CPU:0", (), "", "", "CPU:0: statistics", "!!the map of CPU:0 could not be read"),
        ("CPU:0", ("Or.",), "CPU:0", "Another version.", "!!Or.", "!!Another version."),
        # A GPU that was not used yet has no map.
        (
            "CPU:0 GPU:1",
            (),
            "CPU:0",
            "",
            "CPU:0, GPU:1: statistics can be read",
            "CPU:0, GPU:1: can be read",
        ),
        (
            "CPU:0 CPU:1",
            (),
            "CPU:0",
            "",
            "CPU:0, CPU:1: statistics",
            "!!the map of CPU:1 could not be read",
        ),
        (
            "GPU:0 GPU:1",
            (),
            "GPU:1",
            "",
            "GPU:0, GPU:1: statistics",
            "!!the map of GPU:0 could not be read",
        ),
    ],
)
def test_statistics_and_map_of_each_device_are_read(
    monkeypatch, devices, notes, maps, note, statistics, read
) -> None:
    found = [SimpleNamespace(name=name, pci_bus_id=None) for name in devices.split()]
    monkeypatch.setattr(doctor.allocator, "choose_devices", lambda _: (found, list(notes)))
    monkeypatch.setattr(doctor.allocator, "memory_info", lambda _: None)
    monkeypatch.setattr(Maps, "readable", tuple(maps.split()))
    monkeypatch.setattr(Maps, "note", note)
    monkeypatch.setattr("tb_memplugin.cli.doctor.MemoryMaps", Maps)
    for expected, (ok, sentence) in (
        (statistics, doctor._allocator()),
        (read, doctor._memory_map()),
    ):
        assert ok is not expected.startswith("!!") and sentence.startswith(
            expected.removeprefix("!!")
        )


@pytest.mark.parametrize(
    ("bus", "installed", "answers", "sentence"),
    [
        (None, True, True, "not needed: no GPU is recorded"),
        (
            BUS,
            False,
            True,
            "!!other processes' memory on the GPU stays unknown: pip install nvidia-ml-py",
        ),
        (
            BUS,
            True,
            False,
            "!!NVIDIA's driver does not answer nvidia-ml-py: see whether nvidia-smi works here",
        ),
        (BUS, True, True, "answers for GPU:0, GPU:1"),
    ],
)
def test_the_driver_is_asked_if_a_gpu_is_recorded(
    monkeypatch, bus, installed, answers, sentence
) -> None:
    driver = mock.Mock(answers=answers, figures={})
    driver.read.side_effect = lambda: driver.figures.update({"GPU:1": None, "GPU:0": None})
    found = [SimpleNamespace(name=name, pci_bus_id=bus) for name in ("GPU:1", "GPU:0")]
    monkeypatch.setattr(doctor.allocator, "choose_devices", lambda _: (found, []))
    monkeypatch.setattr("tb_memplugin.cli.doctor.Driver", mock.Mock(return_value=driver))
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: installed or None)
    assert doctor._driver() == (not sentence.startswith("!!"), sentence.removeprefix("!!"))
    assert driver.open.call_count == driver.close.call_count == bool(bus and installed)


UNUSABLE = "!!there is a GPU, but TensorFlow cannot use it: pip install 'tensorflow[and-cuda]'"


@pytest.mark.parametrize(
    ("gpus", "visible", "there", "version", "gpu", "tensorflow"),
    [
        (
            "first second",
            "0",
            True,
            "2.16.0",
            "A100, second; replicas are traced from their second step on",
            "version 2.16.0, built with CUDA",
        ),
        ("", "0", False, "3.0.0-rc1", "none; CPU:0 is recorded", "version 3.0.0-rc1, built"),
        (
            "",
            "-1",
            True,
            "2.15.1",
            "none; CPU:0 is recorded",
            "!!version 2.15.1 is older than 2.16: pip install -U",
        ),
        (
            "",
            "",
            True,
            "1.99.0",
            "none; CPU:0 is recorded",
            "!!version 1.99.0 is older than 2.16: pip install -U",
        ),
        ("", "0", True, "2.21.1", UNUSABLE, "version 2.21.1, built with CUDA"),
    ],
)
def test_gpus_and_the_version_of_tensorflow_are_said(
    monkeypatch, tmp_path, gpus, visible, there, version, gpu, tensorflow
) -> None:
    grown: list[Any] = []
    monkeypatch.setattr(tf, "__version__", version)
    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: {"is_cuda_build": True})
    monkeypatch.setattr(
        tf.config,
        "list_physical_devices",
        lambda _: [SimpleNamespace(name=one) for one in gpus.split()],
    )
    monkeypatch.setattr(
        tf.config.experimental, "set_memory_growth", lambda one, on: grown.append((one.name, on))
    )
    # An unknown GPU has no other name than TensorFlow's.
    names = {"first": {"device_name": "A100"}}
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", lambda one: names.get(one.name, {})
    )
    monkeypatch.setattr(
        "tb_memplugin.cli.doctor._DRIVER_FILES", (str(tmp_path if there else tmp_path / "missing"),)
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    for expected, (ok, sentence) in ((gpu, doctor._gpu()), (tensorflow, doctor._tensorflow())):
        assert ok is not expected.startswith("!!") and sentence.startswith(
            expected.removeprefix("!!")
        )
    assert grown == [(name, True) for name in gpus.split()]  # other processes may use the GPUs


@pytest.mark.parametrize("registered", [False, True])
def test_the_tab_must_be_registered(monkeypatch: pytest.MonkeyPatch, registered: bool) -> None:
    own, other = (
        mock.Mock(value="tb_memplugin.plugin:MemoryPlugin"),
        mock.Mock(value="tensorboard.plugins.x:Y"),
    )
    points = [other, own] if registered else [other]
    monkeypatch.setattr(doctor.importlib.metadata, "entry_points", lambda group: points)
    ok, sentence = doctor._tensorboard()
    assert (ok, own.load.call_count, other.load.call_count) == (registered, int(registered), 0)
    assert (
        "loads the Memory tab" if registered else "the Memory tab is not registered in"
    ) in sentence
