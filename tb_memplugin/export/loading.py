"""Loads runs in Python, without TensorFlow and without a server.

A run as `load` and `probe` return it: its data, and how it is read in a terminal, a notebook and a
data frame."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tb_memplugin.analysis import capacity_of, device_facts, findings
from tb_memplugin.errors import NotFoundError
from tb_memplugin.export.tables import Values, frame_tables
from tb_memplugin.export.text import device_table, summarize_run
from tb_memplugin.fit import (
    MAX_FIXED,
    Ask,
    Globs,
    Measure,
    Plan,
    Predictor,
    WhatIf,
    advice,
    answer_of,
    capacity_bytes,
    checked_conditions,
    device_of,
    plan_for,
    with_advice,
)
from tb_memplugin.schema import (
    MISSING,
    Fix,
    Oom,
    Run,
    html_details,
    html_table,
    html_text,
    unknown_name,
    with_layers_of,
)
from tb_memplugin.storage import (
    ALL,
    BASIC,
    REQUESTS,
    LoadedRun,
    Reader,
    RunTags,
    no_records,
    of_worker,
    workers_of,
)
from tb_memplugin.storage.files import FileSource
from tb_memplugin.storage.write import recordings


@dataclasses.dataclass(frozen=True, repr=False)
class RecordedRun(Run):
    """A run as `tb_memplugin.load` and `tb_memplugin.probe` return it.

    `print` shows what ``tb-memplugin inspect`` shows, and a notebook a table of its devices.

    Attributes:
        by_worker: Worker name to the run of that worker, with devices under their own names such as
            ``GPU:0``.
        ask: Of a run that `tb_memplugin.probe` returns for a compiled model, what asks XLA's
            compiler; else None."""

    by_worker: Mapping[str, Run] = dataclasses.field(default_factory=dict)
    ask: Ask | None = dataclasses.field(default=None, compare=False)

    def __str__(self) -> str:
        return summarize_run(self, by_worker=self.by_worker or None)

    def _repr_html_(self) -> str:
        devices = device_facts(self)
        table = html_table(*device_table(self, devices)) if devices else ""
        return (
            html_text(repr(self))
            + table
            + html_details("tb-memplugin inspect", html_text(str(self)))
        )

    def to_pandas(self) -> dict[str, Any]:
        """The run as data frames of pandas, which must be installed.

        Unknown integers are ``<NA>``, sizes are in bytes, and times in seconds since the epoch.

        Returns:
            ``peaks``: `step`, `phase`, `epoch`, `device`, `wall_time`, `in_use_bytes` (at step end)
                and `peak_bytes` of
            each sample; ``ledger`` and ``held_tensors``: the rows of all snapshots, with their
            `step`, `phase` and `device`; ``layers``: the rows of all layer tables, which hold from
            `from_step` on.

        Raises:
            ImportError: pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                f"to_pandas needs pandas: {error}. Install it with: pip install pandas"
            ) from error
        return {
            name: pandas.DataFrame(
                {column: _series(pandas, values) for column, values in table.items()}
            )
            for name, table in frame_tables(self).items()
        }


def recorded_run(loaded: LoadedRun, **changes: Any) -> RecordedRun:
    """A run that was read, with some of its fields changed."""
    fields = {field.name: getattr(loaded.run, field.name) for field in dataclasses.fields(Run)}
    return RecordedRun(**(fields | changes), by_worker=loaded.by_worker)


def _series(pandas: Any, column: Values) -> Any:
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
        recorded = {
            name: value
            for name, value in vars(oom).items()
            if name not in ("fixes", "not_available")
        }
        vars(found).update(recorded, _simulate=simulate)
        return found


def _values(oom: Oom) -> tuple[Any, ...]:
    return tuple(getattr(oom, field.name) for field in dataclasses.fields(Oom))


