"""From the bytes of one tag to checked model objects; what cannot be believed becomes a sentence."""

import dataclasses
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from tb_memplugin import codec, map_records, records, timeline_records
from tb_memplugin.codec import Frame, FrameHead
from tb_memplugin.errors import FormatError, NewerFormatError
from tb_memplugin.metadata import STREAMS, Tag
from tb_memplugin.model import (
    AllocatorMap,
    LayerActivations,
    LayerTable,
    Oom,
    Samples,
    SessionInfo,
    Snapshot,
    Timeline,
)
from tb_memplugin.store.source import TagContent

Value: TypeAlias = SessionInfo | LayerTable | Samples | LayerActivations | Snapshot | AllocatorMap | Oom | Timeline

_Read = TypeVar("_Read")
_ROW_BYTES = 400
"""Estimate of what one row of a ledger or one layer takes as Python objects."""
_TEXT_BYTES = 150
"""Estimate of what the name of an op takes."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """What one frame said.

    Attributes:
        sequence: Position of the frame in its stream and session.
        first_step, last_step: Range of its steps.
        value: Its content.
        size: Bytes that the content takes in memory, about.
    """

    sequence: int
    first_step: int
    last_step: int
    value: Value
    size: int


@dataclasses.dataclass(frozen=True)
class DecodedTag:
    """What one tag said.

    Attributes:
        pieces: Its frames in order of their sequence numbers.
        damage: Sentences on the frames that could not be read.
        newer: Of a newer format than this version reads: how to name the first such frame, else None.
        size: Bytes it takes in memory, about.
    """

    pieces: tuple[Piece, ...]
    damage: tuple[str, ...]
    newer: str | None
    size: int


@dataclasses.dataclass(frozen=True)
class TagSurvey:
    """What the frames of one tag of activations say of themselves, without their figures; fields as in `DecodedTag`.

    Attributes:
        heads: Of the frames, in order of their sequence numbers.
        layers: Layer paths.
    """

    heads: tuple[FrameHead, ...]
    layers: frozenset[str]
    damage: tuple[str, ...]
    newer: str | None


def survey_tag(tag: Tag, content: TagContent) -> TagSurvey:
    """A look at one tag of activations that costs little. Raises nothing for any bytes."""
    heads, damage, newer = _each_frame(content, lambda data: _head(tag, data))
    heads.sort(key=lambda head: head.sequence)
    layers = frozenset(text for head in heads for text in head.strings)
    return TagSurvey(tuple(dataclasses.replace(head, strings=()) for head in heads), layers, tuple(damage), newer)


def decode_tag(tag: Tag, content: TagContent) -> DecodedTag:
    """The checked content of one tag. Raises nothing for any bytes."""
    pieces, damage, newer = _each_frame(content, lambda data: _decode(tag, data))
    pieces.sort(key=lambda piece: piece.sequence)
    return DecodedTag(tuple(pieces), tuple(damage), newer, 200 + sum(piece.size + 200 for piece in pieces))


def _each_frame(content: TagContent, read: Callable[[bytes], _Read]) -> tuple[list[_Read], list[str], str | None]:
    """What `read` makes of each frame; sentences on those it cannot read; how to name the first of a newer format."""
    place = f"run {content.event_run}, tag {content.tag}"
    found: list[_Read] = []
    damage = [f"{place}: {sentence}" for sentence in content.damage]
    newer = None
    for stored in content.frames:
        try:
            found.append(read(stored.data))
        except NewerFormatError as error:
            newer = newer or f"{place}: {error}"
        except FormatError as error:
            damage.append(f"{place}, event of step {stored.step}: {error}")
    return found, damage, newer


def _head(tag: Tag, data: bytes) -> FrameHead:
    head = codec.decode_head(data)
    _check_stream(tag, head.stream)
    return head


def _check_stream(tag: Tag, stream: int) -> None:
    if stream >= len(STREAMS) or STREAMS[stream] != tag.stream:
        raise FormatError(f"a frame of stream {stream} does not belong under this tag")


def _decode(tag: Tag, data: bytes) -> Piece:
    frame = codec.decode(data)
    _check_stream(tag, frame.stream)
    value: Value
    if tag.stream == "meta":
        value = records.read_meta(tag.session, frame)
        size = _ROW_BYTES * (1 + (len(value.layers) if isinstance(value, LayerTable) else 0))
    elif tag.stream == "snapshots":
        value = records.read_snapshot(frame)
        size = _ROW_BYTES * (1 + len(value.ledger) + len(value.held_for_backward))
    elif tag.stream == "maps":
        value = map_records.read_map(frame)
        size = _map_bytes(value)
    elif tag.stream == "timelines":
        value = timeline_records.read_timeline(frame)
        size = timeline_bytes(value)
    elif tag.stream == "oom":
        value = map_records.read_oom(frame)
        size = _ROW_BYTES * (1 + len(value.ledger)) + (0 if value.map is None else _map_bytes(value.map))
    elif tag.stream == "activations":
        value = records.read_activations(frame)
        _check_steps(frame, value)
        size = value.bytes.nbytes + 16 * len(value) + 100 * len(value.layers)
    else:
        value = records.read_samples(frame)
        _check_steps(frame, value)
        size = len(value) * 8 * (5 + 6 * len(value.devices))
    return Piece(frame.sequence, frame.first_step, frame.last_step, value, size)


def _map_bytes(taken: AllocatorMap) -> int:
    return 8 * 8 * len(taken) + _ROW_BYTES * (1 + len(taken.owners))


def timeline_bytes(taken: Timeline) -> int:
    """Bytes that a timeline takes in memory, about."""
    columns = 8 * (7 * len(taken) + 2 * len(taken.time_ns))
    return columns + _ROW_BYTES * (1 + len(taken.owners)) + _TEXT_BYTES * len(taken.ops)


def _check_steps(frame: Frame, value: Samples | LayerActivations) -> None:
    # The header's steps name what is missing when a neighbour is lost, so they must be true.
    if not len(value) or int(value.step.min()) != frame.first_step or int(value.step.max()) != frame.last_step:
        raise FormatError(f"frame of steps {frame.first_step} to {frame.last_step} does not hold these steps")
