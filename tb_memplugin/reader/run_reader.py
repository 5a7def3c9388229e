"""Reads runs from a source, incrementally and on request."""

import dataclasses
import logging
import threading
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tb_memplugin.errors import NotFoundError
from tb_memplugin.events.codec import FrameHead
from tb_memplugin.events.metadata import Tag
from tb_memplugin.model import HostMemory, Oom, Session
from tb_memplugin.model.text import clean
from tb_memplugin.reader import sizes
from tb_memplugin.reader.activation_rows import ActivationPart, ActivationRows, rows_of
from tb_memplugin.reader.cache import ByteCache
from tb_memplugin.reader.catalog import RunTags, catalog_of, listed_names, of_session, of_stream
from tb_memplugin.reader.decoding import (
    PIECE_BYTES,
    DecodedTag,
    Piece,
    TagSurvey,
    decode_tag,
    survey_tag,
)
from tb_memplugin.reader.device_columns import samples_bytes
from tb_memplugin.reader.entries import by_event_run, groups, has_samples, sample_entries, session_of
from tb_memplugin.reader.limits import (
    MAX_ACTIVATION_BYTES,
    MAX_RUN_BYTES,
    MAX_RUN_ROWS,
    Entry,
    within_limits,
)
from tb_memplugin.reader.merge import MergedRun, merge
from tb_memplugin.reader.reading import Reading, left_out
from tb_memplugin.reader.sample_figures import read_figures
from tb_memplugin.reader.sessions import Joined, by_session, gaps, join_with_peaks, limited, session_from_pieces
from tb_memplugin.reader.source import Listing, Source, TagContent

_log = logging.getLogger(__name__)

CACHE_BYTES = 128 << 20
"""Limit of all caches together: decoded frames, merged runs, and activations."""
LARGE_BYTES = 32 << 20
"""Runs whose decoded frames take more are read one after the other."""
MAX_KEPT_FIGURES_BYTES = 1 << 20
"""Figures of a worker that take more are not cached: what follows from them is, and they would displace all else."""
_ALWAYS = ("meta", "samples", "peak", "snapshots", "oom", "counters", "host")


@dataclasses.dataclass(frozen=True)
class LoadedRun(MergedRun):
    """A merged run at `version` of its tags.

    Attributes:
        joined: The samples of its sessions, for other loads of the run as long as this one is kept.
    """

    version: str
    joined: "tuple[_SessionSamples, ...]" = ()


@dataclasses.dataclass(frozen=True)
class _SessionSamples:
    """The joined samples of a session.

    Attributes:
        joined: The samples, and sentences on those left out.
        pieces: The pieces that they were joined of by stream, without content.
        damage, newer: Sentences, as in `DecodedTag`.
    """

    joined: Joined
    pieces: Mapping[str, Sequence[Piece]]
    damage: Sequence[str]
    newer: Sequence[str]


