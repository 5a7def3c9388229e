"""Frames of one tag to validated model objects; frames that cannot be read become sentences on damage."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tb_memplugin.errors import FormatError, NewerFormatError
from tb_memplugin.schema import MAX_STEP
from tb_memplugin.storage.files import Room, StoredFrame, TagContent
from tb_memplugin.storage.frames import EVENTS_PER_TAG, STREAMS, FrameHead, OpenFrame, Tag, codec
from tb_memplugin.storage.read.activations import ActivationHead, ActivationPart
from tb_memplugin.storage.read.samples import SamplesPart, samples_bytes
from tb_memplugin.storage.read.streams import OF_TAG, SAMPLES, Stream

MAX_TOGETHER_BYTES = 128 << 10
"""Larger bodies are decoded one by one."""
PIECE_BYTES = 200
"""Estimated size of a piece without its content."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """The content of one frame.

    Attributes:
        value: Decoded content; None once it has been joined to others.
        size: Bytes in memory.
        rows: Rows of samples, or values of activations.
    """

    sequence: int
    first_step: int
    last_step: int
    value: Any
    size: int
    rows: int = 0


@dataclasses.dataclass(frozen=True)
class DecodedTag:
    """The content of one tag.

    Attributes:
        pieces: Its frames, in order of their sequence numbers.
        damage: Sentences on frames that could not be read.
        newer: Sentence on the first frame of a newer format, None without any.
        size, rows: Of all pieces together.
        complete: Whether all frames were decoded, instead of only those within the limit.
    """

    pieces: tuple[Piece, ...]
    damage: tuple[str, ...]
    newer: str | None
    size: int
    rows: int = 0
    complete: bool = True

    def holding(self, pieces: Sequence[Piece]) -> "DecodedTag":
        size, rows = 200 + sum(piece.size for piece in pieces), sum(piece.rows for piece in pieces)
        return dataclasses.replace(self, pieces=tuple(pieces), size=size, rows=rows)


def decode_tag(tag: Tag, content: TagContent, room: Room, stream: Stream | None = None) -> DecodedTag:
    """Decode and validate one tag, as far as its frames fit into `room`. Never raises for damaged bytes.

    `stream` says how its frames are read, if not as usual.
    """
    stream = stream or OF_TAG[tag.stream]
    report = _Report(content)
    pieces: list[Piece] = []
    for frames in _alike(stream, content, report, room):
        together: list[Piece] | None = None
        if len(frames) > 1:
            # What one of them costs is said of it alone.
            with contextlib.suppress(FormatError, MemoryError):
                together = _decode(tag, stream, [frame for _, frame in frames], room)
        if together is not None:
            pieces += together
            continue
        for stored, frame in frames:
            with report.of(stored):
                found = _decode(tag, stream, [frame if len(frames) == 1 else OpenFrame(stored.data)], room)
                if found is None:
                    room.is_full = True
                    break
                pieces += found
    left_out = len(content.frames) - len(pieces) - report.frames
    if left_out:
        report.damage.append(f"{report.place}: {left_out} frames are not shown: the run exceeds the limit of its size")
    decoded = DecodedTag((), tuple(report.damage), report.newer, 0, complete=not left_out)
    return decoded.holding(sorted(pieces, key=lambda piece: piece.sequence))


class _Report:
    """Sentences on the frames of a tag that cannot be read, and their number."""

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
            why = error if isinstance(error, FormatError) else "there is not enough memory to read it"
            self.damage.append(f"{self.place}, event of step {stored.step}: {why}")
        self.frames += 1


def _alike(
    stream: Stream, content: TagContent, report: _Report, room: Room
) -> Iterator[list[tuple[StoredFrame, OpenFrame]]]:
    """The frames of a tag until there is no more room. Neighboring samples with equal heads come together.

    Decoded together they take a fraction of the time.
    """
    frames: list[tuple[StoredFrame, OpenFrame]] = []
    for stored in content.frames:
        opened = None
        with report.of(stored):
            opened = OpenFrame(stored.data, head_only=stream.heads_only)
        if opened is None:
            continue
        is_alike = stream.field == SAMPLES.field and len(frames) < EVENTS_PER_TAG
        if frames and not (
            is_alike
            and frames[0][1].body_bytes == opened.body_bytes <= MAX_TOGETHER_BYTES
            and frames[0][1].text == opened.text
        ):
            yield frames
            frames = []
            if room.is_full:
                return
        frames.append((stored, opened))
    if frames:
        yield frames


def _check_steps(frame: FrameHead | OpenFrame) -> None:
    if not 0 <= frame.first_step <= frame.last_step <= MAX_STEP:
        raise FormatError(f"frame of steps {frame.first_step} to {frame.last_step}; steps are 0 to {MAX_STEP}")


def _decode(tag: Tag, stream: Stream, frames: Sequence[OpenFrame], room: Room) -> list[Piece] | None:
    """The content of frames with equal heads; None if what the head states does not fit into `room`."""
    head = frames[0].head()
    if head.stream >= len(STREAMS) or STREAMS[head.stream] != tag.stream:
        raise FormatError(f"frame of stream {head.stream} does not belong under this tag")
    _check_steps(head)
    most = 0 if stream.heads_only else len(frames) * stream.head_bytes(head)
    if room.is_full or most > room.bytes:
        return None
    value: Any = ActivationHead.of(head)
    if not stream.heads_only:
        value = stream.read(tag.session, codec.decode_columns(head, frames, stream.is_needed))
    size, rows = most, 0
    if isinstance(value, (ActivationHead, ActivationPart)):
        size, rows = (value.nbytes, len(value)) if isinstance(value, ActivationPart) else (0, head.rows)
        rows *= len(value.layers)
        size += 0 if value.layers in room.layers else 100 * len(value.layers)
        value = dataclasses.replace(value, layers=room.layers.setdefault(value.layers, value.layers))
    elif stream.field == SAMPLES.field:
        size, rows = samples_bytes(value) // len(frames), len(value) // len(frames)
    pieces = []
    for at, frame in enumerate(frames):
        _check_steps(frame)
        part = SamplesPart(value, at, len(frames)) if stream.field == SAMPLES.field else value
        if stream.has_steps and not stream.heads_only:
            # They name the missing ones when a neighboring frame is lost, so they must be right.
            steps = value.step[part.rows] if isinstance(part, SamplesPart) else value.step
            if not len(steps) or int(steps.min()) != frame.first_step or int(steps.max()) != frame.last_step:
                raise FormatError(f"frame of steps {frame.first_step} to {frame.last_step} does not hold these steps")
        pieces.append(Piece(frame.sequence, frame.first_step, frame.last_step, part, size + PIECE_BYTES, rows))
    total = sum(piece.size for piece in pieces), sum(piece.rows for piece in pieces)
    if not room.fits(*total):
        return None
    room.take(*total)
    return pieces
