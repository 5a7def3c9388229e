"""The real ``tensorboard`` command, with TensorFlow blocked, under a path prefix, with both of its
readers.

Its directory has whole runs, damaged files, a copy of a run and a link to one; what it shows is
what `inspect` shows.
"""

import dataclasses
import json
import pathlib
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from reading_cases import (
    DEVICE,
    MIB,
    equal,
    event_files,
    make_activations,
    make_samples,
    write_small_run,
)
from servers import PREFIX, Server, decode, inspect, start, wait_for
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

import tb_memplugin
from tb_memplugin.storage.frames import summary_metadata, tfrecord
from tb_memplugin.storage.write import RunWriter
from tb_memplugin.version import PLUGIN_NAME

WHOLE = ("copied", "linked", "original")
DAMAGED = ("checksum", "content", "cut", "length", "length_checksum", "tensors")
PLACE = {"device": DEVICE}
QUESTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("overview", {**PLACE, "phase": phase}) for phase in ("train", "validation")),
    *(
        ("snapshots", PLACE),
        ("snapshot", {**PLACE, "step": 41}),
        ("layers", {}),
        ("layers", {"step": 3}),
    ),
    *(
        ("activations", {}),
        ("timelines", PLACE),
        ("timeline", {**PLACE, "step": 3}),
        ("maps", PLACE),
    ),
    *(("map", {**PLACE, "step": 3}), ("map", {"oom": 0}), ("oom", {}), ("device_memory", PLACE)),
)
DAMAGED_PEAKS = [900 * MIB if step == 30 else 100 * MIB + step for step in range(40)]
PEAK_STEPS = np.random.default_rng(1).choice(20_000, 200, replace=False)


def write_peaks(directory: pathlib.Path) -> None:
    """20,000 steps in 800 flushes; 200 of the steps are peaks of different heights, for one step
    only."""
    peaks = np.full(20_000, 100 * MIB)
    peaks[PEAK_STEPS] += np.arange(1, 201) * MIB
    writer = RunWriter(directory)
    for first in range(0, 20_000, 25):
        steps = range(first, first + 25)
        writer.samples(make_samples(steps, peaks[first : first + 25].tolist()))
        writer.activations(
            make_activations(
                steps, ["a", "b"], np.stack([peaks[first : first + 25], np.ones(25)], axis=1)
            )
        )
    writer.close()


def write_frames(directory: pathlib.Path) -> tuple[pathlib.Path, bytearray, list[tfrecord.Record]]:
    """40 steps in 10 frames with a peak at step 30; the file, its content and its records."""
    writer = RunWriter(directory)
    for first in range(0, 40, 4):
        writer.samples(make_samples(range(first, first + 4), DAMAGED_PEAKS[first : first + 4]))
    writer.close()
    (path,) = event_files(directory)
    content = path.read_bytes()
    parts = tfrecord.walk_records(
        lambda offset, size: content[offset : offset + size], 0, len(content)
    )
    return path, bytearray(content), [part for part in parts if isinstance(part, tfrecord.Record)]


