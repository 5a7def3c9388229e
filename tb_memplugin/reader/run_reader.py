"""Reads runs from a source, incrementally and on request."""

import dataclasses
import logging
import threading
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from tb_memplugin.errors import NotFoundError
from tb_memplugin.events.codec import FrameHead
from tb_memplugin.events.metadata import Tag
from tb_memplugin.model import Run, Session
from tb_memplugin.model.text import clean
from tb_memplugin.reader import sizes
from tb_memplugin.reader.activation_rows import ActivationPart, ActivationRows, rows_of
from tb_memplugin.reader.cache import ByteCache
from tb_memplugin.reader.catalog import RunTags, catalog_of, listed_names, of_session, of_stream
from tb_memplugin.reader.decoding import DecodedTag, TagSurvey, decode_tag, frames_left_out, survey_tag
from tb_memplugin.reader.device_columns import samples_bytes
from tb_memplugin.reader.limits import (
    MAX_ACTIVATION_BYTES,
    MAX_ACTIVATION_VALUES,
    MAX_RUN_BYTES,
    MAX_RUN_ROWS,
    Entry,
    Room,
    within_limits,
)
from tb_memplugin.reader.merge import MergedRun, merge
from tb_memplugin.reader.sessions import by_session, gaps, limited, session_from_pieces
from tb_memplugin.reader.source import Listing, Source, TagContent

_log = logging.getLogger(__name__)

CACHE_BYTES = 512 << 20
"""Limit of each cache: decoded frames, merged runs, and activations."""
_ALWAYS = ("meta", "samples", "peak", "snapshots", "oom")


@dataclasses.dataclass(frozen=True)
class LoadedRun(MergedRun):
    """A merged run at `version` of its tags."""

    version: str


