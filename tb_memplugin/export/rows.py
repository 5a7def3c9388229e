"""The unit of an export is one worker of one run: its data as the exported tables, and its highest peaks by day.

A worker is read without the others, so memory stays bounded.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.analysis import capacity_of, device_names, highest_peak
from tb_memplugin.export.schema import TABLES, VERSION, Kind
from tb_memplugin.schema import (
    MISSING,
    PHASES,
    SAMPLE_COLUMNS,
    Floats,
    Integers,
    Phase,
    Run,
    optional_column,
    optional_values,
    take_rows,
    thinned_note,
    values_of,
)
from tb_memplugin.storage import LoadedRun, Reader
from tb_memplugin.storage.files import FileSource, SourceError
from tb_memplugin.storage.files import file_systems as files
from tb_memplugin.storage.frames import run_name
from tb_memplugin.storage.read import META, OOM, PEAK, SAMPLES, SNAPSHOTS

EXPORTED = frozenset({META, SAMPLES, PEAK, SNAPSHOTS, OOM})
"""The streams that the tables are made of."""
DAY_SECONDS = 86_400
_MAX_DAYS = 3_000_000
"""Days after 1970 that a calendar has."""

Values: TypeAlias = Integers | list[Any]
"""One value for each row. NULL is `MISSING` in an array and None in a list; times are microseconds since the epoch."""
Rows: TypeAlias = Mapping[str, Values]
"""The columns of a table, in the order of its schema."""
_MICROSECONDS = 1_000_000
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800.0, 253_402_300_799.0
"""The begin of the year 1 and the end of the year 9999: other dates cannot be written."""
_EPOCH = datetime(1970, 1, 1)


@dataclasses.dataclass(frozen=True)
class ExportUnit:
    """The event files of one worker of a run.

    `files` and `damage` map TensorBoard's run names to paths of event files, and to sentences on directories that
    cannot be listed.
    """

    logdir: str
    run: str
    worker: str
    files: Mapping[str, Sequence[str]]
    damage: Mapping[str, Sequence[str]]


def export_units(logdir: str) -> Iterator[ExportUnit]:
    """The workers under a log directory, by run and worker; opens no event file. `NotFoundError` without one."""
    logdir = files.log_directory(logdir)
    found = files.event_files(logdir)
    grouped: dict[tuple[str, str], list[str]] = {}
    for event_run in sorted({*found.files, *found.damage}):
        grouped.setdefault(run_name(event_run), []).append(event_run)
    for (run, worker), names in sorted(grouped.items()):
        yield ExportUnit(
            logdir,
            run,
            worker,
            {name: tuple(found.files[name]) for name in names if name in found.files},
            {name: tuple(found.damage[name]) for name in names if name in found.damage},
        )


def fingerprint(unit: ExportUnit) -> str:
    """Changes whenever one of the unit's files does. Raises whatever the file system raises."""
    states = {
        path.removeprefix(unit.logdir): (state.length, state.modified)
        for paths in unit.files.values()
        for path in paths
        for state in (files.state(path),)
    }
    return json.dumps([VERSION, sorted(states.items()), sorted(unit.damage.items())])


def read_unit(unit: ExportUnit) -> LoadedRun | None:
    """The data of a worker; None if its files hold none of this plugin's.

    `SourceError` if a file or a directory cannot be read now: data would be missing, and the fingerprint the same.
    """
    source = FileSource(unit.logdir, found=files.Found(unit.files, unit.damage))
    reader = Reader(cache_bytes=0)
    tags = reader.catalog(source).get(unit.run)
    for sentence in source.unread():
        raise SourceError(sentence)
    return None if tags is None else reader.load(source, tags, EXPORTED)


def daily_peaks(run: Run) -> list[dict[str, Any]]:
    """The rows of the table ``peaks`` of one worker, with times in seconds since the epoch."""
    return [record for device in device_names(run) for record in _of_device(run, device)]


