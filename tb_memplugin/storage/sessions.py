"""Sessions from decoded frames, and sentences on the frames that are missing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.schema import LayerTable, Samples, Session, SessionInfo, take_rows, with_failed_steps
from tb_memplugin.storage.files import Entry
from tb_memplugin.storage.frames import Tag, start_of
from tb_memplugin.storage.read import (
    ACTIVATIONS,
    MAPS,
    MERGED,
    META,
    OF_TAG,
    PEAK,
    REQUESTS,
    SAMPLES,
    SNAPSHOTS,
    TIMELINES,
    DecodedTag,
    Piece,
    Stream,
    join_samples,
    rows_not_in,
    tables_of,
)
from tb_memplugin.storage.write import MAX_SAMPLE_ROWS

_FIRST_TABLE = 1
"""Sequence number of the first layer table: the first record holds the session's facts."""
_ON_THE_WAY = (ACTIVATIONS, SNAPSHOTS, MAPS, TIMELINES, REQUESTS, PEAK)
"""Streams whose records are of steps that have samples."""
MAX_SENTENCES = 30
"""Sentences on damage shown per run; further ones are counted."""

Pieces: TypeAlias = Mapping[Stream, Sequence[Piece]]
"""The frames of a session by stream, in order."""
Lost: TypeAlias = tuple[int, int, int, Piece]
"""A gap between frames: the first and the last step that it may hold, the number of frames, the frame after it."""


def gaps_of(pieces: Sequence[Piece], earliest: int = 0) -> Iterator[Lost]:
    """The gaps before the last frame of a stream; `earliest` is the session's first step."""
    expected, last_step = 0, earliest - 1
    for piece in pieces:
        if piece.sequence > expected:
            yield last_step + 1, piece.first_step - 1, piece.sequence - expected, piece
        expected, last_step = piece.sequence + 1, max(last_step, piece.last_step)


def first_step_of(streams: Pieces) -> int:
    """The least step that the session's samples can have.

    It follows from the recorder's first layer table. Without one, lost frames are taken to be as long as they may be.
    """
    for piece in streams.get(META, ()):
        if piece.sequence == _FIRST_TABLE and isinstance(piece.value, LayerTable):
            return piece.value.step
    samples = streams.get(SAMPLES, ())
    return max(0, samples[0].first_step - samples[0].sequence * MAX_SAMPLE_ROWS) if samples else 0


def lost_steps(streams: Pieces) -> tuple[tuple[int, int], ...]:
    """Ranges of steps whose samples are lost; see `Session.lost_steps`."""
    earliest, samples = first_step_of(streams), streams.get(SAMPLES, ())
    found = [(first, last) for first, last, _, _ in gaps_of(samples, earliest)]
    reached = max((piece.last_step for piece in samples), default=earliest - 1)
    facts = _facts(streams)
    if facts is None or facts.producer == "recorder":
        # Other records of later steps say that their samples were lost. Other producers write no samples.
        later = max((piece.last_step for stream in _ON_THE_WAY for piece in streams.get(stream, ())), default=reached)
        found.append((reached + 1, later))
    return tuple((first, last) for first, last in found if first <= last)


def lost_activation_steps(streams: Pieces) -> tuple[tuple[int, int], ...]:
    """Ranges of steps whose activations are lost; lost first frames are taken to be as long as the longest other."""
    pieces = streams.get(ACTIVATIONS, ())
    if not pieces:
        return ()
    longest = max(piece.last_step - piece.first_step + 1 for piece in pieces)
    earliest = max(0, pieces[0].first_step - pieces[0].sequence * longest)
    return tuple((first, last) for first, last, _, _ in gaps_of(pieces, earliest) if first <= last)


