"""TFRecord files: their checksum, and their records, written by one thread and read past damage."""

import dataclasses
import errno
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78
_BLOCK = 512
"""Bytes whose registers are looked up and joined in one step."""
_BLOCKS_AT_ONCE = 256
"""Limits the memory of the indices of a long input."""
_VECTOR_FROM = 48
"""Shorter inputs are faster in a plain loop."""


_TABLE = np.arange(256, dtype=np.uint32)
for _ in range(8):
    _TABLE = np.where(_TABLE & 1, (_TABLE >> 1) ^ np.uint32(_POLYNOMIAL), _TABLE >> 1).astype(
        np.uint32
    )
_TABLE_LIST: list[int] = _TABLE.tolist()


def _fed(registers: npt.NDArray[np.uint32], byte: Any = 0) -> npt.NDArray[np.uint32]:
    """The registers after one more byte."""
    fed: npt.NDArray[np.uint32] = _TABLE[(registers ^ byte) & 0xFF] ^ (registers >> np.uint32(8))
    return fed


_zeros_fed = [_TABLE]
for _ in range(_BLOCK - 1):
    _zeros_fed.append(_fed(_zeros_fed[-1]))
_PLACES = np.concatenate(_zeros_fed[::-1])
"""Flat table [place in a block, byte]: the register after this byte alone, and zeros up to the
block's end."""
_OFFSETS = np.arange(0, 256 * _BLOCK, 256)
_registers = np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]
for _ in range(_BLOCK):
    _registers = _fed(_registers)
_SHIFT: list[list[int]] = _registers.tolist()
"""Feeding `_BLOCK` zero bytes to a register is linear: one table for each of its four bytes."""


