"""Frames of tags to checked records, or sentences on damage; the limits of one run, and the
thinning near them."""

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.errors import FormatError, NewerFormatError
from tb_memplugin.schema import MAX_STEP, NO_SAMPLES, Samples, take_rows
from tb_memplugin.storage.activations import ActivationHead, ActivationPart
from tb_memplugin.storage.files import (
    MAX_RUN_BYTES,
    MAX_RUN_ROWS,
    ByteBudget,
    Entry,
    StoredFrame,
    TagContent,
)
from tb_memplugin.storage.frames import EVENTS_PER_TAG, STREAMS, FrameHead, OpenFrame, Tag, codec
from tb_memplugin.storage.samples import (
    SamplesPart,
    join_samples,
    rows_not_in,
    samples_bytes,
    tables_of,
    thinned,
)
from tb_memplugin.storage.streams import ACTIVATIONS, OF_TAG, PEAK, SAMPLES, Stream

MAX_SAMPLE_BYTES = 64 << 20
"""Limit of what the samples of one run take in memory, within `MAX_RUN_BYTES`."""
FULL_SHARE = 3 / 4
"""Share of this and `MAX_RUN_ROWS` from which samples are thinned; the rest holds a recorder's tag,
32,768 rows."""
MAX_ACTIVATION_BYTES = 128 << 20
"""Limit of what the activations of one run take in memory."""
MAX_ACTIVATION_VALUES = 32 << 20
"""Limit of the values of the activations of one run, rows × layers."""
MAX_TOGETHER_BYTES = 128 << 10
"""Larger bodies are decoded one by one."""
PIECE_BYTES = 200
"""Estimated size of a piece without its content."""
GROUP_TAGS = 64
"""Tags that are decoded together before their sessions are joined and their frames dropped."""
LARGE_BYTES = 32 << 20
"""Runs whose decoded frames take more are read one after the other."""
HALVED = 0.8
"""Most rows that halving samples may leave; where it leaves more, each is a peak."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """The content of one frame, None once it has been joined to others; bytes in memory, and rows
    or values in it."""

    sequence: int
    first_step: int
    last_step: int
    value: Any
    size: int
    rows: int = 0


@dataclasses.dataclass(frozen=True)
class DecodedTag:
    """The frames of one tag, in order of their sequence numbers; `complete` if none was left out
    for the limit.

    `damage` are sentences on frames that could not be read, `newer` is one on the first frame of a
    newer format."""

    pieces: tuple[Piece, ...]
    damage: tuple[str, ...]
    newer: str | None
    size: int
    rows: int = 0
    complete: bool = True

    def holding(self, pieces: Sequence[Piece]) -> "DecodedTag":
        size, rows = 200 + sum(piece.size for piece in pieces), sum(piece.rows for piece in pieces)
        return dataclasses.replace(self, pieces=tuple(pieces), size=size, rows=rows)


def decode_tag(
    tag: Tag, content: TagContent, room: ByteBudget, stream: Stream | None = None
) -> DecodedTag:
    """Decode and validate the frames of one tag that fit into `room`. Never raises for damaged
    bytes."""
    stream = stream or OF_TAG[tag.stream]
    report = _Report(content)
    pieces: list[Piece] = []
    for frames in _alike(stream, content, report, room):
        together: list[Piece] | None = None
        if len(frames) > 1:
            # On failure, decode one by one to name the bad frame.
            with contextlib.suppress(FormatError, MemoryError):
                together = _decode(tag, stream, [frame for _, frame in frames], room)
        if together is not None:
            pieces += together
            continue
        for stored, frame in frames:
            with report.of(stored):
                found = _decode(
                    tag, stream, [frame if len(frames) == 1 else OpenFrame(stored.data)], room
                )
                if found is None:
                    room.is_full = True
                    break
                pieces += found
    left_out = len(content.frames) - len(pieces) - report.frames
    if left_out:
        report.damage.append(
            f"{report.place}: {left_out} frames are not shown: the run exceeds the limit of its "
            "size"
        )
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
            why = (
                error
                if isinstance(error, FormatError)
                else ("there is not enough memory to read it")
            )
            self.damage.append(f"{self.place}, event of step {stored.step}: {why}")
        self.frames += 1


def _alike(
    stream: Stream, content: TagContent, report: _Report, room: ByteBudget
) -> Iterator[list[tuple[StoredFrame, OpenFrame]]]:
    """The frames of a tag until there is no more room; neighboring samples with equal heads
    together, to save time."""
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
        raise FormatError(
            f"frame of steps {frame.first_step} to {frame.last_step}; steps are 0 to {MAX_STEP}"
        )


def _decode(
    tag: Tag, stream: Stream, frames: Sequence[OpenFrame], room: ByteBudget
) -> list[Piece] | None:
    """The content of frames with equal heads; None if what the head states does not fit into
    `room`."""
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
        size, rows = (
            (value.nbytes, len(value)) if isinstance(value, ActivationPart) else (0, head.rows)
        )
        rows *= len(value.layers)
        size += 0 if value.layers in room.layers else 100 * len(value.layers)
        value = dataclasses.replace(
            value, layers=room.layers.setdefault(value.layers, value.layers)
        )
    elif stream.field == SAMPLES.field:
        size, rows = samples_bytes(value) // len(frames), len(value) // len(frames)
    pieces = []
    for at, frame in enumerate(frames):
        _check_steps(frame)
        part = SamplesPart(value, at, len(frames)) if stream.field == SAMPLES.field else value
        if stream.has_steps and not stream.heads_only:
            # They name the missing ones when a neighboring frame is lost, so they must be right.
            steps = value.step[part.rows] if isinstance(part, SamplesPart) else value.step
            if (
                not len(steps)
                or int(steps.min()) != frame.first_step
                or int(steps.max()) != frame.last_step
            ):
                raise FormatError(
                    f"frame of steps {frame.first_step} to {frame.last_step} does not hold these "
                    "steps"
                )
        pieces.append(
            Piece(frame.sequence, frame.first_step, frame.last_step, part, size + PIECE_BYTES, rows)
        )
    total = sum(piece.size for piece in pieces), sum(piece.rows for piece in pieces)
    if not room.fits(*total):
        return None
    room.reserve(*total)
    return pieces


Key: TypeAlias = tuple[str, Tag]
"""Event run and tag."""
Pieces: TypeAlias = Mapping[Stream, Sequence[Piece]]
"""The frames of a session by stream, in order."""


def groups(wanted: Sequence[Entry]) -> Iterator[list[Entry]]:
    """The entries in groups of some `GROUP_TAGS`; those of a session stay together."""
    by_session: dict[tuple[str, str], list[Entry]] = {}
    for entry in wanted:
        by_session.setdefault((entry[0], entry[2].session), []).append(entry)
    group: list[Entry] = []
    for entries in by_session.values():
        group += entries
        if len(group) >= GROUP_TAGS:
            yield group
            group = []
    if group:
        yield group


@dataclasses.dataclass(frozen=True)
class ReadSession:
    """A session as it was read: frames by stream, those of samples without their content, and the
    joined samples."""

    worker: str
    session: str
    pieces: Pieces = dataclasses.field(default_factory=dict)
    samples: Samples = NO_SAMPLES
    sentences: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ReadStreams:
    """Some streams of a run as they were read: sentences as in `DecodedTag`, bytes in memory, and
    rows of samples."""

    sessions: tuple[ReadSession, ...] = ()
    damage: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    size: int = 0
    rows: int = 0
    thinning: int = 1

    def nbytes(self, merged: Collection[Samples]) -> int:
        """Bytes in memory, with merged samples, which may be those of the sessions."""
        tables = [*(one.samples for one in self.sessions), *merged]
        pieces = sum(
            piece.size for one in self.sessions for of in one.pieces.values() for piece in of
        )
        return pieces + sum(
            map(samples_bytes, {id(table.step): table for table in tables}.values())
        )


class Reading(ExitStack):
    """What reading one run has taken so far. Activations have limits of their own, so that they
    displace nothing else.

    Attributes:
        contents: The decoded tags of the current group.
        damage: Sentences of `DecodedTag` so far.
        left_out: Tags without room.
        is_alone: Whether no other large run is read meanwhile.
        others: What all but the activations may still take."""

    def __init__(self, known: ReadStreams = ReadStreams()) -> None:
        super().__init__()
        self.contents: dict[Key, DecodedTag] = {}
        self.left_out, self.is_alone = 0, False
        self.others = ByteBudget(MAX_RUN_BYTES, MAX_RUN_ROWS)
        self.others.reserve(known.size, known.rows)
        self._activations = ByteBudget(MAX_ACTIVATION_BYTES, MAX_ACTIVATION_VALUES)
        self._sessions = {(one.worker, one.session): one for one in known.sessions}
        self.damage, self._newer, self._thinning = [*known.damage], [*known.newer], known.thinning
        # rows that were decoded, also those that were left out again
        self._recorded = self._halvings = 0
        self._sample_bytes = 0
        self._can_halve = True
        self._whole: set[Key] = set()  # samples that were not thinned yet

    def over_limit(self) -> list[str]:
        sentence = f"{self.left_out} tags are not shown: the run exceeds the limits of its size"
        return [sentence] if self.left_out else []

    def result(self) -> ReadStreams:
        shown = sum(len(one.samples) for one in self._sessions.values())
        thinning = (
            max(2, round(self._recorded / max(1, shown))) if self._halvings else self._thinning
        )
        damage = (*self.damage, *self.over_limit())
        return ReadStreams(
            tuple(self._sessions.values()), damage, tuple(self._newer), *self._taken(), thinning
        )

    def room_of(self, tag: Tag) -> ByteBudget:
        return self._activations if tag.stream == ACTIVATIONS.tag else self.others

    def _taken(self) -> tuple[int, int]:
        return MAX_RUN_BYTES - self.others.bytes, MAX_RUN_ROWS - self.others.rows

    def is_large(self) -> bool:
        return MAX_ACTIVATION_BYTES - self._activations.bytes + self._taken()[0] > LARGE_BYTES

    def add(self, run: str, tag: Tag, decoded: DecodedTag) -> None:
        """Add a decoded tag. If there are too many samples now, thin them all, also the joined
        ones."""
        self.contents[run, tag] = decoded
        self.damage += decoded.damage
        self._newer += [decoded.newer] if decoded.newer else []
        if not _has_samples(tag):
            return
        self._sample_bytes += decoded.size
        self._recorded += decoded.rows
        if decoded.rows:
            self._whole.add((run, tag))
        if not self._samples_are_full():
            return
        self.thin_whole()
        while self._samples_are_full():
            before = self._samples_taken()
            _thin(self.contents)
            for key, one in self._sessions.items():
                self._sessions[key] = dataclasses.replace(one, samples=thinned(one.samples))
            after = self._samples_taken()
            self._give(before, after)
            self._can_halve = after[1] < HALVED * before[1]
            self._halvings += self._can_halve

    def thin_whole(self) -> None:
        """Thin the new samples as often as the older ones."""
        if self._halvings and self._whole:
            whole = {key: self.contents[key] for key in self._whole}
            before = _taken(whole)
            _thin(whole, self._halvings)
            self.contents |= whole
            self._give(before, _taken(whole))
        self._whole.clear()

    def join(self, key: tuple[str, str], pieces: Pieces) -> None:
        """Add more frames of a session, (worker, session). Frames of samples are dropped once they
        are joined."""
        known, frames = self._sessions.get(key, ReadSession(*key)), dict(pieces)
        joined = pieces.keys() & {SAMPLES, PEAK}
        if joined:
            samples, sentences = join_with_peaks(pieces)
            known = dataclasses.replace(known, samples=samples, sentences=sentences)
            for stream in joined:
                frames[stream] = [
                    dataclasses.replace(piece, value=None, size=PIECE_BYTES)
                    for piece in pieces[stream]
                ]
            let_go = sum(piece.size - PIECE_BYTES for stream in joined for piece in pieces[stream])
            freed = let_go - min(let_go, samples_bytes(samples))
            self.others.bytes += 0 if self.others.is_full else freed
            self._sample_bytes -= freed
        self._sessions[key] = dataclasses.replace(known, pieces={**known.pieces, **frames})

    def _samples_are_full(self) -> bool:
        near = (
            self._sample_bytes > FULL_SHARE * MAX_SAMPLE_BYTES
            or self._taken()[1] > FULL_SHARE * MAX_RUN_ROWS
        )
        return self._can_halve and near

    def _samples_taken(self) -> tuple[int, int]:
        (size, rows), joined = (
            _taken(self.contents),
            [one.samples for one in self._sessions.values()],
        )
        return size + sum(map(samples_bytes, joined)), rows + sum(map(len, joined))

    def _give(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        self.others.bytes += before[0] - after[0]
        self.others.rows += before[1] - after[1]
        self._sample_bytes -= before[0] - after[0]


def _has_samples(tag: Tag) -> bool:
    return OF_TAG[tag.stream].field == SAMPLES.field


def _taken(contents: dict[Key, DecodedTag]) -> tuple[int, int]:
    tags = [content for (_, tag), content in contents.items() if _has_samples(tag)]
    return sum(content.size for content in tags), sum(content.rows for content in tags)


def _thin(contents: dict[Key, DecodedTag], halvings: int = 1) -> None:
    """Thin the samples among the contents, those of each stream of a session together."""
    by_session: dict[tuple[str, str, str], list[Key]] = {}
    for run, tag in contents:
        if _has_samples(tag):
            by_session.setdefault((run, tag.session, tag.stream), []).append((run, tag))
    for keys in by_session.values():
        pieces = sorted(
            (piece for key in keys for piece in contents[key].pieces),
            key=lambda piece: piece.sequence,
        )
        table, _ = join_samples(tables_of([piece.value for piece in pieces]))
        table = thinned(table, halvings) if len(table) else table
        size = samples_bytes(table) if len(table) else 0
        empty: dict[str, Any] = {
            "value": SamplesPart(NO_SAMPLES, 0, 1),
            "size": PIECE_BYTES,
            "rows": 0,
        }
        full: dict[str, Any] = {
            "value": SamplesPart(table, 0, 1),
            "size": PIECE_BYTES + size,
            "rows": len(table),
        }
        for key in keys:
            own = contents[key].pieces
            contents[key] = contents[key].holding(
                [
                    dataclasses.replace(piece, **(full if piece is pieces[0] else empty))
                    for piece in own
                ]
            )


def join_with_peaks(streams: Pieces) -> tuple[Samples, tuple[str, ...]]:
    """The joined samples, and sentences on those left out. A peak replaces its sample if that was
    lost."""
    (joined, sentence), (highest, _) = (
        join_samples(tables_of([piece.value for piece in streams.get(stream, ())]))
        for stream in (SAMPLES, PEAK)
    )
    sentences = [sentence]
    only_peaks = rows_not_in(highest, joined) if len(highest) else np.zeros(0, bool)
    if only_peaks.any():
        joined, sentence = join_samples([joined, take_rows(highest, only_peaks)])
        sentences.append(sentence)
        joined = take_rows(joined, np.argsort(joined.wall_time, kind="stable"))
    return joined, tuple(text for text in sentences if text)
