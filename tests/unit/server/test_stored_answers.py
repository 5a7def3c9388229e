"""The server's answers on runs that are written the same way every time are those stored in
`fixtures/answers`."""

import base64
import gzip
import json
import math
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"
sys.path.insert(0, str(FIXTURES))

import make_answers  # noqa: E402

from tests.unit.server.test_http import unpack  # noqa: E402

SHOWN = 12
"""Differences that a failure lists."""


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return {name: make_answers.of_no_day(data) for name, data in make_answers.reports()}


def contents(report: Mapping[str, Any]) -> dict[str, Any]:
    def said(answer: Mapping[str, Any]) -> Any:
        body = gzip.decompress(base64.b64decode(answer["data"]))
        if answer["status"] != 200:
            return body.decode()
        # Columns have the length of their head before them, whose first byte may be that of "{".
        return unpack(body) if 0 in body[:4] else json.loads(body)

    answers = {f"{one['route']} {one['parameters']}": said(one) for one in report["answers"]}
    refusals = {f"{one['route']} {one['parameters']}": one["why"] for one in report["refusals"]}
    return {"answers": answers, "refusals": refusals, "absent": report["absent"]}


def differences(place: str, old: Any, new: Any) -> Iterator[str]:
    """Places at which two answers differ; numbers may differ by rounding."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differences(
                f"{place} › {key}", old.get(key, "nothing"), new.get(key, "nothing")
            )
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(f"{place} › {index}", one, other)
    elif isinstance(old, float) and isinstance(new, float):
        if not (math.isclose(old, new, rel_tol=1e-9) or (math.isnan(old) and math.isnan(new))):
            yield f"{place}: {new} instead of {old}"
    elif old != new:
        yield f"{place}: {new!r:.300} instead of {old!r:.300}"


@pytest.mark.parametrize("name", ["samples", "tasks", "devices", "recorded"])
def test_answers_are_those_stored(now: dict[str, Any], name: str) -> None:
    old = json.loads((make_answers.ANSWERS / f"{name}.json").read_text(encoding="utf-8"))
    found = list(differences(name, contents(old), contents(now[name])))
    assert not found, "\n".join(
        [
            f"{len(found)} differences; if they are intended, run tests/fixtures/make_answers.py:",
            *found[:SHOWN],
        ]
    )
