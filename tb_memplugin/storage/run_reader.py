"""Reads runs from a source, incrementally and on request."""

import contextlib
import dataclasses
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Collection, Hashable, Mapping, Sequence

from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import Oom, Run, WorkerSummary, clean, unknown_name
from tb_memplugin.storage.activations import RecordedActivations, as_recorded
from tb_memplugin.storage.cache import ByteCache
from tb_memplugin.storage.catalog import (
    RunTags,
    catalog_of,
    entries_of,
    of_session,
    of_worker,
    version_of,
)
from tb_memplugin.storage.decoding import decode_tag
from tb_memplugin.storage.files import (
    DAMAGED_ROLLUP,
    MAX_RUN_BYTES,
    ByteBudget,
    Listing,
    NewestFrames,
    Source,
)
from tb_memplugin.storage.frames import parse_tag, run_name
from tb_memplugin.storage.merging import MergedRun, merge
from tb_memplugin.storage.samples import samples_bytes
from tb_memplugin.storage.sessions import gaps, limited, sessions_of
from tb_memplugin.storage.streams import (
    ACTIVATION_HEADS,
    ACTIVATIONS,
    BASIC,
    REQUESTS,
    ROLLUPS,
    SAMPLE_FIGURES,
    TIMELINES,
    Stream,
)
from tb_memplugin.storage.tables import RunTables

_log = logging.getLogger(__name__)

CACHE_BYTES = 160 << 20
"""Limit of all that a reader and the handlers on top of it keep: decoded frames, merged runs,
activations, answers."""
MAX_ACTIVATION_BYTES = 128 << 20
"""Limit of what the activations of one run take in memory."""
MAX_ROLLUP_BYTES = 4 << 20
"""Most bytes in memory of a stored summary; that of eight devices takes some 10 KiB."""
MAX_KEPT_FIGURES_BYTES = 1 << 20
"""Larger figures of a worker are not cached, only what follows from them: they would displace all
else."""


@dataclasses.dataclass(frozen=True)
class LoadedRun(MergedRun):
    """A merged run at `version` of its tags, and the tables that it was made of, which go on."""

    version: str
    tables: Sequence[RunTables]

    @property
    def nbytes(self) -> int:
        """Bytes in memory; the samples of several workers refer to those of each."""
        together = 0 if len(self.by_worker) == 1 else 40 * len(self.run.samples)
        samples = sum(samples_bytes(run.samples) for run in self.by_worker.values())
        return 1000 + together + samples + sum(one.size for one in self.tables)


@dataclasses.dataclass(frozen=True)
class WorkerRollups:
    """The summaries of each session that recorded something, in order of their start; or why the
    worker's history must be read instead, as the end of a sentence."""

    sessions: tuple[WorkerSummary, ...]
    missing: str | None


@dataclasses.dataclass(frozen=True)
class WorkerRuns:
    """The workers of a run, with their event runs and the marks of these."""

    name: str
    of_worker: Mapping[str, Mapping[str, Hashable]]

    @property
    def version(self) -> str:
        return version_of(self.of_worker)


