"""The stored summaries of a run's workers: enough for a list of all of them, without reading what they recorded."""

import dataclasses
from collections.abc import Hashable, Mapping

from tb_memplugin.schema import WorkerSummary
from tb_memplugin.storage.catalog import RunTags, catalog_of, of_worker, version_of
from tb_memplugin.storage.files import NewestFrames, Room, Source
from tb_memplugin.storage.frames import parse_tag, run_name
from tb_memplugin.storage.read import ROLLUPS, decode_tag
from tb_memplugin.storage.run_reader import Reader

MAX_ROLLUP_BYTES = 4 << 20
"""Most bytes in memory of a roll-up; that of eight devices takes some 10 KiB."""


@dataclasses.dataclass(frozen=True)
class WorkerRollups:
    """The summaries of each session that recorded something, in order of their start; or why the worker's history must
    be read instead, as the end of a sentence."""

    sessions: tuple[WorkerSummary, ...]
    missing: str | None


@dataclasses.dataclass(frozen=True)
class WorkerRuns:
    name: str
    of_worker: Mapping[str, Mapping[str, Hashable]]

    @property
    def version(self) -> str:
        return version_of(self.of_worker)


class RollupReader:
    """Reads roll-ups on top of one `Reader`, and the tags of single workers. Thread-safe.

    Methods raise SourceError if the source cannot be read now.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def workers(self, source: Source, name: str) -> WorkerRuns:
        with self._reader.lock:
            runs = source.event_runs()
        of_worker: dict[str, dict[str, Hashable]] = {}
        for event_run, mark in runs.items():
            run, worker = run_name(event_run)
            if run == name:
                of_worker.setdefault(worker, {})[event_run] = mark
        return WorkerRuns(name, of_worker)

    def read(self, source: Source, workers: WorkerRuns) -> dict[str, WorkerRollups]:
        """The roll-ups of all workers; only those of workers that recorded since are read again."""
        marks = {run: mark for runs in workers.of_worker.values() for run, mark in runs.items()}
        cache = self._reader.cache
        known: dict[str, WorkerRollups] = {
            run: cached for run, mark in marks.items() if (cached := cache.get(("rollups", run), mark)) is not None
        }
        unknown = [run for run in marks if run not in known]
        with self._reader.lock:
            newest = list(source.newest(unknown, ROLLUPS.tag)) if unknown else []
        for found in newest:
            known[found.event_run] = read = _decoded(found)
            size = 1000 + sum(1000 * (1 + len(one.devices)) for one in read.sessions)
            cache.put(("rollups", found.event_run), marks[found.event_run], read, size)
        together = {}
        for worker, runs in workers.of_worker.items():
            parts = [known[run] for run in sorted(runs) if run in known]
            sessions = sorted((one for part in parts for one in part.sessions), key=lambda one: one.started or 0.0)
            missing = next((part.missing for part in parts if part.missing), None)
            together[worker] = WorkerRollups(tuple(sessions), missing)
        return together

    def tags(self, source: Source, workers: WorkerRuns, worker: str) -> RunTags:
        """The tags of one worker, complete however many others there are."""
        with self._reader.lock:
            listing = source.listing_of(workers.of_worker[worker])
        runs = catalog_of(listing, {})
        return of_worker(runs[workers.name], worker) if runs else RunTags(workers.name, "", (), (), worker)


def _decoded(newest: NewestFrames) -> WorkerRollups:
    sessions, missing = [], newest.missing
    for content in newest.contents:
        tag = parse_tag(content.tag)
        decoded = None if tag is None else decode_tag(tag, content, Room(MAX_ROLLUP_BYTES, 0), ROLLUPS)
        if decoded is None or not decoded.pieces:
            missing = missing or "its newest roll-up is damaged"
        else:
            sessions.append(decoded.pieces[-1].value)
    return WorkerRollups(tuple(sessions), missing)