class Reader:
    """Reads the runs of one source and caches decoded data. Thread-safe.

    Args:
        cache_bytes: Limit of each cache.
    """

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        # Held while caches and the source are used, but not while a run is decoded: runs do not wait for each other.
        self._lock = threading.Lock()
        self._run_locks: dict[str, threading.RLock] = {}
        self._tags: ByteCache[DecodedTag] = ByteCache(cache_bytes)
        self._runs: ByteCache[LoadedRun] = ByteCache(cache_bytes)
        self._rows: ByteCache[ActivationRows] = ByteCache(cache_bytes)
        self._surveys: dict[tuple[str, Tag], tuple[Hashable, TagSurvey]] = {}
        self._catalog: Mapping[str, RunTags] = {}
        self._listed: tuple[Listing | None, Mapping[str, tuple[str, ...]]] = (None, {})
        self._listed_at = -1.0
        self._warned: set[str] = set()

    def catalog(self, source: Source) -> Mapping[str, RunTags]:
        """The current runs by name.

        Raises:
            SourceError: The source cannot be read now.
        """
        arrived = time.monotonic()
        with self._lock:
            # Concurrent requests share a listing that started after they arrived.
            if self._listed_at < arrived:
                began = time.monotonic()
                listed = source.listing(), source.damage()
                if listed[0] is not self._listed[0] or listed[1] != self._listed[1]:
                    self._catalog = catalog_of(*listed)
                    self._listed = listed
                self._listed_at = began
            return self._catalog

    def run(
        self,
        source: Source,
        name: str,
        activations: bool = False,
        all_attempts: bool = False,
        maps: bool = False,
        session: str | None = None,
        timelines: bool = False,
        requests: bool = False,
    ) -> LoadedRun:
        """The run called `name`; activations, memory maps, timelines and requests of steps only if wanted.

        With `session`, only that session's data, including steps that a later one repeats.

        Raises:
            NotFoundError: There is no such run, or no such session in it.
            SourceError: The source cannot be read now.
        """
        tags = self._tags_of(source, name)
        return self.load(source, tags, activations, all_attempts, maps, session, timelines, requests)

    def load(
        self,
        source: Source,
        tags: RunTags,
        activations: bool = False,
        all_attempts: bool = False,
        maps: bool = False,
        session: str | None = None,
        timelines: bool = False,
        requests: bool = False,
    ) -> LoadedRun:
        """The run with these tags; other arguments as for `run`.

        Raises:
            NotFoundError: There is no such session in it.
            SourceError: The source cannot be read now.
        """
        optional = {"activations": activations, "maps": maps, "timelines": timelines, "requests": requests}
        streams = (*_ALWAYS, *(stream for stream, wanted in optional.items() if wanted))
        if session is not None:
            tags = of_session(tags, session)
        key = (tags.name, streams, all_attempts, session)
        with self._lock_of(tags.name):
            with self._lock:
                loaded = self._runs.get(key, tags.version)
            if loaded is None:
                loaded = self._load(source, tags, streams, all_attempts)
                with self._lock:
                    self._runs.put(key, tags.version, loaded, _merged_bytes(loaded))
            return loaded

    def activation_rows(self, source: Source, name: str) -> ActivationRows:
        """The recorded activations of the run called `name`, by row.

        Raises:
            NotFoundError: There is no such run.
            SourceError: The source cannot be read now.
        """
        return self._rows_of(source, self._tags_of(source, name))

    def _rows_of(self, source: Source, tags: RunTags) -> ActivationRows:
        wanted = of_stream(tags, "activations")
        with self._lock_of(tags.name):
            with self._lock:
                rows = self._rows.get(tags.name, wanted)
            if rows is None:
                decoded, too_large = self._decode(source, within_limits(wanted)[0])
                damage = [sentence for tag in decoded.values() for sentence in tag.damage]
                if too_large:
                    damage.append(_over_limit(too_large))
                sessions = list(by_session(wanted, decoded).values())
                pieces = sessions[0]["activations"] if len(sessions) == 1 else []
                rows = ActivationRows(
                    [piece.value for piece in pieces if isinstance(piece.value, ActivationPart)], damage=damage
                )
                if len(sessions) > 1 or (np.diff(rows.step) < 0).any():
                    # Several sessions, or steps out of order: the merge selects the rows.
                    merged = self._load(source, tags, (*_ALWAYS, "activations"), all_attempts=False)
                    rows = rows_of(merged.run.activations).with_damage(damage)
                with self._lock:
                    self._rows.put(tags.name, wanted, rows, rows.nbytes)
            return rows

    def survey_activations(self, source: Source, tags: RunTags) -> tuple[int, tuple[str, ...]]:
        """The number of layers with recorded activation bytes, and sentences on damage to them.

        Reads only the heads of frames, and only of new or changed tags.
        """
        wanted, _ = within_limits(of_stream(tags, "activations"))
        with self._lock_of(tags.name):
            unknown = {
                (run, str(tag)): (tag, mark)
                for _, run, tag, mark in wanted
                if self._surveys.get((run, tag), (None,))[0] != mark
            }
            wanted_tags: dict[str, list[str]] = {}
            for run, text in unknown:
                wanted_tags.setdefault(run, []).append(text)
            for content in self._contents(source, wanted_tags):
                tag, mark = unknown[content.event_run, content.tag]
                self._surveys[content.event_run, tag] = (mark, survey_tag(tag, content))
            known = [
                (worker, tag, self._surveys[run, tag][1])
                for worker, run, tag, _ in wanted
                if (run, tag) in self._surveys
            ]
        damage = [sentence for _, _, survey in known for sentence in survey.damage]
        damage.extend(dict.fromkeys(survey.newer for _, _, survey in known if survey.newer))
        damage.extend(_left_out([survey for _, _, survey in known]))
        if 8 * sum(sum(survey.values) for _, _, survey in known) > MAX_ACTIVATION_BYTES:
            # Only the values tell how many bytes they take.
            damage.extend(sentence for sentence in self._rows_of(source, tags).damage if sentence not in damage)
        heads: dict[tuple[str, str], dict[int, FrameHead]] = {}
        for worker, tag, survey in known:
            heads.setdefault((worker, tag.session), {}).update((head.sequence, head) for head in survey.heads)
        for (_, identifier), by_sequence in heads.items():
            damage.extend(gaps(identifier, "activations", [by_sequence[at] for at in sorted(by_sequence)]))
        return len(frozenset().union(*(survey.layers for _, _, survey in known))), tuple(limited(damage))

    def _tags_of(self, source: Source, name: str) -> RunTags:
        catalog = self.catalog(source)
        tags = catalog.get(name)
        if tags is None:
            raise NotFoundError(f"no run {name!r:.200}; available: {listed_names(catalog)}")
        return tags

    def _lock_of(self, name: str) -> threading.RLock:
        with self._lock:
            return self._run_locks.setdefault(name, threading.RLock())

    def _load(self, source: Source, tags: RunTags, streams: Sequence[str], all_attempts: bool) -> LoadedRun:
        wanted, sentences = within_limits([entry for entry in tags.tags if entry[2].stream in streams])
        damage = [*tags.damage, *sentences]
        try:
            sessions, sentences = self._sessions(source, tags.name, wanted)
            merged = merge(tags.name, sessions, limited([*damage, *sentences]), all_attempts)
        except MemoryError:
            damage.append("the run is not shown: there is not enough memory for it")
            merged = merge(tags.name, [], damage)
        return LoadedRun(merged.run, merged.by_worker, merged.sessions, tags.version)

    def _sessions(
        self, source: Source, name: str, wanted: Sequence[Entry]
    ) -> tuple[list[tuple[str, Session]], list[str]]:
        """(worker, session) pairs of the wanted tags, and sentences on damage."""
        decoded, too_large = self._decode(source, wanted)
        damage = []
        newer = [tag.newer for tag in decoded.values() if tag.newer]
        if newer:
            damage.append(newer[0] if len(newer) == 1 else f"{newer[0]} (and {len(newer) - 1} more tags)")
            self._warn_once(name, damage[-1])
        for tag in decoded.values():
            damage.extend(tag.damage)
        if too_large:
            damage.append(_over_limit(too_large))
        sessions: list[tuple[str, Session]] = []
        for (worker, identifier), pieces in sorted(by_session(wanted, decoded).items(), key=lambda pair: pair[0][1]):
            session, sentences = session_from_pieces(identifier, pieces)
            sessions.append((worker, session))
            damage.extend(sentences)
        return sessions, damage

    def _decode(self, source: Source, wanted: Iterable[Entry]) -> tuple[dict[tuple[str, Tag], DecodedTag], int]:
        """The content of the wanted tags, from the cache or the source, and the number left out for their size.

        Activations have a limit of their own, so that they displace nothing else.
        """
        contents: dict[tuple[str, Tag], DecodedTag] = {}
        missing: dict[str, dict[str, tuple[Tag, Hashable]]] = {}
        rooms = {
            True: Room(MAX_ACTIVATION_BYTES, MAX_ACTIVATION_VALUES),
            False: Room(MAX_RUN_BYTES, MAX_RUN_ROWS),
        }
        for _, run, tag, mark in wanted:
            with self._lock:
                cached = self._tags.get((run, tag), mark)
            if cached is not None:
                contents[run, tag] = cached
                rooms[tag.stream == "activations"].take(cached.size, cached.rows)
            else:
                missing.setdefault(run, {})[str(tag)] = (tag, mark)
        left_out = 0
        for content in self._contents(source, {run: list(tags) for run, tags in missing.items()}):
            tag, mark = missing[content.event_run][content.tag]
            room = rooms[tag.stream == "activations"]
            if room.is_full:
                left_out += 1
                continue
            decoded = decode_tag(tag, content, room)
            contents[content.event_run, tag] = decoded
            if decoded.complete:
                with self._lock:
                    self._tags.put((content.event_run, tag), mark, decoded, decoded.size)
        return contents, left_out

    def _contents(self, source: Source, wanted: Mapping[str, Sequence[str]]) -> Iterator[TagContent]:
        """The wanted tags; a source serves one thread at a time."""
        if not wanted:
            return
        contents = source.read(wanted)
        while True:
            with self._lock:
                content = next(contents, None)
            if content is None:
                return
            yield content

    def _warn_once(self, run: str, sentence: str) -> None:
        if run not in self._warned:
            self._warned.add(run)
            _log.warning("tb_memplugin: %s", clean(sentence))


