"""Examples and tables of `PAGES` between ``generated KIND: NAME`` and ``end``, from the declared answers and exports.

A table has the fields of an object, or the columns of a route or of an exported table, with their meanings, which are
those in the docstring of their record. Run as ``python tests/api_page.py`` to write them; tests compare them.
"""

import dataclasses
import json
import pathlib
import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from tb_memplugin.analysis import HOST_COLUMNS, PART_NAMES
from tb_memplugin.export import TABLES
from tb_memplugin.schema import (
    HeldTensorGroup,
    LayerActivations,
    LedgerRow,
    Replay,
    Samples,
    SavedRow,
    Snapshot,
    meanings,
)
from tb_memplugin.server.answer_types import OBJECTS, Object

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
"""Route to a record, columns that are fields of it, and other columns with what they are if the record has no such."""
ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("tb_memplugin/server/http_api.md", "docs/export.md")]
_WORDS = {str: "text", bool: "flag", int: "integer", float: "number"}


def _without_none(hint: Any) -> tuple[Any, bool]:
    """A type without its annotations and None, and whether it may be None."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    parts = [one for one in get_args(hint) if one is not types.NoneType]
    optional = types.NoneType in get_args(hint)
    return (_without_none(parts[0])[0] if optional else hint), optional


def _word(hint: Any) -> str:
    """A type in words."""
    bare, optional = _without_none(hint)
    if get_origin(bare) is tuple:
        word = f"list of {_word(get_args(bare)[0])}s"
    else:
        word = _WORDS.get(bare, "object" if dataclasses.is_dataclass(bare) else "text")
    return word + (" or null" if optional else "")


def _example(name: str, hint: Any) -> Any:
    """A value of a field's type."""
    if isinstance(hint, Object):
        value = {field: _example(field, of) for field, of in OBJECTS[hint.name].items()}
        return [value] if hint.many else value
    bare, _ = _without_none(hint)
    if get_origin(bare) is tuple:
        return [_example(name, get_args(bare)[0])]
    if dataclasses.is_dataclass(bare):
        return {field: _example(field, of) for field, of in OBJECTS[bare.__name__].items()}
    if get_origin(bare) is Literal:
        return get_args(bare)[0]
    return {int: 1048576 if "bytes" in name else 3, float: 0.5, bool: False}.get(bare, "…")


def documentation(page: str) -> str:
    """A page with its generated parts renewed."""

    def part(match: "re.Match[str]") -> str:
        if match[1] == "example":
            example = _example("", Object(match[2], many=False))
            text = f"```json\n{json.dumps(example, indent=2, ensure_ascii=False)}\n```"
        elif match[1] == "columns":
            record, names, others = COLUMNS[match[2]]
            told = dict.fromkeys(names, "") | dict(others)
            rows = [f"| `{name}` | {meanings(record).get(name, text)} |" for name, text in told.items()]
            text = "\n".join(["| column | meaning |", "|---|---|", *rows])
        elif match[1] == "export":
            table = TABLES[match[2]]
            rows = [f"| `{one.name}` | {one.kind} | {one.meaning} | {one.unknown or '–'} |" for one in table.columns]
            head = ["| column | type | meaning | NULL |", "|---|---|---|---|"]
            text = "\n".join([f"A row is {table.row}.", "", *head, *rows])
        else:
            told = meanings(DOCUMENTED[match[2]])
            fields = OBJECTS[match[2]].items()
            rows = [f"| `{name}` | {_word(hint)} | {told.get(name, '')} |" for name, hint in fields]
            text = "\n".join(["| field | type | meaning |", "|---|---|---|", *rows])
        return f"<!-- generated {match[1]}: {match[2]} -->\n{text}\n<!-- end -->"

    return re.sub(r"<!-- generated (\w+): (\w+) -->\n.*?<!-- end -->", part, page, flags=re.DOTALL)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(documentation(path.read_text(encoding="utf-8")), encoding="utf-8")
