"""Runs as tables: the rows of one worker of one run, and an export into partitioned Parquet files
that a second call brings up to date.

A worker is read without the others, so memory stays bounded."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np

from tb_memplugin.analysis import capacity_of, device_names, highest_peak
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.export.schema import TABLES, VERSION, Kind, arrow_schema, pyarrow
from tb_memplugin.schema import (
    MISSING,
    PHASES,
    SAMPLE_COLUMNS,
    DeviceSamples,
    Floats,
    Integers,
    Run,
    counted,
    optional_column,
    optional_values,
    take_rows,
    thinned_note,
    unknown_name,
    values_of,
)
from tb_memplugin.storage import META, OOM, PEAK, SAMPLES, SNAPSHOTS, LoadedRun, Reader
from tb_memplugin.storage.files import FileSource, SourceError
from tb_memplugin.storage.files import file_systems as files
from tb_memplugin.storage.frames import run_name
from tb_memplugin.storage.write import recordings

# the streams that the tables are made of
EXPORTED = frozenset({META, SAMPLES, PEAK, SNAPSHOTS, OOM})
DAY_SECONDS = 86_400
_MAX_DAYS = 3_000_000  # days after 1970 that a calendar has

Values: TypeAlias = Integers | list[Any]
"""One value for each row. NULL is `MISSING` in an array and None in a list; times are microseconds
since the epoch."""
Rows: TypeAlias = Mapping[str, Values]  # the columns of a table, in the order of its schema
_MICROSECONDS = 1_000_000
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800.0, 253_402_300_799.0
"""The begin of the year 1 and the end of the year 9999: other dates cannot be written."""
_EPOCH = datetime(1970, 1, 1)
_OF_SNAPSHOT = ("step", "phase", "device", "wall_time", "at_failure")
_FRAMES: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "peaks": (
        "samples",
        ("step", "phase", "epoch", "device", "wall_time", "in_use_bytes", "peak_bytes"),
        "pinned_pool_bytes",
    ),
    "ledger": ("ledger", _OF_SNAPSHOT[:3], "at_failure"),
    "layers": ("layers", ("from_step",), "position"),
    "held_tensors": ("held_tensors", _OF_SNAPSHOT[:3], "time"),
}
"""Data frame to its table, the first columns, and the column of the table after which the others
come."""


@dataclasses.dataclass(frozen=True)
class ExportUnit:
    """The event files of one worker of a run, and sentences on directories that cannot be listed,
    by TensorBoard's run name."""

    logdir: str
    run: str
    worker: str
    files: Mapping[str, Sequence[str]]
    damage: Mapping[str, Sequence[str]]


def export_units(logdir: str) -> Iterator[ExportUnit]:
    """The workers under a log directory, by run and worker; opens no event file. `NotFoundError`
    without one."""
    logdir = files.log_directory(logdir)
    found = files.event_files(logdir)
    grouped: dict[tuple[str, str], list[str]] = {}
    for event_run in sorted({*found.files, *found.damage}):
        grouped.setdefault(run_name(event_run), []).append(event_run)
    for (run, worker), names in sorted(grouped.items()):
        own = (
            {name: tuple(of[name]) for name in names if name in of}
            for of in (found.files, found.damage)
        )
        yield ExportUnit(logdir, run, worker, *own)


def fingerprint(unit: ExportUnit) -> str:
    """Changes whenever one of the unit's files does. Raises whatever the file system raises."""
    states = {}
    for path in (path for paths in unit.files.values() for path in paths):
        state = files.state(path)
        states[path.removeprefix(unit.logdir)] = state.length, state.modified
    return json.dumps([VERSION, sorted(states.items()), sorted(unit.damage.items())])


def read_unit(unit: ExportUnit) -> LoadedRun | None:
    """The data of a worker; None if its files hold none of this plugin's.

    `SourceError` if a file or a directory cannot be read now: data would be missing, and the
    fingerprint the same."""
    source = FileSource(unit.logdir, found=files.Found(unit.files, unit.damage))
    reader = Reader(cache_bytes=0)
    tags = reader.catalog(source).get(unit.run)
    for sentence in source.unread():
        raise SourceError(sentence)
    return None if tags is None else reader.load(source, tags, EXPORTED)


