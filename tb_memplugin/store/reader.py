"""Reads runs from a source: only what changed since the last time, only what is asked for, safely from many threads."""

import dataclasses
import logging
import threading
import time
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from tb_memplugin.codec import FrameHead
from tb_memplugin.errors import NotFoundError
from tb_memplugin.metadata import Tag, parse_tag, run_name
from tb_memplugin.model import (
    AllocatorMap,
    LayerActivations,
    LayerTable,
    Oom,
    Run,
    Samples,
    Session,
    SessionInfo,
    Snapshot,
    Timeline,
)
from tb_memplugin.store.activation_rows import ActivationRows
from tb_memplugin.store.cache import ByteCache
from tb_memplugin.store.frames import DecodedTag, Piece, TagSurvey, decode_tag, survey_tag, timeline_bytes
from tb_memplugin.store.merge import MergedRun, make_session, merge
from tb_memplugin.store.source import Source

_log = logging.getLogger(__name__)

CACHE_BYTES = 512 << 20
"""Decoded frames, merged runs, and activations that are kept between requests, each up to this size; the least recently
used are read again when they are needed."""
MAX_RUN_BYTES = 2 << 30
"""Decoded data of one run that memory is taken for; what comes after it is not shown, and the run says so."""
MAX_SESSIONS = 1000
"""Sessions of one run that are shown, the newest; the run says how many it leaves out."""
MAX_SENTENCES = 30
"""Sentences on damage that one run shows; the rest are counted."""

_ALWAYS = ("meta", "samples", "peak", "snapshots", "oom")
_STREAM_WORDS = {
    "samples": "samples",
    "activations": "layer activations",
    "snapshots": "snapshots",
    "meta": "layer tables",
    "maps": "allocator maps",
    "oom": "post-mortems",
    "timelines": "timelines",
}


@dataclasses.dataclass(frozen=True)
class RunTags:
    """Where the frames of one run lie.

    Attributes:
        name: The run as it is shown.
        version: Changes whenever anything of the run does.
        tags: (worker, event run, tag, mark of the tag).
        damage: Sentences on what could not be listed.
    """

    name: str
    version: str
    tags: tuple[tuple[str, str, Tag, Hashable], ...]
    damage: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class LoadedRun(MergedRun):
    """A merged run as it was at `version`."""

    version: str


