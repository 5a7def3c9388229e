"""Frames of a tag to checked records, or sentences on damage."""

import contextlib
import dataclasses
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tb_memplugin.errors import FormatError, NewerFormatError
from tb_memplugin.schema import MAX_STEP, Samples, SessionInfo
from tb_memplugin.storage.activations import ActivationHead, ActivationPart, part_of
from tb_memplugin.storage.files import ByteBudget, StoredFrame, TagContent
from tb_memplugin.storage.frames import (
    EVENTS_PER_TAG,
    STREAMS,
    Frame,
    FrameHead,
    OpenFrame,
    Tag,
    codec,
    object_bytes,
    read_frame,
)
from tb_memplugin.storage.samples import counted_bytes
from tb_memplugin.storage.streams import META, OF_TAG, ROLLUPS, Stream

MAX_TOGETHER_BYTES = 128 << 10
"""Larger bodies are decoded one by one."""
PLACE_BYTES = 200
"""Estimated size of a frame's place."""
RECORD_BYTES = 400
"""A record without its columns and rows: an estimate, above rather than below."""


class Place(NamedTuple):
    """A frame in its stream and session: its sequence number, from 0, and the steps that it
    states."""

    sequence: int
    first_step: int
    last_step: int


@dataclasses.dataclass(frozen=True)
class Piece:
    """What a frame holds, or of samples the rows of several that were decoded together; its bytes
    in memory, without places."""

    places: tuple[Place, ...]
    value: Any
    size: int


@dataclasses.dataclass(frozen=True)
class DecodedTag:
    """What the frames of one tag hold. `damage` are sentences on frames that could not be read or
    did not fit, `newer` is one on the first frame of a newer format."""

    pieces: tuple[Piece, ...]
    damage: tuple[str, ...]
    newer: str | None


Alike: TypeAlias = list[tuple[StoredFrame, OpenFrame]]
"""Frames that can be decoded together, or a single one."""


def decode_tag(
    tag: Tag,
    content: TagContent,
    room: ByteBudget,
    stream: Stream | None = None,
    known: Container[int] = (),
) -> DecodedTag:
    """Decode and validate the frames of one tag that fit into `room`, each sequence number once and
    none of the `known`. Never raises for damaged bytes."""
    stream = stream or OF_TAG[tag.stream]
    report = _Report(content)
    pieces: list[Piece] = []
    for alike in _alike(stream, content, report, room, known):
        pieces += _decode_alike(tag, stream, alike, report, room)
    left_out = len(content.frames) - sum(len(one.places) for one in pieces) - report.frames
    if left_out:
        report.damage.append(
            f"{report.place}: {left_out} frames are not shown: the run exceeds the limit of its "
            "size"
        )
    return DecodedTag(tuple(pieces), tuple(report.damage), report.newer)


class _Report:
    """Sentences on the frames of a tag that cannot be read; the number of these and of repeated
    ones."""

    def __init__(self, content: TagContent) -> None:
        self.place = f"run {content.event_run}, tag {content.tag}"
        self.damage = [f"{self.place}: {sentence}" for sentence in content.damage]
        self.newer: str | None = None
        self.frames = 0

    @contextmanager
    def of(self, stored: StoredFrame) -> Iterator[None]:
        try:
            yield
            return
        except NewerFormatError as error:
            self.newer = self.newer or f"{self.place}: {error}"
        except (FormatError, MemoryError) as error:
            is_damaged = isinstance(error, FormatError)
            why = error if is_damaged else "there is not enough memory to read it"
            self.damage.append(f"{self.place}, event of step {stored.step}: {why}")
        self.frames += 1


def _alike(
    stream: Stream, content: TagContent, report: _Report, room: ByteBudget, known: Container[int]
) -> Iterator[Alike]:
    """The frames of a tag until there is no more room; neighboring samples with equal heads
    together, to save time."""
    most = EVENTS_PER_TAG if stream.record is Samples else 1
    seen: set[int] = set()
    alike: Alike = []
    for stored in content.frames:
        opened = None
        with report.of(stored):
            opened = OpenFrame(stored.data, head_only=stream.heads_only)
        if opened is None:
            continue
        if opened.sequence in seen or opened.sequence in known:
            report.frames += 1
            continue
        seen.add(opened.sequence)
        if alike and not (
            len(alike) < most
            and alike[0][1].body_bytes == opened.body_bytes <= MAX_TOGETHER_BYTES
            and alike[0][1].text == opened.text
        ):
            yield alike
            alike = []
            if room.is_full:
                return
        alike.append((stored, opened))
    if alike:
        yield alike