class Reader:
    """Reads the runs of one source and caches decoded data. Thread-safe.

    Methods raise NotFoundError for an unknown run or session, and SourceError if the source cannot
    be read now.

    Attributes:
        lock: Held while the source is used, but not while a run is decoded: runs do not wait for
            each other.
        cache: What is kept. Handlers keep their answers in it as well, under keys that begin with
            their names."""

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self.lock = threading.Lock()
        self._run_locks: dict[str, threading.RLock] = {}
        # Held by a run of more than `LARGE_BYTES` from then on until it has been read.
        self._large = threading.RLock()
        self.cache = ByteCache(cache_bytes)
        # Kept by the runs that were made of them.
        self._known: weakref.WeakValueDictionary[Hashable, RunTables] = (
            weakref.WeakValueDictionary()
        )
        self._catalog: Mapping[str, RunTags] = {}
        self._listed: tuple[Listing | None, Mapping[str, tuple[str, ...]]] = (None, {})
        self._listed_at = -1.0
        self._warned: set[str] = set()

    def catalog(self, source: Source) -> Mapping[str, RunTags]:
        arrived = time.monotonic()
        with self.lock:
            # Concurrent requests share a listing that started after they arrived.
            if self._listed_at < arrived:
                began = time.monotonic()
                listed = source.listing(), source.damage()
                if listed[0] is not self._listed[0] or listed[1] != self._listed[1]:
                    self._catalog = catalog_of(*listed)
                    self._listed = listed
                self._listed_at = began
            return self._catalog

    def tags(self, source: Source, name: str) -> RunTags:
        catalog = self.catalog(source)
        tags = catalog.get(name)
        if tags is None:
            raise NotFoundError(unknown_name("no run", name, catalog))
        return tags

    def run(
        self,
        source: Source,
        name: str,
        streams: Collection[Stream] = BASIC,
        all_attempts: bool = False,
        session: str | None = None,
    ) -> LoadedRun:
        return self.load(source, self.tags(source, name), streams, all_attempts, session)

    def load(
        self,
        source: Source,
        tags: RunTags,
        streams: Collection[Stream] = BASIC,
        all_attempts: bool = False,
        session: str | None = None,
    ) -> LoadedRun:
        """The run with these tags, or only one `session` of it. Both that and `all_attempts` keep
        repeated steps."""
        if session is not None:
            tags = of_session(tags, session)
        streams = frozenset(streams)
        key = ("run", tags.name, tags.worker, streams, all_attempts, session)
        with self._lock_of(tags.name):
            loaded: LoadedRun | None = self.cache.get(key, tags.version)
            if loaded is not None:
                return loaded
            damage = [*tags.damage]
            tables: list[RunTables] = []
            try:
                tables, left_out = self._tables(source, tags, streams, session)
                sessions, sentences = sessions_of(tables)
                damage += [*left_out, *self._newer(tags.name, tables)]
                damage += [*itertools.chain(*(one.damage for one in tables)), *sentences]
                thinning = max(one.thinning for one in tables)
                merged = merge(tags.name, sessions, limited(damage), all_attempts, thinning)
            except MemoryError:
                damage.append("the run is not shown: there is not enough memory for it")
                merged = merge(tags.name, [], damage)
            loaded = LoadedRun(merged.run, merged.by_worker, merged.sessions, tags.version, tables)
            if SAMPLE_FIGURES not in streams or loaded.nbytes <= MAX_KEPT_FIGURES_BYTES:
                self.cache.put(key, tags.version, loaded, loaded.nbytes)
            return loaded

    def _newer(self, name: str, tables: Sequence[RunTables]) -> list[str]:
        """A sentence on tags of a newer format, which is also logged once."""
        newer = [sentence for one in tables for sentence in one.newer]
        if not newer:
            return []
        more = f" (and {len(newer) - 1} more tags)" if len(newer) > 1 else ""
        if name not in self._warned:
            self._warned.add(name)
            _log.warning("tb_memplugin: %s", clean(newer[0] + more))
        return [newer[0] + more]

    def _tables(
        self, source: Source, tags: RunTags, streams: frozenset[Stream], session: str | None = None
    ) -> tuple[list[RunTables], list[str]]:
        """What was read of some streams, and sentences on workers and sessions that were not.

        The basic streams are read apart, as most answers need only them, and activations within a
        limit of their own, so that they displace nothing else."""
        of_layers = streams & {ACTIVATIONS, ACTIVATION_HEADS}
        basic = BASIC if streams >= BASIC else frozenset[Stream]()
        entries, left_out = entries_of(tags, {stream.tag for stream in streams})
        room, found = MAX_RUN_BYTES, []
        with contextlib.ExitStack() as stack:

            def wait_for_large() -> None:
                stack.enter_context(self._large)
                self.cache.clear()

            for part in filter(None, (basic, streams - basic - of_layers, of_layers)):
                key = (tags.name, tags.worker, part, session)
                wanted = [one for one in entries if one[2].stream in {of.tag for of in part}]
                tables = self._known.get(key)
                if tables is None or not tables.are_part_of(wanted):
                    self._known[key] = tables = RunTables()
                most = MAX_ACTIVATION_BYTES if part is of_layers else room
                tables.read(source, self.lock, wanted, part, most, wait_for_large)
                room -= tables.size
                found.append(tables)
        return found, left_out

    def failed_session(
        self, source: Source, tags: RunTags, loaded: LoadedRun, oom: Oom
    ) -> tuple[Run, Oom]:
        """The session of a failure of a run, with its requests and timelines, and the failure as
        the session names it.

        It has its own steps only, also those that a later session repeats: these replace them in
        the run."""
        workers = [
            worker
            for worker, run in loaded.by_worker.items()
            if any(_same(oom, own) for own in run.ooms)
        ]
        spans = [span for span in reversed(loaded.sessions) if span.worker in workers]
        # The last one that had started; an imported dump may be older than its session.
        for span in sorted(spans, key=lambda span: span.started > oom.wall_time):
            found = self.load(source, tags, {*BASIC, REQUESTS, TIMELINES}, session=span.session)
            run = next(iter(found.by_worker.values()))
            for own in run.ooms:
                if _same(oom, own):
                    return run, own
        raise NotFoundError(
            f"run {tags.name} has no session of the failed allocation in step {oom.step} any more"
        )

    def activation_rows(self, source: Source, tags: RunTags) -> RecordedActivations:
        recorded = {(entry[0], entry[2].session) for entry in entries_of(tags, {"activations"})[0]}
        # Which rows of several sessions are shown depends on the steps that these trained.
        streams = {ACTIVATIONS} if len(recorded) == 1 else BASIC | {ACTIVATIONS}
        return as_recorded(self.load(source, tags, streams).run.activations)

    def survey_activations(self, source: Source, tags: RunTags) -> tuple[int, tuple[str, ...]]:
        """The number of layers with recorded activation bytes, and sentences on damage to them.

        Reads only the heads of frames, and only of new or changed tags."""
        with self._lock_of(tags.name):
            (read,), _ = self._tables(source, tags, frozenset({ACTIVATION_HEADS}))
            self.cache.put(("heads", tags.name, tags.worker), None, read, read.size)
            heads = [
                head
                for of_session in read.sessions.values()
                for head in of_session[ACTIVATIONS].values.values()
            ]
            damage = [*read.damage, *read.newer]
            for (_, identifier), of_session in read.sessions.items():
                damage += gaps(identifier, ACTIVATIONS, of_session[ACTIVATIONS].places)
        if sum(head.most_bytes for head in heads) > MAX_ACTIVATION_BYTES:
            # Only the values tell how many bytes they take.
            damage = [*self.load(source, tags, {ACTIVATIONS}).run.damage]
        layers = {head.layers for head in heads}
        return len({path for paths in layers for path in paths}), tuple(limited(damage))

    def workers(self, source: Source, name: str) -> WorkerRuns:
        with self.lock:
            runs = source.event_runs()
        of_worker: dict[str, dict[str, Hashable]] = {}
        for event_run, mark in runs.items():
            run, worker = run_name(event_run)
            if run == name:
                of_worker.setdefault(worker, {})[event_run] = mark
        return WorkerRuns(name, of_worker)

    def rollups(self, source: Source, workers: WorkerRuns) -> dict[str, WorkerRollups]:
        """The stored summaries of all workers; only those of workers that recorded since are read
        again."""
        marks = {run: mark for runs in workers.of_worker.values() for run, mark in runs.items()}
        known: dict[str, WorkerRollups] = {
            run: cached
            for run, mark in marks.items()
            if (cached := self.cache.get(("rollups", run), mark)) is not None
        }
        unknown = [run for run in marks if run not in known]
        with self.lock:
            newest = list(source.newest(unknown, ROLLUPS.tag)) if unknown else []
        for found in newest:
            known[found.event_run] = read = _rollups_of(found)
            size = 1000 + sum(1000 * (1 + len(one.devices)) for one in read.sessions)
            self.cache.put(("rollups", found.event_run), marks[found.event_run], read, size)
        together = {}
        for worker, runs in workers.of_worker.items():
            parts = [known[run] for run in sorted(runs) if run in known]
            sessions = sorted(
                (one for part in parts for one in part.sessions), key=lambda one: one.started or 0.0
            )
            missing = next((part.missing for part in parts if part.missing), None)
            together[worker] = WorkerRollups(tuple(sessions), missing)
        return together

    def worker_tags(self, source: Source, workers: WorkerRuns, worker: str) -> RunTags:
        """The tags of one worker, complete however many others there are."""
        with self.lock:
            listing = source.listing_of(workers.of_worker[worker])
        runs = catalog_of(listing, {})
        return (
            of_worker(runs[workers.name], worker)
            if runs
            else RunTags(workers.name, "", (), (), worker)
        )

    def _lock_of(self, name: str) -> threading.RLock:
        with self.lock:
            return self._run_locks.setdefault(name, threading.RLock())


def _same(oom: Oom, own: Oom) -> bool:
    """Whether two records of a run and of a worker are of one failure: identifiers are those of a
    session."""
    return (own.identifier, own.wall_time) == (
        oom.identifier,
        oom.wall_time,
    ) and oom.device.endswith(own.device)


def _rollups_of(newest: NewestFrames) -> WorkerRollups:
    sessions, missing = [], newest.missing
    for content in newest.contents:
        tag = parse_tag(content.tag)
        decoded = None if tag is None else decode_tag(tag, content, ByteBudget(MAX_ROLLUP_BYTES))
        if decoded is None or not decoded.pieces:
            missing = missing or DAMAGED_ROLLUP
        else:
            sessions.append(decoded.pieces[-1].value)
    return WorkerRollups(tuple(sessions), missing)
