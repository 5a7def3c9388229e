"""The objects in the answers of all routes: each field with its type, as the records declare it.

``frontend/src/schema.ts`` follows from it, with a check of each object and the names of the
columns. Run as ``python -m tb_memplugin.server.answer_types PATH`` to write it there; tests hold it
and stored answers against this."""

import dataclasses
import graphlib
import json
import pathlib
import re
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from tb_memplugin import analysis, fit, schema
from tb_memplugin.server.routes import DATA_ROUTES

Fields: TypeAlias = dict[str, Any]

NAMED: Mapping[str, tuple[str, Any]] = {
    "PHASES": ("Phase", schema.Phase),
    "MODES": ("Mode", schema.Mode),
    "CATEGORIES": ("Category", schema.Category),
    "RECOMPUTED": ("Recomputed", schema.Recomputed),
    "OWNER_SOURCES": ("OwnerSource", schema.OwnerSource),
    "BAND_NAMES": ("BandName", schema.BandName),
    "VERDICTS": ("Verdict", schema.Verdict),
    "OOM_STATUSES": ("OomStatus", schema.OomStatus),
    "FAILED_DURING": ("FailedDuring", schema.FailedDuring),
    "FIX_KINDS": ("FixKind", schema.FixKind),
    "RUN_STATUSES": ("RunStatus", schema.RunStatus),
    "ANSWER_NAMES": ("AnswerName", analysis.AnswerName),
    "ANSWER_STATUSES": ("AnswerStatus", analysis.AnswerStatus),
    "ANSWER_SOURCES": ("AnswerSource", analysis.AnswerSource),
    "EVIDENCE_VIEWS": ("EvidenceView", analysis.EvidenceView),
    "MEMORY_PARTS": ("MemoryPart", analysis.Part),
    "PLAN_KINDS": ("PlanKind", fit.Kind),
    "TIME_SOURCES": ("TimeSource", fit.TimeSource),
    "PEAK_SOURCES": ("PeakSource", fit.PeakSource),
    "POOL_SOURCES": ("PoolSource", analysis.PoolSource),
    "METHODS": ("Method", fit.Method),
    "FINDING_KINDS": ("FindingKind", schema.FindingKind),
    "CAUSE_KINDS": ("CauseKind", analysis.CauseKind),
}
"""List of the texts that a field may have -> the name of their type, and the type."""


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _with_records(kind: Any, found: dict[str, Fields]) -> dict[str, Fields]:
    """The fields of a record and of all records in it, by name, added to those that are `found`."""
    if _is_record(kind) and kind.__name__ not in found:
        found[kind.__name__] = typing.get_type_hints(kind, include_extras=True)
        for hint in found[kind.__name__].values():
            _with_records(hint, found)
    for part in get_args(kind) if get_origin(kind) is not Literal else ():
        _with_records(part, found)
    return found


# name of an object to its fields; a route says which of them it answers with
OBJECTS: dict[str, Fields] = {}
for _route in DATA_ROUTES.values():
    _with_records(_route.kind, OBJECTS)
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "OVERVIEW_COLUMNS": (
        *("step", "epoch", "wall_time", "host_resident_bytes", "snapshot", "traced"),
        *(field.name for field in schema.fields_of(schema.DeviceSamples)),
    ),
    "POOL_COLUMNS": analysis.PoolColumns._fields,
    "HOST_COLUMNS": (*analysis.HOST_COLUMNS, *analysis.PART_NAMES),
    "HOST_PARTS": tuple(analysis.PART_NAMES),
    "MAP_COLUMNS": schema.column_names(schema.MemoryMap, "chunks"),
    "TIMELINE_COLUMNS": schema.column_names(schema.Timeline, "allocations"),
}
"""List of the columns of a route, or of some of them, in the page's schema."""
_CHECKS = {
    str: "text",
    bool: "flag",
    int: "number",
    float: "number",
    schema.Integers: "numbers",
}


def texts_of(literal: Any) -> tuple[str, ...]:
    """The texts of a literal, or of a union of them."""
    parts = get_args(literal)
    return (
        parts
        if get_origin(literal) is Literal
        else tuple(text for one in parts for text in texts_of(one))
    )


def _check(hint: Any) -> str:
    """The TypeScript expression that checks a field."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _check(parts[0])
    if types.NoneType in parts:
        return f"maybe({_check(Union[tuple(one for one in parts if one is not types.NoneType)])})"  # noqa: UP007
    if hint in _CHECKS:
        return _CHECKS[hint]
    if _is_record(hint):
        return _constant(hint.__name__)
    if origin in (tuple, Sequence):
        return f"list({_check(parts[0])})"
    if origin is Mapping:
        return "figures"
    texts = texts_of(hint)
    return f"oneOf({next(name for name, (_, one) in NAMED.items() if texts_of(one) == texts)})"


def _constant(name: str) -> str:
    """The constant that checks an object."""
    return name[0].lower() + name[1:]


def typescript() -> str:
    """The types and checks of all objects; each comes after those that it consists of."""
    lines = [
        "/** The server's answers and their checks, made by `python -m "
        "tb_memplugin.server.answer_types`. */",
        "",
        "import { figures, flag, list, maybe, number, numbers, object, oneOf, text } from "
        '"./lib/check";',
        "",
    ]
    for constant, names in COLUMNS.items():
        lines.append(f"export const {constant} = {json.dumps(names)} as const;")
    for constant, (name, literal) in NAMED.items():
        texts = "".join(f'  "{text}",\n' for text in texts_of(literal))
        lines += [f"export const {constant} = [\n{texts}] as const;"]
        lines += [f"export type {name} = (typeof {constant})[number];"]
    lines.append(f"export const PERSISTENT: readonly Category[] = {json.dumps(schema.PERSISTENT)};")
    lines.append(f"export const HOST_PART_NAMES = {json.dumps(analysis.PART_NAMES)} as const;")
    checks = {
        _constant(name): {field: _check(hint) for field, hint in fields.items()}
        for name, fields in sorted(OBJECTS.items())
    }
    words = {name: set(re.findall(r"\w+", str(checks[name].values()))) for name in checks}
    needed = {name: sorted(words[name] & checks.keys()) for name in checks}
    for name in graphlib.TopologicalSorter(needed).static_order():
        body = "".join(f"  {field}: {check},\n" for field, check in checks[name].items())
        lines.append(f"\nexport const {name} = object({{\n{body}}});")
        kind = name[0].upper() + name[1:]
        lines.append(f"export type {kind} = ReturnType<typeof {name}>;")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_text(typescript(), encoding="utf-8")
