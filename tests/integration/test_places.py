"""One run in several places: copied, linked, named by ``--logdir_spec``; through the server and without it the same."""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from reading_cases import DEVICE, equal, write_small_run
from test_tensorboard_process import Server, start, wait_for

import tb_memplugin

NAMES = ("copied", "linked", "original")
PLACE = {"device": DEVICE}
QUESTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("overview", {**PLACE, "phase": "train"}),
    ("overview", {**PLACE, "phase": "validation"}),
    ("snapshots", PLACE),
    ("snapshot", {**PLACE, "step": 41}),
    ("layers", {}),
    ("layers", {"step": 3}),
    ("activations", {}),
    ("timelines", PLACE),
    ("timeline", {**PLACE, "step": 3}),
    ("maps", PLACE),
    ("map", {**PLACE, "step": 3}),
    ("map", {"oom": 0}),
    ("oom", {}),
    ("device_memory", PLACE),
)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A directory with a run, a copy of it, and a link to a third one elsewhere; given by a link itself."""
    real = tmp_path_factory.mktemp("real")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "far"
    write_small_run(real / "original", allocator=True)
    shutil.copytree(real / "original", real / "copied")
    shutil.copytree(real / "original", elsewhere)
    (real / "linked").symlink_to(elsewhere, target_is_directory=True)
    link = tmp_path_factory.mktemp("link") / "runs"
    link.symlink_to(real, target_is_directory=True)
    return link


def answers(server: Server, run: str, called: str | None = None) -> dict[str, bytes]:
    """The answers to all questions about `run`, as if it were called `called`."""
    found = {}
    for route, parameters in QUESTIONS:
        status, content_type, body = server.get(f"{route}?{urlencode({'run': run, **parameters})}")
        assert status == 200, body
        if content_type == "application/json":
            body = json.dumps({**json.loads(body), "run": called or run}).encode()
        else:
            # The name is in the head, whose length and padding it changes.
            length = int.from_bytes(body[:4], "little")
            head = json.dumps({**json.loads(body[4 : 4 + length]), "run": called or run})
            body = head.encode() + body[(4 + length + 7) // 8 * 8 :]
        found[f"{route} {parameters}"] = body
    return found


def facts(server: Server) -> dict[str, Any]:
    """What the list of runs says, but for the names, the marks and the order of the places."""
    return {
        run["run"]: {name: value for name, value in run.items() if name not in ("run", "version", "rank")}
        for run in server.json("runs")["runs"]
    }


def ready(server: Server, runs: int) -> bool:
    listed = server.json("runs")["runs"]
    return len(listed) == runs and all(run["steps"] == 60 and run["ooms"] == 1 for run in listed)


@pytest.fixture(scope="module", params=["true", "false"], ids=["fast", "python"])
def server(
    request: pytest.FixtureRequest, logdir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    running = start(logdir, tmp_path_factory.mktemp("blocker"), request.param)
    try:
        wait_for(lambda: ready(running, 3))
        yield running
    finally:
        running.process.terminate()
        running.process.wait(timeout=30)


def test_a_copy_and_a_link_show_what_the_run_shows(server: Server) -> None:
    listed = facts(server)
    assert sorted(listed) == sorted(NAMES)
    assert listed["copied"] == listed["linked"] == listed["original"]
    assert listed["original"]["damage"] == []
    expected = answers(server, "original")
    for name in ("copied", "linked"):
        assert answers(server, name, "original") == expected


def test_a_copy_and_a_link_load_as_the_run_does(logdir: pathlib.Path) -> None:
    runs = tb_memplugin.load(logdir)
    assert sorted(runs) == sorted(NAMES)
    for name in NAMES:
        workers = {worker: dataclasses.replace(run, name="original") for worker, run in runs[name].by_worker.items()}
        assert equal(dataclasses.replace(runs[name], name="original", by_worker=workers), runs["original"])


def test_a_run_named_by_logdir_spec_is_the_same(logdir: pathlib.Path, server: Server, tmp_path: pathlib.Path) -> None:
    # GIVEN a name for the run's own directory and one for that which holds all, of which only the Python reader knows
    spec = f"named:{logdir / 'original'},all:{logdir}"
    running = start(spec, tmp_path, "auto", flag="--logdir_spec")
    try:
        wait_for(lambda: ready(running, 4))
        listed = facts(running)
        assert sorted(listed) == ["all/copied", "all/linked", "all/original", "named"]
        expected = facts(server)["original"]
        assert all(said == expected for said in listed.values())
        assert answers(running, "named", "original") == answers(server, "original")
    finally:
        running.process.terminate()
        running.process.wait(timeout=30)
