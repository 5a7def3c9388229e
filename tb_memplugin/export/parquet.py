"""An export into partitioned Parquet files, which a second call brings up to date."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import IO, Any
from urllib.parse import quote

import numpy as np

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.export.rows import ExportUnit, Rows, export_units, fingerprint, unit_tables, unreadable
from tb_memplugin.export.schema import TABLES, arrow_schema, pyarrow
from tb_memplugin.schema import MISSING, counted, unknown_name
from tb_memplugin.storage.write import recordings

STATE = "exported.jsonl"
"""Says which workers were exported, a line each."""
_MAX_NAME = 180
"""Longer names of directories and files are shortened: file systems allow 255 bytes."""


@dataclasses.dataclass(frozen=True)
class Exported:
    """What a call of `export_parquet` did.

    Attributes:
        directory: Where the tables are.
        written, unchanged: Numbers of workers that were exported, and of those that had not changed.
        failed: Number of workers that could not be read at all; the next call tries again.
        rows: Table to the number of rows written.
    """

    directory: str
    written: int
    unchanged: int
    failed: int
    rows: Mapping[str, int]

    def __str__(self) -> str:
        rows = ", ".join(f"{table} {number:,}" for table, number in self.rows.items() if number)
        lines = [
            f"{self.directory}: {counted(self.written, 'worker')} exported, {self.unchanged} unchanged",
            f"rows written: {rows or 'none'}",
        ]
        if self.failed:
            lines.append(f"{counted(self.failed, 'worker')} could not be read: see the table dead_letters")
        return "\n".join(lines)


def export_parquet(logdir: str | os.PathLike[str], to: str | os.PathLike[str], *, runs: Sequence[str] = ()) -> Exported:
    """Export runs as Parquet files: ``<to>/<table>/run-<run>/part-<worker>.parquet``.

    A worker is read if its event files have changed since the last call; then its files are replaced. Each file is
    complete or absent, and after an interrupted call the next one continues. Exported rows stay if their run is
    deleted.

    Args:
        logdir: Log directory: a path, or a URL that TensorBoard can open.
        to: Directory of this machine, created if missing.
        runs: Names of the runs to export; by default all.

    Returns:
        What was written; `print` shows it. The columns of the tables are described in ``docs/export.md``.

    Raises:
        RequestError: pyarrow is not installed, `to` is a URL, or another export writes to it.
        NotFoundError: There is no such log directory, or no such run.
    """
    logdir, to = os.fspath(logdir), os.fspath(to)
    pyarrow()
    if "://" in to:
        raise RequestError(f"cannot write to {to}: pass a local directory, or use tb_memplugin.beam for object stores")
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
        _write_file(directory / table / "schema" / "empty.parquet", arrow_schema(table).empty_table())
    rows = dict.fromkeys(TABLES, 0)
    written = unchanged = failed = 0
    state = directory / STATE
    with state.open("a", encoding="utf-8") as lines:
        _lock(lines, directory)
        known = _read_state(state)
        if state.stat().st_size and not state.read_bytes().endswith(b"\n"):
            lines.write("\n")  # a killed call left half a line
        for unit in units:
            mark, tables = _read(unit, known)
            if tables is None:
                unchanged += 1
                continue
            # Of a worker that cannot be read, what was exported before stays: it has dead letters only.
            for table, of_table in tables.items():
                rows[table] += _write(directory / table, unit, of_table)
            lines.write(json.dumps([unit.run, unit.worker, mark]) + "\n")
            lines.flush()
            failed += mark is None
            written += mark is not None
    return Exported(os.fspath(directory), written, unchanged, failed, rows)


def _read(unit: ExportUnit, known: Mapping[tuple[str, str], str | None]) -> tuple[str | None, dict[str, Any] | None]:
    """The mark of a worker's files and its tables in Arrow: no mark if it cannot be read, no tables if it has not
    changed."""
    try:
        # Taken first: what is appended while the worker is read belongs to the next call.
        mark = fingerprint(unit)
        if known.get((unit.run, unit.worker)) == mark:
            return mark, None
        tables, readable = unit_tables(unit)
        return mark if readable else None, {name: arrow_table(name, rows) for name, rows in tables.items()}
    except Exception as error:  # each file system raises its own, and Arrow for what it cannot hold
        return None, {name: arrow_table(name, rows) for name, rows in unreadable(unit, error).items()}


def arrow_table(table: str, rows: Rows) -> Any:
    arrow, schema = pyarrow(), arrow_schema(table)
    columns = []
    for field in schema:
        values = rows[field.name]
        if isinstance(values, np.ndarray):
            columns.append(arrow.array(values, arrow.int64(), mask=values == MISSING).cast(field.type))
        else:
            columns.append(arrow.array(values, field.type))
    return arrow.Table.from_arrays(columns, schema=schema)


def _write(folder: pathlib.Path, unit: ExportUnit, content: Any) -> int:
    """Replace a worker's file of a table; a table without rows has no file."""
    path = folder / f"run-{_file_name(unit.run)}" / f"part{'-' if unit.worker else ''}{_file_name(unit.worker)}.parquet"
    if not content.num_rows:
        path.unlink(missing_ok=True)
        return 0
    _write_file(path, content)
    return int(content.num_rows)


def _write_file(path: pathlib.Path, content: Any) -> None:
    """Write a `pyarrow.Table` at once: a file of that name is complete."""
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    # Engines skip names that begin with a dot; the file of a killed call is overwritten by the next one.
    unfinished = path.parent / f".{hashlib.sha256(path.name.encode()).hexdigest()[:16]}.unfinished"
    pyarrow.parquet.write_table(content, unfinished, compression="zstd")
    unfinished.replace(path)


def _lock(file: IO[str], directory: pathlib.Path) -> None:
    """Hold the state until it is closed; `RequestError` if another export holds it."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RequestError(f"another export writes to {directory}; wait until it has ended") from error


def _file_name(name: str) -> str:
    quoted = quote(name, safe="")
    if len(quoted) <= _MAX_NAME:
        return quoted
    return f"{quoted[:_MAX_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _read_state(path: pathlib.Path) -> dict[tuple[str, str], str | None]:
    """Run and worker to the mark of the files that were exported last."""
    state = {}
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with contextlib.suppress(ValueError, TypeError):  # half a line of a killed call
                run, worker, mark = json.loads(line)
                state[str(run), str(worker)] = mark
    return state
