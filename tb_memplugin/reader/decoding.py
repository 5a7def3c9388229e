"""Frames of one tag to validated model objects; frames that cannot be read become sentences on damage."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from tb_memplugin.errors import FormatError, NewerFormatError
from tb_memplugin.events import (
    activation_records,
    codec,
    counter_records,
    host_records,
    memory_map_records,
    oom_records,
    request_records,
    sample_records,
    session_records,
    snapshot_records,
    timeline_records,
)
from tb_memplugin.events.codec import Frame, FrameHead
from tb_memplugin.events.metadata import STREAMS, Tag
from tb_memplugin.model import (
    MAX_STEP,
    Counters,
    HostSamples,
    LayerActivations,
    LayerTable,
    MemoryMap,
    Oom,
    Samples,
    SessionInfo,
    Snapshot,
    StepRequests,
    Timeline,
)
from tb_memplugin.reader import sizes
from tb_memplugin.reader.activation_rows import ActivationPart, part_of
from tb_memplugin.reader.device_columns import compact, samples_bytes
from tb_memplugin.reader.limits import Room
from tb_memplugin.reader.source import TagContent

Value: TypeAlias = (
    SessionInfo
    | LayerTable
    | Samples
    | ActivationPart
    | Snapshot
    | MemoryMap
    | Oom
    | Timeline
    | StepRequests
    | Counters
    | HostSamples
)

_Read = TypeVar("_Read")
_RECORDS: Mapping[str, tuple[Callable[[Frame], Value], Callable[..., int]]] = {
    "snapshots": (snapshot_records.read_snapshot, sizes.snapshot_bytes),
    "maps": (memory_map_records.read_map, sizes.map_bytes),
    "timelines": (timeline_records.read_timeline, sizes.timeline_bytes),
    "requests": (request_records.read_requests, sizes.requests_bytes),
    "oom": (oom_records.read_oom, sizes.oom_bytes),
    "counters": (counter_records.read_counters, sizes.counters_bytes),
}
"""Streams of one object a frame: what reads it, and its size in memory."""
PIECE_BYTES = 200
"""Estimated size of a piece without its content."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """The content of one frame.

    Attributes:
        sequence: Position of the frame in its stream and session.
        first_step, last_step: Range of steps.
        value: Decoded content; None once it has been joined to others.
        size: Bytes of the content in memory.
        rows: Rows of samples, or values of activations.
    """

    sequence: int
    first_step: int
    last_step: int
    value: Value | None
    size: int
    rows: int = 0


@dataclasses.dataclass(frozen=True)
class DecodedTag:
    """The content of one tag.

    Attributes:
        pieces: Its frames, in order of their sequence numbers.
        damage: Sentences on frames that could not be read.
        newer: Sentence on the first frame of a newer format, None without any.
        size: Bytes in memory.
        rows: Rows of samples, or values of activations.
        complete: Whether all frames were decoded, instead of only those within the limit.
    """

    pieces: tuple[Piece, ...]
    damage: tuple[str, ...]
    newer: str | None
    size: int
    rows: int = 0
    complete: bool = True


@dataclasses.dataclass(frozen=True)
class TagSurvey:
    """The frames of one tag of activations without their columns; other fields as in `DecodedTag`.

    Attributes:
        heads: The frames, in order of their sequence numbers.
        layers: Layer paths.
        place: Names the tag in sentences.
        values: Values of each frame, in order of reading.
        most_bytes: Most bytes in memory once decoded; equal values may take less.
    """

    heads: tuple[FrameHead, ...]
    layers: frozenset[str]
    damage: tuple[str, ...]
    newer: str | None
    place: str
    values: tuple[int, ...]
    most_bytes: int


def survey_tag(tag: Tag, content: TagContent) -> TagSurvey:
    """Decode one tag of activations without its columns, which is cheap. Never raises for damaged bytes."""
    heads, damage, newer = _each_frame(content, lambda data: _head(tag, data))
    values = tuple(head.rows * len(head.strings) for head in heads)
    heads.sort(key=lambda head: head.sequence)
    layers = frozenset().union(*(head.strings for head in heads))
    without_strings = tuple(dataclasses.replace(head, strings=()) for head in heads)
    most_bytes = sum(head.most_bytes for head in heads)
    return TagSurvey(without_strings, layers, tuple(damage), newer, _place(content), values, most_bytes)


def decode_tag(tag: Tag, content: TagContent, room: Room) -> DecodedTag:
    """Decode and validate one tag, as far as its frames fit into `room`. Never raises for damaged bytes."""
    left_out = 0

    def read(data: bytes) -> Piece | None:
        nonlocal left_out
        piece = None if room.is_full else _decode(tag, data, room)
        if piece is None or not room.take(piece.size, piece.rows):
            left_out += 1
            return None
        return piece

    results, damage, newer = _each_frame(content, read)
    pieces = sorted((piece for piece in results if piece is not None), key=lambda piece: piece.sequence)
    if left_out:
        damage.append(frames_left_out(_place(content), left_out))
    size, rows = 200 + sum(piece.size for piece in pieces), sum(piece.rows for piece in pieces)
    return DecodedTag(tuple(pieces), tuple(damage), newer, size, rows, complete=not left_out)


def frames_left_out(place: str, frames: int) -> str:
    """Sentence on frames of a tag that exceed a limit."""
    return f"{place}: {frames} frames are not shown: the run exceeds the limit of its size"


def _place(content: TagContent) -> str:
    return f"run {content.event_run}, tag {content.tag}"


def _each_frame(content: TagContent, read: Callable[[bytes], _Read]) -> tuple[list[_Read], list[str], str | None]:
    """The results of `read`, sentences on damaged frames, and a sentence on the first frame of a newer format."""
    place = _place(content)
    results: list[_Read] = []
    damage = [f"{place}: {sentence}" for sentence in content.damage]
    newer = None
    for stored in content.frames:
        try:
            results.append(read(stored.data))
        except NewerFormatError as error:
            newer = newer or f"{place}: {error}"
        except FormatError as error:
            damage.append(f"{place}, event of step {stored.step}: {error}")
        except MemoryError:
            damage.append(f"{place}, event of step {stored.step}: there is not enough memory to read it")
    return results, damage, newer


def _head(tag: Tag, data: bytes) -> FrameHead:
    head = codec.decode_head(data)
    _check_head(tag, head)
    return head


def _check_head(tag: Tag, head: Frame | FrameHead) -> None:
    if head.stream >= len(STREAMS) or STREAMS[head.stream] != tag.stream:
        raise FormatError(f"frame of stream {head.stream} does not belong under this tag")
    if not 0 <= head.first_step <= head.last_step <= MAX_STEP:
        raise FormatError(f"frame of steps {head.first_step} to {head.last_step}; steps are 0 to {MAX_STEP}")


def _decode(tag: Tag, data: bytes, room: Room) -> Piece | None:
    """The content of a frame; None if it does not fit into `room`."""
    frame = codec.decode(data)
    _check_head(tag, frame)
    value: Value
    rows = 0
    if sizes.objects_bytes(tag.stream, frame) > room.bytes:
        room.is_full = True
        return None
    if tag.stream == "meta":
        value = session_records.read_meta(tag.session, frame)
        size = sizes.meta_bytes(value)
    elif tag.stream in _RECORDS:
        read, size_of = _RECORDS[tag.stream]
        value = read(frame)
        size = size_of(value)
    elif tag.stream == "host":
        host = host_records.read_host(frame)
        _check_steps(frame, host)
        value, size = host, sizes.host_bytes(host)
    elif tag.stream == "activations":
        table = activation_records.read_activations(frame)
        _check_steps(frame, table)
        size = 0 if table.layers in room.layers else 100 * len(table.layers)
        value = part_of(table, room.layers.setdefault(table.layers, table.layers))
        size, rows = size + value.nbytes, len(table) * len(table.layers)
    else:
        samples = sample_records.read_samples(frame)
        _check_steps(frame, samples)
        value = compact(samples)
        size, rows = samples_bytes(value), len(value)
    return Piece(frame.sequence, frame.first_step, frame.last_step, value, size + PIECE_BYTES, rows)


def _check_steps(frame: Frame, value: Samples | LayerActivations | HostSamples) -> None:
    # The steps of the header name the missing ones when a neighboring frame is lost, so they must be right.
    if not len(value) or int(value.step.min()) != frame.first_step or int(value.step.max()) != frame.last_step:
        raise FormatError(f"frame of steps {frame.first_step} to {frame.last_step} does not hold these steps")
