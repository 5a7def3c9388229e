"""Loads runs in Python, without TensorFlow and without a server."""

import os
from collections.abc import Iterator, Mapping

from tb_memplugin.analysis.findings import findings
from tb_memplugin.analysis.fit.fixes import MAX_FIXED, advice, with_advice
from tb_memplugin.commands.recorded_run import RecordedRun, recorded_run
from tb_memplugin.errors import NotFoundError
from tb_memplugin.events import own_recordings
from tb_memplugin.model import Oom, Run
from tb_memplugin.model.text import unknown_name
from tb_memplugin.reader.catalog import no_records
from tb_memplugin.reader.decode.streams import ALL, BASIC
from tb_memplugin.reader.failed_sessions import failed_session
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.run_reader import LoadedRun, Reader


class Runs(Mapping[str, RecordedRun]):
    """The runs under a directory by TensorBoard's run name, at the time of opening. Runs are decoded on access.

    If this process records into the directory, opening it waits until the steps so far are analyzed and written: about
    a second after `fit`, 60 s at most.

    Args:
        path: Log directory: a path, or a URL that TensorBoard can open.
        all_attempts: Keep steps that a later session repeats.
        details: Also read activations, memory maps, timelines and requests, and look for memory that grows.
        fixes: Simulate fixes of the last failed allocations, which takes up to some seconds each.

    Raises:
        NotFoundError: The directory does not exist, or the accessed run.
    """

    def __init__(
        self, path: str | os.PathLike[str], all_attempts: bool = False, details: bool = True, fixes: bool = False
    ) -> None:
        own_recordings.write_under(os.fspath(path))
        self._source = FileSource(path)
        self._reader = Reader()
        self._all_attempts = all_attempts
        self._details = details
        self._fixes = fixes
        self._advised: dict[tuple[str, str], tuple[Oom, ...]] = {}
        self._catalog = self._reader.catalog(self._source)

    def __getitem__(self, name: str) -> RecordedRun:
        loaded = self._load(name)
        if not self._details:
            return recorded_run(loaded.run, loaded.by_worker)
        ooms = self._with_fixes(name, loaded) if self._fixes else loaded.run.ooms
        return recorded_run(loaded.run, loaded.by_worker, findings=tuple(findings(loaded.by_worker)), ooms=ooms)

    def _with_fixes(self, name: str, loaded: LoadedRun) -> tuple[Oom, ...]:
        """The failures, the last ones with their fixes."""
        if (name, loaded.version) not in self._advised:
            ooms = loaded.run.ooms
            self._advised[name, loaded.version] = ooms[:-MAX_FIXED] + tuple(
                with_advice(oom, advice(*failed_session(self._reader, self._source, self._catalog[name], loaded, oom)))
                for oom in ooms[-MAX_FIXED:]
            )
        return self._advised[name, loaded.version]

    def by_worker(self, name: str) -> Mapping[str, Run]:
        """Worker name to the run of that worker; its devices have their own names, such as ``GPU:0``."""
        return self._load(name).by_worker

    def _load(self, name: str) -> LoadedRun:
        if name not in self._catalog:
            raise NotFoundError(unknown_name("no run", name, self._catalog))
        streams = ALL if self._details else BASIC
        return self._reader.load(self._source, self._catalog[name], streams, self._all_attempts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog)

    def __len__(self) -> int:
        return len(self._catalog)

    def __repr__(self) -> str:
        return f"<tb_memplugin runs: {', '.join(self._catalog) or 'none'}>"


def existing_runs(logdir: str, all_attempts: bool = False, details: bool = True, fixes: bool = False) -> Runs:
    """The runs under a log directory, with the arguments of `Runs`.

    Raises:
        NotFoundError: The directory does not exist, or has no runs.
    """
    runs = Runs(logdir, all_attempts, details, fixes)
    if not runs:
        raise no_records(logdir)
    return runs


def load(path: str | os.PathLike[str], all_attempts: bool = False) -> Runs:
    """Load the runs under `path`; see `Runs`."""
    return Runs(path, all_attempts, fixes=True)
