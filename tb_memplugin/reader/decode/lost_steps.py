"""Infers from the remaining frames which steps a session lost."""

import dataclasses
from collections.abc import Mapping, Sequence

from tb_memplugin.events.run_writer import MAX_SAMPLE_ROWS
from tb_memplugin.model import LayerTable, SessionInfo
from tb_memplugin.reader.decode.decoding import Piece
from tb_memplugin.reader.decode.streams import (
    ACTIVATIONS,
    HOST,
    MAPS,
    META,
    PEAK,
    REQUESTS,
    SAMPLES,
    SNAPSHOTS,
    TIMELINES,
    Stream,
)

_FIRST_TABLE = 1
"""Sequence number of the first layer table: the first record holds the session's facts."""
_ON_THE_WAY = (ACTIVATIONS, SNAPSHOTS, MAPS, TIMELINES, REQUESTS, PEAK, HOST)
"""Streams whose records are of steps that have samples."""


@dataclasses.dataclass(frozen=True)
class Lost:
    """A gap between the frames of a stream: the steps it may hold, and the number of frames."""

    first_step: int
    last_step: int
    frames: int
    at: Piece
    """The frame after the gap."""


def gaps_of(pieces: Sequence[Piece], earliest: int = 0) -> list[Lost]:
    """The gaps before the last frame of a stream.

    Args:
        earliest: The session's first step.
    """
    found = []
    expected, last_step = 0, earliest - 1
    for piece in pieces:
        if piece.sequence > expected:
            found.append(Lost(last_step + 1, piece.first_step - 1, piece.sequence - expected, piece))
        expected, last_step = piece.sequence + 1, max(last_step, piece.last_step)
    return found


def first_step_of(streams: Mapping[Stream, Sequence[Piece]]) -> int:
    """The least step that the session's samples can have.

    It follows from the recorder's first layer table. Without one, lost frames are taken to be as long as they may be.
    """
    for piece in streams.get(META, ()):
        if piece.sequence == _FIRST_TABLE and isinstance(piece.value, LayerTable):
            return piece.value.step
    samples = streams.get(SAMPLES, ())
    return max(0, samples[0].first_step - samples[0].sequence * MAX_SAMPLE_ROWS) if samples else 0


def lost_steps(streams: Mapping[Stream, Sequence[Piece]]) -> tuple[tuple[int, int], ...]:
    """Ranges of steps whose samples are lost; see `Session.lost_steps`."""
    earliest, samples = first_step_of(streams), streams.get(SAMPLES, ())
    found = [(gap.first_step, gap.last_step) for gap in gaps_of(samples, earliest)]
    reached = max((piece.last_step for piece in samples), default=earliest - 1)
    facts = [piece.value for piece in streams.get(META, ()) if isinstance(piece.value, SessionInfo)]
    if not facts or facts[-1].producer == "recorder":
        # Other records of later steps say that their samples were lost. Other producers write no samples.
        later = max((piece.last_step for stream in _ON_THE_WAY for piece in streams.get(stream, ())), default=reached)
        found.append((reached + 1, later))
    return tuple((first, last) for first, last in found if first <= last)


def lost_activation_steps(streams: Mapping[Stream, Sequence[Piece]]) -> tuple[tuple[int, int], ...]:
    """Ranges of steps whose activations are lost; lost first frames are taken to be as long as the longest other."""
    pieces = streams.get(ACTIVATIONS, ())
    if not pieces:
        return ()
    longest = max(piece.last_step - piece.first_step + 1 for piece in pieces)
    earliest = max(0, pieces[0].first_step - pieces[0].sequence * longest)
    found = [(gap.first_step, gap.last_step) for gap in gaps_of(pieces, earliest)]
    return tuple((first, last) for first, last in found if first <= last)
