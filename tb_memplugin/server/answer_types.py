"""The objects in the answers of all routes: each field with its type, taken from the records where
these have it.

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
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from tb_memplugin import analysis, fit, schema

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
    "CAUSE_KINDS": ("CauseKind", analysis.CauseKind),
}
"""List of the texts that a field may have -> the name of their type, and the type."""


@dataclasses.dataclass(frozen=True)
class Object:
    """An object of `OBJECTS`, or a list of them."""

    name: str
    many: bool = True
    optional: bool = False


def _row(**fields: Any) -> Fields:
    return fields


def _of(record: Any, *without: str) -> dict[str, Any]:
    hints = typing.get_type_hints(record, include_extras=True)
    return {
        field.name: hints[field.name]
        for field in dataclasses.fields(record)
        if field.name not in without
    }


def _only(record: Any, *names: str) -> dict[str, Any]:
    hints = typing.get_type_hints(record, include_extras=True)
    return {name: hints[name] for name in names}


_TEXTS: TypeAlias = tuple[str, ...]
_SIZE: TypeAlias = int | None
_DEVICE = {"run": str, "device": str, "phase": schema.Phase}
_POOL = ("in_use_bytes", "pool_bytes", "capacity_bytes")
_MAP = _only(
    schema.MemoryMap, "step", "phase", "device", "wall_time", *_POOL, "complete", "not_available"
)
_TIMELINE = (
    _only(
        schema.Timeline,
        "step",
        "phase",
        "device",
        "wall_time",
        "mode",
        "in_use_bytes",
        "peak",
        "events",
    )
    | _only(schema.Timeline, "duration_ns", "not_available")
    | _row(allocations=int, moments=int)
)
_OBJECTS: Mapping[str, Fields] = {
    "Group": _only(schema.GroupBytes, "category", "trainable"),
    # Runs and their steps.
    "RunInfo": _row(
        run=str,
        version=str,
        sessions=int,
        workers=_TEXTS,
        steps=int,
        first_step=_SIZE,
        last_step=_SIZE,
    )
    | _row(
        started=float | None,
        status=schema.RunStatus,
        ended=bool | None,
        recorded_until=float | None,
        rank=int,
    )
    | _row(
        phases=tuple[schema.Phase, ...],
        devices=tuple[analysis.DeviceFacts, ...],
        most_loaded=str | None,
        ooms=int,
    )
    | _row(activation_layers=int, findings=_TEXTS, notes=_TEXTS, damage=_TEXTS)
    | _row(largest_at_failure=analysis.LargestLayer | None),
    "RunsAnswer": _row(plugin_version=str, runs=Object("RunInfo")),
    "SnapshotRef": _only(schema.Snapshot, "step", "phase", "mode", "batch_size", "at_failure")
    | _row(first_step=int, earlier_slots_bytes=int),
    "LayerChange": _of(analysis.LayerChange, "totals") | _of(analysis.LayerTotals),
    "Failure": _row(oom=int, step=int, reason=str, requested_bytes=_SIZE, in_use_bytes=_SIZE),
    "SessionStart": _row(session=str, first_step=_SIZE),
    "OverviewHead": _DEVICE
    | _row(
        total_rows=int,
        groups=Object("Group"),
        snapshots=Object("SnapshotRef"),
        changes=Object("LayerChange"),
    )
    | _row(epochs=tuple[analysis.Epoch, ...], validations=tuple[analysis.ValidationPass, ...])
    | _row(failures=Object("Failure"), sessions=Object("SessionStart")),
    "LedgerTotalsHead": _DEVICE | _row(layer=str | None, groups=Object("Group")),
    "PoolHead": _DEVICE
    | _row(
        total_rows=int,
        sources=tuple[analysis.PoolSource, ...],
        growths=tuple[analysis.PoolGrowth, ...],
        sentences=_TEXTS,
    ),
    "ActivationsHead": _row(run=str, total_rows=int, layers=_TEXTS),
    "LayersAnswer": _row(run=str) | _of(schema.LayerTable, "wall_time"),
    # Traced and failed steps.
    "SnapshotSummary": _of(schema.Snapshot, *schema.LISTS),
    "SnapshotsAnswer": _row(run=str, snapshots=Object("SnapshotSummary")),
    "Snapshot": _row(run=str) | _of(schema.Snapshot),
    "MapRef": _MAP | _row(chunks=int, regions=tuple[int, ...]),
    "MapsAnswer": _row(run=str, maps=Object("MapRef")),
    "Region": _row(address=int, bytes=int),
    "Bin": _row(bin_bytes=int, chunks=int, free_bytes=int),
    "BlockingChunks": _row(owner=int, chunks=int, bytes=int, joined_bytes=int),
    "MapSummary": _row(
        free_bytes=int, largest_free_bytes=int, unreserved_bytes=_SIZE, rounding_bytes=int
    )
    | _row(owned_bytes=int, owner_unknown_bytes=int, unknown_bytes=int)
    | _row(bins=Object("Bin"), blocking_chunks=Object("BlockingChunks")),
    "MapHead": _MAP
    | _row(run=str, chunks=int, states=_TEXTS, sources=_TEXTS, owners=tuple[schema.ChunkOwner, ...])
    | _row(regions=Object("Region"), summary=Object("MapSummary", many=False)),
    "TimelineRef": _TIMELINE,
    "TimelinesAnswer": _row(run=str, timelines=Object("TimelineRef")),
    "TimelineHead": _TIMELINE
    | _only(schema.Timeline, "owners", "ops", "shapes", "lines", "bands", "compiled")
    | _row(run=str, time_ns=schema.Integers, event=schema.Integers),
    "Oom": _row(chunks=_SIZE, request=analysis.RequestContents | None)
    | _of(schema.Oom, "identifier", "fixes", "map", "requests", "request_tensors"),
    "OomsAnswer": _row(run=str, ooms=Object("Oom")),
    "SimulatedPeak": _row(peak_bytes=int, low_bytes=int, high_bytes=int),
    "Fixes": _row(run=str, oom=int, fixes=tuple[schema.Fix, ...], note=str | None)
    | _row(unchanged=Object("SimulatedPeak", many=False, optional=True)),
    "DeviceMemory": _only(schema.Snapshot, "step", "phase", "at_failure", *_POOL)
    | _row(
        run=str,
        device=str,
        total_bytes=_SIZE,
        segments=tuple[analysis.MemorySegment, ...],
        notes=_TEXTS,
    )
    | {f"driver_{name}_bytes": _SIZE for name in ("process", "used", "total")},
    "HostSummary": _row(sentence=str) | _of(analysis.HostSummary),
    "HostMemoryHead": _DEVICE
    | _row(worker=str, total_rows=int, summary=Object("HostSummary", many=False, optional=True)),
    # The four answers, and all devices side by side.
    "Answer": _row(question=str) | _of(analysis.Answer),
    "AnswersAnswer": _row(
        run=str, device=str | None, phase=schema.Phase, answers=tuple[analysis.Answer, ...]
    )
    | _row(largest_layer=analysis.LargestLayer | None),
    "WorkerInfo": _only(
        schema.WorkerSummary,
        "worker",
        "sessions",
        "first_step",
        "last_step",
        "last_wall_time",
        "status",
    )
    | _row(
        ended=bool | None, rows=_SIZE, stopped_early=str | None, clock_offset_seconds=float | None
    ),
    "DeviceRow": _only(
        schema.DeviceSummary,
        "name",
        "peak_bytes",
        "peak_step",
        "last_in_use_bytes",
        "capacity_bytes",
    )
    | _only(schema.DeviceSummary, "pool_bytes", "rows", "ooms")
    | _row(device=str, worker=str, headroom_bytes=_SIZE, breakdown=schema.TracedPeak | None),
    "Imbalance": _row(largest=str, smallest=str, bytes=int, sentence=str),
    "ComparedSteps": _row(
        step=tuple[int, ...], max_peak_bytes=tuple[_SIZE, ...], min_peak_bytes=tuple[_SIZE, ...]
    )
    | _row(sum_in_use_bytes=tuple[_SIZE, ...] | None),
    "DevicesAnswer": _row(
        run=str,
        rolled_up=bool,
        phase=schema.Phase,
        workers=Object("WorkerInfo"),
        devices=Object("DeviceRow"),
    )
    | _row(
        most_loaded=str | None,
        imbalance=Object("Imbalance", many=False, optional=True),
        sum_peak_bytes=int,
    )
    | _row(steps=Object("ComparedSteps", many=False), damage=_TEXTS),
    # Predictions.
    "FailedRequest": _of(fit.FailedRequest, "step"),
    "PlainRow": _only(schema.LedgerRow, "layer", "category", "trainable", "bytes"),
    "MeasuredStep": _row(step=int, in_use_bytes=int, ledger=Object("PlainRow")),
    "CurvePoint": _row(
        batch_size=int, peak_bytes=int, low_bytes=int, high_bytes=int, fits=bool | None
    )
    | _row(fails_at=fit.FailedRequest | None),
    "RecordedSteps": _row(batch_sizes=tuple[int, ...], steps=tuple[int, ...], peak_bytes=_SIZE),
    "AskedConditions": _row(
        batch_size=_SIZE, capacity_bytes=_SIZE, freeze=str | None, unfreeze=str | None
    )
    | _row(optimizer=str | None, precision=str | None),
    "WhatIf": _row(
        run=str, device=str, conditions=Object("AskedConditions", many=False), batch_size=_SIZE
    )
    | _row(
        capacity_bytes=_SIZE,
        peak_bytes=_SIZE,
        low_bytes=_SIZE,
        high_bytes=_SIZE,
        fits=bool | None,
        sentence=str,
    )
    | _row(
        fails_at=fit.FailedRequest | None,
        enough_capacity_bytes=_SIZE,
        largest_batch_size=_SIZE,
        method=fit.Method,
    )
    | _row(
        reproduced=fit.Reproduced, assumptions=_TEXTS, recorded=Object("RecordedSteps", many=False)
    )
    | _row(ledger=Object("PlainRow"), measured=Object("MeasuredStep", many=False, optional=True)),
    "Curve": _row(run=str, device=str, curve=Object("CurvePoint")),
    "BatchLimit": _row(
        run=str,
        device=str,
        capacity_bytes=_SIZE,
        largest_batch_size=_SIZE,
        may_fit_batch_size=_SIZE,
    )
    | _row(peak_bytes=_SIZE, low_bytes=_SIZE, high_bytes=_SIZE, reason=str | None),
    "Demand": _row(sentences=_TEXTS) | _of(fit.Demand),
    "DemandAnswer": _row(run=str, device=str, demand=Object("Demand", many=False, optional=True)),
    "Plan": _of(fit.Plan) | _row(run=str, ledger=Object("PlainRow")),
}


def _records(hint: Any) -> Iterator[Any]:
    """The records in a type."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for part in get_args(hint) if get_origin(hint) is not Literal else ():
        yield from _records(part)


