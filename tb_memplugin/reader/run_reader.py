"""Reads runs from a source, incrementally and on request."""

import dataclasses
import logging
import threading
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from tb_memplugin.errors import NotFoundError
from tb_memplugin.events.codec import FrameHead
from tb_memplugin.events.metadata import Tag
from tb_memplugin.model import (
    LayerActivations,
    Run,
    Session,
)
from tb_memplugin.reader.activation_rows import ActivationRows
from tb_memplugin.reader.cache import ByteCache
from tb_memplugin.reader.catalog import RunTags, catalog_of, listed_names, of_session, of_stream
from tb_memplugin.reader.decoding import DecodedTag, TagSurvey, decode_tag, requests_bytes, survey_tag, timeline_bytes
from tb_memplugin.reader.merge import MergedRun, merge
from tb_memplugin.reader.sessions import by_session, gaps, limited, session_from_pieces
from tb_memplugin.reader.source import Listing, Source

_log = logging.getLogger(__name__)

CACHE_BYTES = 512 << 20
"""Limit of each cache: decoded frames, merged runs, and activations."""
MAX_RUN_BYTES = 2 << 30
"""Limit of the decoded data of one run; the run's damage names the tags that are not shown."""
MAX_SESSIONS = 1000
"""Most sessions shown per run, the newest; the run's damage counts the others."""
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
        self._lock = threading.RLock()
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
        with self._lock:
            loaded = self._runs.get(key, tags.version)
            if loaded is None:
                loaded = self._load(source, tags, streams, all_attempts)
                self._runs.put(key, tags.version, loaded, _run_bytes(loaded.run))
            return loaded

    def activation_rows(self, source: Source, name: str) -> ActivationRows:
        """The recorded activations of the run called `name`, by row.

        Raises:
            NotFoundError: There is no such run.
            SourceError: The source cannot be read now.
        """
        tags = self._tags_of(source, name)
        wanted = of_stream(tags, "activations")
        with self._lock:
            rows = self._rows.get(name, wanted)
            if rows is None:
                decoded, _ = self._decode(source, wanted)
                sessions = list(by_session(wanted, decoded).values())
                pieces = sessions[0]["activations"] if len(sessions) == 1 else []
                parts = [piece.value for piece in pieces if isinstance(piece.value, LayerActivations)]
                rows = ActivationRows(parts)
                if len(sessions) > 1 or (np.diff(rows.step) < 0).any():
                    # Several sessions, or steps out of order: the merge selects the rows.
                    rows = ActivationRows([self.load(source, tags, activations=True).run.activations])
                self._rows.put(name, wanted, rows, rows.nbytes)
            return rows

    def survey_activations(self, source: Source, tags: RunTags) -> tuple[int, tuple[str, ...]]:
        """The number of layers with recorded activation bytes, and sentences on damage to them.

        Reads only the heads of frames, and only of new or changed tags.
        """
        wanted = of_stream(tags, "activations")
        with self._lock:
            unknown = {
                (run, str(tag)): (tag, mark)
                for _, run, tag, mark in wanted
                if self._surveys.get((run, tag), (None,))[0] != mark
            }
            if unknown:
                wanted_tags: dict[str, list[str]] = {}
                for run, text in unknown:
                    wanted_tags.setdefault(run, []).append(text)
                for content in source.read(wanted_tags):
                    tag, mark = unknown[content.event_run, content.tag]
                    self._surveys[content.event_run, tag] = (mark, survey_tag(tag, content))
            known = [
                (worker, tag, self._surveys[run, tag][1])
                for worker, run, tag, _ in wanted
                if (run, tag) in self._surveys
            ]
        damage = [sentence for _, _, survey in known for sentence in survey.damage]
        damage.extend(dict.fromkeys(survey.newer for _, _, survey in known if survey.newer))
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

    def _load(self, source: Source, tags: RunTags, streams: Sequence[str], all_attempts: bool) -> LoadedRun:
        wanted = [entry for entry in tags.tags if entry[2].stream in streams]
        decoded, too_large = self._decode(source, wanted)
        damage = list(tags.damage)
        newer = [tag.newer for tag in decoded.values() if tag.newer]
        if newer:
            damage.append(newer[0] if len(newer) == 1 else f"{newer[0]} (and {len(newer) - 1} more tags)")
            self._warn_once(tags.name, damage[-1])
        for tag in decoded.values():
            damage.extend(tag.damage)
        if too_large:
            damage.append(f"{too_large} tags are not shown: the run exceeds the limit of {MAX_RUN_BYTES} bytes")
        sessions: list[tuple[str, Session]] = []
        streams_of = by_session(wanted, decoded)
        # Identifiers of sessions sort by start time.
        newest = sorted(streams_of, key=lambda key: key[1])[-MAX_SESSIONS:]
        if len(newest) < len(streams_of):
            damage.append(f"{len(streams_of) - len(newest)} sessions are not shown: only the last {MAX_SESSIONS} are")
        for worker, identifier in newest:
            session, sentences = session_from_pieces(identifier, streams_of[worker, identifier])
            sessions.append((worker, session))
            damage.extend(sentences)
        merged = merge(tags.name, sessions, limited(damage), all_attempts)
        return LoadedRun(merged.run, merged.by_worker, merged.sessions, tags.version)

    def _decode(
        self, source: Source, wanted: Iterable[tuple[str, str, Tag, Hashable]]
    ) -> tuple[dict[tuple[str, Tag], DecodedTag], int]:
        """The content of the wanted tags, from the cache or the source, and the number left out for their size."""
        contents: dict[tuple[str, Tag], DecodedTag] = {}
        missing: dict[str, dict[str, tuple[Tag, Hashable]]] = {}
        size = 0
        for _, run, tag, mark in wanted:
            cached = self._tags.get((run, tag), mark)
            if cached is not None:
                contents[run, tag] = cached
                size += cached.size
            else:
                missing.setdefault(run, {})[str(tag)] = (tag, mark)
        left = sum(map(len, missing.values()))
        for content in source.read({run: list(tags) for run, tags in missing.items()}) if missing else ():
            tag, mark = missing[content.event_run][content.tag]
            decoded = decode_tag(tag, content)
            size += decoded.size
            left -= 1
            self._tags.put((content.event_run, tag), mark, decoded, decoded.size)
            contents[content.event_run, tag] = decoded
            if size > MAX_RUN_BYTES:
                return contents, left
        return contents, 0

    def _warn_once(self, run: str, sentence: str) -> None:
        if run not in self._warned:
            self._warned.add(run)
            _log.warning("tb_memplugin: %s", sentence)


def _run_bytes(run: Run) -> int:
    rows = sum(len(snapshot.ledger) + len(snapshot.saved_for_backward) + 1 for snapshot in run.snapshots)
    samples = len(run.samples) * 8 * (5 + 6 * len(run.samples.devices))
    chunks = sum(len(memory_map) for memory_map in run.maps) + sum(
        len(oom.map) for oom in run.ooms if oom.map is not None
    )
    samples += 64 * chunks + sum(map(timeline_bytes, run.timelines)) + sum(map(requests_bytes, run.requests))
    return samples + run.activations.bytes.nbytes + 16 * len(run.activations) + 100 * rows + 1000