def _decode_alike(
    tag: Tag, stream: Stream, alike: Alike, report: _Report, room: ByteBudget
) -> Iterator[Piece]:
    if len(alike) > 1:
        # On failure, decode one by one to name the bad frame.
        with contextlib.suppress(FormatError, MemoryError):
            together = _decode(tag, stream, [frame for _, frame in alike], room)
            if together is not None:
                yield together
                return
    for stored, frame in alike:
        with report.of(stored):
            one = _decode(tag, stream, [frame if len(alike) == 1 else OpenFrame(stored.data)], room)
            if one is None:
                room.is_full = True
                return
            yield one


def _decode(
    tag: Tag, stream: Stream, frames: Sequence[OpenFrame], room: ByteBudget
) -> Piece | None:
    """The content of frames with equal heads; None if it does not fit into `room`. What their head
    states must fit before any of it is read."""
    head = frames[0].head()
    if head.stream >= len(STREAMS) or STREAMS[head.stream] != tag.stream:
        raise FormatError(f"frame of stream {head.stream} does not belong under this tag")
    places = tuple(Place(one.sequence, one.first_step, one.last_step) for one in frames)
    for place in places:
        if not 0 <= place.first_step <= place.last_step <= MAX_STEP:
            steps = f"{place.first_step} to {place.last_step}"
            raise FormatError(f"frame of steps {steps}; steps are 0 to {MAX_STEP}")
    stated = 0 if stream.heads_only else len(frames) * _stated_bytes(stream, head)
    if not room.fits(stated):
        return None
    if stream.heads_only:
        value: Any = ActivationHead.of(head)
    else:
        value = _read(stream, tag.session, codec.decode_columns(head, frames, stream.needs_column))
    size = stated
    if isinstance(value, Samples):
        _check_steps(places, value)
        size = counted_bytes(value)
    elif isinstance(value, (ActivationHead, ActivationPart)):
        if isinstance(value, ActivationPart):
            _check_steps(places, value)
            size = value.nbytes
        size += 0 if value.layers in room.layers else 100 * len(value.layers)
        shared = room.layers.setdefault(value.layers, value.layers)
        value = dataclasses.replace(value, layers=shared)
    fits = room.reserve(size + PLACE_BYTES * len(places))
    return Piece(places, value, size) if fits else None


def _stated_bytes(stream: Stream, head: FrameHead) -> int:
    """Most bytes that a frame takes in memory once it is read, as its head states them."""
    rows = {table: columns[0][2] for table, columns in head.tables.items() if columns}
    objects = {} if stream.has_steps else object_bytes(stream.record)
    of_rows = sum(size * rows.get(table, 0) for table, size in objects.items())
    return RECORD_BYTES + head.nbytes + of_rows


def _read(stream: Stream, session: str, frame: Frame) -> Any:
    if stream is META and frame.attributes.get("kind") != "layers":
        return read_frame(SessionInfo, frame, session=session)
    if stream is ROLLUPS:
        return read_frame(stream.record, frame, worker="", sessions=1)
    record = read_frame(stream.record, frame, stream.only)
    return part_of(record) if stream.has_steps and stream.record is not Samples else record


def _check_steps(places: Sequence[Place], table: Samples | ActivationPart) -> None:
    """The steps that frames state name the missing ones when a neighboring frame is lost, so they
    must be right."""
    for place, steps in zip(places, np.split(table.step, len(places)), strict=True):
        stated = place.first_step, place.last_step
        if not len(steps) or (int(steps.min()), int(steps.max())) != stated:
            raise FormatError(
                f"frame of steps {stated[0]} to {stated[1]} does not hold these steps"
            )
