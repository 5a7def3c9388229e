"""The viewer's servers: ``tensorboard`` with TensorFlow blocked, and one in this process."""

import contextlib
import json
import os
import pathlib
import queue
import re
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
from tensorboard.backend import application
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from werkzeug.test import Client

from tb_memplugin.plugin_loader import MemoryLoader
from tb_memplugin.version import PLUGIN_NAME

BASE = f"/data/plugin/{PLUGIN_NAME}/"
PREFIX = "/some/prefix"
PAGE_SERVER = pathlib.Path(__file__).parents[1] / "page_server.py"
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
Columns = tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]


def decode(data: bytes) -> Columns:
    """The head of an answer of columns, and the columns."""
    (length,) = struct.unpack_from("<I", data)
    head = json.loads(data[4 : 4 + length])
    values = np.frombuffer(data[(4 + length + 7) // 8 * 8 :], "<f8").reshape(
        len(head["columns"]), head["rows"]
    )
    return head, dict(zip(head["columns"], values, strict=True))


def without_version(data: bytes) -> list[dict[str, Any]]:
    """The runs of an answer without their version, a mark of the place that they are read from."""
    return [
        {name: value for name, value in run.items() if name != "version"}
        for run in json.loads(data)["runs"]
    ]


def multiplexer(logdir: pathlib.Path) -> plugin_event_multiplexer.EventMultiplexer:
    """TensorBoard's Python reader with its default sample sizes."""
    reading = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={})
    reading.AddRunsFromDirectory(str(logdir))
    reading.Reload()
    return reading


def client_over(provider: Any) -> Client:
    plugin = MemoryLoader().load(base_plugin.TBContext(data_provider=provider))
    return Client(application.TensorBoardWSGI([plugin], data_provider=provider))


def client_on(logdir: pathlib.Path) -> Client:
    """A client of TensorBoard's application in this process."""
    return client_over(data_provider.MultiplexerDataProvider(multiplexer(logdir), str(logdir)))


class Server:
    """A running server."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process, self.address = process, address

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)

    def get(self, request: str) -> tuple[int, str, bytes]:
        """Status, content type and body of a route of the plugin."""
        try:
            with urllib.request.urlopen(
                f"{self.address}data/plugin/{PLUGIN_NAME}/{request}", timeout=60
            ) as response:
                return response.status, response.headers["Content-Type"], response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read()

    def json(self, request: str) -> Any:
        status, _, body = self.get(request)
        assert status == 200, body
        return json.loads(body)

    def columns(self, request: str) -> Columns:
        status, content_type, data = self.get(request)
        assert status == 200 and content_type == "application/x-tb-memplugin-columns", data[:300]
        return decode(data)

    def runs(self) -> dict[str, Any]:
        return {run["run"]: run for run in self.json("runs")["runs"]}


def environment(folder: pathlib.Path) -> dict[str, str]:
    (folder / "sitecustomize.py").write_text(BLOCKER)
    package = pathlib.Path(__file__).resolve().parents[2]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(package)])}


def inspect(logdir: pathlib.Path | str, folder: pathlib.Path) -> dict[str, Any]:
    """What the command line says of a directory's runs."""
    command = [sys.executable, "-m", "tb_memplugin", "inspect", str(logdir), "--format", "json"]
    done = subprocess.run(
        command, env=environment(folder), capture_output=True, text=True, timeout=120, check=True
    )
    runs: dict[str, Any] = json.loads(done.stdout)["runs"]
    return runs


def start(
    logdir: pathlib.Path | str, folder: pathlib.Path, load_fast: str, flag: str = "--logdir"
) -> Server:
    """Starts TensorBoard on a free port and waits until it says where it is."""
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        flag,
        str(logdir),
        "--port",
        "0",
        "--host",
        "127.0.0.1",
    ]
    command += [f"--load_fast={load_fast}", "--path_prefix", PREFIX, "--reload_interval", "1"]
    process = subprocess.Popen(
        command,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
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
    with contextlib.suppress(queue.Empty):
        while (line := lines.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
            said.append(line)
            if found := re.search(r"at (http://\S+)", line):
                return Server(process, found[1])
    process.kill()
    raise AssertionError("TensorBoard did not start:\n" + "".join(said))


def view(logdir: pathlib.Path | str, folder: pathlib.Path) -> Server:
    """Starts `page_server`, which reads with TensorBoard's reader in Python."""
    process = subprocess.Popen(
        [sys.executable, str(PAGE_SERVER), str(logdir)],
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    address = process.stdout.readline().strip()
    if not address:
        raise AssertionError(process.stderr.read())
    return Server(process, address)


def wait_for(condition: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    """Polls until `condition` holds."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in time"
        pause.wait(0.1)