class Reader:
    """Reads the runs of one source and caches decoded data. Thread-safe.

    Args:
        cache_bytes: Limit of all caches together.
    """

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        # Held while caches and the source are used, but not while a run is decoded: runs do not wait for each other.
        self._lock = threading.Lock()
        self._run_locks: dict[str, threading.RLock] = {}
        # Held by a run of more than `LARGE_BYTES` from then on until it has been read.
        self._large = threading.RLock()
        self._cache: ByteCache[Any] = ByteCache(cache_bytes)
        self._joined: WeakValueDictionary[Hashable, _SessionSamples] = WeakValueDictionary()
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

    def tags(self, source: Source, name: str) -> RunTags:
        """The tags of the run called `name`.

        Raises:
            NotFoundError: There is no such run.
            SourceError: The source cannot be read now.
        """
        catalog = self.catalog(source)
        tags = catalog.get(name)
        if tags is None:
            raise NotFoundError(f"no run {name!r:.200}; available: {listed_names(catalog)}")
        return tags

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
        tags = self.tags(source, name)
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
        return self._loaded(source, tags, streams, all_attempts, session)

    def ooms(self, source: Source, tags: RunTags) -> tuple[Oom, ...]:
        """The failed allocations of the run with these tags, in the order that the run has them in.

        Raises:
            SourceError: The source cannot be read now.
        """
        return self._loaded(source, tags, ("oom",)).run.ooms if of_stream(tags, "oom") else ()

    def figures(self, source: Source, tags: RunTags) -> LoadedRun:
        """The workers with these tags, with only the `FIELDS` of their devices, which takes a fraction of the time.

        The merged run of the result lacks them.

        Raises:
            SourceError: The source cannot be read now.
        """
        key = ("figures", tags.name, tags.worker)
        with self._lock_of(tags.name):
            loaded: LoadedRun | None = self._cached(key, tags.version)
            if loaded is None:
                loaded = self._read_figures(source, tags)
                if loaded is None:
                    return self.load(source, tags)
                size = _merged_bytes(loaded)
                if size <= MAX_KEPT_FIGURES_BYTES:
                    self._keep(key, tags.version, loaded, size)
            return loaded

    def _read_figures(self, source: Source, tags: RunTags) -> LoadedRun | None:
        """The workers with these tags and only the `FIELDS` of their devices; None if they need the general way."""
        wanted = {stream: within_limits(of_stream(tags, stream))[0] for stream in ("samples", "peak")}
        if len({entry[2].session for entry in tags.tags}) == 1 and wanted["samples"]:
            others = self._loaded(source, tags, tuple(stream for stream in _ALWAYS if stream not in wanted))
            if len(others.by_worker) != 1:  # nothing else of the session could be read
                return None
            (worker,) = others.by_worker
            # The general way reads all columns, about twice as many, within the limit of the run; more than half of
            # `LARGE_BYTES` would have to wait for other large runs.
            most_bytes = min(LARGE_BYTES, MAX_RUN_BYTES - _merged_bytes(others)) // 2
            contents = self._contents(source, by_event_run(wanted["samples"]))
            samples = read_figures(contents, max(0, most_bytes) // 8, MAX_RUN_ROWS)
            # A peak after the last sample stands for a sample that was lost.
            if samples is not None and not any(
                peak.step > samples.step[-1]
                for tag in self._contents(source, by_event_run(wanted["peak"]))
                for peak in tag.frames
            ):
                run = others.by_worker[worker]
                host = {worker: HostMemory(samples, run.host[worker].parts)}
                by_worker = {worker: dataclasses.replace(run, samples=samples, host=host)}
                return LoadedRun(others.run, by_worker, others.sessions, tags.version)
        return None

    def _loaded(
        self,
        source: Source,
        tags: RunTags,
        streams: Sequence[str],
        all_attempts: bool = False,
        session: str | None = None,
    ) -> LoadedRun:
        """The streams of the run with these tags, from the cache or the source."""
        key = ("run", tags.name, tags.worker, streams, all_attempts, session)
        with self._lock_of(tags.name):
            loaded: LoadedRun | None = self._cached(key, tags.version)
            if loaded is None:
                loaded = self._load(source, tags, streams, all_attempts)
                self._keep(key, tags.version, loaded, _merged_bytes(loaded))
            return loaded

    def activation_rows(self, source: Source, name: str) -> ActivationRows:
        """The recorded activations of the run called `name`, by row.

        Raises:
            NotFoundError: There is no such run.
            SourceError: The source cannot be read now.
        """
        return self._rows_of(source, self.tags(source, name))

    def _rows_of(self, source: Source, tags: RunTags) -> ActivationRows:
        wanted = of_stream(tags, "activations")
        with self._lock_of(tags.name):
            rows: ActivationRows | None = self._cached(("activations", tags.name, tags.worker), wanted)
            if rows is not None:
                return rows
            with ExitStack() as stack:
                reading = Reading(stack, LARGE_BYTES, MAX_RUN_BYTES)
                decoded = self._decode(source, within_limits(wanted)[0], reading)
                damage = [sentence for tag in decoded.values() for sentence in tag.damage]
                damage += reading.over_limit()
                sessions = list(by_session(wanted, decoded).values())
                pieces = sessions[0]["activations"] if len(sessions) == 1 else []
                rows = ActivationRows(
                    [piece.value for piece in pieces if isinstance(piece.value, ActivationPart)], damage=damage
                )
                if len(sessions) > 1 or (np.diff(rows.step) < 0).any():
                    # Several sessions, or steps out of order: the merge selects the rows.
                    merged = self._load(source, tags, (*_ALWAYS, "activations"), all_attempts=False)
                    rows = rows_of(merged.run.activations).with_damage(damage)
            self._keep(("activations", tags.name, tags.worker), wanted, rows, rows.nbytes)
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
            last: TagSurvey | None = None
            for content in self._contents(source, wanted_tags):
                tag, mark = unknown[content.event_run, content.tag]
                surveyed = survey_tag(tag, content)
                last = surveyed if last is None or last.layers != surveyed.layers else last
                # Equal sets are kept once: a hundred thousand paths for each tag would be much.
                self._surveys[content.event_run, tag] = (mark, dataclasses.replace(surveyed, layers=last.layers))
            known = [
                (worker, tag, self._surveys[run, tag][1])
                for worker, run, tag, _ in wanted
                if (run, tag) in self._surveys
            ]
        damage = [sentence for _, _, survey in known for sentence in survey.damage]
        damage.extend(dict.fromkeys(survey.newer for _, _, survey in known if survey.newer))
        damage.extend(left_out([survey for _, _, survey in known]))
        if sum(survey.most_bytes for _, _, survey in known) > MAX_ACTIVATION_BYTES:
            # Only the values tell how many bytes they take.
            damage.extend(sentence for sentence in self._rows_of(source, tags).damage if sentence not in damage)
        heads: dict[tuple[str, str], dict[int, FrameHead]] = {}
        for worker, tag, survey in known:
            heads.setdefault((worker, tag.session), {}).update((head.sequence, head) for head in survey.heads)
        for (_, identifier), by_sequence in heads.items():
            damage.extend(gaps(identifier, "activations", [by_sequence[at] for at in sorted(by_sequence)]))
        return len(frozenset().union(*(survey.layers for _, _, survey in known))), tuple(limited(damage))

    def _lock_of(self, name: str) -> threading.RLock:
        with self._lock:
            return self._run_locks.setdefault(name, threading.RLock())

    def _load(self, source: Source, tags: RunTags, streams: Sequence[str], all_attempts: bool) -> LoadedRun:
        wanted, sentences = within_limits([entry for entry in tags.tags if entry[2].stream in streams])
        damage = [*tags.damage, *sentences]
        try:
            sessions, joined, sentences = self._sessions(source, tags.name, wanted)
            merged = merge(tags.name, sessions, limited([*damage, *sentences]), all_attempts)
        except MemoryError:
            damage.append("the run is not shown: there is not enough memory for it")
            merged, joined = merge(tags.name, [], damage), []
        return LoadedRun(merged.run, merged.by_worker, merged.sessions, tags.version, tuple(joined))

    def _sessions(
        self, source: Source, name: str, wanted: Sequence[Entry]
    ) -> tuple[list[tuple[str, Session]], list[_SessionSamples], list[str]]:
        """(worker, session) pairs of the wanted tags, their samples, and sentences on damage."""
        with ExitStack() as stack:
            reading = Reading(stack, LARGE_BYTES, MAX_RUN_BYTES)
            sessions: list[tuple[str, Session]] = []
            joined: list[_SessionSamples] = []
            newer: list[str] = []
            damage: list[str] = []
            of_sessions: list[tuple[str, list[str]]] = []
            for group in groups(wanted):
                known = self._known_samples(name, group)
                for one in known.values():
                    reading.room_of("samples").take(samples_bytes(one.joined[0]), len(one.joined[0]))
                    newer += one.newer
                    damage += one.damage
                unknown = [entry for entry in group if not has_samples(entry) or session_of(entry) not in known]
                decoded = self._decode(source, unknown, reading)
                newer += [tag.newer for tag in decoded.values() if tag.newer]
                for tag in decoded.values():
                    damage.extend(tag.damage)
                found = by_session(unknown, decoded)
                for key in dict.fromkeys(map(session_of, group)):
                    pieces = found.get(key, {})
                    one = known.get(key) or self._join(name, key, group, decoded, pieces, reading)
                    streams = {**pieces, **one.pieces}
                    if streams:
                        joined.append(one)
                        session, sentences = session_from_pieces(key[1], streams, one.joined)
                        sessions.append((key[0], session))
                        of_sessions.append((key[1], sentences))
        if newer:
            damage.insert(0, newer[0] if len(newer) == 1 else f"{newer[0]} (and {len(newer) - 1} more tags)")
            self._warn_once(name, damage[0])
        damage += reading.over_limit()
        for _, sentences in sorted(of_sessions, key=lambda pair: pair[0]):
            damage.extend(sentences)
        return sorted(sessions, key=lambda pair: pair[1].info.session), joined, damage

    def _known_samples(self, name: str, group: Sequence[Entry]) -> dict[tuple[str, str], _SessionSamples]:
        """(worker, session) to its samples, if they were joined before."""
        known = {}
        for key in dict.fromkeys(map(session_of, group)):
            with self._lock:
                samples = self._joined.get((name, sample_entries(group, key)))
            if samples is not None:
                known[key] = samples
        return known

    def _join(
        self,
        name: str,
        key: tuple[str, str],
        group: Sequence[Entry],
        decoded: Mapping[tuple[str, Tag], DecodedTag],
        pieces: Mapping[str, Sequence[Piece]],
        reading: Reading,
    ) -> _SessionSamples:
        """Join the samples of a session's pieces; other loads of the run share them if they are complete."""
        entries = sample_entries(group, key)
        tags = [decoded[entry[1], entry[2]] for entry in entries if (entry[1], entry[2]) in decoded]
        joined = join_with_peaks(pieces)
        samples = _SessionSamples(
            joined,
            {
                stream: [dataclasses.replace(piece, value=None) for piece in pieces[stream]]
                for stream in ("samples", "peak")
                if stream in pieces
            },
            [sentence for tag in tags for sentence in tag.damage],
            [tag.newer for tag in tags if tag.newer],
        )
        reading.joined(sum(tag.size for tag in tags), samples_bytes(joined[0]))
        if len(tags) == len(entries) and all(tag.complete for tag in tags):
            with self._lock:
                self._joined[name, entries] = samples
        return samples

    def _decode(self, source: Source, wanted: Iterable[Entry], reading: Reading) -> dict[tuple[str, Tag], DecodedTag]:
        """The content of the wanted tags, from the cache or the source, as far as there is room."""
        contents: dict[tuple[str, Tag], DecodedTag] = {}
        missing: dict[str, dict[str, tuple[Tag, Hashable]]] = {}
        for _, run, tag, mark in wanted:
            cached: DecodedTag | None = self._cached(("tag", run, tag), mark)
            if cached is not None:
                contents[run, tag] = cached
                reading.room_of(tag.stream).take(cached.size, cached.rows)
            else:
                missing.setdefault(run, {})[str(tag)] = (tag, mark)
        for content in self._contents(source, {run: list(tags) for run, tags in missing.items()}):
            tag, mark = missing[content.event_run][content.tag]
            room = reading.room_of(tag.stream)
            if room.is_full:
                reading.left_out += 1
                continue
            if reading.is_large() and reading.enter(self._large):
                with self._lock:
                    self._cache.make_room(CACHE_BYTES)
            decoded = decode_tag(tag, content, room)
            contents[content.event_run, tag] = decoded
            if decoded.complete and not reading.is_large():
                self._keep(("tag", content.event_run, tag), mark, decoded, decoded.size)
        return contents

    def _cached(self, key: Hashable, mark: Hashable) -> Any:
        with self._lock:
            return self._cache.get(key, mark)

    def _keep(self, key: Hashable, mark: Hashable, value: Any, size: int) -> None:
        with self._lock:
            self._cache.put(key, mark, value, size)

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


def _merged_bytes(loaded: LoadedRun) -> int:
    """Bytes in memory; the samples of several workers refer to those of each."""
    pieces = sum(len(of_stream) for one in loaded.joined for of_stream in one.pieces.values())
    own = 0 if len(loaded.by_worker) == 1 else 40 * len(loaded.run.samples)
    return sum(map(sizes.run_bytes, loaded.by_worker.values())) + own + PIECE_BYTES * pieces