def daily_peaks(run: Run, device: str) -> Iterator[dict[str, Any]]:
    """The rows of the table ``peaks`` of a device of one worker, with times in seconds since the
    epoch."""
    # Only this device's figures and rows: other rows are those of steps that it did not record.
    figures = {name: one for name, one in run.samples.devices.items() if name == device}
    samples = dataclasses.replace(run.samples, devices=figures)
    samples = take_rows(samples, _recorded(figures[device]) if figures else [])
    snapshots = [one for one in run.snapshots if one.device == device]
    days = _days(samples.wall_time)
    snapshot_days = _days(np.asarray([one.wall_time for one in snapshots], np.float64)).tolist()
    for number, phase in enumerate(PHASES):
        for day in sorted({*np.unique(days[samples.phase == number]).tolist(), *snapshot_days}):
            of_day = take_rows(samples, (days == day) & (samples.phase == number))
            dated = zip(snapshots, snapshot_days, strict=True)
            traced = tuple(one for one, of in dated if of == day and one.phase == phase)
            own = dataclasses.replace(run, samples=of_day, snapshots=traced)
            peak = highest_peak(own, device, phase)
            if peak is None:
                continue
            steps = [*of_day.step.tolist(), *(one.step for one in traced)]
            times = [*of_day.wall_time.tolist(), *(one.wall_time for one in traced)]
            yield {
                "device": device,
                "phase": phase,
                "day": float("nan") if day == MISSING else float(day * DAY_SECONDS),
                "peak_bytes": peak.bytes,
                "at_step_end": peak.at_step_end,
                "step": peak.step,
                "wall_time": times[steps.index(peak.step)],
                "capacity_bytes": capacity_of(own, device),
                "samples": len(of_day),
                "snapshots": sum(not one.at_failure for one in traced),
                "last_step": max(steps),
                "last_time": max(times),
            }


def _recorded(figures: DeviceSamples) -> Integers:
    """The rows with figures of a device; samples of other devices and workers have none of it."""
    return np.flatnonzero((figures.in_use_bytes != MISSING) | (figures.peak_bytes != MISSING))


def _days(seconds: Floats) -> Integers:
    """Days since 1970, in UTC; `MISSING` for impossible times."""
    days = np.floor(seconds / DAY_SECONDS)
    known = np.isfinite(days) & (days >= 0) & (days < _MAX_DAYS)
    return np.where(known, np.where(known, days, 0).astype(np.int64), MISSING)


def unit_tables(unit: ExportUnit) -> tuple[dict[str, Rows], bool]:
    """The tables of a worker, and whether it could be read; what keeps it from that is a row of
    ``dead_letters``."""
    try:
        loaded = read_unit(unit)
        by_worker = {} if loaded is None else loaded.by_worker
        damage = () if loaded is None else loaded.run.damage
        if loaded is not None and loaded.run.thinning > 1:
            damage = (*damage, thinned_note(loaded.run.thinning))
        # Of damaged files alone there is a run without samples.
        exported = any(
            len(run.samples) or run.snapshots or run.ooms or run.layer_tables
            for run in by_worker.values()
        )
        tables = {}
        for table in [name for name in TABLES if name != "dead_letters"]:
            rows = [run_rows(table, run, unit.run, worker) for worker, run in by_worker.items()]
            tables[table] = _concatenated(table, rows)
    except Exception as error:  # one worker must not end an export of thousands
        reasons = [files.reason(error, unit.logdir)]
        return {"dead_letters": _dead_letters(unit, False, reasons)}, False
    return tables | {"dead_letters": _dead_letters(unit, exported, damage)}, True


def rows_of_table(table: str, rows: Rows) -> Iterator[dict[str, Any]]:
    """The rows of a table one by one, with times as `datetime` in UTC and None for NULL."""
    columns = TABLES[table].columns
    names = [column.name for column in columns]
    values = (_plain(column.kind, rows[column.name]) for column in columns)
    for row in zip(*values, strict=True):
        yield dict(zip(names, row, strict=True))


def _plain(kind: Kind, values: Values) -> list[Any]:
    if not isinstance(values, np.ndarray):
        return [list(value) if isinstance(value, tuple) else value for value in values]
    known = optional_values(values)
    if kind != "time":
        return known
    return [None if one is None else _EPOCH + timedelta(microseconds=one) for one in known]


def run_rows(table: str, run: Run, name: str = "", worker: str = "") -> Rows:
    """A table of one worker. ``samples`` are device by device and also have a column
    ``wall_time``."""
    about = {"run": name, "worker": worker}
    if table == "samples":
        return _samples(run, about)
    return _from_records(table, about, list(_records(table, run)))


def _records(table: str, run: Run) -> Iterator[Mapping[str, Any]]:
    if table == "peaks":
        for device in device_names(run):
            yield from daily_peaks(run, device)
    elif table == "failures":
        yield from map(vars, run.ooms)
    elif table == "layers":
        for of in run.layer_tables:
            for at, layer in enumerate(of.layers):
                yield vars(of) | vars(layer) | {"from_step": of.step, "position": at}
    else:
        for snapshot in run.snapshots:
            for row in getattr(snapshot, table):
                yield values_of(snapshot, *_OF_SNAPSHOT) | vars(row)


