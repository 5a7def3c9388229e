"""`tb-memplugin inspect --format json` of stored runs is unchanged."""

import json
import pathlib
from typing import Any

import pytest

from tb_memplugin.cli import main

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"
RENAMED = {"held_for_backward": "saved_for_backward", "remedies": "fixes"}
"""Keys that have another name since."""


def renamed(value: Any) -> Any:
    """The object with today's keys, without the sentences that are made while reading."""
    if isinstance(value, dict):
        if {"kind", "sentence", "enough"} <= set(value):  # whether a fix is enough was a sum, and is unknown now
            return {key: value[key] for key in ("kind", "sentence", "bytes")}
        return {
            RENAMED.get(key, key): "failed" if (key, one) == ("status", "died") else renamed(one)
            for key, one in value.items()
            # Source lines were not recorded; answers, devices and host memory are tested with their analysis.
            if key not in ("sentences", "answers", "compared", "host_memory") and (key, one) != ("line", None)
        }
    return [renamed(one) for one in value] if isinstance(value, list) else value


def test_stored_runs_are_described_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(FIXTURES / "runs"), "--format", "json"]) == 0
    now = json.loads(capsys.readouterr().out)
    before = json.loads((FIXTURES / "inspected.json").read_text(encoding="utf-8"))
    assert renamed(now) == renamed(before)
    assert len(now["runs"]["out_of_memory"]["oom"]) == 1