def _left_out(surveys: Sequence[TagSurvey]) -> list[str]:
    """Sentences on the frames over the limit of values; the same as of decoding them."""
    room, sentences, tags = Room(0, MAX_ACTIVATION_VALUES), [], 0
    for survey in surveys:
        if room.is_full:
            tags += 1
            continue
        frames = sum(not room.take(0, values) for values in survey.values)
        if frames:
            sentences.append(frames_left_out(survey.place, frames))
    return [*sentences, _over_limit(tags)] if tags else sentences


def _over_limit(tags: int) -> str:
    return f"{tags} tags are not shown: the run exceeds the limits of its size"


def _merged_bytes(loaded: LoadedRun) -> int:
    """Bytes in memory; the samples of several workers refer to those of each."""
    return sum(map(_run_bytes, loaded.by_worker.values())) + 40 * len(loaded.run.samples)


def _run_bytes(run: Run) -> int:
    return (
        1000
        + samples_bytes(run.samples)
        + rows_of(run.activations).nbytes
        + sum(map(sizes.meta_bytes, run.layer_tables))
        + sum(map(sizes.snapshot_bytes, run.snapshots))
        + sum(map(sizes.map_bytes, run.maps))
        + sum(map(sizes.oom_bytes, run.ooms))
        + sum(map(sizes.timeline_bytes, run.timelines))
        + sum(map(sizes.requests_bytes, run.requests))
    )