def frame_tables(run: Run) -> Mapping[str, Rows]:
    """The tables of `RecordedRun.to_pandas`: fewer columns than those of the export, and lists of
    sizes as texts."""
    tables: dict[str, Rows] = {}
    for frame, (table, first, before) in _FRAMES.items():
        rows, kinds = run_rows(table, run), {one.name: one.kind for one in TABLES[table].columns}
        names = list(kinds)
        tables[frame] = {
            name: _as_text(rows[name]) if kinds.get(name) == "dimensions" else rows[name]
            for name in (*first, *names[names.index(before) + 1 :])
        }
    return tables


def _as_text(dimensions: Values) -> list[str | None]:
    return [None if one is None else f"[{', '.join(map(str, one))}]" for one in dimensions]


def _samples(run: Run, about: Mapping[str, str]) -> Rows:
    samples = run.samples
    parts: list[Rows] = []
    for device in device_names(run):
        figures = samples.devices.get(device)
        if figures is None:
            continue
        rows = _recorded(figures)
        constants = {**about, "device": device}
        columns: dict[str, Values] = {
            **{name: [value] * len(rows) for name, value in constants.items()},
            "phase": [PHASES[at] for at in samples.phase[rows].tolist()],
            "time": _times(samples.wall_time[rows]),
        }
        for name in (*(column.name for column in TABLES["samples"].columns), "wall_time"):
            if name not in columns:
                columns[name] = getattr(samples if name in SAMPLE_COLUMNS else figures, name)[rows]
        parts.append(columns)
    times = [np.empty(0), *(part["wall_time"] for part in parts)]
    return {**_concatenated("samples", parts), "wall_time": np.concatenate(times)}


def _dead_letters(unit: ExportUnit, exported: bool, reasons: Sequence[str]) -> Rows:
    about = {"run": unit.run, "worker": unit.worker, "exported": exported}
    return _from_records("dead_letters", about, [{"reason": one} for one in reasons])


def _from_records(
    table: str, constants: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
) -> Rows:
    """Columns of records. Times are seconds since the epoch, ``wall_time`` that of a column
    ``time``."""
    columns: dict[str, Values] = {}
    for column in TABLES[table].columns:
        name = "wall_time" if column.name == "time" else column.name
        values = [constants[name] if name in constants else record[name] for record in records]
        columns[column.name] = values
        if column.kind == "time":
            columns[column.name] = _times(np.asarray(values, np.float64))
        elif column.kind == "integer":
            columns[column.name] = optional_column(values)
    return columns


def _times(seconds: Floats) -> Integers:
    known = np.isfinite(seconds) & (seconds >= _FIRST_SECOND) & (seconds <= _LAST_SECOND)
    rounded = np.round(np.where(known, seconds, 0.0) * _MICROSECONDS).astype(np.int64)
    return np.where(known, rounded, MISSING)


def _concatenated(table: str, parts: Sequence[Rows]) -> Rows:
    columns: dict[str, Values] = {}
    for column in TABLES[table].columns:
        values = [part[column.name] for part in parts]
        if column.kind in ("integer", "time"):
            columns[column.name] = np.concatenate([np.empty(0, np.int64), *values])
        else:
            columns[column.name] = [value for part in values for value in part]
    return columns


STATE = "exported.jsonl"  # says which workers were exported, a line each
_MAX_NAME = 180  # longer names of directories and files are shortened: file systems allow 255 bytes


@dataclasses.dataclass(frozen=True)
class Exported:
    """What a call of `export_parquet` did.

    Attributes:
        directory: Where the tables are.
        written, unchanged: Numbers of workers that were exported, and of those that had not
            changed.
        failed: Number of workers that could not be read at all; the next call tries again.
        rows: Table to the number of rows written."""

    directory: str
    written: int
    unchanged: int
    failed: int
    rows: Mapping[str, int]

    def __str__(self) -> str:
        rows = ", ".join(f"{table} {number:,}" for table, number in self.rows.items() if number)
        lines = [
            f"{self.directory}: {counted(self.written, 'worker')} exported, {self.unchanged} "
            "unchanged",
            f"rows written: {rows or 'none'}",
        ]
        if self.failed:
            lines.append(
                f"{counted(self.failed, 'worker')} could not be read: see the table dead_letters"
            )
        return "\n".join(lines)


