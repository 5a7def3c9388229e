"""Loads runs in Python, without TensorFlow and without a server."""

import dataclasses
import os
from collections.abc import Iterator, Mapping

from tb_memplugin.analysis.findings import findings
from tb_memplugin.model import Run
from tb_memplugin.reader.file_source import FileSource
from tb_memplugin.reader.run_reader import LoadedRun, Reader


class Runs(Mapping[str, Run]):
    """The runs under a directory by TensorBoard's run name, at the time of opening. Runs are decoded on access.

    Args:
        path: Log directory: a path, or a URL that TensorBoard can open.
        all_attempts: Keep steps that a later session repeats.
        details: Also read activations, memory maps, timelines and requests, and look for memory that grows.

    Raises:
        NotFoundError: The directory does not exist.
    """

    def __init__(self, path: str | os.PathLike[str], all_attempts: bool = False, details: bool = True) -> None:
        self._source = FileSource(path)
        self._reader = Reader()
        self._all_attempts = all_attempts
        self._details = details
        self._catalog = self._reader.catalog(self._source)

    def __getitem__(self, name: str) -> Run:
        loaded = self._load(name)
        if not self._details:
            return loaded.run
        return dataclasses.replace(loaded.run, findings=tuple(findings(loaded.by_worker)))

    def by_worker(self, name: str) -> Mapping[str, Run]:
        """Worker name to the run of that worker; its devices have their own names, such as ``GPU:0``."""
        return self._load(name).by_worker

    def _load(self, name: str) -> LoadedRun:
        more = self._details
        return self._reader.load(
            self._source,
            self._catalog[name],
            activations=more,
            all_attempts=self._all_attempts,
            maps=more,
            timelines=more,
            requests=more,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog)

    def __len__(self) -> int:
        return len(self._catalog)

    def __repr__(self) -> str:
        return f"<tb_memplugin runs: {', '.join(self._catalog) or 'none'}>"


def load(path: str | os.PathLike[str], all_attempts: bool = False) -> Runs:
    """Load the runs under `path`; see `Runs`."""
    return Runs(path, all_attempts)
