"""Sessions from decoded frames, and sentences on the frames that are missing."""

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.events.codec import FrameHead
from tb_memplugin.events.counter_records import join_counters
from tb_memplugin.events.metadata import Tag
from tb_memplugin.events.tags import start_of
from tb_memplugin.model import (
    Counters,
    HostSamples,
    LayerActivations,
    LayerTable,
    MemoryMap,
    Oom,
    Samples,
    Session,
    SessionInfo,
    Snapshot,
    StepRequests,
    Timeline,
)
from tb_memplugin.reader.activation_rows import ActivationPart, ActivationRows, table_of
from tb_memplugin.reader.columns import join_activations, join_samples, rows_not_in
from tb_memplugin.reader.decoding import DecodedTag, Piece
from tb_memplugin.reader.device_columns import take_rows
from tb_memplugin.reader.host_columns import join_host
from tb_memplugin.reader.lost_steps import first_step_of, gaps_of, lost_activation_steps, lost_steps

Joined: TypeAlias = tuple[Samples, tuple[str, ...]]
"""The samples of a session, and sentences on those left out."""

MAX_SENTENCES = 30
"""Sentences on damage shown per run; further ones are counted."""

_STREAM_WORDS = {
    "samples": "samples",
    "activations": "layer activations",
    "snapshots": "snapshots",
    "meta": "layer tables",
    "maps": "memory maps",
    "oom": "failed allocations",
    "timelines": "timelines",
    "requests": "requests of steps",
    "counters": "counters",
    "host": "parts of host memory",
}


def make_session(
    identifier: str,
    meta: Sequence[SessionInfo | LayerTable],
    samples: Sequence[Samples],
    peaks: Sequence[Samples],
    activations: Sequence[LayerActivations],
    snapshots: Sequence[Snapshot],
    maps: Sequence[MemoryMap] = (),
    ooms: Sequence[Oom] = (),
    timelines: Sequence[Timeline] = (),
    requests: Sequence[StepRequests] = (),
    counters: Sequence[Counters] = (),
    host: Sequence[HostSamples] = (),
) -> tuple[Session, list[str]]:
    """Build a session from the contents of its frames, in order; also sentences on data left out for its size.

    The last facts are used; a session without facts still shows its data. A peak replaces its sample if that was lost.
    """
    return _assembled(
        identifier,
        meta,
        _joined(samples, peaks),
        activations,
        snapshots,
        maps,
        ooms,
        timelines,
        requests,
        counters,
        host,
    )


def _joined(samples: Sequence[Samples], peaks: Sequence[Samples]) -> Joined:
    sentences = []
    joined, sentence = join_samples(samples)
    sentences.append(sentence)
    highest, _ = join_samples(peaks)
    only_peaks = rows_not_in(highest, joined) if len(highest) else np.zeros(0, bool)
    if only_peaks.any():
        joined, sentence = join_samples([joined, take_rows(highest, only_peaks)])
        sentences.append(sentence)
        joined = take_rows(joined, np.argsort(joined.wall_time, kind="stable"))
    return joined, tuple(text for text in sentences if text)


def _assembled(
    identifier: str,
    meta: Sequence[SessionInfo | LayerTable],
    samples: Joined,
    activations: Sequence[LayerActivations],
    snapshots: Sequence[Snapshot],
    maps: Sequence[MemoryMap],
    ooms: Sequence[Oom],
    timelines: Sequence[Timeline],
    requests: Sequence[StepRequests],
    counters: Sequence[Counters],
    host: Sequence[HostSamples],
) -> tuple[Session, list[str]]:
    joined, sentences = samples
    table, sentence = join_activations(activations)
    facts = [value for value in meta if isinstance(value, SessionInfo)]
    session = Session(
        info=facts[-1] if facts else _unknown_session(identifier, joined, table),
        layer_tables=tuple(value for value in meta if isinstance(value, LayerTable)),
        samples=joined,
        activations=table,
        snapshots=tuple(snapshots),
        maps=tuple(maps),
        ooms=_final_records(ooms),
        timelines=tuple(timelines),
        requests=tuple(requests),
        counters=join_counters(counters),
        host=join_host(host) if host else None,
    )
    return session, [*sentences, *([sentence] if sentence else [])]


