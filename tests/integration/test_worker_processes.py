"""Several processes in one run directory, and several devices in one process: real trainings, one
picture."""

import os
import pathlib
import subprocess
from typing import Any

import pytest
from child import start_child
from handlers import Handlers

from tb_memplugin.export import load
from tb_memplugin.storage import Reader
from tb_memplugin.storage.files import FileSource

HERE = pathlib.Path(__file__).parent
REPOSITORY = HERE.parents[1]


def start(*arguments: object) -> "subprocess.Popen[str]":
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "demo" / "scenarios")])
    return start_child(*map(str, arguments), environment={"PYTHONPATH": path})


def finish(process: "subprocess.Popen[str]") -> None:
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, f"{out[-1000:]}\n{errors[-4000:]}"


def devices_of(logdir: pathlib.Path, run: str) -> dict[str, Any]:
    return Handlers(Reader()).devices(FileSource(logdir), run, "train")


@pytest.mark.long
def test_two_processes_that_train_together_are_one_picture(tmp_path: pathlib.Path) -> None:
    # GIVEN MultiWorkerMirroredStrategy in two processes, both tracing step 3
    code = (
        "import pathlib, data_parallel; "
        f"data_parallel.train_two_processes(pathlib.Path({str(tmp_path / 'run')!r}))"
    )
    finish(start("-c", code))
    told = devices_of(tmp_path, "run")
    # THEN each replica has the weights and Adam's slots: (256+1)·512 + (512+1)·512 + (512+1)·10
    # numbers, and twice that
    parameters = 257 * 512 + 513 * 512 + 513 * 10
    assert [one["device"] for one in told["devices"]] == ["worker_0/CPU:0", "worker_1/CPU:0"]
    for one in told["devices"]:
        assert one["breakdown"]["step"] == 3
        sums: dict[str, int] = {}
        for part in one["breakdown"]["parts"]:
            sums[part["category"]] = sums.get(part["category"], 0) + part["bytes"]
        assert sums["weights"] == 4 * parameters
        assert sums["optimizer_state"] == pytest.approx(8 * parameters, rel=0.001)
        assert sum(sums.values()) == one["breakdown"]["peak_bytes"]
    # AND their clocks are one clock: both are processes of this machine
    assert [one["ended"] for one in told["workers"]] == [True, True]
    assert [one["stopped_early"] for one in told["workers"]] == [None, None]
    offset = told["workers"][1]["clock_offset_seconds"]
    assert offset is None or abs(offset) < 1
    assert (
        told["steps"]["step"] == [0, 1, 2, 3, 4] and None not in told["steps"]["sum_in_use_bytes"]
    )


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Runs of one training by four replicas: `asked` for the trace of a step, and as by
    `default`."""
    logdir = tmp_path_factory.mktemp("mirrored")
    for process in [
        start(HERE / "workers_child.py", logdir / name, name) for name in ("asked", "default")
    ]:
        finish(process)
    return logdir


def test_logical_devices_of_one_cpu_are_recorded_once(mirrored: pathlib.Path) -> None:
    told = devices_of(mirrored, "asked")
    assert [one["device"] for one in told["devices"]] == ["CPU:0"]
    assert told["imbalance"] is None
    weights = sum(
        one["bytes"]
        for one in told["devices"][0]["breakdown"]["parts"]
        if one["category"] == "weights"
    )
    assert weights == 4 * 65 * 256 * 4  # four replicas in the one allocator
    (note,) = [note for note in load(mirrored)["asked"].notes if "CPU:1" in note]
    assert "CPU:1, CPU:2, CPU:3: logical devices of the CPU share one allocator" in note


def test_beside_other_replicas_only_the_steps_asked_for_are_traced(mirrored: pathlib.Path) -> None:
    runs = load(mirrored)
    assert {name: [one.step for one in run.snapshots] for name, run in runs.items()} == {
        "asked": [2],
        "default": [],
    }
    # AND the run says what to do, and has the rest
    said = [note for note in runs["default"].notes if "trace_steps" in note]
    assert len(said) == 1 and said[0].startswith("no step is traced: ")
    assert len(runs["default"].samples) == len(runs["asked"].samples) == 5
