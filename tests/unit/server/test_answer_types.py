"""The declared objects are those of the stored answers, and the page's checks are made from
them."""

import base64
import dataclasses
import functools
import gzip
import json
import operator
import pathlib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

import pytest
from api_page import PAGES, documentation

from tb_memplugin.schema import Integers
from tb_memplugin.server import DATA_ROUTES
from tb_memplugin.server.answer_types import OBJECTS, texts_of, typescript
from tests.unit.server.test_http import unpack

ROOT = pathlib.Path(__file__).parents[3]


def stored() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for path in (ROOT / "tests" / "fixtures" / "answers").glob("*.json"):
        for one in json.loads(path.read_text())["answers"]:
            body = gzip.decompress(base64.b64decode(one["data"]))
            if one["status"] == 200:
                found.setdefault(one["route"], []).append(
                    unpack(body)[0] if 0 in body[:4] else json.loads(body)
                )
    return found


STORED = stored()


def faults(place: str, value: Any, hint: Any) -> Iterator[str]:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        yield from faults(place, value, parts[0])
    elif value is None:
        if types.NoneType not in parts:
            yield f"{place}: null"
    elif types.NoneType in parts:
        rest = tuple(one for one in parts if one is not types.NoneType)
        yield from faults(place, value, functools.reduce(operator.or_, rest))
    elif dataclasses.is_dataclass(hint):
        yield from object_faults(place, value, OBJECTS[hint.__name__])  # type: ignore[union-attr]
    elif origin in (tuple, Sequence):
        for one in value:
            yield from faults(place, one, parts[0])
    elif origin is Mapping or hint == Integers:
        values = value.values() if isinstance(value, dict) else value
        if not all(isinstance(one, int | float) for one in values):
            yield f"{place}: {value!r:.60}"
    elif hint in (str, bool, int, float):
        if not isinstance(value, (int, float) if hint is float else hint) or isinstance(
            value, bool
        ) != (hint is bool):
            yield f"{place}: {value!r:.60}"
    elif value not in texts_of(hint):
        yield f"{place}: {value!r:.60}"


def object_faults(place: str, value: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[str]:
    if value.keys() != fields.keys():
        yield f"{place}: {sorted(value.keys() ^ fields.keys())}"
    for name in value.keys() & fields.keys():
        yield from faults(f"{place} › {name}", value[name], fields[name])


# which no report has
@pytest.mark.parametrize("route", sorted(DATA_ROUTES.keys() - {"batch_limit"}))
def test_stored_answers_have_the_declared_fields(route: str) -> None:
    for answer in STORED[route]:
        head = {name: value for name, value in answer.items() if name not in ("rows", "columns")}
        assert not list(object_faults(route, head, OBJECTS[DATA_ROUTES[route].kind.__name__]))


def test_the_pages_types_are_made_from_these() -> None:
    written = (ROOT / "frontend" / "src" / "schema.ts").read_text(encoding="utf-8")
    assert written == typescript(), (
        "run python -m tb_memplugin.server.answer_types frontend/src/schema.ts"
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_pages_of_the_api_and_of_the_export_are_made_from_these(path: pathlib.Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert documentation(page) == page, "run python tests/api_page.py"
