"""The real ``tensorboard`` command, with TensorFlow blocked, under a path prefix, with both of its readers."""

import json
import os
import pathlib
import queue
import re
import shutil
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from reading_cases import DEVICE, MIB, make_activations, make_samples, write_small_run

from tb_memplugin.events.frames.metadata import PLUGIN_NAME
from tb_memplugin.events.run_writer import RunWriter

PREFIX = "/some/prefix"
START_SECONDS = 200
BLOCKER = '''
import sys

class Blocker:
    """A viewer's machine has no TensorFlow."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "keras"):
            raise ModuleNotFoundError(f"{name} is blocked for this test", name=name)

sys.meta_path.insert(0, Blocker())
'''


class Server:
    """A running TensorBoard."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process, self.address = process, address

    def get(self, request: str) -> tuple[int, str, bytes]:
        """Status, content type and body of a route of the plugin."""
        try:
            with urllib.request.urlopen(f"{self.address}data/plugin/{PLUGIN_NAME}/{request}", timeout=60) as response:
                return response.status, response.headers["Content-Type"], response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read()

    def json(self, request: str) -> Any:
        status, _, body = self.get(request)
        assert status == 200, body
        return json.loads(body)

    def columns(self, request: str) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
        status, content_type, data = self.get(request)
        assert status == 200 and content_type == "application/x-tb-memplugin-columns", data[:300]
        (length,) = struct.unpack_from("<I", data)
        head = json.loads(data[4 : 4 + length])
        values = np.frombuffer(data[(4 + length + 7) // 8 * 8 :], "<f8").reshape(len(head["columns"]), head["rows"])
        return head, dict(zip(head["columns"], values, strict=True))


def environment(folder: pathlib.Path) -> dict[str, str]:
    (folder / "sitecustomize.py").write_text(BLOCKER)
    package = pathlib.Path(__file__).resolve().parents[2]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(package)])}


def start(logdir: pathlib.Path | str, folder: pathlib.Path, load_fast: str, flag: str = "--logdir") -> Server:
    """Starts TensorBoard on a free port and waits until it says where it is."""
    command = [sys.executable, "-m", "tensorboard.main", flag, str(logdir), "--port", "0", "--host", "127.0.0.1"]
    command += [f"--load_fast={load_fast}", "--path_prefix", PREFIX, "--reload_interval", "1"]
    process = subprocess.Popen(
        command, env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    said = []
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if line is None:
            break
        said.append(line)
        found = re.search(r"at (http://\S+)", line)
        if found:
            return Server(process, found[1])
    process.kill()
    raise AssertionError("TensorBoard did not start:\n" + "".join(said))


def wait_for(condition: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    """Polls until `condition` holds."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in time"
        pause.wait(0.1)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("runs")
    write_small_run(directory / "group" / "frozen")
    write_small_run(directory / "two", worker="worker_0")
    write_small_run(directory / "two", worker="worker_1")
    write_peaks(directory / "peaks")
    return directory


PEAK_STEPS = np.random.default_rng(1).choice(20_000, 200, replace=False)


def write_peaks(directory: pathlib.Path) -> None:
    """20,000 steps in 800 flushes; 200 of the steps are peaks of different heights, for one step only."""
    peaks = np.full(20_000, 100 * MIB)
    peaks[PEAK_STEPS] += np.arange(1, 201) * MIB
    writer = RunWriter(directory)
    for first in range(0, 20_000, 25):
        steps = range(first, first + 25)
        writer.samples(make_samples(steps, peaks[first : first + 25].tolist()))
        writer.activations(
            make_activations(steps, ["a", "b"], np.stack([peaks[first : first + 25], np.ones(25)], axis=1))
        )
    writer.close()


