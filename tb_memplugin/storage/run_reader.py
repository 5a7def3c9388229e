"""Reads runs from a source, incrementally and on request."""

import dataclasses
import logging
import threading
import time
from collections.abc import Collection, Hashable, Iterable, Mapping

import numpy as np

from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import Oom, Run, WorkerSummary, clean, unknown_name
from tb_memplugin.storage.activations import ActivationRows, activation_rows_of
from tb_memplugin.storage.cache import ByteCache
from tb_memplugin.storage.catalog import (
    RunTags,
    catalog_of,
    of_session,
    of_stream,
    of_worker,
    version_of,
)
from tb_memplugin.storage.files import (
    DAMAGED_ROLLUP,
    ByteBudget,
    Entry,
    Listing,
    NewestFrames,
    Source,
    within_limits,
)
from tb_memplugin.storage.frames import Tag, parse_tag, run_name
from tb_memplugin.storage.reading import (
    MAX_ACTIVATION_BYTES,
    DecodedTag,
    Reading,
    ReadStreams,
    decode_tag,
    groups,
)
from tb_memplugin.storage.sessions import (
    MergedRun,
    by_session,
    gaps,
    limited,
    merge,
    session_from_pieces,
)
from tb_memplugin.storage.streams import (
    ACTIVATION_HEADS,
    ACTIVATIONS,
    BASIC,
    OF_TAG,
    OOM,
    REQUESTS,
    ROLLUPS,
    SAMPLE_FIGURES,
    TIMELINES,
    Stream,
)

_log = logging.getLogger(__name__)

CACHE_BYTES = 160 << 20
"""Limit of all that a reader and the handlers on top of it keep: decoded frames, merged runs,
activations, answers."""
MAX_ROLLUP_BYTES = 4 << 20
"""Most bytes in memory of a stored summary; that of eight devices takes some 10 KiB."""
MAX_KEPT_FIGURES_BYTES = 1 << 20
"""Larger figures of a worker are not cached, only what follows from them: they would displace all
else."""


