"""Reads runs from a source, incrementally and on request."""

import dataclasses
import logging
import threading
import time
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import NO_SAMPLES, Oom, Run, Samples, clean, unknown_name
from tb_memplugin.storage.cache import ByteCache
from tb_memplugin.storage.catalog import RunTags, catalog_of, of_session, of_stream
from tb_memplugin.storage.files import MAX_ACTIVATION_BYTES, Entry, Listing, Source, within_limits
from tb_memplugin.storage.frames import Tag
from tb_memplugin.storage.merge import MergedRun, merge
from tb_memplugin.storage.read import (
    ACTIVATION_HEADS,
    ACTIVATIONS,
    BASIC,
    OF_TAG,
    OOM,
    PEAK,
    PIECE_BYTES,
    REQUESTS,
    SAMPLE_FIGURES,
    SAMPLES,
    TIMELINES,
    ActivationRows,
    DecodedTag,
    Piece,
    Reading,
    Stream,
    activation_rows_of,
    decode_tag,
    groups,
    samples_bytes,
)
from tb_memplugin.storage.sessions import by_session, gaps, join_with_peaks, limited, session_from_pieces

_log = logging.getLogger(__name__)

CACHE_BYTES = 160 << 20
"""Limit of all that a reader and the handlers on top of it keep: decoded frames, merged runs, activations, answers."""
MAX_KEPT_FIGURES_BYTES = 1 << 20
"""Larger figures of a worker are not cached, only what follows from them: they would displace all else."""


@dataclasses.dataclass(frozen=True)
class _ReadSession:
    """A session as it was read: frames by stream, those of samples without their content, and the joined samples."""

    worker: str
    session: str
    pieces: Mapping[Stream, Sequence[Piece]] = dataclasses.field(default_factory=dict)
    samples: Samples = NO_SAMPLES
    sentences: tuple[str, ...] = ()

    def with_pieces(self, pieces: Mapping[Stream, Sequence[Piece]], reading: Reading) -> "_ReadSession":
        """The session with more frames. Those of samples are let go once they are joined in `reading`."""
        sentences, frames = self.sentences, dict(pieces)
        joined = pieces.keys() & {SAMPLES, PEAK}
        if joined:
            samples, sentences = join_with_peaks(pieces)
            for stream in joined:
                frames[stream] = [dataclasses.replace(piece, value=None, size=PIECE_BYTES) for piece in pieces[stream]]
            let_go = sum(piece.size - PIECE_BYTES for stream in joined for piece in pieces[stream])
            reading.join(let_go, samples_bytes(samples))
            reading.joined[self.worker, self.session] = samples
        return dataclasses.replace(self, pieces={**self.pieces, **frames}, sentences=sentences)


@dataclasses.dataclass(frozen=True)
class _Read:
    """Some streams of a run as they were read: sentences as in `DecodedTag`, bytes in memory, and rows of samples."""

    sessions: tuple[_ReadSession, ...] = ()
    damage: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    size: int = 0
    rows: int = 0
    thinning: int = 1


@dataclasses.dataclass(frozen=True)
class LoadedRun(MergedRun):
    """A merged run at `version` of its tags, as it was read: further streams are added to that."""

    version: str
    read: _Read = _Read()

    @property
    def nbytes(self) -> int:
        """Bytes in memory; the samples of several workers refer to those of each."""
        tables = [one.samples for one in self.read.sessions] + [run.samples for run in self.by_worker.values()]
        different = {id(table.step): table for table in tables}.values()
        pieces = sum(piece.size for one in self.read.sessions for of in one.pieces.values() for piece in of)
        together = 0 if len(self.by_worker) == 1 else 40 * len(self.run.samples)
        return 1000 + pieces + together + sum(map(samples_bytes, different))


