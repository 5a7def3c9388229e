"""The list of runs: one run that takes long delays no other by more than the patience."""

import threading
import time
from typing import Any

import pytest

from tb_memplugin.reader.catalog import RunTags
from tb_memplugin.server.run_list import RunList


def catalog(**versions: str) -> dict[str, RunTags]:
    return {name: RunTags(name, version, (), ()) for name, version in versions.items()}


def test_a_slow_run_is_named_and_the_others_are_there_at_once() -> None:
    # GIVEN a run that takes long among others
    release, described = threading.Event(), []

    def describe(source: Any, tags: RunTags) -> dict[str, Any]:
        described.append(tags.name)
        if tags.name == "slow":
            assert release.wait(30)
        return {"run": tags.name, "steps": 7}

    runs = RunList(describe, patience_seconds=0.2)
    source: Any = None
    began = time.monotonic()
    first = runs.facts(source, catalog(a="1", slow="1", z="1"))
    # THEN the others are there, and it is said that this one is being read
    assert time.monotonic() - began < 10
    assert [run["steps"] for run in first] == [7, 0, 7]
    assert first[1]["damage"] == ["run slow is still being read"]
    # WHEN it has been read, it is there; nothing was read twice
    release.set()
    deadline = time.monotonic() + 30
    while runs.facts(source, catalog(a="1", slow="1", z="1"))[1]["steps"] != 7:
        assert time.monotonic() < deadline
    assert sorted(described) == ["a", "slow", "z"]


def test_a_run_that_changes_keeps_its_figures_until_it_has_been_read_again() -> None:
    release = threading.Event()
    release.set()

    def describe(source: Any, tags: RunTags) -> dict[str, Any]:
        if tags.name == "slow":
            assert release.wait(30)
        return {"run": tags.name, "version": tags.version}

    runs = RunList(describe, patience_seconds=0.1)
    source: Any = None
    runs.facts(source, catalog(a="1", slow="1"))
    release.clear()
    assert [run["version"] for run in runs.facts(source, catalog(a="2", slow="2"))] == ["2", "1"]
    release.set()


def test_without_patience_every_run_is_waited_for_and_errors_pass() -> None:
    def describe(source: Any, tags: RunTags) -> dict[str, Any]:
        raise OSError("gone")

    source: Any = None
    for patience in (None, 0.1):
        with pytest.raises(OSError, match="gone"):
            RunList(describe, patience).facts(source, catalog(a="1", b="1"))
