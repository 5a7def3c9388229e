"""The event files of one session, one after the other: frames under rotating tags."""

import time
from collections.abc import Callable
from typing import TypeAlias

from tensorboard.compat.proto import event_pb2, summary_pb2

from tb_memplugin.storage.frames import (
    LocalRecordFile,
    RecordFile,
    TagRotation,
    codec,
    frame_summary,
)
from tb_memplugin.storage.write import recordings

OpenFile: TypeAlias = Callable[[str], RecordFile]


class EventLog:
    """Writes event files of a session into a directory. A local file is locked while it is open.

    Args:
        open_file: Opens a new file on a remote file system; None for a local disk, where a closed
            file can be opened again."""

    def __init__(self, directory: str, session: str, open_file: OpenFile | None) -> None:
        self.directory, self.session = directory, session
        self.file_bytes = 0
        self._open_file = open_file
        self._rotations: dict[str, TagRotation] = {}
        self._files = 0
        self._path = ""
        self._file: RecordFile | None = None
        self._unflushed = False
        self.begin_file()

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def has_unflushed(self) -> bool:
        return self.is_open and self._unflushed

    def begin_file(self) -> None:
        # TensorBoard's Python reader follows only the last file of a directory, by name.
        # Unlike the usual name, this one contains neither host nor process.
        begin = f"{self.directory}/{recordings.EVENT_FILE_BEGIN}{int(time.time())}"
        self._path = f"{begin}.{self.session}.{self._files:04d}"
        self._files += 1
        self.file_bytes = 0
        self._file = self._open_file(self._path) if self._open_file else _local(self._path)
        try:
            self._add(event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2"))
            self.flush()
        except BaseException:
            self.abandon()
            raise

    def reopen(self) -> None:
        """Open the file again after `close`, or begin another one on a remote file system."""
        if self._open_file is None:
            self._file = _local(self._path, append=True)
        else:
            self.begin_file()

    def add_frame(self, stream: str, frame: codec.PackedFrame, step: int | None = None) -> None:
        """Add a frame as an event of `step`, by default its last one."""
        rotation = self._rotations.setdefault(stream, TagRotation(self.session, stream))
        step, sequence = frame.last_step if step is None else step, rotation.sequence
        self.add(step, frame_summary(rotation.next(step), frame.encode(sequence)))

    def add(self, step: int, summary: summary_pb2.Summary) -> None:
        self._add(event_pb2.Event(wall_time=time.time(), step=step, summary=summary))

    def _add(self, event: event_pb2.Event) -> None:
        assert self._file is not None, "the log is closed"
        record = event.SerializeToString()
        self._file.write(record)
        self._unflushed = True
        self.file_bytes += len(record) + 16

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()
        self._unflushed = False

    def close(self) -> None:
        """Flush and close the file, also if flushing fails."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def abandon(self) -> None:
        """Let go of the file without writing."""
        file, self._file = self._file, None
        if file is not None:
            file.abandon()


def _local(path: str, append: bool = False) -> LocalRecordFile:
    file = LocalRecordFile(path, append)
    if file.descriptor is not None:
        recordings.lock(file.descriptor)
    return file
