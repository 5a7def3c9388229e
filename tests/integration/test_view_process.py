"""``tb-memplugin view`` on a real run, TensorFlow blocked: the answers are TensorBoard's, byte for
byte."""

import contextlib
import http.client
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
import requests_cases
from reading_cases import DEVICE, MIB, make_samples, write_small_run
from servers import Server, hear_ctrl_c, view, wait_for
from servers import start as start_tensorboard
from test_http_api import REQUESTS

from tb_memplugin.storage.write import RunWriter

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUESTIONS = (
    *REQUESTS.values(),
    "overview?run=leak&device=CPU:0&first_step=2&last_step=5&points=10",
    "what_if?run=leak&batch_size=64",
)
REFUSED = ("overview?run=leak", "layers?run=none", "static/../plugin.py", "runs?step=1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("blocker")


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A real training, and runs that the package's own writer wrote."""
    directory = tmp_path_factory.mktemp("runs")
    command = [
        sys.executable,
        str(ROOT / "demo" / "leak.py"),
        "--logdir",
        str(directory),
        "--steps",
        "12",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    write_small_run(directory / "frozen", allocator=True)
    requests_cases.write_run(directory / "requests")
    return directory


@pytest.fixture(scope="module")
def viewer(logdir: pathlib.Path, folder: pathlib.Path) -> Iterator[Server]:
    with view(logdir, folder) as running:
        wait_for(lambda: len(running.runs()) == 3)
        yield running


def test_it_answers_as_tensorboard_does(
    viewer: Server, logdir: pathlib.Path, folder: pathlib.Path
) -> None:
    # GIVEN a TensorBoard on the same directory
    with start_tensorboard(logdir, folder, "auto") as tensorboard:
        wait_for(lambda: len(tensorboard.runs()) == 3)
        # THEN every answer is the same: status, content type and bytes
        for question in QUESTIONS:
            answer = viewer.get(question)
            assert answer[0] == 200, (question, answer)
            assert answer == tensorboard.get(question), question
        for question in REFUSED:
            answer = viewer.get(question)
            assert answer[0] in (400, 404)
            assert answer == tensorboard.get(question), question
        # AND the page is the same, under the same policy
        assert viewer.get("index.js") == tensorboard.get("index.js")
        assert policy(viewer.address) == policy(tensorboard.address)


def policy(address: str) -> str:
    """The content security policy of a document, hashes of TensorBoard's own inline scripts left
    out."""
    with urllib.request.urlopen(address, timeout=60) as response:
        assert response.headers["Content-Type"].startswith("text/html")
        text: str = response.headers["Content-Security-Policy"]
    return text


def test_new_data_appears(viewer: Server, logdir: pathlib.Path) -> None:
    writer = RunWriter(logdir / "later")
    for first in (0, 10):
        writer.samples(make_samples(range(first, first + 10), [MIB] * 10))
        writer.flush()
        wait_for(lambda end=first + 10: viewer.runs().get("later", {}).get("steps") == end)  # type: ignore[misc]
    writer.close()
    _, columns = viewer.columns(f"overview?run=later&device={DEVICE}")
    assert columns["step"].tolist() == list(range(20))


def test_it_does_not_import_tensorflow_even_if_it_is_installed(
    logdir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    # GIVEN TensorFlow, and TensorBoard's reader that uses it if it can: the one without the data
    # server
    code = f"""
import sys, time, urllib.request
sys.modules["tensorboard_data_server"] = None
from tb_memplugin.cli.view import start
address = start({str(logdir)!r}, "localhost", 0)
deadline = time.monotonic() + 60
while b"leak" not in (body := urllib.request.urlopen(address + "data/plugin/tb_memplugin/runs").read()):
    assert time.monotonic() < deadline, body
    time.sleep(0.1)
print([name for name in sys.modules if name.partition(".")[0] in ("tensorflow", "keras")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize(
    "started",
    [
        [sys.executable, "-m", "tb_memplugin"],
        [str(pathlib.Path(sys.executable).parent / "tb-memplugin")],
    ],
)
def test_ctrl_c_ends_it_while_requests_are_being_answered(
    logdir: pathlib.Path, started: list[str]
) -> None:
    command = [*started, "view", str(logdir), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=hear_ctrl_c
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        server = Server(process, process.stdout.readline().strip())
        answered = threading.Event()

        def ask() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                for size in itertools.count(8):  # an answer that is not cached
                    server.get(f"what_if?run=leak&batch_size={size}")
                    answered.set()

        clients = [threading.Thread(target=ask) for _ in range(4)]
        for client in clients:
            client.start()
        try:
            assert answered.wait(60)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()
        for client in clients:
            client.join()