class Reader:
    """Reads the runs of one source; keeps what it decoded. Thread-safe.

    Args:
        cache_bytes: Bytes of decoded data to keep.
    """

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self._lock = threading.RLock()
        self._tags: ByteCache[DecodedTag] = ByteCache(cache_bytes)
        self._runs: ByteCache[LoadedRun] = ByteCache(cache_bytes)
        self._rows: ByteCache[ActivationRows] = ByteCache(cache_bytes)
        self._surveys: dict[tuple[str, Tag], tuple[Hashable, TagSurvey]] = {}
        self._catalog: Mapping[str, RunTags] = {}
        self._listed_at = -1.0
        self._warned: set[str] = set()

    def catalog(self, source: Source) -> Mapping[str, RunTags]:
        """The runs there are now, by name.

        Raises:
            SourceError: The source cannot be read now.
        """
        arrived = time.monotonic()
        with self._lock:
            # A listing that began after this request came is new enough for it: many clients share one.
            if self._listed_at < arrived:
                began = time.monotonic()
                listing = source.listing()
                self._catalog = _catalog(listing, source.damage())
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
    ) -> LoadedRun:
        """The run called `name`, with its activations, allocator maps and timelines only if they are asked for.

        With `session`, as that one alone recorded it, also the steps that a later one repeats.

        Raises:
            NotFoundError: There is no such run, or no such session in it.
            SourceError: The source cannot be read now.
        """
        return self.load(source, self._tags_of(source, name), activations, all_attempts, maps, session, timelines)

    def load(
        self,
        source: Source,
        tags: RunTags,
        activations: bool = False,
        all_attempts: bool = False,
        maps: bool = False,
        session: str | None = None,
        timelines: bool = False,
    ) -> LoadedRun:
        """The run whose frames lie at `tags`; the rest as for `run`.

        Raises:
            NotFoundError: There is no such session in it.
            SourceError: The source cannot be read now.
        """
        optional = {"activations": activations, "maps": maps, "timelines": timelines}
        streams = (*_ALWAYS, *(stream for stream, wanted in optional.items() if wanted))
        if session is not None:
            tags = _of_session(tags, session)
        key = (tags.name, streams, all_attempts, session)
        with self._lock:
            loaded = self._runs.get(key, tags.version)
            if loaded is None:
                loaded = self._load(source, tags, streams, all_attempts)
                self._runs.put(key, tags.version, loaded, _run_bytes(loaded.run))
            return loaded

    def activation_rows(self, source: Source, name: str) -> ActivationRows:
        """The recorded activations of the run called `name`, for picking rows.

        Raises:
            NotFoundError: There is no such run.
            SourceError: The source cannot be read now.
        """
        tags = self._tags_of(source, name)
        wanted = _of_stream(tags, "activations")
        with self._lock:
            rows = self._rows.get(name, wanted)
            if rows is None:
                decoded, _ = self._decode(source, wanted)
                sessions = list(_by_session(wanted, decoded).values())
                pieces = sessions[0]["activations"] if len(sessions) == 1 else []
                parts = [piece.value for piece in pieces if isinstance(piece.value, LayerActivations)]
                rows = ActivationRows(parts)
                if len(sessions) > 1 or (np.diff(rows.step) < 0).any():
                    # Whose figures count, and in which order, is for the merge to say.
                    rows = ActivationRows([self.load(source, tags, activations=True).run.activations])
                self._rows.put(name, wanted, rows, rows.nbytes)
            return rows

    def survey_activations(self, source: Source, tags: RunTags) -> tuple[int, tuple[str, ...]]:
        """How many layers have recorded activation bytes, and what of them is lost.

        Reads only tags that were never looked at or that changed, and of them only what frames say of themselves.
        """
        wanted = _of_stream(tags, "activations")
        with self._lock:
            unknown = {
                (run, str(tag)): (tag, mark)
                for _, run, tag, mark in wanted
                if self._surveys.get((run, tag), (None,))[0] != mark
            }
            if unknown:
                asked: dict[str, list[str]] = {}
                for run, text in unknown:
                    asked.setdefault(run, []).append(text)
                for content in source.read(asked):
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
        for (_, session), of_session in heads.items():
            damage.extend(_gaps(session, "activations", [of_session[at] for at in sorted(of_session)]))
        return len(frozenset().union(*(survey.layers for _, _, survey in known))), tuple(_limited(damage))

    def _tags_of(self, source: Source, name: str) -> RunTags:
        catalog = self.catalog(source)
        tags = catalog.get(name)
        if tags is None:
            raise NotFoundError(f"there is no run {name!r:.200}; there are: {_names(catalog)}")
        return tags

    def _load(self, source: Source, tags: RunTags, streams: Sequence[str], all_attempts: bool) -> LoadedRun:
        wanted = [entry for entry in tags.tags if entry[2].stream in streams]
        decoded, too_large = self._decode(source, wanted)
        damage = list(tags.damage)
        newer = [tag.newer for tag in decoded.values() if tag.newer]
        if newer:
            damage.append(newer[0] if len(newer) == 1 else f"{newer[0]} ({len(newer) - 1} more tags are affected)")
            self._warn_once(tags.name, damage[-1])
        for tag in decoded.values():
            damage.extend(tag.damage)
        if too_large:
            damage.append(
                f"{too_large} tags are not shown: the run is over the {MAX_RUN_BYTES} bytes that memory is taken for"
            )
        sessions: list[tuple[str, Session]] = []
        streams_of = _by_session(wanted, decoded)
        # Identifiers sort by the start of their sessions.
        newest = sorted(streams_of, key=lambda key: key[1])[-MAX_SESSIONS:]
        if len(newest) < len(streams_of):
            damage.append(f"{len(streams_of) - len(newest)} sessions before the last {MAX_SESSIONS} are not shown")
        for worker, identifier in newest:
            of_session = streams_of[worker, identifier]
            session, sentences = _session(identifier, of_session)
            sessions.append((worker, session))
            damage.extend(sentences)
        merged = merge(tags.name, sessions, _limited(damage), all_attempts)
        return LoadedRun(merged.run, merged.by_worker, merged.sessions, tags.version)

    def _decode(
        self, source: Source, wanted: Iterable[tuple[str, str, Tag, Hashable]]
    ) -> tuple[dict[tuple[str, Tag], DecodedTag], int]:
        """The content of the wanted tags, read where it is not held; also how many were left out for their size."""
        found: dict[tuple[str, Tag], DecodedTag] = {}
        missing: dict[str, dict[str, tuple[Tag, Hashable]]] = {}
        size = 0
        for _, run, tag, mark in wanted:
            held = self._tags.get((run, tag), mark)
            if held is not None:
                found[run, tag] = held
                size += held.size
            else:
                missing.setdefault(run, {})[str(tag)] = (tag, mark)
        left = sum(map(len, missing.values()))
        for content in source.read({run: list(tags) for run, tags in missing.items()}) if missing else ():
            tag, mark = missing[content.event_run][content.tag]
            decoded = decode_tag(tag, content)
            size += decoded.size
            left -= 1
            self._tags.put((content.event_run, tag), mark, decoded, decoded.size)
            found[content.event_run, tag] = decoded
            if size > MAX_RUN_BYTES:
                return found, left
        return found, 0

    def _warn_once(self, run: str, sentence: str) -> None:
        if run not in self._warned:
            self._warned.add(run)
            _log.warning("tb_memplugin: %s", sentence)


