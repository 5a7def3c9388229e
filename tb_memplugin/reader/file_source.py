"""Frames from event files, without TensorBoard's server and without TensorFlow.

Files are opened through TensorBoard's file layer, which supports S3 and the file systems of fsspec.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence

from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2
from tensorboard.compat.tensorflow_stub.io import gfile

from tb_memplugin.errors import NotFoundError
from tb_memplugin.events import codec
from tb_memplugin.events.metadata import PLUGIN_NAME
from tb_memplugin.reader import tfrecord
from tb_memplugin.reader.source import Listing, SourceError, StoredFrame, TagContent

MAX_DEPTH = 32
"""Directories deeper than this below the log directory are not read."""
_READ_BYTES = 16 << 20
"""Most bytes of one read of neighboring records."""
_READ_GAP_BYTES = 64 << 10
"""Gaps between requested records up to this size are read, not skipped."""
_OUR_MARKS = (PLUGIN_NAME.encode(), codec.MAGIC)
"""Each record of this plugin contains both; a damaged one usually still contains one."""


@dataclasses.dataclass(frozen=True)
class _Place:
    """Location of one event's record."""

    path: str
    offset: int
    size: int
    value: int
    """Index of the event's summary value."""
    step: int


@dataclasses.dataclass
class _File:
    """The state of one event file; the next scan starts at `scanned`."""

    scanned: int = 0
    length: int = -1
    places: dict[str, list[_Place]] = dataclasses.field(default_factory=dict)
    damage: list[str] = dataclasses.field(default_factory=list)
    tail: str | None = None


class FileSource:
    """The frames in the event files under a directory.

    Args:
        logdir: Path or URL of the directory.

    Raises:
        NotFoundError: There is no such directory.
    """

    def __init__(self, logdir: str | os.PathLike[str]) -> None:
        self._logdir = os.fspath(logdir).rstrip("/") or "/"
        self._files: dict[str, dict[str, _File]] = {}
        self._unlisted: dict[str, list[str]] = {}
        try:
            is_directory = gfile.isdir(self._logdir)
        except Exception as error:  # each file system raises its own
            raise NotFoundError(f"the log directory {self._logdir} cannot be opened: {error}") from error
        if not is_directory:
            raise NotFoundError(f"no directory {self._logdir}; pass the log directory, as for tensorboard --logdir")

    def listing(self) -> Listing:
        """See `Source.listing`; a tag's mark is the number of its frames by file. Reads only appended bytes."""
        self._unlisted = {}
        present = self._event_files()
        self._files = {
            run: {path: self._files.get(run, {}).get(path) or _File() for path in paths}
            for run, paths in present.items()
        }
        for run, files in self._files.items():
            for path, file in files.items():
                self._scan(run, path, file)
        marks: dict[str, dict[str, tuple[tuple[str, int], ...]]] = {}
        for run, files in self._files.items():
            for path, file in files.items():
                for tag, places in file.places.items():
                    tags = marks.setdefault(run, {})
                    tags[tag] = (*tags.get(tag, ()), (path, len(places)))
        return marks

    def read(self, wanted: Mapping[str, Sequence[str]]) -> Iterator[TagContent]:
        """See `Source.read`."""
        for run, tags in wanted.items():
            files = self._files.get(run, {}).values()
            places = {tag: [place for file in files for place in file.places.get(tag, ())] for tag in tags}
            batch: dict[str, list[_Place]] = {}
            size = 0
            for tag, tag_places in places.items():
                batch[tag] = tag_places
                size += sum(place.size for place in tag_places)
                if size >= _READ_BYTES:
                    yield from self._read_batch(run, batch)
                    batch, size = {}, 0
            yield from self._read_batch(run, batch)

    def damage(self) -> Mapping[str, tuple[str, ...]]:
        """See `Source.damage`: unreadable records and files."""
        sentences = {run: list(texts) for run, texts in self._unlisted.items()}
        for run, files in self._files.items():
            for file in files.values():
                damage = [*file.damage, *([file.tail] if file.tail else [])]
                # Damage to files of other plugins is not reported.
                if damage and (file.places or file.damage or self._is_ours(run)):
                    sentences.setdefault(run, []).extend(damage)
        return {run: tuple(texts) for run, texts in sentences.items()}

    def _is_ours(self, run: str) -> bool:
        return any(file.places for file in self._files[run].values())

    def _event_files(self) -> dict[str, list[str]]:
        """TensorBoard's run name to its event files, sorted by name."""
        files: dict[str, list[str]] = {}
        pending: list[tuple[str, str, tuple[str, ...]]] = [(self._logdir, ".", ())]
        while pending:
            directory, run, ancestors = pending.pop()
            identity = directory if "://" in directory else os.path.realpath(directory)
            if identity in ancestors or len(ancestors) > MAX_DEPTH:
                continue  # a symbolic link to one of its parents
            try:
                names = sorted(gfile.listdir(directory))
            except Exception as error:  # each file system raises its own
                self._unlisted.setdefault(run, []).append(f"run {run}: the directory cannot be listed: {error}")
                continue
            for name in names:
                path = gfile.get_filesystem(directory).join(directory, name)
                if "tfevents" in name:
                    files.setdefault(run, []).append(path)
                elif _is_directory(path):
                    pending.append((path, name if run == "." else f"{run}/{name}", (*ancestors, identity)))
        return dict(sorted(files.items()))

    def _scan(self, run: str, path: str, file: _File) -> None:
        name = path.replace("\\", "/").rsplit("/", 1)[-1]
        try:
            length = int(gfile.stat(path).length)
            if length == file.length:
                return
            if length < file.length:  # replaced by another file
                file.scanned, file.places, file.damage = 0, {}, []
            file.tail = None
            for part in tfrecord.walk(_reader(path), file.scanned, length):
                if isinstance(part, tfrecord.Record):
                    file.scanned = part.offset + len(part.data) + 4
                    if any(mark in part.data for mark in _OUR_MARKS):
                        _index(run, path, name, part, file)
                elif part.at_end:
                    file.tail = (
                        f"run {run}: {name} ends inside a record at byte {part.offset} ({part.size} bytes): "
                        "the last record is lost or still being written"
                    )
                else:
                    file.scanned = part.offset + part.size
                    file.damage.append(
                        f"run {run}: {part.size} bytes of {name} at byte {part.offset} cannot be read: "
                        "the length of a record is damaged"
                    )
            file.length = length
        except Exception as error:  # each file system raises its own
            file.length = -1
            self._unlisted.setdefault(run, []).append(f"run {run}: {name} cannot be read: {error}")

    def _read_batch(self, run: str, wanted: Mapping[str, Sequence[_Place]]) -> Iterator[TagContent]:
        contents = _read_places([place for places in wanted.values() for place in places])
        for tag, places in wanted.items():
            frames, damage = [], []
            for place in places:
                data = _frame_of(contents.get((place.path, place.offset), b""), place)
                if data is None:
                    damage.append(f"the event of step {place.step} has changed in the file")
                else:
                    frames.append(StoredFrame(place.step, data))
            yield TagContent(run, tag, tuple(frames), tuple(damage))