def _final_records(ooms: Sequence[Oom]) -> tuple[Oom, ...]:
    """The last record of each failed allocation, without those that TensorFlow tolerated."""
    last = {oom.identifier: oom for oom in ooms}
    return tuple(oom for oom in last.values() if oom.status != "tolerated")


def by_session(
    wanted: Iterable[tuple[str, str, Tag, Hashable]], decoded: Mapping[tuple[str, Tag], DecodedTag]
) -> dict[tuple[str, str], dict[str, list[Piece]]]:
    """(worker, session) to stream to its pieces in order, each sequence number once."""
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


def _values(streams: Mapping[str, Sequence[Piece]], stream: str, *kinds: type) -> list[Any]:
    return [piece.value for piece in streams.get(stream, ()) if isinstance(piece.value, kinds)]


def join_with_peaks(streams: Mapping[str, Sequence[Piece]]) -> Joined:
    """The samples of a session's pieces by stream. A peak replaces its sample if that was lost."""
    return _joined(_values(streams, "samples", Samples), _values(streams, "peak", Samples))


def session_from_pieces(
    identifier: str, streams: Mapping[str, Sequence[Piece]], samples: Joined
) -> tuple[Session, list[str]]:
    """Build a session from its pieces by stream and its joined samples; also sentences on missing frames and data left
    out."""
    session, sentences = _assembled(
        identifier,
        _values(streams, "meta", SessionInfo, LayerTable),
        samples,
        [table_of(ActivationRows(_values(streams, "activations", ActivationPart)))],
        _values(streams, "snapshots", Snapshot),
        _values(streams, "maps", MemoryMap),
        _values(streams, "oom", Oom),
        _values(streams, "timelines", Timeline),
        _values(streams, "requests", StepRequests),
        _values(streams, "counters", Counters),
        _values(streams, "host", HostSamples),
    )
    earliest = first_step_of(streams)
    for stream in _STREAM_WORDS:
        first = earliest if stream == "samples" else 0
        sentences.extend(gaps(identifier, stream, streams.get(stream, ()), first))
    lost, lost_activations = lost_steps(streams), lost_activation_steps(streams)
    return dataclasses.replace(session, lost_steps=lost, lost_activation_steps=lost_activations), sentences


def gaps(identifier: str, stream: str, pieces: Sequence[Piece | FrameHead], earliest: int = 0) -> list[str]:
    """Sentences on frames missing before the last one of a stream; `earliest` is the session's first step."""
    sentences = []
    for gap in gaps_of(pieces, earliest):
        first, last = gap.first_step, gap.last_step
        if stream in ("samples", "activations") and first <= last:
            steps = f"steps {first} to {last} are missing" if first < last else f"step {first} is missing"
        else:
            steps = f"data between step {max(first - 1, 0)} and step {gap.at.first_step} is missing"
        records = "1 record" if gap.frames == 1 else f"{gap.frames} records"
        sentences.append(f"session {identifier}, {_STREAM_WORDS[stream]}: {steps} ({records} lost)")
    return sentences


def limited(sentences: Sequence[str]) -> list[str]:
    """The first `MAX_SENTENCES` sentences, and one that counts the others."""
    if len(sentences) <= MAX_SENTENCES:
        return list(sentences)
    return [*sentences[:MAX_SENTENCES], f"{len(sentences) - MAX_SENTENCES} more messages on damaged data"]


def _unknown_session(identifier: str, samples: Samples, activations: LayerActivations) -> SessionInfo:
    times = [float(part.wall_time.min()) for part in (samples, activations) if len(part)]
    named = start_of(identifier)
    if named is not None:
        times = [named]
    note = f"the start time and versions of session {identifier} could not be read; its data is shown"
    return SessionInfo(identifier, min(times, default=0.0), "recorder", {}, (note,))