class Runs(Mapping[str, RecordedRun]):
    """The runs under a directory by TensorBoard's run name, at the time of opening. Runs are
    decoded on access.

    If this process records into the directory, opening it waits until the steps so far are analyzed
    and written: about a second after `fit`, 60 s at most.

    Args:
        path: Log directory: a path, or a URL that TensorBoard can open.
        all_attempts: Keep steps that a later session repeats.
        details: Also read activations, memory maps, timelines and requests, and look for memory
            that grows.

    Fixes of the last failed allocations are simulated when they are read first, which takes up to
    some seconds each.

    Raises:
        NotFoundError: The directory does not exist, or the accessed run."""

    def __init__(
        self, path: str | os.PathLike[str], all_attempts: bool = False, details: bool = True
    ) -> None:
        recordings.write_under(os.fspath(path))
        self._source = FileSource(path)
        self._reader = Reader()
        self._all_attempts = all_attempts
        self._details = details
        self._streams = frozenset(ALL) if details else BASIC
        self._advised: dict[tuple[str, str], tuple[Oom, ...]] = {}
        self._catalog = self._reader.catalog(self._source)

    def __getitem__(self, name: str) -> RecordedRun:
        loaded = self._load(name)
        if not self._details:
            return recorded_run(loaded)
        return recorded_run(
            loaded, findings=tuple(findings(loaded.by_worker)), ooms=self._with_fixes(name, loaded)
        )

    def _with_fixes(self, name: str, loaded: LoadedRun) -> tuple[Oom, ...]:
        def simulated(oom: Oom) -> Oom:
            session = self._reader.failed_session(self._source, self._catalog[name], loaded, oom)
            return with_advice(oom, advice(*session))

        if (name, loaded.version) not in self._advised:
            ooms = loaded.run.ooms
            last = (
                SimulatedOnce.of(oom, functools.partial(simulated, oom))
                for oom in ooms[-MAX_FIXED:]
            )
            self._advised[name, loaded.version] = (*ooms[:-MAX_FIXED], *last)
        return self._advised[name, loaded.version]

    def by_worker(self, name: str) -> Mapping[str, Run]:
        """Worker name to the run of that worker; its devices have their own names, such as
        ``GPU:0``."""
        return self._load(name).by_worker

    def each_worker(self, name: str, requests: bool = False) -> Iterator[tuple[str, Run]]:
        """Each worker's name and run, read one after the other, however many there are; if wanted,
        with requests."""
        streams = self._streams | ({REQUESTS} if requests else set())
        tags = self._tags(name)
        directories = workers_of(tags) or ("",)
        for directory in directories:
            own = (
                tags
                if len(directories) == 1
                else dataclasses.replace(of_worker(tags, directory), damage=tags.damage)
            )
            loaded = self._reader.load(self._source, own, streams, self._all_attempts)
            for worker, run in loaded.by_worker.items():
                yield worker, dataclasses.replace(run, damage=loaded.run.damage)
            if not loaded.by_worker:
                yield directory, loaded.run

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
    """The runs under a log directory, with the arguments of `Runs`; raises NotFoundError if there
    are none."""
    runs = Runs(logdir, all_attempts, details)
    if not runs:
        raise no_records(logdir)
    return runs


def load(path: str | os.PathLike[str], all_attempts: bool = False) -> Runs:
    """Load the runs under `path`; see `Runs`."""
    return Runs(path, all_attempts)


def what_if(
    run: Run,
    *,
    batch_size: int | None = None,
    capacity: int | str | None = None,
    freeze: Globs | None = None,
    unfreeze: Globs | None = None,
    optimizer: str | None = None,
    precision: str | None = None,
    device: str | None = None,
) -> WhatIf:
    """Predict what a recorded run would need under other conditions.

    The recorded steps are replayed first; only if that reproduces every address is anything
    predicted.

    Args:
        run: A run, as ``tb_memplugin.load(log_dir)[name]`` returns it.
        batch_size: Examples in a batch.
        capacity: The allocator's limit, in bytes or as a text such as ``"24GiB"``.
        freeze, unfreeze: Glob for whole paths of layers, such as ``"*/block1_*"``, or a list of
            globs; commas separate several in one text, and ``*`` also matches ``/``.
        optimizer: Name of a Keras optimizer in lower case, or ``momentum`` for SGD with momentum.
        precision: ``float32``, ``mixed_float16`` or ``mixed_bfloat16``.
        device: Device of the run; by default the fullest accelerator with recorded requests.

    Returns:
        The answer; `print` shows it. Its `prediction.method` is ``unknown`` if nothing can be
        predicted; `prediction.assumptions` then says why.

    Raises:
        RequestError: A condition is malformed, or a glob matches no layer with weights.
        NotFoundError: The run has no such device."""
    conditions = checked_conditions(batch_size, capacity, freeze, unfreeze, optimizer, precision)
    return answer_of(predictor_of(run, device), conditions)


def predictor_of(run: Run, device: str | None) -> Predictor:
    return Predictor.of(*_on_device(run, device), asking(run))


def asking(run: Run) -> Ask | None:
    return run.ask if isinstance(run, RecordedRun) else None


def _on_device(run: Run, device: str | None) -> tuple[Run, str]:
    """The run with the layers of the device's worker, and the device."""
    chosen = device_of(run, device)
    return with_layers_of(
        run, run.by_worker if isinstance(run, RecordedRun) else {}, chosen
    ), chosen


def plan_of_run(
    run: Run,
    budget: int | str,
    device: str | None = None,
    batch_size: int | None = None,
    train: Measure | None = None,
) -> Plan:
    """The plan for a run, as `tb_memplugin.plan` returns it, with the same errors; `train` is its
    `measure`."""
    size = checked_conditions(batch_size).batch_size
    run, device = _on_device(run, device)
    return plan_for(
        run,
        device,
        capacity_bytes(budget, "budget", capacity_of(run, device)),
        size,
        asking(run),
        train,
    )