def write_damaged(directory: pathlib.Path) -> None:
    """A run for each of `DAMAGED`."""
    for name, place in {
        "content": 40,
        "length": -12,
        "length_checksum": -4,
        "checksum": None,
    }.items():
        path, content, records = write_frames(directory / name)
        content[records[4].offset + (len(records[4].data) + 1 if place is None else place)] ^= 0x10
        path.write_bytes(content)
    path, content, records = write_frames(directory / "cut")
    path.write_bytes(content[: records[-2].offset + 20])
    # A tensor of 40 million elements, and one that is no string, beside whole data.
    path, _, _ = write_frames(directory / "tensors")
    shape = tensor_shape_pb2.TensorShapeProto(
        dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=40_000_000)]
    )
    with path.open("ab") as file:
        writer = RecordWriter(file)
        for tensor in (
            tensor_pb2.TensorProto(
                dtype=types_pb2.DT_STRING, tensor_shape=shape, string_val=[b"x" * 100]
            ),
            tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[1.0]),
        ):
            value = summary_pb2.Summary.Value(
                tag="samples/s/9", metadata=summary_metadata(), tensor=tensor
            )
            writer.write(
                event_pb2.Event(
                    step=50, summary=summary_pb2.Summary(value=[value])
                ).SerializeToString()
            )


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory, given by a link."""
    real, elsewhere = tmp_path_factory.mktemp("real"), tmp_path_factory.mktemp("elsewhere") / "far"
    write_small_run(real / "original", allocator=True)
    shutil.copytree(real / "original", real / "copied")
    shutil.copytree(real / "original", elsewhere)
    (real / "linked").symlink_to(elsewhere, target_is_directory=True)
    for worker in ("worker_0", "worker_1"):
        write_small_run(real / "two", worker=worker)
    write_peaks(real / "peaks")
    write_damaged(real / "damaged")
    link = tmp_path_factory.mktemp("link") / "runs"
    link.symlink_to(real, target_is_directory=True)
    return link


@pytest.fixture(scope="module")
def inspected(logdir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return inspect(logdir, tmp_path_factory.mktemp("inspect"))


def ready(server: Server, expected: dict[str, Any]) -> bool:
    """Whether all is read. The end of a file that was written a moment ago is no damage yet."""
    return {name: (run["steps"], run["damage"]) for name, run in server.runs().items()} == expected


@pytest.fixture(scope="module", params=["true", "false"], ids=["fast", "python"])
def server(request, logdir, inspected, tmp_path_factory) -> Iterator[Server]:
    with start(logdir, tmp_path_factory.mktemp("blocker"), request.param) as running:
        wait_for(
            lambda: ready(
                running, {name: (run["steps"], run["damage"]) for name, run in inspected.items()}
            )
        )
        yield running


def test_the_tab_is_listed_below_the_prefix(server: Server) -> None:
    assert urllib.parse.urlsplit(server.address).path == f"{PREFIX}/"
    with urllib.request.urlopen(f"{server.address}data/plugins_listing", timeout=60) as response:
        listing = json.load(response)
    assert listing[PLUGIN_NAME]["enabled"] is True and listing[PLUGIN_NAME]["tab_name"] == "Memory"


def test_runs_whole_and_damaged_say_what_inspect_says(
    server: Server, inspected: dict[str, Any]
) -> None:
    runs = server.runs()
    assert runs.keys() == {*WHOLE, "two", "peaks", *(f"damaged/{name}" for name in DAMAGED)}
    for name, described in inspected.items():
        for field in ("sessions", "steps", "first_step", "last_step", "notes", "damage"):
            assert runs[name][field] == described[field], (name, field)
        devices = {device["device"]: device for device in runs[name]["devices"]}
        assert devices.keys() == described["devices"].keys()
        for device, figures in described["devices"].items():
            assert {field: devices[device][field] for field in figures} == figures
        # Damage costs neither the highest peak nor a sentence.
        assert bool(described["damage"]) == name.startswith("damaged/"), name
        if name.startswith("damaged/"):
            assert described["devices"]["CPU:0"]["peak_bytes"] == 900 * MIB
    assert runs["two"]["workers"] == ["worker_0", "worker_1"]
    assert set(inspected["two"]["devices"]) == {f"worker_0/{DEVICE}", f"worker_1/{DEVICE}"}


def test_every_one_of_200_peaks_is_there_under_default_flags(server: Server) -> None:
    # WHEN the steps around each peak are asked for THEN all of them are there with their exact
    # value
    expected = [float(100 * MIB + at * MIB) for at in range(1, 201)]
    for request, column in (
        (f"overview?run=peaks&device={DEVICE}&points=10000", "peak_bytes"),
        ("activations?run=peaks&points=10000", "layer/0"),
    ):
        _, columns = server.columns(request)
        shown = dict(zip(columns["step"].tolist(), columns[column].tolist(), strict=True))
        assert [shown.get(float(step)) for step in PEAK_STEPS] == expected
    assert server.columns("activations?run=peaks&points=10000")[0]["total_rows"] == 20_000


def test_a_running_training_appears_and_grows(server: Server, logdir: pathlib.Path) -> None:
    # GIVEN a training that begins after TensorBoard
    name = f"live_{server.process.pid}"
    writer = RunWriter(logdir / name)
    seen = []
    try:
        # WHEN it flushes, its steps appear, and each flush adds its own
        for end in (10, 20, 30):
            writer.samples(make_samples(range(end - 10, end), [MIB] * 10))
            writer.flush()
            wait_for(lambda end=end: server.runs().get(name, {}).get("steps") == end)  # type: ignore[misc]
            seen.append(server.columns(f"overview?run={name}&device={DEVICE}")[1]["step"].tolist())
        writer.close()
    finally:
        shutil.rmtree(logdir / name)
    assert seen == [list(range(10)), list(range(20)), list(range(30))]


def answers(server: Server, run: str) -> dict[str, Any]:
    """The answers to all questions about a run, without its name."""
    found = {}
    for route, parameters in QUESTIONS:
        status, content_type, body = server.get(
            f"{route}?{urllib.parse.urlencode({'run': run, **parameters})}"
        )
        assert status == 200, body
        head, columns = (
            (json.loads(body), {}) if content_type == "application/json" else decode(body)
        )
        bytes_of = {name: values.tobytes() for name, values in columns.items()}
        found[f"{route} {parameters}"] = ({**head, "run": ""}, bytes_of)
    return found


def facts(run: dict[str, Any]) -> dict[str, Any]:
    """What the list of runs says of one, but for its name, its mark and its place."""
    return {name: value for name, value in run.items() if name not in ("run", "version", "rank")}


def test_a_copy_and_a_link_show_what_the_run_shows(server: Server) -> None:
    listed, expected = server.runs(), answers(server, "original")
    for name in ("copied", "linked"):
        assert facts(listed[name]) == facts(listed["original"])
        assert answers(server, name) == expected


def test_a_copy_and_a_link_load_as_the_run_does(logdir: pathlib.Path) -> None:
    runs = tb_memplugin.load(logdir)
    for name in WHOLE:
        workers = {
            worker: dataclasses.replace(run, name="original")
            for worker, run in runs[name].by_worker.items()
        }
        assert equal(
            dataclasses.replace(runs[name], name="original", by_worker=workers), runs["original"]
        )


def test_a_run_named_by_logdir_spec_is_the_same(
    logdir: pathlib.Path, server: Server, tmp_path: pathlib.Path
) -> None:
    # GIVEN a name for the run's own directory and one for that of another, of which only the Python
    # reader knows
    spec = f"named:{logdir / 'original'},all:{logdir / 'copied'}"
    with start(spec, tmp_path, "auto", flag="--logdir_spec") as running:
        wait_for(lambda: ready(running, {"all": (60, []), "named": (60, [])}))
        for name in ("all", "named"):
            assert facts(running.runs()[name]) == facts(server.runs()["original"])
        assert answers(running, "named") == answers(server, "original")