def crc32c(data: bytes | memoryview) -> int:
    """CRC-32C, the checksum of TFRecord files, vectorized with NumPy (pure Python reaches about 8
    MB/s)."""
    if len(data) < _VECTOR_FROM:
        register = 0xFFFFFFFF
        for byte in data:
            register = _TABLE_LIST[(register ^ byte) & 0xFF] ^ (register >> 8)
        return register ^ 0xFFFFFFFF
    # Starting from all ones equals starting from zero with the first four bytes complemented.
    # Leading zero bytes then change nothing, so the input is padded to whole blocks. The register
    # is linear in the bytes: that of a block is the sum (xor) of those of its bytes.
    blocks = -(-len(data) // _BLOCK)
    padded = np.zeros(blocks * _BLOCK, np.uint8)
    begin = len(padded) - len(data)
    padded[begin:] = np.frombuffer(data, np.uint8)
    padded[begin : begin + 4] ^= 0xFF
    rows = padded.reshape(blocks, _BLOCK)
    first, second, third, fourth = _SHIFT
    total = 0
    for start in range(0, blocks, _BLOCKS_AT_ONCE):
        # The indices are in range; "wrap" is faster than checking them.
        registers = _PLACES.take(rows[start : start + _BLOCKS_AT_ONCE] + _OFFSETS, mode="wrap")
        for register in np.bitwise_xor.reduce(registers, axis=1).tolist():
            shifted = (
                first[total & 255]
                ^ second[total >> 8 & 255]
                ^ third[total >> 16 & 255]
                ^ fourth[total >> 24]
            )
            total = shifted ^ register
    return total ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | memoryview) -> int:
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def header_matches(headers: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Mask of valid rows of `headers`, shape [rows, 12]: a length (8 bytes) and its masked checksum
    (4 bytes)."""
    registers = np.full(len(headers), 0xFFFFFFFF, np.uint32)
    for column in range(8):
        registers = _fed(registers, headers[:, column])
    registers ^= np.uint32(0xFFFFFFFF)
    masked = ((registers >> np.uint32(15)) | (registers << np.uint32(17))) + np.uint32(0xA282EAD8)
    stored = np.ascontiguousarray(headers[:, 8:12]).view("<u4").reshape(-1)
    return np.asarray(masked == stored)


MAX_WAITING_BYTES = 4 << 20
"""Records that wait in memory are written when they exceed this size."""


class RecordFile(Protocol):
    def write(self, record: bytes, /) -> Any: ...

    def flush(self) -> Any: ...

    def close(self) -> Any: ...

    def abandon(self) -> None:
        """Let go of the file without writing anything."""


class LocalRecordFile:
    """A new TFRecord file, or with `append` the end of an existing one. Not thread-safe: one thread
    owns it.

    Its records wait in this process's memory, not in the C library's, until `flush`. So a forked
    child, which gets copies of the C library's buffers, cannot write a record a second time, and a
    failed write leaves only whole records behind. Raises OSError if the file cannot be opened."""

    def __init__(self, path: str, append: bool = False) -> None:
        flags = (
            os.O_WRONLY
            | os.O_APPEND
            | (0 if append else os.O_CREAT | os.O_TRUNC)
            | getattr(os, "O_BINARY", 0)
        )
        self._path = path
        self.descriptor: int | None = os.open(path, flags, 0o666)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def write(self, record: bytes, /) -> None:
        for part in framed(record):
            self._waiting.append(part)
            self._waiting_bytes += len(part)
        if self._waiting_bytes >= MAX_WAITING_BYTES:
            self.flush()

    def flush(self) -> None:
        """Give the records that wait to the operating system."""
        if self.descriptor is None:
            return
        if os.fstat(self.descriptor).st_nlink == 0:
            raise FileNotFoundError(
                errno.ENOENT, "the event file was deleted during the run", self._path
            )
        data = memoryview(b"".join(self._waiting))
        self._waiting, self._waiting_bytes = [], 0
        end = os.lseek(self.descriptor, 0, os.SEEK_END)
        try:
            while data:
                data = data[os.write(self.descriptor, data) :]
        except OSError:
            os.ftruncate(self.descriptor, end)
            raise

    def close(self) -> None:
        try:
            if self._waiting:
                self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without the records that wait: in a forked child they belong to the
        parent."""
        descriptor, self.descriptor = self.descriptor, None
        self._waiting, self._waiting_bytes = [], 0
        if descriptor is not None:
            os.close(descriptor)


def framed(record: bytes) -> tuple[bytes, ...]:
    """The parts of a record in the file, to be written in this order."""
    length = struct.pack("<Q", len(record))
    of_length, of_record = (struct.pack("<I", masked_crc32c(data)) for data in (length, record))
    return length, of_length, record, of_record


MAX_RECORD_BYTES = 12 << 20
"""Longest record that is read; this plugin's records stay below 9 MiB. Longer ones are skipped."""
MAX_SEARCH_BYTES = 64 << 20
"""Bytes after a damaged length in which the next record is searched; then the remainder of the file
is given up."""
_CHUNK = 4 << 20
_FIRST_SEARCH = 64
_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4

ReadAt: TypeAlias = Callable[[int, int], bytes]
"""(offset, size) to bytes of the file, fewer at its end."""


@dataclasses.dataclass(frozen=True)
class Record:
    """One record: offset of its content, the content, and the stored checksum, not yet compared."""

    offset: int
    data: bytes
    checksum: int

    def is_intact(self) -> bool:
        return masked_crc32c(self.data) == self.checksum


@dataclasses.dataclass(frozen=True)
class Loss:
    """A range without a readable record. `at_end`: the file ends inside a record, which may still
    be being written."""

    offset: int
    size: int
    at_end: bool


def walk_records(read_at: ReadAt, start: int, end: int) -> Iterator[Record | Loss]:
    """Yield the records of a file from offset `start` to `end`; a `Loss` with `at_end` comes
    last."""
    window = _Window(read_at, end)
    at = start
    while at < end:
        header = window.take(at, _HEADER.size)
        if len(header) < _HEADER.size:
            yield Loss(at, end - at, at_end=True)
            return
        length, checksum = _HEADER.unpack(header)
        if masked_crc32c(header[:8]) != checksum:
            header_at = _next_header(window, at + 1, end)
            yield Loss(at, header_at - at, at_end=False)
            at = header_at
            continue
        following = at + _HEADER.size + length + _FOOTER_BYTES
        if following > end:
            yield Loss(at, end - at, at_end=True)
            return
        if length <= MAX_RECORD_BYTES:
            content = window.take(at + _HEADER.size, length + _FOOTER_BYTES)
            if len(content) < length + _FOOTER_BYTES:  # the file was truncated meanwhile
                yield Loss(at, end - at, at_end=True)
                return
            yield Record(
                at + _HEADER.size, content[:length], int.from_bytes(content[length:], "little")
            )
        at = following


class _Window:
    """Reads a file forward in large chunks."""

    def __init__(self, read_at: ReadAt, end: int) -> None:
        self._read_at = read_at
        self._end = end
        self._base = 0
        self._buffer = b""

    def take(self, offset: int, size: int) -> bytes:
        begin = offset - self._base
        if begin < 0 or begin + size > len(self._buffer):
            self._base = offset
            self._buffer = self._read_at(offset, min(max(size, _CHUNK), max(0, self._end - offset)))
            begin = 0
        return self._buffer[begin : begin + size]


def _next_header(window: _Window, start: int, end: int) -> int:
    limit = min(end, start + MAX_SEARCH_BYTES)
    at, span = start, _FIRST_SEARCH
    while at + _HEADER.size <= limit:
        # Short spans first: the cost of a search is that of the bytes up to the next record, not of
        # the whole file. Successive spans overlap by a header's length minus one, so that no header
        # is missed.
        data = np.frombuffer(window.take(at, min(span, limit - at)), np.uint8)
        span = min(2 * span, _CHUNK)
        if len(data) < _HEADER.size:
            break
        starts = len(data) - _HEADER.size + 1
        # Records of interest are not empty and below 2^32 bytes, which leaves few candidates.
        plausible = (
            data[4 : 4 + starts]
            | data[5 : 5 + starts]
            | data[6 : 6 + starts]
            | data[7 : 7 + starts]
        ) == 0
        plausible &= (data[:starts] | data[1 : 1 + starts] | data[2 : 2 + starts]) != 0
        places = np.flatnonzero(plausible)
        if len(places):
            headers = data[places[:, None] + np.arange(_HEADER.size)]
            valid = places[header_matches(headers)]
            if len(valid):
                return at + int(valid[0])
        at += starts
    return end
