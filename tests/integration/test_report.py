"""A report holds what the plugin's routes answer, byte for byte, and the page gets exactly that out
of the file."""

import base64
import gzip
import json
import pathlib
import re
import subprocess
import sys
from typing import Any
from urllib.parse import urlencode

import pytest
import requests_cases
from reading_cases import make_activations, write_small_run
from servers import BASE, client_on, without_version
from werkzeug.test import Client

from tb_memplugin.cli.report import DATA_ID
from tb_memplugin.storage.write import RunWriter

HOSTILE = "<img src=x onerror=alert(1)>"


def read_report(file: pathlib.Path) -> dict[str, Any]:
    """The data in a report."""
    (text,) = re.findall(
        rf'<script [^>]*\bid="{DATA_ID}"[^>]*>(.*?)</script', file.read_text(encoding="utf-8"), re.S
    )
    data: dict[str, Any] = json.loads(text)
    return data


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("runs")
    write_small_run(directory / "frozen", allocator=True)
    requests_cases.write_run(directory / "requests")
    for attempt in (0, 3600):
        write_small_run(directory / HOSTILE, start=1_790_000_000.0 + attempt)
    write_small_run(directory / "two", worker="worker_0")
    write_small_run(directory / "two", worker="worker_1")
    writer = RunWriter(directory / "activations", producer="summary")
    writer.activations(make_activations([0, 1], ["a", "b"], [[1, 2], [3, 4]]))
    writer.close()
    return directory


@pytest.fixture(scope="module")
def client(logdir: pathlib.Path) -> Client:
    return client_on(logdir)


@pytest.fixture(scope="module")
def report(logdir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The data of a report that the command line wrote."""
    file = tmp_path_factory.mktemp("report") / "memory.html"
    command = [sys.executable, "-m", "tb_memplugin", "report", str(logdir), "-o", str(file)]
    for run in ("frozen", HOSTILE, "two", "activations", "requests"):
        command += ["--run", run]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return read_report(file)


def test_every_answer_is_the_routes_own(report: dict[str, Any], client: Client) -> None:
    routes = set()
    for answer in report["answers"]:
        body = gzip.decompress(base64.b64decode(answer["data"]))
        response = client.get(f"{BASE}{answer['route']}?{urlencode(answer['parameters'])}")
        assert response.status_code == answer["status"], answer
        if answer["route"] == "runs":
            # A run's version is a mark of the place it is read from.
            mine, theirs = (
                {**json.loads(data), "runs": without_version(data)}
                for data in (body, response.data)
            )
            assert mine == theirs
        else:
            assert body == response.data, answer["parameters"]
        routes.add(answer["route"])
    assert routes == {
        *(
            "runs",
            "answers",
            "overview",
            "pool",
            "snapshots",
            "snapshot",
            "ledger_totals",
            "layers",
            "activations",
        ),
        *(
            "timelines",
            "timeline",
            "maps",
            "map",
            "oom",
            "fixes",
            "device_memory",
            "what_if",
            "devices",
            "host_memory",
        ),
        *("curve", "plan", "demand"),
    }
    predicted = [
        answer["parameters"] for answer in report["answers"] if answer["route"] == "what_if"
    ]
    assert {"run": "requests", "device": "CPU:0"} in predicted and all(
        len(place) == 2 for place in predicted
    )


def test_all_that_the_routes_list_is_in_it(report: dict[str, Any], client: Client) -> None:
    def held(route: str, *names: str) -> set[tuple[str, ...]]:
        found = [answer["parameters"] for answer in report["answers"] if answer["route"] == route]
        return {tuple(given.get(name, "") for name in names) for given in found}

    for run in client.get(f"{BASE}runs").get_json()["runs"]:
        name = run["run"]
        for device in run["devices"]:
            place = (name, device["device"])
            for route in ("answers", "overview", "ledger_totals"):
                assert {(*place, phase) for phase in run["phases"]} <= held(
                    route, "run", "device", "phase"
                )
            query = urlencode({"run": name, "device": device["device"]})
            for route in ("snapshot", "timeline", "map"):
                listed = client.get(f"{BASE}{route}s?{query}").get_json()[f"{route}s"]
                assert {(*place, str(one["step"])) for one in listed} <= held(
                    route, "run", "device", "step"
                )
    assert {("frozen", "0")} <= held("map", "run", "oom")
    assert {(HOSTILE, "0"), (HOSTILE, "30"), ("frozen", "30")} <= held("layers", "run", "step")
    sessions = {
        session for run, session in held("overview", "run", "session") if run == HOSTILE and session
    }
    assert len(sessions) == 2
    assert report["refusals"] == []


def test_it_needs_no_tensorflow(logdir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    code = (
        "import sys; from tb_memplugin.cli import main; code = main(sys.argv[1:]); "
        "sys.exit(code or any(name in sys.modules for name in ('tensorflow', 'keras')))"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "report",
        str(logdir),
        "-o",
        str(tmp_path / "r.html"),
        "--run",
        "two",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith("with two")