def _with_records(objects: Mapping[str, Fields]) -> Mapping[str, Fields]:
    """The objects, and those of the records that they hold."""
    found, todo = dict(objects), list(objects.values())
    while todo:
        for record in [record for hint in todo.pop().values() for record in _records(hint)]:
            if record.__name__ not in found:
                found[record.__name__] = _of(record)
                todo.append(found[record.__name__])
    return found


# name of an object to its fields; a route says which of them it answers with
OBJECTS = _with_records(_OBJECTS)
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
_CHECKS = {str: "text", bool: "flag", int: "number", float: "number"}


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
    if isinstance(hint, Object):
        check = hint.name[0].lower() + hint.name[1:]
        check = f"list({check})" if hint.many else check
        return f"maybe({check})" if hint.optional else check
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _check(parts[0])
    if types.NoneType in parts:
        return f"maybe({_check(Union[tuple(one for one in parts if one is not types.NoneType)])})"  # noqa: UP007
    if hint in _CHECKS:
        return _CHECKS[hint]
    if hint == schema.Integers:
        return "numbers"
    if dataclasses.is_dataclass(hint):
        return _check(Object(hint.__name__, many=False))  # type: ignore[union-attr]
    if origin is tuple:
        return f"list({_check(parts[0])})"
    if origin is Mapping:
        return "figures"
    texts = texts_of(hint)
    return f"oneOf({next(name for name, (_, one) in NAMED.items() if texts_of(one) == texts)})"


def typescript() -> str:
    """The types and checks of all objects; each comes after those that it consists of."""
    lines = [
        "/** The server's answers and their checks, made by `python -m "
        "tb_memplugin.server.answer_types`. */",
        "",
    ]
    lines += [
        "import { figures, flag, list, maybe, number, numbers, object, oneOf, text } "
        "from "
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
        name: {field: _check(hint) for field, hint in fields.items()}
        for name, fields in OBJECTS.items()
    }
    constants = {f"{name[0].lower()}{name[1:]}": name for name in OBJECTS}
    needed = {
        name: sorted(
            constants[word]
            for check in of.values()
            for word in re.findall(r"\w+", check)
            if word in constants
        )
        for name, of in sorted(checks.items())
    }
    for name in graphlib.TopologicalSorter(needed).static_order():
        body = "".join(f"  {field}: {check},\n" for field, check in checks[name].items())
        lines.append(f"\nexport const {name[0].lower()}{name[1:]} = object({{\n{body}}});")
        lines.append(f"export type {name} = ReturnType<typeof {name[0].lower()}{name[1:]}>;")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_text(typescript(), encoding="utf-8")