class Reader:
    """Reads the runs of one source and caches decoded data. Thread-safe.

    Methods raise NotFoundError for an unknown run or session, and SourceError if the source cannot be read now.

    Attributes:
        lock: Held while the source is used, but not while a run is decoded: runs do not wait for each other.
        cache: What is kept. Handlers keep their answers in it as well, under keys that begin with their names.
    """

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
        """The run with these tags.

        Args:
            streams: What is read of it.
            all_attempts: Whether steps that a later session repeats are kept.
            session: Only this session's data, including steps that a later one repeats.
        """
        if session is not None:
            tags = of_session(tags, session)
        return self._loaded(source, tags, frozenset(streams), all_attempts, session)

    def ooms(self, source: Source, tags: RunTags) -> tuple[Oom, ...]:
        """The failed allocations of the run with these tags, in the order that the run has them in."""
        return self._loaded(source, tags, frozenset({OOM})).run.ooms if of_stream(tags, OOM.tag) else ()

    def failed_session(self, source: Source, tags: RunTags, loaded: LoadedRun, oom: Oom) -> tuple[Run, Oom]:
        """The session of a failure of a run, with its requests and timelines, and the failure as the session names it.

        It has its own steps only, also those that a later session repeats: these replace them in the run.
        """
        workers = [worker for worker, run in loaded.by_worker.items() if any(_same(oom, own) for own in run.ooms)]
        spans = [span for span in reversed(loaded.sessions) if span.worker in workers]
        # The last one that had started; an imported dump may be older than its session.
        for span in sorted(spans, key=lambda span: span.started > oom.wall_time):
            found = self.load(source, tags, {*BASIC, REQUESTS, TIMELINES}, session=span.session)
            run = next(iter(found.by_worker.values()))
            for own in run.ooms:
                if _same(oom, own):
                    return run, own
        raise NotFoundError(f"run {tags.name} has no session of the failed allocation in step {oom.step} any more")

    def _loaded(
        self,
        source: Source,
        tags: RunTags,
        streams: frozenset[Stream],
        all_attempts: bool = False,
        session: str | None = None,
    ) -> LoadedRun:
        key = ("run", tags.name, tags.worker, streams, all_attempts, session)
        with self._lock_of(tags.name):
            loaded: LoadedRun | None = self.cache.get(key, tags.version)
            if loaded is None:
                known = self._loaded(source, tags, BASIC, session=session).read if streams > BASIC else None
                loaded = self._load(source, tags, streams, all_attempts, known)
                if SAMPLE_FIGURES not in streams or loaded.nbytes <= MAX_KEPT_FIGURES_BYTES:
                    self.cache.put(key, tags.version, loaded, loaded.nbytes)
            return loaded

    def activation_rows(self, source: Source, name: str) -> ActivationRows:
        return self._rows_of(source, self.tags(source, name))

    def _rows_of(self, source: Source, tags: RunTags) -> ActivationRows:
        wanted = of_stream(tags, ACTIVATIONS.tag)
        with self._lock_of(tags.name):
            key = ("activations", tags.name, tags.worker)
            rows: ActivationRows | None = self.cache.get(key, wanted)
            if rows is not None:
                return rows
            with ExitStack() as stack:
                reading = Reading(stack)
                decoded = self._decode(source, within_limits(wanted)[0], reading, frozenset({ACTIVATIONS}))
                damage = [sentence for tag in decoded.values() for sentence in tag.damage]
                damage += reading.over_limit()
                sessions = list(by_session(wanted, decoded).values())
                pieces = sessions[0][ACTIVATIONS] if len(sessions) == 1 else []
                rows = ActivationRows([piece.value for piece in pieces], damage=damage)
                if len(sessions) > 1 or (np.diff(rows.step) < 0).any():
                    # Several sessions, or steps out of order: the merge selects the rows.
                    merged = self._loaded(source, tags, BASIC | {ACTIVATIONS})
                    rows = activation_rows_of(merged.run.activations).with_damage(damage)
            self.cache.put(key, wanted, rows, rows.nbytes)
            return rows

    def survey_activations(self, source: Source, tags: RunTags) -> tuple[int, tuple[str, ...]]:
        """The number of layers with recorded activation bytes, and sentences on damage to them.

        Reads only the heads of frames, and only of new or changed tags.
        """
        wanted, _ = within_limits(of_stream(tags, ACTIVATIONS.tag))
        with self._lock_of(tags.name), ExitStack() as stack:
            reading = Reading(stack)
            decoded = self._decode(source, wanted, reading, frozenset({ACTIVATION_HEADS}))
        known = [decoded[run, tag] for _, run, tag, _ in wanted if (run, tag) in decoded]
        heads = [piece.value for of_tag in known for piece in of_tag.pieces]
        damage = [sentence for of_tag in known for sentence in of_tag.damage]
        damage += dict.fromkeys(of_tag.newer for of_tag in known if of_tag.newer)
        damage += reading.over_limit()
        if sum(head.most_bytes for head in heads) > MAX_ACTIVATION_BYTES:
            # Only the values tell how many bytes they take.
            damage += [sentence for sentence in self._rows_of(source, tags).damage if sentence not in damage]
        for (_, identifier), pieces in by_session(wanted, decoded).items():
            damage += gaps(identifier, ACTIVATIONS, pieces[ACTIVATIONS])
        layers = {head.layers for head in heads}
        return len({path for paths in layers for path in paths}), tuple(limited(damage))

    def _lock_of(self, name: str) -> threading.RLock:
        with self.lock:
            return self._run_locks.setdefault(name, threading.RLock())

    def _load(
        self, source: Source, tags: RunTags, streams: frozenset[Stream], all_attempts: bool, known: _Read | None
    ) -> LoadedRun:
        """The streams of a run; those of `BASIC` may be known."""
        wanted, sentences = within_limits(
            [entry for entry in tags.tags if entry[2].stream in {stream.tag for stream in streams}]
        )
        if known is not None:
            wanted = [entry for entry in wanted if OF_TAG[entry[2].stream] not in BASIC]
        damage = [*tags.damage, *sentences]
        try:
            read = self._read(source, wanted, streams, known or _Read())
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
            merged, read = merge(tags.name, [], damage), _Read()
        return LoadedRun(merged.run, merged.by_worker, merged.sessions, tags.version, read)

    def _read(self, source: Source, wanted: Sequence[Entry], streams: frozenset[Stream], known: _Read) -> _Read:
        """Read the wanted tags, which add streams to the sessions of `known`."""
        sessions = {(one.worker, one.session): one for one in known.sessions}
        damage, newer = list(known.damage), list(known.newer)
        with ExitStack() as stack:
            reading = Reading(stack)
            reading.others.take(known.size, known.rows)
            reading.joined = {key: one.samples for key, one in sessions.items()}
            for group in groups(wanted):
                decoded = self._decode(source, group, reading, streams)
                newer += [tag.newer for tag in decoded.values() if tag.newer]
                damage += [sentence for tag in decoded.values() for sentence in tag.damage]
                for key, pieces in by_session(group, decoded).items():
                    sessions[key] = sessions.get(key, _ReadSession(*key)).with_pieces(pieces, reading)
            damage += reading.over_limit()
            size, rows = reading.taken()
        found = [
            dataclasses.replace(one, samples=reading.joined.get(key, one.samples)) for key, one in sessions.items()
        ]
        shown = sum(len(one.samples) for one in found)
        thinning = max(2, round(reading.recorded / max(1, shown))) if reading.halvings else known.thinning
        return _Read(tuple(found), tuple(damage), tuple(newer), size, rows, thinning)

    def _decode(
        self, source: Source, wanted: Iterable[Entry], reading: Reading, streams: frozenset[Stream]
    ) -> Mapping[tuple[str, Tag], DecodedTag]:
        """The content of the wanted tags, from the cache or the source, as far as there is room."""
        by_tag = {stream.tag: stream for stream in streams}
        reading.contents = {}
        missing: dict[str, dict[str, tuple[Tag, Hashable]]] = {}
        for _, run, tag, mark in wanted:
            cached: DecodedTag | None = self.cache.get(("tag", run, tag, by_tag[tag.stream]), mark)
            if cached is not None:
                reading.room_of(tag).take(cached.size, cached.rows)
                reading.add(run, tag, cached)
            else:
                missing.setdefault(run, {})[str(tag)] = (tag, mark)
        contents = source.read({run: list(tags) for run, tags in missing.items()}) if missing else iter(())
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
            if reading.is_large() and not reading.has_entered:
                reading.enter(self._large)
                self.cache.clear()
            decoded = decode_tag(tag, content, room, by_tag[tag.stream])
            if decoded.complete and not reading.is_large() and SAMPLE_FIGURES not in streams:
                self.cache.put(("tag", content.event_run, tag, by_tag[tag.stream]), mark, decoded, decoded.size)
            reading.add(content.event_run, tag, decoded)
        reading.thin_whole()
        return reading.contents


def _same(oom: Oom, own: Oom) -> bool:
    """Whether two records of a run and of a worker are of one failure: identifiers are those of a session."""
    return (own.identifier, own.wall_time) == (oom.identifier, oom.wall_time) and oom.device.endswith(own.device)
