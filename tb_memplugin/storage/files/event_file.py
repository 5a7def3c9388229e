"""This plugin's frames in one event file: their places, found incrementally, and the newest, found
from its end."""

import dataclasses
import re
import time

from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2, tensor_pb2

from tb_memplugin.storage.files import file_systems as files
from tb_memplugin.storage.files.source import DAMAGED_ROLLUP, NO_ROLLUP, RECORDED, StoredFrame
from tb_memplugin.storage.frames import codec, masked_crc32c, run_name, tfrecord
from tb_memplugin.storage.write import recordings
from tb_memplugin.version import PLUGIN_NAME

MAX_SENTENCES = 20
"""Sentences on damage of one file; further damage is counted."""
_QUIET_SECONDS = 10
"""A file that was written this recently may end inside a record that is being written."""
_SEARCH_BYTES = 4 << 20
_OUR_MARKS = (PLUGIN_NAME.encode(), codec.MAGIC)
"""Each record of this plugin contains both; a damaged one usually still contains one."""
_ANCHOR_BYTES = 16


@dataclasses.dataclass(frozen=True)
class Place:
    path: str
    offset: int
    size: int
    value: int
    """Index of the event's summary value."""
    step: int


class EventFile:
    """The index of one event file: the places of a tag's frames, in order, up to the end of the
    last scan."""

    def __init__(self, run: str, path: str) -> None:
        self.path = path
        self.places: dict[str, list[Place]] = {}
        self.generation = 0  # how often the file was replaced
        self.error: str | None = None  # of the last scan
        self.remaining = 0  # bytes that the last scan left for the next one
        self._run = run
        self._name = files.printable(path.replace("\\", "/").rsplit("/", 1)[-1])
        # Only this plugin writes such files: bytes without any trace of it are damage, too.
        self._is_recorders = run_name(run)[0] != run
        self._state: files.FileState | None = None
        self._reset()

    def scan(self, deadline: float, state: files.FileState | None = None) -> bool:
        """Index what was appended since the last scan, up to the `time.monotonic` of `deadline`;
        True if that changed anything. Asks for the file's state if none is given."""
        try:
            state = state or files.state(self.path)
            if state == self._state and not self.remaining and self.error is None:
                return False
            if self._is_other_file(state):
                self._reset()
                self.generation += 1
            self._state = state
            self._scan_to(state.length, deadline)
            self.error = None
        except Exception as error:  # each file system raises its own
            self.error = files.reason(error, self.path)
        return True

    def damage(self, live: bool) -> tuple[str, ...]:
        """Sentences on bytes that cannot be read. If `live`, the end of a file written a moment ago
        is no damage."""
        sentences = list(self._damage)
        if self._more_damage:
            sentences.append(
                f"run {self._run}: {self._more_damage} more damaged ranges in {self._name}"
            )
        if self._tail is not None and not self._is_being_written(live):
            sentences.append(self._tail)
        if self.remaining and self.is_ours:
            length = self._state.length if self._state else 0
            sentences.append(
                f"run {self._run}: {self._name} is still being read: {self.remaining} of "
                f"{length} bytes remain"
            )
        if self.unread is not None:
            sentences.append(self.unread)
        return tuple(sentences)

    @property
    def unread(self) -> str | None:
        """A sentence on why the last scan could not read the file; None if it could."""
        return (
            None
            if self.error is None
            else (f"run {self._run}: {self._name} cannot be read: {self.error}")
        )

    @property
    def is_ours(self) -> bool:
        return self._is_recorders or self._is_marked

    def _reset(self) -> None:
        self.places = {}
        self._damage: list[str] = []
        self._more_damage = 0
        self._tail: str | None = None
        self._scanned = 0
        self._anchor = b""
        self._is_marked = False
        self._without_marks = 0
        """End of the bytes from `_scanned` on that hold no mark of this plugin."""

    def _is_other_file(self, state: files.FileState) -> bool:
        old = self._state
        if old is None:
            return False
        if state.length < old.length or state.identity != old.identity:
            return True
        if state.length == old.length and state.modified != old.modified:
            return True
        size = len(self._anchor)
        return (
            self._anchor != files.reader(self.path)(self._scanned - size, size) if size else False
        )

    def _scan_to(self, length: int, deadline: float) -> None:
        read_at = files.reader(self.path)
        self._tail = None
        self.remaining = 0
        self._is_marked = (
            self._is_marked or self._is_recorders or self._has_marks(read_at, length, deadline)
        )
        if not self._is_marked:
            return
        for part in tfrecord.walk_records(read_at, self._scanned, length):
            if isinstance(part, tfrecord.Record):
                self._scanned = part.offset + len(part.data) + 4
                if _is_marked(part.data):
                    self._index(part)
            elif part.at_end:
                self._tail = (
                    f"run {self._run}: {self._name} ends inside a record at byte {part.offset} "
                    f"({part.size} bytes): the last record is lost or still being written"
                )
            else:
                self._scanned = part.offset + part.size
                self._add_damage(
                    f"{part.size} bytes of {self._name} at byte {part.offset} cannot be read: "
                    "the length of a record is damaged"
                )
            if time.monotonic() > deadline and self._tail is None:
                self.remaining = length - self._scanned
                break
        start = max(0, self._scanned - _ANCHOR_BYTES)
        self._anchor = read_at(start, self._scanned - start)

    def _has_marks(self, read_at: tfrecord.ReadAt, length: int, deadline: float) -> bool:
        """Whether unscanned bytes hold a mark; searching is much faster than walking the records of
        other plugins."""
        overlap = max(map(len, _OUR_MARKS)) - 1
        while self._without_marks < length:
            begin = max(0, self._without_marks - overlap)
            data = read_at(begin, min(_SEARCH_BYTES, length - begin))
            if _is_marked(data):
                return True
            if begin + len(data) <= self._without_marks:  # the file was truncated meanwhile
                break
            self._without_marks = begin + len(data)
            if time.monotonic() > deadline:
                self.remaining = length - self._without_marks
                break
        return False

    def _index(self, record: tfrecord.Record) -> None:
        if not record.is_intact():
            self._add_damage(
                f"the record at byte {record.offset} of {self._name} is damaged: wrong checksum"
            )
            return
        try:
            event = event_pb2.Event.FromString(record.data)
        except DecodeError:
            return  # intact, but not an event: not written by this plugin
        for index, value in enumerate(event.summary.value):
            if value.metadata.plugin_data.plugin_name != PLUGIN_NAME:
                continue
            if _holds_one_string(value.tensor):
                place = Place(self.path, record.offset, len(record.data), index, int(event.step))
                self.places.setdefault(value.tag, []).append(place)
            else:
                at = f"the event of step {event.step} at byte {record.offset} of {self._name}"
                self._add_damage(f"{at} does not hold one string")

    def _add_damage(self, sentence: str) -> None:
        if len(self._damage) < MAX_SENTENCES:
            self._damage.append(f"run {self._run}: {sentence}")
        else:
            self._more_damage += 1

    def _is_being_written(self, live: bool) -> bool:
        modified = None if self._state is None else self._state.modified
        quiet = modified is None or time.time() - modified / 1e9 >= _QUIET_SECONDS
        return recordings.is_live(self.path) or (live and not quiet)


