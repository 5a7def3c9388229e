"""The memory of a TensorBoard, and requests to it by many clients."""

import dataclasses
import json
import pathlib
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from servers import Server

ROUTES = (
    *("runs", *(f"overview?run={name}&device=CPU:0" for name in "abc")),
    *(
        "snapshots?run=a",
        "layers?run=b",
        "activations?run=c",
        "answers?run=a",
        "pool?run=b&device=CPU:0",
    ),
)
"""What clients ask of the runs a, b and c."""


def memory_mb(server: Server, highest: bool = True) -> int:
    """The highest, or the present, resident memory of the server's process in MB."""
    field = "VmHWM" if highest else "VmRSS"
    for line in pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) // 1000
    raise AssertionError(f"no {field}")


@dataclasses.dataclass(frozen=True)
class Asked:
    """Seconds until the honest run was listed, until the crafted one was read, and until its views
    were answered.

    `memory_mb` is the highest resident memory of the server meanwhile, less that before the first
    request.
    """

    honest_seconds: float
    read_seconds: float
    views_seconds: float
    memory_mb: int
    damage: tuple[str, ...]


def ask(server: Server) -> Asked:
    """Request the list of runs until the crafted one is read, then the views of its first
    device."""
    before = memory_mb(server, highest=False)
    began = time.monotonic()
    honest = read = None
    found: dict[str, dict[str, object]] = {}
    while read is None:
        found = {run["run"]: run for run in server.json("runs")["runs"]}
        now = time.monotonic() - began
        if honest is None and found.get("honest", {}).get("steps") == 5:
            honest = now
        pending = any(_is_read_further(run) for run in found.values())
        if honest is not None and not pending:
            read = now
        assert now < 120, found
    began = time.monotonic()
    damage: list[str] = []
    for name, run in found.items():
        if name == "honest":
            continue
        damage += [str(sentence) for sentence in run["damage"]]  # type: ignore[attr-defined]
        quoted = urllib.parse.quote(name, safe="")
        for device in run["devices"][:1]:  # type: ignore[index]
            for route in ("overview", "pool", "host_memory"):
                server.get(
                    f"{route}?run={quoted}&device={urllib.parse.quote(device['device'], safe='')}"
                )
        for route in (
            "devices",
            "activations",
            "snapshots",
            "layers",
            "answers",
            "maps",
            "timelines",
        ):
            status, _, body = server.get(f"{route}?run={quoted}")
            assert status in (200, 404), body
            if route == "devices" and status == 200:
                damage += json.loads(body)["damage"]
    return Asked(
        honest or 0.0, read, time.monotonic() - began, memory_mb(server) - before, tuple(damage)
    )


@dataclasses.dataclass(frozen=True)
class Load:
    """Result of a load test."""

    requests: int
    errors: int
    p95_seconds: float
    before_mb: int
    after_mb: int


def load_test(server: Server, routes: Sequence[str], clients: int, requests: int) -> Load:
    """Let `clients` threads make `requests` requests each."""
    for route in routes:
        server.get(route)
    before = memory_mb(server, highest=False)

    def client(number: int) -> list[tuple[float, bool]]:
        answers = []
        for at in range(requests):
            began = time.monotonic()
            status, _, _ = server.get(routes[(number + at) % len(routes)])
            answers.append((time.monotonic() - began, status != 200))
        return answers

    with ThreadPoolExecutor(clients) as pool:
        answers = sorted(
            answer for of_client in pool.map(client, range(clients)) for answer in of_client
        )
    errors, p95 = sum(failed for _, failed in answers), answers[int(0.95 * len(answers))][0]
    return Load(len(answers), errors, p95, before, memory_mb(server, highest=False))


def _is_read_further(run: Mapping[str, object]) -> bool:
    """Whether a run, or one of its files, is still being read."""
    return run["status"] == "reading" or "still being read" in str(run["damage"])


def shown(server: Server) -> dict[str, dict[str, object]]:
    """The list of runs by name, after all have been read."""
    deadline = time.monotonic() + 120
    while True:
        runs = {run["run"]: run for run in server.json("runs")["runs"]}
        if not any(_is_read_further(run) for run in runs.values()) or time.monotonic() > deadline:
            return runs
        time.sleep(0.2)
