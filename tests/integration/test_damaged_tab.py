"""Damaged files in the tab: with both of TensorBoard's readers it shows what `inspect` shows."""

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from reading_cases import MIB, event_files, make_samples
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter
from test_tensorboard_process import environment, start, wait_for

from tb_memplugin.events.frames.metadata import summary_metadata
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.reader.files import tfrecord

PEAKS = [100 * MIB + step for step in range(40)]
PEAKS[30] = 900 * MIB


def write(directory: pathlib.Path) -> tuple[pathlib.Path, list[tfrecord.Record]]:
    """40 steps in 10 frames with a peak at step 30; the file and its records."""
    writer = RunWriter(directory)
    for first in range(0, 40, 4):
        writer.samples(make_samples(range(first, first + 4), PEAKS[first : first + 4]))
    writer.close()
    (path,) = event_files(directory)
    content = path.read_bytes()
    parts = tfrecord.walk_records(lambda offset, size: content[offset : offset + size], 0, len(content))
    return path, [part for part in parts if isinstance(part, tfrecord.Record)]


def flip(path: pathlib.Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("damaged")
    write(directory / "whole")
    for name, place in {"content": 40, "length": -12, "length_checksum": -4}.items():
        path, records = write(directory / name)
        flip(path, records[4].offset + place)
    path, records = write(directory / "checksum")
    flip(path, records[4].offset + len(records[4].data) + 1)
    path, records = write(directory / "cut")
    path.write_bytes(path.read_bytes()[: records[-2].offset + 20])
    # A tensor of 40 million elements, and one that is no string, beside whole data.
    path, _ = write(directory / "tensors")
    shape = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=40_000_000)])
    with path.open("ab") as file:
        writer = RecordWriter(file)
        for tensor in (
            tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, tensor_shape=shape, string_val=[b"x" * 100]),
            tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[1.0]),
        ):
            value = summary_pb2.Summary.Value(tag="samples/s/9", metadata=summary_metadata(), tensor=tensor)
            writer.write(event_pb2.Event(step=50, summary=summary_pb2.Summary(value=[value])).SerializeToString())
    return directory


@pytest.fixture(scope="module")
def inspected(logdir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [sys.executable, "-m", "tb_memplugin", "inspect", str(logdir), "--format", "json"]
    folder = tmp_path_factory.mktemp("inspect")
    done = subprocess.run(command, env=environment(folder), capture_output=True, text=True, timeout=60, check=True)
    runs: dict[str, Any] = json.loads(done.stdout)["runs"]
    return runs


def test_inspect_shows_the_highest_peak_and_says_what_is_missing(inspected: dict[str, Any]) -> None:
    for name, run in inspected.items():
        assert run["devices"]["CPU:0"]["peak_bytes"] == 900 * MIB, name
        assert bool(run["damage"]) == (name != "whole"), name


@pytest.mark.parametrize(
    "load_fast", [pytest.param("true", id="fast", marks=pytest.mark.long), pytest.param("false", id="python")]
)
def test_the_tab_shows_what_inspect_shows(
    load_fast: str, logdir: pathlib.Path, inspected: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    server = start(logdir, tmp_path, load_fast)
    try:
        # The end of a file that was written a moment ago is no damage yet.
        wait_for(
            lambda: (
                {run["run"]: run["damage"] for run in server.json("runs")["runs"]}
                == {name: run["damage"] for name, run in inspected.items()}
            )
        )
        runs = {run["run"]: run for run in server.json("runs")["runs"]}
        for name, described in inspected.items():
            assert runs[name]["steps"] == described["steps"]
            (device,) = runs[name]["devices"]
            assert device["peak_bytes"] == described["devices"]["CPU:0"]["peak_bytes"]
            assert device["peak_step"] == described["devices"]["CPU:0"]["peak_step"]
    finally:
        server.process.terminate()
        server.process.wait(timeout=30)
