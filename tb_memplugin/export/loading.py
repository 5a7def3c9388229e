"""Loads runs in Python, without TensorFlow and without a server.

A run as `load` and `probe` return it: its data, and how it is read in a terminal, a notebook and a data frame.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

import numpy as np

from tb_memplugin.analysis import device_facts, device_names, findings
from tb_memplugin.errors import NotFoundError
from tb_memplugin.export.text import device_table, format_run
from tb_memplugin.fit import MAX_FIXED, advice, with_advice
from tb_memplugin.schema import (
    MISSING,
    PHASES,
    Fix,
    Floats,
    HeldTensorGroup,
    Integers,
    Layer,
    LedgerRow,
    Oom,
    Run,
    html_details,
    html_table,
    html_text,
    optional_column,
    unknown_name,
)
from tb_memplugin.storage import LoadedRun, Reader, RunTags, no_records, of_worker, workers_of
from tb_memplugin.storage.files import FileSource
from tb_memplugin.storage.read import ALL, BASIC, REQUESTS, Stream
from tb_memplugin.storage.write import recordings

Column: TypeAlias = Integers | Floats | list[str | None] | list[bool | None]
"""One value for each row. Unknown is `MISSING` in an array of integers and None in a list."""
Table: TypeAlias = Mapping[str, Column]
_SNAPSHOT = {"step": int, "phase": str, "device": str}
_NOT_SHOWN = ("unit", "recomputed")
"""Fields of layers that are no columns."""


def run_tables(run: Run) -> dict[str, Table]:
    """The tables of a run, sizes in bytes: ``peaks`` has a row for each sample of each device, device by device in the
    order of recording; ``ledger`` and ``held_tensors`` those of all snapshots, ``layers`` those of all layer tables.
    """
    layers = [((table.step,), layer) for table in run.layer_tables for layer in table.layers]

    def of_snapshots(field: str) -> list[tuple[tuple[Any, ...], Any]]:
        return [((one.step, one.phase, one.device), row) for one in run.snapshots for row in getattr(one, field)]

    return {
        "peaks": _peaks(run),
        "ledger": _table(_SNAPSHOT, LedgerRow, of_snapshots("ledger")),
        "layers": _table({"from_step": int}, Layer, layers),
        "held_tensors": _table(_SNAPSHOT, HeldTensorGroup, of_snapshots("held_tensors")),
    }


def _peaks(run: Run) -> Table:
    samples, devices = run.samples, [name for name in device_names(run) if name in run.samples.devices]
    parts: list[Integers] = [np.empty((6, 0), np.int64)]
    times: list[Floats] = [np.empty(0)]
    for number, name in enumerate(devices):
        in_use, peak = samples.devices[name].in_use_bytes, samples.devices[name].peak_bytes
        known = (in_use != MISSING) | (peak != MISSING)  # samples of other workers have no figures of this device
        columns = (samples.step, samples.phase, samples.epoch, np.full(len(samples), number), in_use, peak)
        parts.append(np.asarray(columns, np.int64)[:, known])
        times.append(samples.wall_time[known])
    step, phase, epoch, device, in_use, peak = np.concatenate(parts, axis=1)
    names: Table = {"phase": [PHASES[at] for at in phase.tolist()], "device": [devices[at] for at in device.tolist()]}
    table = {"step": step, "phase": names["phase"], "epoch": epoch, "device": names["device"]}
    return table | {"wall_time": np.concatenate(times), "in_use_bytes": in_use, "peak_bytes": peak}


def _table(places: Mapping[str, type], record: type, rows: Sequence[tuple[tuple[Any, ...], Any]]) -> Table:
    """Columns of the places of records and of their fields, from pairs of both."""
    hints = {name: hint for name, hint in get_type_hints(record).items() if name not in _NOT_SHOWN}
    table = {name: _column(kind, [at[place] for at, _ in rows]) for place, (name, kind) in enumerate(places.items())}
    return table | {name: _column(hint, [getattr(row, name) for _, row in rows]) for name, hint in hints.items()}


def _column(hint: Any, values: list[Any]) -> Column:
    if any(get_origin(one) is tuple for one in (hint, *get_args(hint))):
        return [None if value is None else f"[{', '.join(map(str, value))}]" for value in values]
    return optional_column(values) if hint is int or int in get_args(hint) else values


@dataclasses.dataclass(frozen=True, repr=False)
class RecordedRun(Run):
    """A run as `tb_memplugin.load` and `tb_memplugin.probe` return it.

    `print` shows what ``tb-memplugin inspect`` shows, and a notebook a table of its devices.

    Attributes:
        by_worker: Worker name to the run of that worker, with devices under their own names such as ``GPU:0``.
    """

    by_worker: Mapping[str, Run] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return format_run(self, by_worker=self.by_worker or None)

    def _repr_html_(self) -> str:
        devices = device_facts(self)
        table = html_table(*device_table(self, devices)) if devices else ""
        return html_text(repr(self)) + table + html_details("tb-memplugin inspect", html_text(str(self)))

    def to_pandas(self) -> dict[str, Any]:
        """The run as data frames of pandas, which must be installed.

        Unknown integers are ``<NA>``, sizes are in bytes, and times in seconds since the epoch.

        Returns:
            ``peaks``: `step`, `phase`, `epoch`, `device`, `wall_time`, `in_use_bytes` (at step end) and `peak_bytes` of
            each sample; ``ledger`` and ``held_tensors``: the rows of all snapshots, with their `step`, `phase` and
            `device`; ``layers``: the rows of all layer tables, which hold from `from_step` on.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError(f"to_pandas needs pandas: {error}. Install it with: pip install pandas") from error
        return {
            name: pandas.DataFrame({column: _series(pandas, values) for column, values in table.items()})
            for name, table in run_tables(self).items()
        }