@pytest.fixture(scope="module", params=["true", "false"], ids=["fast", "python"])
def server(
    request: pytest.FixtureRequest, logdir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    running = start(logdir, tmp_path_factory.mktemp("blocker"), request.param)
    try:
        wait_for(lambda: [run["steps"] for run in running.json("runs")["runs"]] == [60, 20_000, 60])
        yield running
    finally:
        running.process.terminate()
        running.process.wait(timeout=30)


@pytest.fixture(scope="module")
def inspected(logdir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command line says of the same directory, TensorFlow blocked too."""
    command = [sys.executable, "-m", "tb_memplugin", "inspect", str(logdir), "--format", "json"]
    folder = tmp_path_factory.mktemp("inspect")
    done = subprocess.run(command, env=environment(folder), capture_output=True, text=True, timeout=120, check=True)
    runs: dict[str, Any] = json.loads(done.stdout)["runs"]
    return runs


def test_the_tab_is_listed_below_the_prefix(server: Server) -> None:
    assert urllib.parse.urlsplit(server.address).path == f"{PREFIX}/"
    with urllib.request.urlopen(f"{server.address}data/plugins_listing", timeout=60) as response:
        listing = json.load(response)
    assert listing[PLUGIN_NAME]["enabled"] is True and listing[PLUGIN_NAME]["tab_name"] == "Memory"


def test_runs_say_what_inspect_says(server: Server, inspected: dict[str, Any]) -> None:
    runs = {run["run"]: run for run in server.json("runs")["runs"]}
    assert runs.keys() == inspected.keys() == {"group/frozen", "peaks", "two"}
    for name, described in inspected.items():
        for field in ("sessions", "steps", "first_step", "last_step", "notes", "damage"):
            assert runs[name][field] == described[field], (name, field)
        devices = {device["device"]: device for device in runs[name]["devices"]}
        assert devices.keys() == described["devices"].keys()
        for device, figures in described["devices"].items():
            assert {field: devices[device][field] for field in figures} == figures
    assert runs["two"]["workers"] == ["worker_0", "worker_1"]
    assert set(inspected["two"]["devices"]) == {f"worker_0/{DEVICE}", f"worker_1/{DEVICE}"}


def test_snapshots_and_layers_say_what_inspect_says(server: Server, inspected: dict[str, Any]) -> None:
    for name, described in inspected.items():
        run = urllib.parse.quote(name, safe="")
        listed = server.json(f"snapshots?run={run}")["snapshots"]
        assert listed == [
            {
                key: value
                for key, value in snapshot.items()
                if key not in ("ledger", "saved_for_backward", "held_tensors")
            }
            for snapshot in described["snapshots"]
        ]
        for snapshot in described["snapshots"]:
            device = urllib.parse.quote(snapshot["device"], safe="")
            assert server.json(f"snapshot?run={run}&device={device}&step={snapshot['step']}") == {
                "run": name,
                **snapshot,
            }
        if described["layers"]:
            assert server.json(f"layers?run={run}")["layers"] == described["layers"]
        else:
            assert server.get(f"layers?run={run}")[0] == 404


def test_the_overview_sums_to_the_ledger_where_it_was_traced(server: Server, inspected: dict[str, Any]) -> None:
    head, columns = server.columns(f"overview?run=group%2Ffrozen&device={DEVICE}")
    assert columns["step"].tolist() == list(range(60))
    total = np.sum([columns[f"group/{at}"] for at in range(len(head["groups"]))], axis=0)
    assert total.tolist() == columns["peak_bytes"].tolist()
    traced = columns["step"][columns["traced"] == 1]
    assert traced.tolist() == [snapshot["step"] for snapshot in inspected["group/frozen"]["snapshots"]]


def test_every_one_of_200_peaks_is_there_under_default_flags(server: Server) -> None:
    # WHEN the steps around each peak are asked for
    _, columns = server.columns(f"overview?run=peaks&device={DEVICE}&points=10000")
    shown = dict(zip(columns["step"].tolist(), columns["peak_bytes"].tolist(), strict=True))
    # THEN all of them are there with their exact value
    assert [shown.get(float(step)) for step in PEAK_STEPS] == [float(100 * MIB + at * MIB) for at in range(1, 201)]
    head, columns = server.columns("activations?run=peaks&points=10000")
    assert head["total_rows"] == 20_000
    shown = dict(zip(columns["step"].tolist(), columns["layer/0"].tolist(), strict=True))
    assert [shown.get(float(step)) for step in PEAK_STEPS] == [float(100 * MIB + at * MIB) for at in range(1, 201)]


def test_wrong_requests_are_told(server: Server) -> None:
    assert server.get("overview?run=peaks")[0] == 400
    assert server.get("layers?run=none")[0] == 404
    assert server.get("static/../plugin.py")[0] == 404


def test_a_running_training_appears_and_grows(server: Server, logdir: pathlib.Path) -> None:
    # GIVEN a training that begins after TensorBoard
    name = f"live_{server.process.pid}"
    writer = RunWriter(logdir / name)

    def steps() -> int:
        return next((int(run["steps"]) for run in server.json("runs")["runs"] if run["run"] == name), 0)

    # WHEN it flushes, its steps appear, and each flush adds its own
    seen = []
    try:
        for first in (0, 10, 20):
            writer.samples(make_samples(range(first, first + 10), [MIB] * 10))
            writer.flush()
            expected = first + 10
            wait_for(lambda expected=expected: steps() == expected)  # type: ignore[misc]
            seen.append(server.columns(f"overview?run={name}&device={DEVICE}")[1]["step"].tolist())
        writer.close()
    finally:
        shutil.rmtree(logdir / name)
    assert seen == [list(range(10)), list(range(20)), list(range(30))]
