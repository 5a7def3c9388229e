"""Starts TensorBoard on a log directory, waits until the Memory tab answers, and prints the tab's
address last.

usage: python demo/serve.py LOGDIR [--port 6006] [--check]      (--check stops it again as soon as
it answers)
"""

import argparse
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

START_SECONDS = 60


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logdir")
    parser.add_argument("--port", type=int, default=6006)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    port = free_port(arguments.port)
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        arguments.logdir,
        "--port",
        str(port),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            address = f"http://localhost:{port}"
            runs = wait_for_runs(address, server)
            print(
                f"TensorBoard shows the runs {', '.join(runs)} (press Ctrl+C to stop):", flush=True
            )
            print(f"{address}/#tb_memplugin", flush=True)
            if not arguments.check:
                server.wait()
        except KeyboardInterrupt:
            pass
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
