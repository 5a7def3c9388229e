"""The slow questions of a directory are asked before the page asks them, and only while nothing
else is."""

import pathlib
import threading
import time
from typing import Any

import pytest
import requests_cases
from reading_cases import write_small_run
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from tb_memplugin.server import Server, ahead, predictions
from tb_memplugin.server.ahead import Ahead

PATIENCE = 60


def wait_for(condition: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Context:
    data_provider, flags = None, None

    def __init__(self, logdir: pathlib.Path) -> None:
        self.logdir = str(logdir)


def get(server: Server, route: str, **values: str) -> Any:
    return server.respond(
        route, Request(EnvironBuilder(path=f"/{route}", query_string=values).get_environ())
    )


def test_what_the_page_asks_first_of_the_worst_run_is_computed_when_it_is_listed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a directory with a run that can be simulated
    requests_cases.write_run(tmp_path / "traced")
    write_small_run(tmp_path / "without")
    server = Server(Context(tmp_path))
    computed: list[str] = []
    lookup = server._lookup(*server._sources.of(Request(EnvironBuilder().get_environ())))
    once = predictions._once

    def noting(of: Any, key: Any, loaded: Any, compute: Any, **first: bool) -> Any:
        def noted() -> Any:
            if of.reader is lookup.reader:  # not of another test's server
                computed.append(getattr(key[0], "__name__", key[0]))
            return compute()

        return once(of, key, loaded, noted, **first)

    monkeypatch.setattr(predictions, "_once", noting)
    # WHEN the page asks for the list, which does not wait
    listed = get(server, "runs")
    assert listed.status_code == 200
    wait_for(lambda: server._ahead._thread is None)
    # THEN what it asks next has been computed, each once, and is not computed again
    before = sorted(computed)
    assert before == ["Curve", "Curve", "WhatIf", "WhatIf", "plan", "plan"]
    for route in ("what_if", "curve", "plan"):
        assert get(server, route, run="traced", device="CPU:0").status_code == 200
    assert get(server, "runs").status_code == 200
    wait_for(lambda: server._ahead._thread is None)
    assert sorted(computed) == before


def test_questions_wait_while_requests_are_answered_and_a_fault_stops_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ahead, "QUIET_SECONDS", 0.05)
    asked: list[int] = []
    done = threading.Event()
    of = Ahead()

    def fail() -> None:
        asked.append(1)
        raise ValueError("no such device")

    with of.request():
        of.ask([("first", fail), ("second", lambda: (asked.append(2), done.set()))])
        time.sleep(0.3)
        assert asked == []
    assert done.wait(PATIENCE) and asked == [1, 2]
    # WHEN they are asked for again THEN nothing happens
    wait_for(lambda: of._thread is None)
    of.ask([("first", fail)])
    assert of._thread is None and asked == [1, 2]
