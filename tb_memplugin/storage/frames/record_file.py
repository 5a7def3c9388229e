"""An event file on a local disk. Its records wait in this process's memory, not in the C library's, until `flush`.

So a forked child, which gets copies of the C library's buffers, cannot write a record a second time, and a failed write
leaves only whole records behind.
"""

import errno
import os
import struct
from typing import Any, Protocol

from tb_memplugin.storage.frames.crc32c import masked_crc32c

MAX_WAITING_BYTES = 4 << 20
"""Records that wait in memory are written when they exceed this size."""


class RecordFile(Protocol):
    """An open TFRecord file."""

    def write(self, record: bytes, /) -> Any: ...

    def flush(self) -> Any: ...

    def close(self) -> Any: ...

    def abandon(self) -> None:
        """Let go of the file without writing anything."""


class LocalRecordFile:
    """A new TFRecord file, or the end of an existing one. Not thread-safe: one thread owns it.

    Args:
        path: The file.
        append: Whether the file exists and new records follow the old ones.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: str, append: bool = False) -> None:
        flags = os.O_WRONLY | os.O_APPEND | (0 if append else os.O_CREAT | os.O_TRUNC) | getattr(os, "O_BINARY", 0)
        self._path = path
        self._descriptor: int | None = os.open(path, flags, 0o666)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def write(self, record: bytes, /) -> None:
        """Add a record."""
        for part in framed(record):
            self._waiting.append(part)
            self._waiting_bytes += len(part)
        if self._waiting_bytes >= MAX_WAITING_BYTES:
            self.flush()

    def flush(self) -> None:
        """Give the records that wait to the operating system."""
        if self._descriptor is None:
            return
        if os.fstat(self._descriptor).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the event file was deleted during the run", self._path)
        data = memoryview(b"".join(self._waiting))
        self._waiting, self._waiting_bytes = [], 0
        end = os.lseek(self._descriptor, 0, os.SEEK_END)
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            os.ftruncate(self._descriptor, end)
            raise

    def close(self) -> None:
        """Write the records that wait and close the file, also if writing fails."""
        try:
            if self._waiting:
                self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without the records that wait: in a forked child they belong to the parent."""
        descriptor, self._descriptor = self._descriptor, None
        self._waiting, self._waiting_bytes = [], 0
        if descriptor is not None:
            os.close(descriptor)


def framed(record: bytes) -> tuple[bytes, ...]:
    """The parts of a record in a TFRecord file, to be written in this order."""
    length = struct.pack("<Q", len(record))
    return length, _checksum(length), record, _checksum(record)


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(data))
