"""Reads runs from a source, incrementally and on request."""

import dataclasses
import logging
import threading
import time
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import Oom, Session, clean, unknown_name
from tb_memplugin.storage.cache import ByteCache
from tb_memplugin.storage.catalog import RunTags, catalog_of, of_session, of_stream
from tb_memplugin.storage.files import (
    MAX_ACTIVATION_BYTES,
    MAX_RUN_BYTES,
    Entry,
    Listing,
    Source,
    TagContent,
    within_limits,
)
from tb_memplugin.storage.frames import Tag
from tb_memplugin.storage.merge import MergedRun, merge
from tb_memplugin.storage.read import (
    ACTIVATIONS,
    BASIC,
    OF_TAG,
    OOM,
    PEAK,
    PIECE_BYTES,
    SAMPLE_FIGURES,
    SAMPLES,
    ActivationRows,
    Contents,
    DecodedTag,
    Piece,
    Reading,
    Stream,
    TagSurvey,
    activation_rows_of,
    decode_tag,
    groups,
    left_out,
    samples_bytes,
    survey_tag,
    surveys_bytes,
    tables_of,
    taken,
    thin_tags,
    thinned,
)
from tb_memplugin.storage.sessions import (
    JoinedSamples,
    by_session,
    gaps,
    join_with_peaks,
    limited,
    session_from_pieces,
)

_log = logging.getLogger(__name__)

CACHE_BYTES = 160 << 20
"""Limit of all that a reader and the handlers on top of it keep: decoded frames, merged runs, activations, answers."""
LARGE_BYTES = 32 << 20
"""Runs whose decoded frames take more are read one after the other."""
HALVED = 0.8
"""Most rows that halving samples may leave; where it leaves more, each is a peak."""
MAX_KEPT_FIGURES_BYTES = 1 << 20
"""Figures of a worker that take more are not kept: what follows from them is, and they would displace all else."""


@dataclasses.dataclass(frozen=True)
class _ReadSession:
    """A session as it was read.

    Attributes:
        worker, session: Its names.
        pieces: Its frames by stream; those of samples without their content.
        samples: The joined samples, and sentences on those left out.
    """

    worker: str
    session: str
    pieces: Mapping[Stream, Sequence[Piece]]
    samples: JoinedSamples


@dataclasses.dataclass(frozen=True)
class _Read:
    """Some streams of a run as they were read.

    Attributes:
        sessions: In order of reading.
        damage, newer: Sentences, as in `DecodedTag`.
        size, rows: Bytes in memory, and rows of samples.
        thinning: As in `Run`.
    """

    sessions: tuple[_ReadSession, ...] = ()
    damage: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    size: int = 0
    rows: int = 0
    thinning: int = 1


@dataclasses.dataclass(frozen=True)
class LoadedRun(MergedRun):
    """A merged run at `version` of its tags.

    Attributes:
        read: Its sessions, to which further streams are added.
    """

    version: str
    read: _Read = _Read()

    @property
    def nbytes(self) -> int:
        """Bytes in memory; the samples of several workers refer to those of each."""
        tables = [one.samples[0] for one in self.read.sessions] + [run.samples for run in self.by_worker.values()]
        different = {id(table.step): table for table in tables}.values()
        pieces = sum(piece.size for one in self.read.sessions for of in one.pieces.values() for piece in of)
        together = 0 if len(self.by_worker) == 1 else 40 * len(self.run.samples)
        return 1000 + pieces + together + sum(map(samples_bytes, different))