def _of_device(run: Run, device: str) -> Iterable[dict[str, Any]]:
    figures = run.samples.devices.get(device)
    # Only this device's figures and rows: other rows are those of steps that it did not record.
    samples = dataclasses.replace(run.samples, devices={} if figures is None else {device: figures})
    known = np.zeros(len(samples), np.bool_)
    if figures is not None:
        known = (figures.in_use_bytes != MISSING) | (figures.peak_bytes != MISSING)
    samples = take_rows(samples, known)
    snapshots = [one for one in run.snapshots if one.device == device]
    days = _days(samples.wall_time)
    snapshot_days = _days(np.asarray([one.wall_time for one in snapshots], np.float64)).tolist()
    for number, phase in enumerate(PHASES):
        for day in sorted({*np.unique(days[samples.phase == number]).tolist(), *snapshot_days}):
            of_day = take_rows(samples, (days == day) & (samples.phase == number))
            dated = zip(snapshots, snapshot_days, strict=True)
            traced = tuple(one for one, of in dated if of == day and one.phase == phase)
            record = _record(dataclasses.replace(run, samples=of_day, snapshots=traced), device, phase)
            if record is not None:
                yield record | {"day": float("nan") if day == MISSING else float(day * DAY_SECONDS)}


def _record(run: Run, device: str, phase: Phase) -> dict[str, Any] | None:
    """The row of a run that has only one device, phase and day."""
    peak = highest_peak(run, device, phase)
    if peak is None:
        return None
    steps = [*run.samples.step.tolist(), *(one.step for one in run.snapshots)]
    times = [*run.samples.wall_time.tolist(), *(one.wall_time for one in run.snapshots)]
    return {
        "device": device,
        "phase": phase,
        "peak_bytes": peak.bytes,
        "at_step_end": peak.at_step_end,
        "step": peak.step,
        "wall_time": times[steps.index(peak.step)],
        "capacity_bytes": capacity_of(run, device),
        "samples": len(run.samples),
        "snapshots": sum(not one.at_failure for one in run.snapshots),
        "last_step": max(steps),
        "last_time": max(times),
    }


def _days(seconds: Floats) -> Integers:
    """Days since 1970, in UTC; `MISSING` for impossible times."""
    days = np.floor(seconds / DAY_SECONDS)
    known = np.isfinite(days) & (days >= 0) & (days < _MAX_DAYS)
    return np.where(known, np.where(known, days, 0).astype(np.int64), MISSING)


def unit_tables(unit: ExportUnit) -> tuple[dict[str, Rows], bool]:
    """The tables of a worker, and whether it could be read; what keeps it from that is a row of ``dead_letters``."""
    try:
        loaded = read_unit(unit)
        by_worker = {} if loaded is None else loaded.by_worker
        damage = () if loaded is None else loaded.run.damage
        if loaded is not None and loaded.run.thinning > 1:
            damage = (*damage, thinned_note(loaded.run.thinning))
        # Of damaged files alone there is a run without samples.
        exported = any(len(run.samples) or run.snapshots or run.ooms or run.layer_tables for run in by_worker.values())
        tables = _joined([_run_tables(unit.run, worker, run) for worker, run in by_worker.items()])
    except Exception as error:  # one worker must not end an export of thousands
        return unreadable(unit, error), False
    return tables | {"dead_letters": _dead_letters(unit, exported, damage)}, True


def unreadable(unit: ExportUnit, error: Exception) -> dict[str, Rows]:
    """The only table of a worker that cannot be read at all."""
    return {"dead_letters": _dead_letters(unit, False, [files.reason(error, unit.logdir)])}


def rows_of_table(table: str, rows: Rows) -> Iterator[dict[str, Any]]:
    """The rows of a table one by one, with times as `datetime` in UTC and None for NULL."""
    columns = {column.name: _plain(column.kind, rows[column.name]) for column in TABLES[table].columns}
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _plain(kind: Kind, values: Values) -> list[Any]:
    if not isinstance(values, np.ndarray):
        return [list(value) if isinstance(value, tuple) else value for value in values]
    if kind == "time":
        return [None if value == MISSING else _EPOCH + timedelta(microseconds=value) for value in values.tolist()]
    return optional_values(values)


