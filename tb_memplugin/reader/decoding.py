"""Frames of one tag to validated model objects; frames that cannot be read become sentences on damage."""

import dataclasses
from collections.abc import Callable
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
    HOST_COLUMNS,
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
from tb_memplugin.reader.source import TagContent

Value: TypeAlias = (
    SessionInfo
    | LayerTable
    | Samples
    | LayerActivations
    | Snapshot
    | MemoryMap
    | Oom
    | Timeline
    | StepRequests
    | Counters
    | HostSamples
)

_Read = TypeVar("_Read")
_ROW_BYTES = 400
"""Estimated size of one ledger row or one layer as Python objects."""
_TEXT_BYTES = 150
"""Estimated size of the name of an op."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """The content of one frame.

    Attributes:
        sequence: Position of the frame in its stream and session.
        first_step, last_step: Range of steps.
        value: Decoded content.
        size: Estimated bytes of the content in memory.
    """

    sequence: int
    first_step: int
    last_step: int
    value: Value
    size: int


@dataclasses.dataclass(frozen=True)
class DecodedTag:
    """The content of one tag.

    Attributes:
        pieces: Its frames, in order of their sequence numbers.
        damage: Sentences on frames that could not be read.
        newer: Sentence on the first frame of a newer format, None without any.
        size: Estimated bytes in memory.
        complete: Whether all frames were decoded, instead of only those within the limit.
    """

    pieces: tuple[Piece, ...]
    damage: tuple[str, ...]
    newer: str | None
    size: int
    complete: bool = True


@dataclasses.dataclass(frozen=True)
class TagSurvey:
    """The frames of one tag of activations without their columns; other fields as in `DecodedTag`.

    Attributes:
        heads: The frames, in order of their sequence numbers.
        layers: Layer paths.
        size: Estimated bytes in memory once decoded.
    """

    heads: tuple[FrameHead, ...]
    layers: frozenset[str]
    damage: tuple[str, ...]
    newer: str | None
    size: int


def survey_tag(tag: Tag, content: TagContent) -> TagSurvey:
    """Decode one tag of activations without its columns, which is cheap. Never raises for damaged bytes."""
    heads, damage, newer = _each_frame(content, lambda data: _head(tag, data))
    heads.sort(key=lambda head: head.sequence)
    layers = frozenset(text for head in heads for text in head.strings)
    size = 200 + sum(_activations_bytes(head.rows, len(head.strings)) + 200 for head in heads)
    without_strings = tuple(dataclasses.replace(head, strings=()) for head in heads)
    return TagSurvey(without_strings, layers, tuple(damage), newer, size)


def decode_tag(tag: Tag, content: TagContent, most_bytes: int) -> DecodedTag:
    """Decode and validate one tag up to about `most_bytes` in memory. Never raises for damaged bytes."""
    size, left_out = 200, 0

    def read(data: bytes) -> Piece | None:
        nonlocal size, left_out
        if size > most_bytes:
            left_out += 1
            return None
        piece = _decode(tag, data)
        size += piece.size + 200
        return piece

    results, damage, newer = _each_frame(content, read)
    pieces = sorted((piece for piece in results if piece is not None), key=lambda piece: piece.sequence)
    if left_out:
        damage.append(f"{_place(content)}: {left_out} frames are not shown: the run exceeds the limit of its size")
    return DecodedTag(tuple(pieces), tuple(damage), newer, size, complete=not left_out)


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


def _decode(tag: Tag, data: bytes) -> Piece:
    frame = codec.decode(data)
    _check_head(tag, frame)
    value: Value
    if tag.stream == "meta":
        value = session_records.read_meta(tag.session, frame)
        size = _ROW_BYTES * (1 + (len(value.layers) if isinstance(value, LayerTable) else 0))
    elif tag.stream == "snapshots":
        value = snapshot_records.read_snapshot(frame)
        size = _ROW_BYTES * (1 + len(value.ledger) + len(value.saved_for_backward))
    elif tag.stream == "maps":
        value = memory_map_records.read_map(frame)
        size = _map_bytes(value)
    elif tag.stream == "timelines":
        value = timeline_records.read_timeline(frame)
        size = timeline_bytes(value)
    elif tag.stream == "requests":
        value = request_records.read_requests(frame)
        size = requests_bytes(value)
    elif tag.stream == "oom":
        value = oom_records.read_oom(frame)
        size = _ROW_BYTES * (1 + len(value.ledger)) + (0 if value.map is None else _map_bytes(value.map))
    elif tag.stream == "counters":
        value = counter_records.read_counters(frame)
        size = counters_bytes(value)
    elif tag.stream == "host":
        value = host_records.read_host(frame)
        _check_steps(frame, value)
        size = host_bytes(value)
    elif tag.stream == "activations":
        value = activation_records.read_activations(frame)
        _check_steps(frame, value)
        size = _activations_bytes(len(value), len(value.layers))
    else:
        value = sample_records.read_samples(frame)
        _check_steps(frame, value)
        size = len(value) * 8 * (5 + 8 * len(value.devices))
    return Piece(frame.sequence, frame.first_step, frame.last_step, value, size)


def _activations_bytes(rows: int, layers: int) -> int:
    return 8 * rows * layers + 16 * rows + 100 * layers


def _map_bytes(memory_map: MemoryMap) -> int:
    return 8 * 8 * len(memory_map) + _ROW_BYTES * (1 + len(memory_map.owners))


def host_bytes(host: HostSamples) -> int:
    """Bytes of the parts of host memory in memory."""
    return 8 * len(HOST_COLUMNS) * len(host)


def timeline_bytes(timeline: Timeline) -> int:
    """Estimated bytes of a timeline in memory."""
    columns = 8 * (10 * len(timeline) + 2 * len(timeline.time_ns))
    return columns + _ROW_BYTES * (1 + len(timeline.owners)) + _TEXT_BYTES * _texts_of(timeline)


def _texts_of(timeline: Timeline) -> int:
    """Number of op names and lines, counting a shape as two: a tuple and the name of a dtype."""
    return len(timeline.ops) + len(timeline.lines) + 2 * len(timeline.shapes)


def counters_bytes(counters: Counters) -> int:
    """Estimated bytes of counters in memory."""
    return 8 * 8 * len(counters) + _TEXT_BYTES * len({*counters.name, *counters.detail})


def requests_bytes(requests: StepRequests) -> int:
    """Estimated bytes of a step's requests in memory."""
    return 8 * 8 * len(requests) + _ROW_BYTES * (1 + len(requests.owners)) + _TEXT_BYTES * len(requests.ops)


def _check_steps(frame: Frame, value: Samples | LayerActivations | HostSamples) -> None:
    # The steps of the header name the missing ones when a neighboring frame is lost, so they must be right.
    if not len(value) or int(value.step.min()) != frame.first_step or int(value.step.max()) != frame.last_step:
        raise FormatError(f"frame of steps {frame.first_step} to {frame.last_step} does not hold these steps")