@dataclasses.dataclass(frozen=True)
class LoadedRun(MergedRun):
    """A merged run at `version` of its tags, as it was read: further streams are added to that."""

    version: str
    read: ReadStreams

    @property
    def nbytes(self) -> int:
        """Bytes in memory; the samples of several workers refer to those of each."""
        together = 0 if len(self.by_worker) == 1 else 40 * len(self.run.samples)
        return 1000 + together + self.read.nbytes([run.samples for run in self.by_worker.values()])


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
            if loaded is None:
                known = self.load(source, tags, session=session).read if streams > BASIC else None
                loaded = self._load(source, tags, streams, all_attempts, known)
                if SAMPLE_FIGURES not in streams or loaded.nbytes <= MAX_KEPT_FIGURES_BYTES:
                    self.cache.put(key, tags.version, loaded, loaded.nbytes)
            return loaded

    def ooms(self, source: Source, tags: RunTags) -> tuple[Oom, ...]:
        """The failed allocations of the run with these tags, in the order that the run has them
        in."""
        return self.load(source, tags, {OOM}).run.ooms if of_stream(tags, OOM.tag) else ()

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

    def activation_rows(self, source: Source, tags: RunTags) -> ActivationRows:
        wanted = of_stream(tags, ACTIVATIONS.tag)
        with self._lock_of(tags.name):
            key = ("activations", tags.name, tags.worker)
            rows: ActivationRows | None = self.cache.get(key, wanted)
            if rows is not None:
                return rows
            with Reading() as reading:
                decoded = self._decode(
                    source, within_limits(wanted)[0], reading, frozenset({ACTIVATIONS})
                )
                damage = [*reading.damage, *reading.over_limit()]
                sessions = list(by_session(wanted, decoded).values())
                pieces = sessions[0][ACTIVATIONS] if len(sessions) == 1 else []
                rows = ActivationRows([piece.value for piece in pieces], damage=damage)
                if len(sessions) > 1 or (np.diff(rows.step) < 0).any():
                    # Several sessions, or steps out of order: the merge selects the rows.
                    merged = self.load(source, tags, BASIC | {ACTIVATIONS})
                    rows = activation_rows_of(merged.run.activations).with_damage(damage)
            self.cache.put(key, wanted, rows, rows.nbytes)
            return rows

    def survey_activations(self, source: Source, tags: RunTags) -> tuple[int, tuple[str, ...]]:
        """The number of layers with recorded activation bytes, and sentences on damage to them.

        Reads only the heads of frames, and only of new or changed tags."""
        wanted, _ = within_limits(of_stream(tags, ACTIVATIONS.tag))
        with self._lock_of(tags.name), Reading() as reading:
            decoded = self._decode(source, wanted, reading, frozenset({ACTIVATION_HEADS}))
        known = [decoded[run, tag] for _, run, tag, _ in wanted if (run, tag) in decoded]
        heads = [piece.value for of_tag in known for piece in of_tag.pieces]
        damage = [sentence for of_tag in known for sentence in of_tag.damage]
        damage += dict.fromkeys(of_tag.newer for of_tag in known if of_tag.newer)
        damage += reading.over_limit()
        if sum(head.most_bytes for head in heads) > MAX_ACTIVATION_BYTES:
            # Only the values tell how many bytes they take.
            damage += [
                sentence
                for sentence in self.activation_rows(source, tags).damage
                if sentence not in damage
            ]
        for (_, identifier), pieces in by_session(wanted, decoded).items():
            damage += gaps(identifier, ACTIVATIONS, pieces[ACTIVATIONS])
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

    def _load(
        self,
        source: Source,
        tags: RunTags,
        streams: frozenset[Stream],
        all_attempts: bool,
        known: ReadStreams | None,
    ) -> LoadedRun:
        """The streams of a run; those of `BASIC` may be known."""
        wanted, sentences = within_limits(
            [entry for entry in tags.tags if entry[2].stream in {stream.tag for stream in streams}]
        )
        if known is not None:
            wanted = [entry for entry in wanted if OF_TAG[entry[2].stream] not in BASIC]
        damage = [*tags.damage, *sentences]
        try:
            with Reading(known or ReadStreams()) as reading:
                for group in groups(wanted):
                    decoded = self._decode(source, group, reading, streams)
                    for key, pieces in by_session(group, decoded).items():
                        reading.join(key, pieces)
                read = reading.result()
            sessions, sentences = [], []
            for one in sorted(read.sessions, key=lambda one: one.session):
                session, missing = session_from_pieces(one.session, one.pieces, one.samples)
                sessions.append((one.worker, session))
                sentences += [*one.sentences, *missing]
            if read.newer:
                more = f" (and {len(read.newer) - 1} more tags)" if len(read.newer) > 1 else ""
                damage.append(read.newer[0] + more)
                if tags.name not in self._warned:
                    self._warned.add(tags.name)
                    _log.warning("tb_memplugin: %s", clean(damage[-1]))
            damage = limited([*damage, *read.damage, *sentences])
            merged = merge(tags.name, sessions, damage, all_attempts, thinning=read.thinning)
        except MemoryError:
            damage.append("the run is not shown: there is not enough memory for it")
            merged, read = merge(tags.name, [], damage), ReadStreams()
        return LoadedRun(merged.run, merged.by_worker, merged.sessions, tags.version, read)

    def _decode(
        self, source: Source, wanted: Iterable[Entry], reading: Reading, streams: frozenset[Stream]
    ) -> Mapping[tuple[str, Tag], DecodedTag]:
        """The content of the wanted tags, from the cache or the source, within the limits of a
        run's size."""
        by_tag = {stream.tag: stream for stream in streams}
        reading.contents = {}
        missing: dict[str, dict[str, tuple[Tag, Hashable]]] = {}
        for _, run, tag, mark in wanted:
            cached: DecodedTag | None = self.cache.get(("tag", run, tag, by_tag[tag.stream]), mark)
            if cached is not None:
                reading.room_of(tag).reserve(cached.size, cached.rows)
                reading.add(run, tag, cached)
            else:
                missing.setdefault(run, {})[str(tag)] = (tag, mark)
        contents = (
            source.read({run: list(tags) for run, tags in missing.items()}) if missing else iter(())
        )
        while True:
            with self.lock:
                content = next(contents, None)
            if content is None:
                break
            tag, mark = missing[content.event_run][content.tag]
            room = reading.room_of(tag)
            if room.is_full:
                reading.left_out += 1
                continue
            if reading.is_large() and not reading.is_alone:
                reading.is_alone = True
                reading.enter_context(self._large)
                self.cache.clear()
            decoded = decode_tag(tag, content, room, by_tag[tag.stream])
            if decoded.complete and not reading.is_large() and SAMPLE_FIGURES not in streams:
                self.cache.put(
                    ("tag", content.event_run, tag, by_tag[tag.stream]), mark, decoded, decoded.size
                )
            reading.add(content.event_run, tag, decoded)
        reading.thin_whole()
        return reading.contents


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
        decoded = (
            None
            if tag is None
            else decode_tag(tag, content, ByteBudget(MAX_ROLLUP_BYTES, 0), ROLLUPS)
        )
        if decoded is None or not decoded.pieces:
            missing = missing or DAMAGED_ROLLUP
        else:
            sessions.append(decoded.pieces[-1].value)
    return WorkerRollups(tuple(sessions), missing)
