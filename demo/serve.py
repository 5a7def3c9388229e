"""Starts TensorBoard on a log directory, waits until the Memory tab answers, and prints the tab's
address last.

usage: python demo/serve.py LOGDIR [--port 6006] [--train] [--check]

--train first trains the demo's runs, and shows each as soon as it is recorded; --check stops
TensorBoard again as soon as it answers.
"""

import argparse
import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

START_SECONDS = 180
SCRIPTS = ("out_of_memory", "leak", "frozen_backbone")
"""The trainings, the quickest first."""


def free_port(wanted: int) -> int:
    """`wanted` if it is free, else any free port."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise SystemExit("no free port")


def wait_for_runs(address: str, server: "subprocess.Popen[bytes]") -> list[str]:
    """Names of the runs that the Memory tab shows, once there are any."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(
                f"{address}/data/plugin/tb_memplugin/runs", timeout=5
            ) as answer:
                runs = [run["run"] for run in json.load(answer)["runs"]]
            if runs:
                return runs
        except (urllib.error.URLError, OSError, ValueError):
            pass
        time.sleep(0.2)
    raise SystemExit(f"TensorBoard did not show a run with memory data within {START_SECONDS} s")


@contextlib.contextmanager
def tensorboard(logdir: str, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", logdir, "--port", str(port)]
    command += ["--reload_interval", "5"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            yield server
        finally:
            server.terminate()


def train(script: str, logdir: str) -> None:
    """Runs one training; what it prints is short, and TensorFlow's messages are only shown if it
    fails."""
    command = [sys.executable, str(pathlib.Path(__file__).with_name(f"{script}.py"))]
    done = subprocess.run(
        [*command, "--logdir", logdir], stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{done.stderr}\ndemo/{script}.py failed")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logdir")
    parser.add_argument("--port", type=int, default=6006)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    port = free_port(arguments.port)
    tab = f"http://localhost:{port}/#tb_memplugin"
    first, *others = SCRIPTS if arguments.train else (None,)
    if first:
        train(first, arguments.logdir)
    with tensorboard(arguments.logdir, port) as server, contextlib.suppress(KeyboardInterrupt):
        runs = wait_for_runs(f"http://localhost:{port}", server)
        if others:
            print(f"The tab shows {', '.join(runs)}; more runs follow: {tab}", flush=True)
        for script in others:
            train(script, arguments.logdir)
        names = f"the runs {', '.join(runs)}" if not others else "all runs"
        print(f"TensorBoard shows {names} (press Ctrl+C to stop):\n{tab}", flush=True)
        if not arguments.check:
            server.wait()


if __name__ == "__main__":
    main()