def recorded_run(run: Run, by_worker: Mapping[str, Run], **changes: Any) -> RecordedRun:
    """A run that was read, with some of its fields changed."""
    fields = {field.name: getattr(run, field.name) for field in dataclasses.fields(Run)}
    return RecordedRun(**(fields | changes), by_worker=by_worker)


def _series(pandas: Any, column: Column) -> Any:
    """A column with types that can say unknown, whatever its first values are."""
    if isinstance(column, np.ndarray):
        is_whole = np.issubdtype(column.dtype, np.integer)
        return pandas.arrays.IntegerArray(column.copy(), column == MISSING) if is_whole else column
    flags = any(isinstance(value, bool) for value in column)
    return pandas.array(column, dtype="boolean" if flags else "string")


class SimulatedOnce(Oom):
    """A failure whose fixes are simulated when they, or the notes on them, are read first."""

    _simulate: Callable[[], Oom]

    @functools.cached_property
    def _simulated(self) -> Oom:
        return self._simulate()

    @functools.cached_property
    def fixes(self) -> tuple[Fix, ...]:
        return self._simulated.fixes

    @functools.cached_property
    def not_available(self) -> tuple[str, ...]:
        return self._simulated.not_available

    def __reduce__(self) -> tuple[Any, ...]:
        return Oom, _values(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Oom) and _values(self) == _values(other)

    __hash__ = Oom.__hash__

    @classmethod
    def of(cls, oom: Oom, simulate: Callable[[], Oom]) -> Oom:
        found = cls.__new__(cls)
        recorded = {name: value for name, value in vars(oom).items() if name not in ("fixes", "not_available")}
        vars(found).update(recorded, _simulate=simulate)
        return found


def _values(oom: Oom) -> tuple[Any, ...]:
    return tuple(getattr(oom, field.name) for field in dataclasses.fields(Oom))


