"""Lists of fields in `PAGES` between ``generated KIND: NAME`` and ``end``, from the declared
answers and exports.

An ``answer`` lists the fields of an object and of those in it by type, each object once on the
page. A ``list`` has the fields of an object, ``columns`` those of a route, ``shared`` and
``export`` those of exported tables, with their meanings, which are those in the docstring of their
record. Run as ``python tests/api_page.py`` to write them; tests compare them.
"""

import dataclasses
import pathlib
import re
import textwrap
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from tb_memplugin.analysis import HOST_COLUMNS, PART_NAMES
from tb_memplugin.export import TABLES
from tb_memplugin.schema import (
    HeldTensorGroup,
    Integers,
    LayerActivations,
    LedgerRow,
    Replay,
    Samples,
    SavedRow,
    Snapshot,
    meanings,
)
from tb_memplugin.server.answer_types import OBJECTS

DOCUMENTED: Mapping[str, type] = {
    one.__name__: one for one in (Snapshot, Replay, LedgerRow, SavedRow, HeldTensorGroup)
} | {"SnapshotSummary": Snapshot}
"""Object to the record whose docstring says what its fields are."""
_OF_GROUPS = "bytes of the first entry of `groups`; `group/1`, … those of the others, in order"
_OF_LAYERS = "bytes of the first entry of `layers`; `layer/1`, … those of the others, in order"
COLUMNS: Mapping[str, tuple[type, tuple[str, ...], Mapping[str, str]]] = {
    "host_memory": (Samples, HOST_COLUMNS, PART_NAMES),
    "ledger_totals": (Snapshot, ("step", "wall_time", "in_use_bytes"), {"group/0": _OF_GROUPS}),
    "activations": (LayerActivations, ("step", "wall_time"), {"layer/0": _OF_LAYERS}),
}
"""Route to a record, columns that are fields of it, and other columns with what they are if the
record has no such."""
ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("tb_memplugin/server/http_api.md", "docs/export.md")]
_WIDTH = 100
_WORDS = {str: "text", bool: "flag", int: "integer", float: "number"}


def _without_none(hint: Any) -> tuple[Any, bool]:
    """A type without its annotations and None, and whether it may be None."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    parts = [one for one in get_args(hint) if one is not types.NoneType]
    optional = types.NoneType in get_args(hint)
    return (_without_none(parts[0])[0] if optional else hint), optional


class Object(NamedTuple):
    """An object of `OBJECTS` in a field, or a list of them."""

    name: str
    many: bool
    optional: bool


def _object(hint: Any) -> Object | None:
    """The object or objects of a field's type; None for a plain value."""
    bare, optional = _without_none(hint)
    if many := get_origin(bare) in (tuple, Sequence):
        bare, _ = _without_none(get_args(bare)[0])
    return Object(bare.__name__, many, optional) if dataclasses.is_dataclass(bare) else None  # type: ignore[union-attr]


def _word(hint: Any) -> tuple[str, str]:
    """A plain value's type in a word, and its marks: ``[]`` for a list, ``?`` for one that may be
    null."""
    if hint == Integers:
        return "integer", "[]"
    bare, optional = _without_none(hint)
    mark = "?" if optional else ""
    if get_origin(bare) in (tuple, Sequence):
        word, inner = _word(get_args(bare)[0])
        return word, f"{inner}[]{mark}"
    return "figures" if get_origin(bare) is Mapping else _WORDS.get(bare, "text"), mark


def _listed(name: str, seen: set[str]) -> Iterator[str]:
    """Fields of an object by type, then those of the objects in it that are not in `seen`."""
    seen.add(name)
    by_type: dict[str, list[str]] = {}
    within: list[str] = []
    for field, hint in OBJECTS[name].items():
        held = _object(hint)
        if held is not None:
            marks = ("[]" if held.many else "") + ("?" if held.optional else "")
            by_type.setdefault("", []).append(f"{field}{marks} ({held.name})")
            within.append(held.name)
            continue

        word, marks = _word(hint)
        by_type.setdefault(word, []).append(field + marks)

    yield name
    for word, fields in by_type.items():
        text = f"{word or 'objects'}: {', '.join(fields)}"
        yield textwrap.fill(
            text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )
    for one in dict.fromkeys(within):
        if one not in seen and one not in DOCUMENTED:
            yield from _listed(one, seen)


def example(name: str) -> dict[str, Any]:
    """An object with a value of each field's type."""
    return {field: _example(field, hint) for field, hint in OBJECTS[name].items()}


def _example(name: str, hint: Any) -> Any:
    """A value of a field's type."""
    held = _object(hint)
    if held is not None:
        return [example(held.name)] if held.many else example(held.name)
    bare, _ = _without_none(hint)
    if hint == Integers:
        return [3]
    if get_origin(bare) is Mapping:
        return {}
    if get_origin(bare) in (tuple, Sequence):
        return [_example(name, get_args(bare)[0])]
    return {int: 3, float: 0.5, bool: False}.get(bare, "…")


def _shared() -> Mapping[str, Any]:
    """Columns that at least three of the exported tables have, by name."""
    columns = Counter(column for table in TABLES.values() for column in table.columns)
    return {column.name: column for column, count in columns.items() if count > 2}


def _columns(columns: Iterable[Any]) -> Iterator[str]:
    """A line for each column of an exported table."""
    for one in columns:
        other = f"; NULL: {one.unknown}" if one.unknown not in ("", "unknown") else ""
        yield _line(one.name, one.kind, bool(one.unknown), one.meaning + other)


def _line(name: str, word: str, unknown: bool, meaning: str) -> str:
    """A field with its meaning; its type is left out if it is the usual one."""
    kind = "" if word == ("integer" if name.endswith("_bytes") else "text") else f" ({word})"
    return f"- `{name}`{'?' if unknown else ''}{kind}: {meaning}"


def _field(name: str, hint: Any, meaning: str) -> str:
    """A line for a field of an object."""
    held = _object(hint)
    if held is not None:
        return _line(name, held.name + ("[]" if held.many else ""), held.optional, meaning)
    word, marks = _word(hint)
    return _line(name, word + marks.rstrip("?"), marks.endswith("?"), meaning)


def documentation(page: str) -> str:
    """A page with its generated parts renewed."""
    seen: set[str] = set()
    shared = _shared()

    def part(match: "re.Match[str]") -> str:
        kind, name = match[1], match[2]
        if kind == "answer":
            lines = ["```text", *_listed(name, seen), "```"]
        elif kind == "columns":
            record, names, others = COLUMNS[name]
            told = dict.fromkeys(names, "") | dict(others)
            lines = [
                f"- `{field}`: {meanings(record).get(field, text)}" for field, text in told.items()
            ]
        elif kind == "shared":
            lines = list(_columns(shared.values()))
        elif kind == "export":
            table = TABLES[name]
            usual = [f"`{one.name}`" for one in table.columns if shared.get(one.name) == one]
            own = [one for one in table.columns if shared.get(one.name) != one]
            lines = [f"A row is {table.row}. Shared: {', '.join(usual)}.", "", *_columns(own)]
        else:
            told = meanings(DOCUMENTED[name])
            lines = [
                _field(field, hint, told.get(field, "")) for field, hint in OBJECTS[name].items()
            ]
        text = "\n".join(lines)
        return f"<!-- generated {kind}: {name} -->\n{text}\n<!-- end -->"

    return re.sub(r"<!-- generated (\w+): (\w+) -->\n.*?<!-- end -->", part, page, flags=re.DOTALL)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(documentation(path.read_text(encoding="utf-8")), encoding="utf-8")
