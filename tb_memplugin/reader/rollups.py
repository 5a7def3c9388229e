"""The roll-ups of a run's workers: enough for a view of all of them, without reading what they recorded."""

import dataclasses
import zlib
from collections.abc import Hashable, Mapping

from tb_memplugin.events.frames.metadata import parse_tag, run_name
from tb_memplugin.model.rollup import Rollup
from tb_memplugin.reader.catalog import RunTags, catalog_of, of_worker
from tb_memplugin.reader.decode.decoding import decode_tag
from tb_memplugin.reader.decode.streams import ROLLUPS
from tb_memplugin.reader.files.limits import Room
from tb_memplugin.reader.files.source import NewestFrames, Source
from tb_memplugin.reader.run_reader import Reader

MAX_ROLLUP_BYTES = 4 << 20
"""Most bytes in memory of a roll-up; those of the recorder take some 40 KiB."""


@dataclasses.dataclass(frozen=True)
class WorkerRollups:
    """The roll-ups of a worker.

    Attributes:
        rollups: Of each session that recorded something, in order of their start.
        missing: Why its history must be read instead, as the end of a sentence; None if the roll-ups say all.
    """

    rollups: tuple[Rollup, ...]
    missing: str | None


@dataclasses.dataclass(frozen=True)
class WorkerRuns:
    """The event runs of a run's workers.

    Attributes:
        name: The run.
        of_worker: Worker to its event runs, each with its mark.
    """

    name: str
    of_worker: Mapping[str, Mapping[str, Hashable]]

    @property
    def version(self) -> str:
        """Changes whenever the data of a worker changes."""
        return f"{zlib.crc32(repr(self.of_worker).encode()):08x}"


class RollupReader:
    """Reads roll-ups on top of one `Reader`, and the history of single workers. Thread-safe."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def workers(self, source: Source, name: str) -> WorkerRuns:
        """The workers of the run called `name`; none if there is no such run.

        Raises:
            SourceError: The source cannot be read now.
        """
        with self._reader.lock:
            runs = source.event_runs()
        of_worker: dict[str, dict[str, Hashable]] = {}
        for event_run, mark in runs.items():
            run, worker = run_name(event_run)
            if run == name:
                of_worker.setdefault(worker, {})[event_run] = mark
        return WorkerRuns(name, of_worker)

    def read(self, source: Source, workers: WorkerRuns) -> dict[str, WorkerRollups]:
        """The roll-ups of all workers; only those of workers that recorded since are read again.

        Raises:
            SourceError: The source cannot be read now.
        """
        marks = {run: mark for runs in workers.of_worker.values() for run, mark in runs.items()}
        cache = self._reader.cache
        known: dict[str, WorkerRollups] = {}
        for run, mark in marks.items():
            cached: WorkerRollups | None = cache.get(("rollups", run), mark)
            if cached is not None:
                known[run] = cached
        unknown = [run for run in marks if run not in known]
        with self._reader.lock:
            newest = list(source.newest(unknown, ROLLUPS.tag)) if unknown else []
        for found in newest:
            known[found.event_run] = read = _decoded(found)
            size = 1000 + sum(_bytes_of(rollup) for rollup in read.rollups)
            cache.put(("rollups", found.event_run), marks[found.event_run], read, size)
        return {
            worker: _together([known[run] for run in sorted(runs) if run in known])
            for worker, runs in workers.of_worker.items()
        }

    def tags(self, source: Source, workers: WorkerRuns, worker: str) -> RunTags:
        """The tags of one worker, complete however many others there are.

        Raises:
            SourceError: The source cannot be read now.
        """
        with self._reader.lock:
            listing = source.listing_of(workers.of_worker[worker])
        runs = catalog_of(listing, {})
        return of_worker(runs[workers.name], worker) if runs else RunTags(workers.name, "", (), (), worker)


def _decoded(newest: NewestFrames) -> WorkerRollups:
    rollups, missing = [], newest.missing
    for content in newest.contents:
        tag = parse_tag(content.tag)
        decoded = None if tag is None else decode_tag(tag, content, Room(MAX_ROLLUP_BYTES, 0), ROLLUPS)
        if decoded is None or not decoded.pieces:
            missing = missing or "its newest roll-up is damaged"
        else:
            rollups.append(decoded.pieces[-1].value)
    return WorkerRollups(tuple(sorted(rollups, key=lambda rollup: rollup.started)), missing)


def _together(parts: list[WorkerRollups]) -> WorkerRollups:
    if len(parts) == 1:
        return parts[0]
    rollups = sorted((rollup for part in parts for rollup in part.rollups), key=lambda rollup: rollup.started)
    return WorkerRollups(tuple(rollups), next((part.missing for part in parts if part.missing), None))


def _bytes_of(rollup: Rollup) -> int:
    """Estimated bytes in memory."""
    tables = [rollup.spans, rollup.levels]
    arrays = sum(int(column.nbytes) for table in tables for column in vars(table).values())
    parts = sum(len(of.traced.parts) for device in rollup.devices for of in device.phases.values() if of.traced)
    return 2000 + arrays + 1000 * len(rollup.devices) + 150 * parts