def _index(run: str, path: str, name: str, record: tfrecord.Record, file: _File) -> None:
    if not record.is_intact():
        file.damage.append(f"run {run}: the record at byte {record.offset} of {name} is damaged: wrong checksum")
        return
    try:
        event = event_pb2.Event.FromString(record.data)
    except DecodeError:
        return  # intact, but not an event: not written by this plugin
    for index, value in enumerate(event.summary.value):
        if value.metadata.plugin_data.plugin_name == PLUGIN_NAME and len(value.tensor.string_val):
            place = _Place(path, record.offset, len(record.data), index, int(event.step))
            file.places.setdefault(value.tag, []).append(place)


def _read_places(places: Sequence[_Place]) -> dict[tuple[str, int], bytes]:
    """The records at the given places; neighboring ones are read together."""
    contents: dict[tuple[str, int], bytes] = {}
    ordered = sorted({(place.path, place.offset, place.size) for place in places})
    at = 0
    while at < len(ordered):
        path, begin, size = ordered[at]
        end, last = begin + size, at + 1
        while last < len(ordered):
            next_path, offset, next_size = ordered[last]
            if next_path != path or offset > end + _READ_GAP_BYTES or offset + next_size - begin > _READ_BYTES:
                break
            end, last = max(end, offset + next_size), last + 1
        try:
            data = _reader(path)(begin, end - begin)
        except Exception as error:  # each file system raises its own
            raise SourceError(f"an event file cannot be read now: {error}") from error
        for _, offset, next_size in ordered[at:last]:
            contents[path, offset] = data[offset - begin : offset - begin + next_size]
        at = last
    return contents


def _frame_of(record: bytes, place: _Place) -> bytes | None:
    try:
        values = event_pb2.Event.FromString(record).summary.value
    except DecodeError:
        return None
    if place.value >= len(values) or not len(values[place.value].tensor.string_val):
        return None
    return bytes(values[place.value].tensor.string_val[0])


def _reader(path: str) -> tfrecord.ReadAt:
    file_system = gfile.get_filesystem(path)

    def read_at(offset: int, size: int) -> bytes:
        # TensorBoard's file systems use two different keys; S3 returns one byte too many.
        position = {"opaque_offset": offset, "byte_offset": offset}
        data, _ = file_system.read(path, binary_mode=True, size=size, continue_from=position)
        return bytes(data[:size])

    return read_at


def _is_directory(path: str) -> bool:
    try:
        return bool(gfile.isdir(path))
    except Exception:  # each file system raises its own
        return False