class Reader:
    """Reads the runs of one source and caches decoded data. Thread-safe.

    Methods raise NotFoundError for an unknown run or session, and SourceError if the source cannot be read now.

    Args:
        cache_bytes: Limit of all that is kept.

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
        """The current runs by name."""
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
        """The tags of the run called `name`."""
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
        """The run called `name`; see `load`."""
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
        """The recorded activations of the run called `name`, by row."""
        return self._rows_of(source, self.tags(source, name))

    def _rows_of(self, source: Source, tags: RunTags) -> ActivationRows:
        wanted = of_stream(tags, ACTIVATIONS.tag)
        with self._lock_of(tags.name):
            rows: ActivationRows | None = self.cache.get(("activations", tags.name, tags.worker), wanted)
            if rows is not None:
                return rows
            with ExitStack() as stack:
                reading = Reading(stack, LARGE_BYTES, MAX_RUN_BYTES)
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
            self.cache.put(("activations", tags.name, tags.worker), wanted, rows, rows.nbytes)
            return rows

    def survey_activations(self, source: Source, tags: RunTags) -> tuple[int, tuple[str, ...]]:
        """The number of layers with recorded activation bytes, and sentences on damage to them.

        Reads only the heads of frames, and only of new or changed tags.
        """
        wanted, _ = within_limits(of_stream(tags, ACTIVATIONS.tag))
        with self._lock_of(tags.name):
            surveys: dict[tuple[str, Tag], tuple[Hashable, TagSurvey]] = {}
            surveys.update(self.cache.get(("surveys", tags.name, tags.worker), None) or {})
            unknown = {
                (run, str(tag)): (tag, mark)
                for _, run, tag, mark in wanted
                if surveys.get((run, tag), (None,))[0] != mark
            }
            wanted_tags: dict[str, list[str]] = {}
            for run, text in unknown:
                wanted_tags.setdefault(run, []).append(text)
            last: TagSurvey | None = None
            for content in self._contents(source, wanted_tags):
                tag, mark = unknown[content.event_run, content.tag]
                surveyed = survey_tag(tag, content)
                last = surveyed if last is None or last.layers != surveyed.layers else last
                # Equal sets are kept once: a hundred thousand paths for each tag would be much.
                surveys[content.event_run, tag] = (mark, dataclasses.replace(surveyed, layers=last.layers))
            if unknown:
                surveys = {(run, tag): surveys[run, tag] for _, run, tag, _ in wanted if (run, tag) in surveys}
                size = surveys_bytes([survey for _, survey in surveys.values()])
                self.cache.put(("surveys", tags.name, tags.worker), None, surveys, size)
            known = [(worker, tag, surveys[run, tag][1]) for worker, run, tag, _ in wanted if (run, tag) in surveys]
        damage = [sentence for _, _, survey in known for sentence in survey.damage]
        damage.extend(dict.fromkeys(survey.newer for _, _, survey in known if survey.newer))
        damage.extend(left_out([survey for _, _, survey in known]))
        if sum(survey.most_bytes for _, _, survey in known) > MAX_ACTIVATION_BYTES:
            # Only the values tell how many bytes they take.
            damage.extend(sentence for sentence in self._rows_of(source, tags).damage if sentence not in damage)
        heads: dict[tuple[str, str], dict[int, Piece]] = {}
        for worker, tag, survey in known:
            heads.setdefault((worker, tag.session), {}).update((head.sequence, head) for head in survey.heads)
        for (_, identifier), by_sequence in heads.items():
            damage.extend(gaps(identifier, ACTIVATIONS, [by_sequence[at] for at in sorted(by_sequence)]))
        return len(frozenset().union(*(survey.layers for _, _, survey in known))), tuple(limited(damage))

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
            sessions, sentences = _sessions_of(read)
            if read.newer:
                damage.append(read.newer[0] if len(read.newer) == 1 else _newer(read.newer))
                self._warn_once(tags.name, damage[-1])
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
            reading = Reading(stack, LARGE_BYTES, MAX_RUN_BYTES)
            reading.room_of(SAMPLES).take(known.size, known.rows)
            for group in groups(wanted):
                decoded = self._decode(source, group, reading, streams, sessions)
                newer += [tag.newer for tag in decoded.values() if tag.newer]
                damage += [sentence for tag in decoded.values() for sentence in tag.damage]
                for key, pieces in by_session(group, decoded).items():
                    before = sessions.get(key) or _ReadSession(*key, {}, join_with_peaks((), ()))
                    sessions[key] = _with_pieces(before, pieces, reading)
            damage += reading.over_limit()
            size, rows = reading.taken()
        shown = sum(len(one.samples[0]) for one in sessions.values())
        thinning = max(2, round(reading.recorded / max(1, shown))) if reading.halvings else known.thinning
        return _Read(tuple(sessions.values()), tuple(damage), tuple(newer), size, rows, thinning)

    def _decode(
        self,
        source: Source,
        wanted: Iterable[Entry],
        reading: Reading,
        streams: frozenset[Stream],
        sessions: dict[tuple[str, str], _ReadSession] | None = None,
    ) -> Contents:
        """The content of the wanted tags, from the cache or the source, as far as there is room.

        Where there are too many samples, they are thinned, and those of the `sessions` that were read before as well.
        """
        by_tag = {stream.tag: stream for stream in streams}
        joined = {} if sessions is None else sessions
        contents: Contents = {}
        missing: dict[str, dict[str, tuple[Tag, Hashable]]] = {}
        for _, run, tag, mark in wanted:
            cached: DecodedTag | None = self.cache.get(("tag", run, tag, by_tag[tag.stream]), mark)
            if cached is not None:
                contents[run, tag] = cached
                reading.room_of(OF_TAG[tag.stream]).take(cached.size, cached.rows)
                _add_samples(reading, contents, (run, tag), joined)
            else:
                missing.setdefault(run, {})[str(tag)] = (tag, mark)
        for content in self._contents(source, {run: list(tags) for run, tags in missing.items()}):
            tag, mark = missing[content.event_run][content.tag]
            room = reading.room_of(OF_TAG[tag.stream])
            if room.is_full:
                reading.left_out += 1
                continue
            if reading.is_large() and reading.enter(self._large):
                self.cache.clear()
            decoded = decode_tag(tag, content, room, by_tag[tag.stream])
            contents[content.event_run, tag] = decoded
            if decoded.complete and not reading.is_large() and SAMPLE_FIGURES not in streams:
                self.cache.put(("tag", content.event_run, tag, by_tag[tag.stream]), mark, decoded, decoded.size)
            _add_samples(reading, contents, (content.event_run, tag), joined)
        _thin_whole(reading, contents)
        return contents

    def _contents(self, source: Source, wanted: Mapping[str, Sequence[str]]) -> Iterator[TagContent]:
        """The wanted tags; a source serves one thread at a time."""
        if not wanted:
            return
        contents = source.read(wanted)
        while True:
            with self.lock:
                content = next(contents, None)
            if content is None:
                return
            yield content

    def _warn_once(self, run: str, sentence: str) -> None:
        if run not in self._warned:
            self._warned.add(run)
            _log.warning("tb_memplugin: %s", clean(sentence))


def _add_samples(
    reading: Reading, contents: Contents, key: tuple[str, Tag], joined: dict[tuple[str, str], _ReadSession]
) -> None:
    """Count the samples of a tag that was decoded. If there are too many now, thin them all, also the joined ones."""
    size, rows = taken({key: contents[key]})
    reading.sample_bytes += size
    reading.recorded += rows
    if rows:
        reading.whole.add(key)
    if not reading.samples_are_full():
        return
    _thin_whole(reading, contents)
    while reading.samples_are_full():
        before = _taken(contents, joined)
        thin_tags(contents)
        for name, session in joined.items():
            samples, sentences = session.samples
            joined[name] = dataclasses.replace(session, samples=(thinned(samples), sentences))
        after = _taken(contents, joined)
        reading.give_samples(before[0] - after[0], before[1] - after[1])
        reading.can_halve = after[1] < HALVED * before[1]
        reading.halvings += reading.can_halve


def _thin_whole(reading: Reading, contents: Contents) -> None:
    if reading.halvings and reading.whole:
        whole = {key: contents[key] for key in reading.whole}
        before = taken(whole)
        thin_tags(whole, reading.halvings)
        contents |= whole
        after = taken(whole)
        reading.give_samples(before[0] - after[0], before[1] - after[1])
    reading.whole.clear()


def _taken(contents: Contents, joined: Mapping[tuple[str, str], _ReadSession]) -> tuple[int, int]:
    (size, rows), tables = taken(contents), [session.samples[0] for session in joined.values()]
    return size + sum(map(samples_bytes, tables)), rows + sum(map(len, tables))


def _with_pieces(session: _ReadSession, pieces: Mapping[Stream, Sequence[Piece]], reading: Reading) -> _ReadSession:
    """A session with more frames. Those of samples are let go once they are joined."""
    samples, frames = session.samples, dict(pieces)
    if pieces.keys() & {SAMPLES, PEAK}:
        parts = ([piece.value for piece in pieces.get(stream, ())] for stream in (SAMPLES, PEAK))
        samples = join_with_peaks(*map(tables_of, parts))
        for stream in pieces.keys() & {SAMPLES, PEAK}:
            frames[stream] = [dataclasses.replace(piece, value=None, size=PIECE_BYTES) for piece in pieces[stream]]
        let_go = sum(piece.size - PIECE_BYTES for stream in (SAMPLES, PEAK) for piece in pieces.get(stream, ()))
        reading.joined(let_go, samples_bytes(samples[0]))
    return dataclasses.replace(session, pieces={**session.pieces, **frames}, samples=samples)


def _sessions_of(read: _Read) -> tuple[list[tuple[str, Session]], list[str]]:
    """(worker, session) pairs by identifier, and sentences on missing frames and data left out."""
    found = sorted(read.sessions, key=lambda one: one.session)
    made = [session_from_pieces(one.session, one.pieces, one.samples) for one in found]
    pairs = [(one.worker, session) for one, (session, _) in zip(found, made, strict=True)]
    return pairs, [sentence for _, sentences in made for sentence in sentences]


def _newer(sentences: Sequence[str]) -> str:
    return f"{sentences[0]} (and {len(sentences) - 1} more tags)"