def join_with_peaks(streams: Pieces) -> tuple[Samples, tuple[str, ...]]:
    """The joined samples, and sentences on those left out. A peak replaces its sample if that was lost."""
    (joined, sentence), (highest, _) = (
        join_samples(tables_of([piece.value for piece in streams.get(stream, ())])) for stream in (SAMPLES, PEAK)
    )
    sentences = [sentence]
    only_peaks = rows_not_in(highest, joined) if len(highest) else np.zeros(0, bool)
    if only_peaks.any():
        joined, sentence = join_samples([joined, take_rows(highest, only_peaks)])
        sentences.append(sentence)
        joined = take_rows(joined, np.argsort(joined.wall_time, kind="stable"))
    return joined, tuple(text for text in sentences if text)


def by_session(
    wanted: Iterable[Entry], decoded: Mapping[tuple[str, Tag], DecodedTag]
) -> dict[tuple[str, str], dict[Stream, list[Piece]]]:
    """(worker, session) to stream to its pieces in order, each sequence number once."""
    sessions: dict[tuple[str, str], dict[Stream, dict[int, Piece]]] = {}
    for worker, run, tag, _ in wanted:
        content = decoded.get((run, tag))
        if content is not None and content.pieces:
            stream = sessions.setdefault((worker, tag.session), {}).setdefault(OF_TAG[tag.stream], {})
            stream.update((piece.sequence, piece) for piece in content.pieces)
    return {
        key: {stream: [pieces[at] for at in sorted(pieces)] for stream, pieces in streams.items()}
        for key, streams in sessions.items()
    }


def session_from_pieces(identifier: str, streams: Pieces, samples: Samples) -> tuple[Session, list[str]]:
    """Build a session from its pieces and its joined samples.

    The last facts are used; a session without facts still shows its data. Also returns sentences on missing frames and
    on data left out.
    """
    fields: dict[str, Any] = {SAMPLES.field: samples}
    sentences: list[str] = []
    for stream in MERGED[1:]:
        fields[stream.field], sentence = stream.of_frames([piece.value for piece in streams.get(stream, ())])
        sentences += [sentence] if sentence else []
    fields["snapshots"] = with_failed_steps(fields["snapshots"], fields["ooms"])
    info = _facts(streams)
    if info is None:
        times = [float(table.wall_time.min()) for table in (samples, fields["activations"]) if len(table)]
        named = start_of(identifier)
        note = f"the start time and versions of session {identifier} could not be read; its data is shown"
        started = min(times, default=0.0) if named is None else named
        info = SessionInfo(identifier, started, "recorder", {}, (note,))
    for stream in MERGED:
        first = first_step_of(streams) if stream is SAMPLES else 0
        sentences.extend(gaps(identifier, stream, streams.get(stream, ()), first))
    lost, lost_activations = lost_steps(streams), lost_activation_steps(streams)
    return Session(info=info, lost_steps=lost, lost_activation_steps=lost_activations, **fields), sentences


def gaps(identifier: str, stream: Stream, pieces: Sequence[Piece], earliest: int = 0) -> Iterator[str]:
    """Sentences on frames missing before the last one of a stream; `earliest` is the session's first step."""
    for first, last, frames, after in gaps_of(pieces, earliest):
        if stream in (SAMPLES, ACTIVATIONS) and first <= last:
            steps = f"steps {first} to {last} are missing" if first < last else f"step {first} is missing"
        else:
            steps = f"data between step {max(first - 1, 0)} and step {after.first_step} is missing"
        records = "1 record" if frames == 1 else f"{frames} records"
        yield f"session {identifier}, {stream.words}: {steps} ({records} lost)"


def limited(sentences: Sequence[str]) -> list[str]:
    if len(sentences) <= MAX_SENTENCES:
        return list(sentences)
    return [*sentences[:MAX_SENTENCES], f"{len(sentences) - MAX_SENTENCES} more messages on damaged data"]


def _facts(streams: Pieces) -> SessionInfo | None:
    facts = [piece.value for piece in streams.get(META, ()) if isinstance(piece.value, SessionInfo)]
    return facts[-1] if facts else None