def _run_tables(name: str, worker: str, run: Run) -> dict[str, Rows]:
    records = {
        "peaks": daily_peaks(run),
        "ledger": _of_snapshots(run, "ledger"),
        "layers": [
            {**vars(of), **vars(layer), "from_step": of.step, "position": position}
            for of in run.layer_tables
            for position, layer in enumerate(of.layers)
        ],
        "held_tensors": _of_snapshots(run, "held_tensors"),
        "failures": [vars(oom) for oom in run.ooms],
    }
    about = {"run": name, "worker": worker}
    tables = {table: _from_records(table, about, of_table) for table, of_table in records.items()}
    return {"samples": _samples(name, worker, run), **tables}


def _samples(name: str, worker: str, run: Run) -> Rows:
    samples = run.samples
    phases = [PHASES[at] for at in samples.phase.tolist()]
    parts: list[Rows] = []
    for device in device_names(run):
        figures = samples.devices.get(device)
        if figures is None:
            continue
        known = np.flatnonzero((figures.in_use_bytes != MISSING) | (figures.peak_bytes != MISSING))
        columns: dict[str, Values] = {
            "run": [name] * len(known),
            "worker": [worker] * len(known),
            "device": [device] * len(known),
            "step": samples.step[known],
            "phase": [phases[at] for at in known.tolist()],
            "time": _times(samples.wall_time[known]),
            "epoch": samples.epoch[known],
            **{field: getattr(samples, field)[known] for field in SAMPLE_COLUMNS if field.endswith("_bytes")},
        }
        others = (column.name for column in TABLES["samples"].columns if column.name not in columns)
        parts.append(columns | {other: getattr(figures, other)[known] for other in others})
    return _concatenated("samples", parts)


def _of_snapshots(run: Run, field: str) -> list[dict[str, Any]]:
    about = ("step", "phase", "device", "wall_time", "at_failure")
    return [values_of(snapshot, *about) | vars(row) for snapshot in run.snapshots for row in getattr(snapshot, field)]


def _dead_letters(unit: ExportUnit, exported: bool, reasons: Sequence[str]) -> Rows:
    about = {"run": unit.run, "worker": unit.worker, "exported": exported}
    return _from_records("dead_letters", about, [{"reason": one} for one in reasons])


def _from_records(table: str, constants: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Rows:
    """Columns of records. Times are seconds since the epoch, ``wall_time`` that of a column ``time``."""
    columns: dict[str, Values] = {}
    for column in TABLES[table].columns:
        if column.name in constants:
            columns[column.name] = [constants[column.name]] * len(records)
        elif column.kind == "time":
            field = "wall_time" if column.name == "time" else column.name
            columns[column.name] = _times(np.asarray([record[field] for record in records], np.float64))
        else:
            values = [record[column.name] for record in records]
            columns[column.name] = optional_column(values) if column.kind == "integer" else values
    return columns


def _times(seconds: Floats) -> Integers:
    known = np.isfinite(seconds) & (seconds >= _FIRST_SECOND) & (seconds <= _LAST_SECOND)
    rounded = np.round(np.where(known, seconds, 0.0) * _MICROSECONDS).astype(np.int64)
    return np.where(known, rounded, MISSING)


def _joined(parts: Sequence[Mapping[str, Rows]]) -> dict[str, Rows]:
    return {table: _concatenated(table, [part[table] for part in parts]) for table in TABLES if table != "dead_letters"}


def _concatenated(table: str, parts: Sequence[Rows]) -> Rows:
    columns: dict[str, Values] = {}
    for column in TABLES[table].columns:
        values = [part[column.name] for part in parts]
        if column.kind in ("integer", "time"):
            columns[column.name] = np.concatenate([np.empty(0, np.int64), *values])
        else:
            columns[column.name] = [value for part in values for value in part]
    return columns