def export_parquet(
    logdir: str | os.PathLike[str], to: str | os.PathLike[str], *, runs: Sequence[str] = ()
) -> Exported:
    """Export runs as Parquet files: ``<to>/<table>/run-<run>/part-<worker>.parquet``.

    A worker is read if its event files have changed since the last call; then its files are
    replaced. Each file is complete or absent, and after an interrupted call the next one continues.
    Exported rows stay if their run is deleted.

    Args:
        logdir: Log directory: a path, or a URL that TensorBoard can open.
        to: Directory of this machine, created if missing.
        runs: Names of the runs to export; by default all.

    Returns:
        What was written; `print` shows it. The columns of the tables are described in
        ``docs/export.md``.

    Raises:
        RequestError: pyarrow is not installed, `to` is a URL, or another export writes to it.
        NotFoundError: There is no such log directory, or no such run."""
    logdir, to = os.fspath(logdir), os.fspath(to)
    pyarrow()
    if "://" in to:
        raise RequestError(
            f"cannot write to {to}: pass a local directory, or use tb_memplugin.beam for object "
            "stores"
        )
    recordings.write_under(logdir)
    units = list(export_units(logdir))
    names = sorted({unit.run for unit in units})
    for run in runs:
        if run not in names:
            raise NotFoundError(unknown_name("no run", run, names))
    units = [unit for unit in units if not runs or unit.run in runs]
    directory = pathlib.Path(to)
    directory.mkdir(parents=True, exist_ok=True)
    return _export(units, directory)


def _export(units: Sequence[ExportUnit], directory: pathlib.Path) -> Exported:
    for table in TABLES:
        # A pattern such as `failures/*/*.parquet` must match a file, also if nothing failed.
        _write_file(
            directory / table / "schema" / "empty.parquet", arrow_schema(table).empty_table()
        )
    rows = dict.fromkeys(TABLES, 0)
    written = unchanged = failed = 0
    state = directory / STATE
    with state.open("a", encoding="utf-8") as lines:
        if not recordings.lock(lines.fileno()):
            raise RequestError(f"another export writes to {directory}; wait until it has ended")
        known = _read_state(state)
        if state.stat().st_size and not state.read_bytes().endswith(b"\n"):
            lines.write("\n")  # a killed call left half a line
        for unit in units:
            mark, tables = _read(unit, known)
            if tables is None:
                unchanged += 1
                continue
            # Of a worker that cannot be read, what was exported before stays: it has dead letters
            # only.
            for table, of_table in tables.items():
                rows[table] += _write(directory / table, unit, of_table)
            lines.write(json.dumps([unit.run, unit.worker, mark]) + "\n")
            lines.flush()
            failed += mark is None
            written += mark is not None
    return Exported(os.fspath(directory), written, unchanged, failed, rows)


def _read(
    unit: ExportUnit, known: Mapping[tuple[str, str], str | None]
) -> tuple[str | None, dict[str, Any] | None]:
    """The mark of a worker's files and its tables in Arrow: no mark if it cannot be read, no tables
    if it has not changed."""
    try:
        # Taken first: what is appended while the worker is read belongs to the next call.
        mark = fingerprint(unit)
        if known.get((unit.run, unit.worker)) == mark:
            return mark, None
        tables, readable = unit_tables(unit)
        return mark if readable else None, {
            name: arrow_table(name, rows) for name, rows in tables.items()
        }
    except Exception as error:  # each file system raises its own, and Arrow for what it cannot hold
        letters = _dead_letters(unit, False, [files.reason(error, unit.logdir)])
        return None, {"dead_letters": arrow_table("dead_letters", letters)}


def arrow_table(table: str, rows: Rows) -> Any:
    arrow, schema = pyarrow(), arrow_schema(table)

    def array(field: Any, values: Values) -> Any:
        if isinstance(values, np.ndarray):
            return arrow.array(values, arrow.int64(), mask=values == MISSING).cast(field.type)
        return arrow.array(values, field.type)

    return arrow.Table.from_arrays(
        [array(field, rows[field.name]) for field in schema], schema=schema
    )


def _write(folder: pathlib.Path, unit: ExportUnit, content: Any) -> int:
    """Replace a worker's file of a table; a table without rows has no file."""
    path = (
        folder
        / f"run-{_file_name(unit.run)}"
        / f"part{'-' if unit.worker else ''}{_file_name(unit.worker)}.parquet"
    )
    if not content.num_rows:
        path.unlink(missing_ok=True)
        return 0
    _write_file(path, content)
    return int(content.num_rows)


def _write_file(path: pathlib.Path, content: Any) -> None:
    """Write a `pyarrow.Table` at once: a file of that name is complete."""
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    # Engines skip names that begin with a dot; the file of a killed call is overwritten by the next
    # one.
    unfinished = path.parent / f".{_digest(path.name)}.unfinished"
    pyarrow.parquet.write_table(content, unfinished, compression="zstd")
    unfinished.replace(path)


def _file_name(name: str) -> str:
    quoted = quote(name, safe="")
    return quoted if len(quoted) <= _MAX_NAME else f"{quoted[:_MAX_NAME]}-{_digest(name)}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def _read_state(path: pathlib.Path) -> dict[tuple[str, str], str | None]:
    """Run and worker to the mark of the files that were exported last."""
    state = {}
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with contextlib.suppress(ValueError, TypeError):  # half a line of a killed call
                run, worker, mark = json.loads(line)
                state[str(run), str(worker)] = mark
    return state