def frame_of(record: bytes, value: int) -> tuple[str, StoredFrame] | None:
    try:
        event = event_pb2.Event.FromString(record)
    except DecodeError:
        return None
    values = event.summary.value
    if value >= len(values) or not _holds_one_string(values[value].tensor):
        return None
    return values[value].tag, StoredFrame(
        int(event.step), bytes(values[value].tensor.string_val[0])
    )


def _is_marked(data: bytes) -> bool:
    return any(mark in data for mark in _OUR_MARKS)


def _holds_one_string(tensor: tensor_pb2.TensorProto) -> bool:
    """Whether a tensor is one string. Others state shapes that TensorBoard would fill with copies
    of the string."""
    dimensions = tensor.tensor_shape.dim
    return len(tensor.string_val) == 1 and (
        not dimensions or all(dimension.size == 1 for dimension in dimensions)
    )


TAIL_BYTES = (64 << 10, 1 << 20)
"""Bytes at a file's end that are searched, the second only if the first hold no record of the
stream."""
_BEFORE_TAG = 64
"""Most bytes between the begin of a record and its tag."""
_HEADER_BYTES, _FOOTER_BYTES = 12, 4
_RECORDED = tuple(f"{stream}/".encode() for stream in RECORDED)


def read_tail(
    read_at: tfrecord.ReadAt, length: int, stream: str
) -> tuple[str, StoredFrame] | str | None:
    """The tag and frame of a stream's newest record in a file of `length` bytes, without one still
    being written.

    Or why there is none; None if nothing was recorded."""
    pattern = re.compile(stream.encode() + rb"/[0-9A-Za-z_-]{1,64}/[0-9]{1,9}")
    data = b""
    for size in TAIL_BYTES:
        begin = max(0, length - size)
        data = read_at(begin, length - begin)
        for match in reversed(list(pattern.finditer(data))):
            start = _record_before(data, match.start())
            if start is None:
                if begin and match.start() < _HEADER_BYTES + _BEFORE_TAG:
                    continue  # its begin lies before these bytes
                return DAMAGED_ROLLUP
            end = start + _HEADER_BYTES + int.from_bytes(data[start : start + 8], "little")
            if end + _FOOTER_BYTES > len(data):
                continue
            checksum = int.from_bytes(data[end : end + _FOOTER_BYTES], "little")
            record = tfrecord.Record(begin + start, data[start + _HEADER_BYTES : end], checksum)
            found = frame_of(record.data, 0) if record.is_intact() else None
            if found is None or not pattern.fullmatch(found[0].encode()):
                return DAMAGED_ROLLUP
            return found
        if not begin:
            break
    recorded = length > len(data) or any(mark in data for mark in _RECORDED)
    return NO_ROLLUP if recorded else None


def _record_before(data: bytes, tag_at: int) -> int | None:
    """Where the record begins whose tag lies at `tag_at`; None if its header is damaged."""
    for start in range(tag_at - _HEADER_BYTES, max(-1, tag_at - _HEADER_BYTES - _BEFORE_TAG), -1):
        # Records of this length have a header with six zero bytes, which leaves few candidates.
        if data[start + 2 : start + 8] == bytes(6) and masked_crc32c(
            data[start : start + 8]
        ) == int.from_bytes(data[start + 8 : start + _HEADER_BYTES], "little"):
            return start
    return None