def _catalog(listing: Mapping[str, Mapping[str, Hashable]], damage: Mapping[str, Sequence[str]]) -> dict[str, RunTags]:
    tags: dict[str, list[tuple[str, str, Tag, Hashable]]] = {}
    sentences: dict[str, list[str]] = {}
    for event_run, of_run in listing.items():
        name, worker = run_name(event_run)
        strange = 0
        for text, mark in of_run.items():
            tag = parse_tag(text)
            # Only the one spelling that writers use: "samples/s/01" would be read under another name.
            if tag is None or str(tag) != text:
                strange += 1
            else:
                tags.setdefault(name, []).append((worker, event_run, tag, mark))
        if strange:
            sentences.setdefault(name, []).append(
                f"run {event_run}: {strange} tags are not of a form that this version knows; they are not shown"
            )
    for event_run, texts in damage.items():
        sentences.setdefault(run_name(event_run)[0], []).extend(texts)
    runs = {}
    for name in sorted(tags.keys() | sentences.keys()):
        entries = tuple(sorted(tags.get(name, ()), key=lambda entry: (entry[1], entry[2])))
        said = tuple(sentences.get(name, ()))
        runs[name] = RunTags(name, f"{zlib.crc32(repr((entries, said)).encode()):08x}", entries, said)
    return runs


def _by_session(
    wanted: Iterable[tuple[str, str, Tag, Hashable]], decoded: Mapping[tuple[str, Tag], DecodedTag]
) -> dict[tuple[str, str], dict[str, list[Piece]]]:
    """(worker, session) -> stream -> its pieces in order, each sequence number once."""
    sessions: dict[tuple[str, str], dict[str, dict[int, Piece]]] = {}
    for worker, run, tag, _ in wanted:
        content = decoded.get((run, tag))
        if content is not None and content.pieces:
            stream = sessions.setdefault((worker, tag.session), {}).setdefault(tag.stream, {})
            stream.update((piece.sequence, piece) for piece in content.pieces)
    return {
        key: {name: [pieces[at] for at in sorted(pieces)] for name, pieces in streams.items()}
        for key, streams in sessions.items()
    }


def _session(identifier: str, streams: Mapping[str, Sequence[Piece]]) -> tuple[Session, list[str]]:
    def values(stream: str, *kinds: type) -> list:  # type: ignore[type-arg]
        return [piece.value for piece in streams.get(stream, ()) if isinstance(piece.value, kinds)]

    session, sentences = make_session(
        identifier,
        meta=values("meta", SessionInfo, LayerTable),
        samples=values("samples", Samples),
        peaks=values("peak", Samples),
        activations=values("activations", LayerActivations),
        snapshots=values("snapshots", Snapshot),
        maps=values("maps", AllocatorMap),
        ooms=values("oom", Oom),
        timelines=values("timelines", Timeline),
    )
    for stream in _STREAM_WORDS:
        sentences.extend(_gaps(identifier, stream, streams.get(stream, ())))
    return session, sentences


def _of_session(tags: RunTags, session: str) -> RunTags:
    entries = tuple(entry for entry in tags.tags if entry[2].session == session)
    if not entries:
        known = sorted({entry[2].session for entry in tags.tags})
        raise NotFoundError(
            f"run {tags.name} has no session {session!r:.200}; it has: {', '.join(known[-10:]) or 'none'}"
        )
    return dataclasses.replace(tags, tags=entries)


def _of_stream(tags: RunTags, stream: str) -> tuple[tuple[str, str, Tag, Hashable], ...]:
    return tuple(entry for entry in tags.tags if entry[2].stream == stream)


def _gaps(identifier: str, stream: str, pieces: Sequence[Piece | FrameHead]) -> list[str]:
    """Sentences on the frames that are missing before the last one that is there."""
    sentences = []
    expected, last_step = 0, -1
    for piece in pieces:
        lost = piece.sequence - expected
        if lost > 0:
            first, last = last_step + 1, piece.first_step - 1
            if stream in ("samples", "activations") and first <= last:
                steps = f"steps {first} to {last} are missing" if first < last else f"step {first} is missing"
            else:
                steps = f"some are missing between step {max(last_step, 0)} and step {piece.first_step}"
            records = "1 record" if lost == 1 else f"{lost} records"
            sentences.append(f"session {identifier}, {_STREAM_WORDS[stream]}: {steps} ({records} lost)")
        expected, last_step = piece.sequence + 1, max(last_step, piece.last_step)
    return sentences


def _limited(sentences: Sequence[str]) -> list[str]:
    if len(sentences) <= MAX_SENTENCES:
        return list(sentences)
    return [*sentences[:MAX_SENTENCES], f"{len(sentences) - MAX_SENTENCES} more losses of this kind"]


def _run_bytes(run: Run) -> int:
    rows = sum(len(taken.ledger) + len(taken.held_for_backward) + 1 for taken in run.snapshots)
    samples = len(run.samples) * 8 * (5 + 6 * len(run.samples.devices))
    chunks = sum(len(taken) for taken in run.maps) + sum(len(oom.map) for oom in run.ooms if oom.map is not None)
    samples += 64 * chunks + sum(map(timeline_bytes, run.timelines))
    return samples + run.activations.bytes.nbytes + 16 * len(run.activations) + 100 * rows + 1000


def _names(catalog: Mapping[str, RunTags]) -> str:
    names = list(catalog)
    shown = ", ".join(name[:80] for name in names[:10])
    return (shown + (f" and {len(names) - 10} more" if len(names) > 10 else "")) or "none"
