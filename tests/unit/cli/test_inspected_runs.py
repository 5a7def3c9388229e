"""`tb-memplugin inspect --format json` of stored runs is unchanged."""

import json
import pathlib
from typing import Any

import pytest

from tb_memplugin.cli import main

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"
DERIVED = ("sentences", "sentence", "reason", "answers", "compared", "host_memory", "findings")
"""Keys whose values are made while reading, and are tested with their analysis."""


def stored(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: stored(one) for key, one in value.items() if key not in DERIVED}
    return [stored(one) for one in value] if isinstance(value, list) else value


def test_stored_runs_are_described_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(FIXTURES / "runs"), "--format", "json"]) == 0
    now = json.loads(capsys.readouterr().out)
    before = json.loads((FIXTURES / "inspected.json").read_text(encoding="utf-8"))
    assert stored(now) == stored(before)
    assert sorted(now["runs"]) == ["finished", "out_of_memory", "small"]
    assert len(now["runs"]["out_of_memory"]["oom"]) == 1