class Runs(Mapping[str, RecordedRun]):
    """The runs under a directory by TensorBoard's run name, at the time of opening. Runs are decoded on access.

    If this process records into the directory, opening it waits until the steps so far are analyzed and written: about
    a second after `fit`, 60 s at most.

    Args:
        path: Log directory: a path, or a URL that TensorBoard can open.
        all_attempts: Keep steps that a later session repeats.
        details: Also read activations, memory maps, timelines and requests, and look for memory that grows.

    Fixes of the last failed allocations are simulated when they are read first, which takes up to some seconds each.

    Raises:
        NotFoundError: The directory does not exist, or the accessed run.
    """

    def __init__(self, path: str | os.PathLike[str], all_attempts: bool = False, details: bool = True) -> None:
        recordings.write_under(os.fspath(path))
        self._source = FileSource(path)
        self._reader = Reader()
        self._all_attempts = all_attempts
        self._details = details
        self._advised: dict[tuple[str, str], tuple[Oom, ...]] = {}
        self._catalog = self._reader.catalog(self._source)

    def __getitem__(self, name: str) -> RecordedRun:
        loaded = self._load(name)
        if not self._details:
            return recorded_run(loaded.run, loaded.by_worker)
        found = tuple(findings(loaded.by_worker))
        return recorded_run(loaded.run, loaded.by_worker, findings=found, ooms=self._with_fixes(name, loaded))

    def _with_fixes(self, name: str, loaded: LoadedRun) -> tuple[Oom, ...]:
        def simulated(oom: Oom) -> Oom:
            session = self._reader.failed_session(self._source, self._catalog[name], loaded, oom)
            return with_advice(oom, advice(*session))

        if (name, loaded.version) not in self._advised:
            ooms = loaded.run.ooms
            last = (SimulatedOnce.of(oom, functools.partial(simulated, oom)) for oom in ooms[-MAX_FIXED:])
            self._advised[name, loaded.version] = (*ooms[:-MAX_FIXED], *last)
        return self._advised[name, loaded.version]

    def by_worker(self, name: str) -> Mapping[str, Run]:
        """Worker name to the run of that worker; its devices have their own names, such as ``GPU:0``."""
        return self._load(name).by_worker

    def each_worker(self, name: str, requests: bool = False) -> Iterator[tuple[str, Run]]:
        """Each worker's name and run, read one after the other, however many there are; if wanted, with requests."""
        streams = self._streams | ({REQUESTS} if requests else set())
        tags = self._tags(name)
        directories = workers_of(tags)
        for directory in directories or ("",):
            own = tags
            if len(directories) > 1:
                own = dataclasses.replace(of_worker(tags, directory), damage=tags.damage)
            loaded = self._reader.load(self._source, own, streams, self._all_attempts)
            for worker, run in loaded.by_worker.items():
                yield worker, dataclasses.replace(run, damage=loaded.run.damage)
            if not loaded.by_worker:
                yield directory, loaded.run

    @property
    def _streams(self) -> frozenset[Stream]:
        return frozenset(ALL) if self._details else BASIC

    def _tags(self, name: str) -> RunTags:
        if name not in self._catalog:
            raise NotFoundError(unknown_name("no run", name, self._catalog))
        return self._catalog[name]

    def _load(self, name: str) -> LoadedRun:
        return self._reader.load(self._source, self._tags(name), self._streams, self._all_attempts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog)

    def __len__(self) -> int:
        return len(self._catalog)

    def __repr__(self) -> str:
        return f"<tb_memplugin runs: {', '.join(self._catalog) or 'none'}>"


def existing_runs(logdir: str, all_attempts: bool = False, details: bool = True) -> Runs:
    """The runs under a log directory, with the arguments of `Runs`; raises NotFoundError if there are none."""
    runs = Runs(logdir, all_attempts, details)
    if not runs:
        raise no_records(logdir)
    return runs


def load(path: str | os.PathLike[str], all_attempts: bool = False) -> Runs:
    """Load the runs under `path`; see `Runs`."""
    return Runs(path, all_attempts)
