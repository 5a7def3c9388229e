"""Loads runs in Python, without TensorFlow and without a server."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tb_memplugin.analysis.findings import findings
from tb_memplugin.analysis.fit.fixes import MAX_FIXED, advice, with_advice
from tb_memplugin.commands.recorded_run import RecordedRun, recorded_run
from tb_memplugin.errors import NotFoundError
from tb_memplugin.events import own_recordings
from tb_memplugin.model import Fix, Oom, Run
from tb_memplugin.model.text import unknown_name
from tb_memplugin.reader.catalog import RunTags, no_records, of_worker, workers_of
from tb_memplugin.reader.decode.streams import ALL, BASIC, REQUESTS, Stream
from tb_memplugin.reader.failed_sessions import failed_session
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.run_reader import LoadedRun, Reader


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


def _values(oom: Oom) -> tuple[Any, ...]:
    return tuple(getattr(oom, field.name) for field in dataclasses.fields(Oom))


def _simulated_once(oom: Oom, simulate: Callable[[], Oom]) -> Oom:
    """A failure with the fixes of `simulate`, which takes up to some seconds."""
    found = SimulatedOnce.__new__(SimulatedOnce)
    recorded = {name: value for name, value in vars(oom).items() if name not in ("fixes", "not_available")}
    vars(found).update(recorded, _simulate=simulate)
    return found


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
        own_recordings.write_under(os.fspath(path))
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
        """The failures, the last ones with their fixes."""

        def simulated(oom: Oom) -> Oom:
            session = failed_session(self._reader, self._source, self._catalog[name], loaded, oom)
            return with_advice(oom, advice(*session))

        if (name, loaded.version) not in self._advised:
            ooms = loaded.run.ooms
            last = (_simulated_once(oom, functools.partial(simulated, oom)) for oom in ooms[-MAX_FIXED:])
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
    """The runs under a log directory, with the arguments of `Runs`.

    Raises:
        NotFoundError: The directory does not exist, or has no runs.
    """
    runs = Runs(logdir, all_attempts, details)
    if not runs:
        raise no_records(logdir)
    return runs


def load(path: str | os.PathLike[str], all_attempts: bool = False) -> Runs:
    """Load the runs under `path`; see `Runs`."""
    return Runs(path, all_attempts)
