"""Reading runs back in Python, without TensorFlow and without a server."""

import dataclasses
import os
from collections.abc import Iterator, Mapping

from tb_memplugin.analysis.growth import findings
from tb_memplugin.model import Run
from tb_memplugin.store.file_source import FileSource
from tb_memplugin.store.reader import Reader


class Runs(Mapping[str, Run]):
    """The runs under a directory as they were when it was opened, by the name that TensorBoard shows.

    A run is decoded when it is asked for.

    Args:
        path: Log directory: a path, or a URL that TensorBoard can open.
        all_attempts: Keep the steps of every session, also those that a later one repeats.

    Raises:
        NotFoundError: There is no such directory.
    """

    def __init__(self, path: str | os.PathLike[str], all_attempts: bool = False) -> None:
        self._source = FileSource(path)
        self._reader = Reader()
        self._all_attempts = all_attempts
        self._catalog = self._reader.catalog(self._source)

    def __getitem__(self, name: str) -> Run:
        tags = self._catalog[name]
        attempts = self._all_attempts
        run = self._reader.load(
            self._source, tags, activations=True, all_attempts=attempts, maps=True, timelines=True
        ).run
        return dataclasses.replace(run, findings=tuple(findings(run)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog)

    def __len__(self) -> int:
        return len(self._catalog)

    def __repr__(self) -> str:
        return f"<tb_memplugin runs: {', '.join(self._catalog) or 'none'}>"


def load(path: str | os.PathLike[str], all_attempts: bool = False) -> Runs:
    """The runs under `path`; see `Runs`."""
    return Runs(path, all_attempts)
