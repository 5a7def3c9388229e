"""Reads the allocator's memory map in TensorFlow's serialized form, without TensorFlow.

TensorFlow writes such dumps to files when an allocation fails (``TF_BFC_MEMORY_DUMP``); `recorder.native` gets them
from the running allocator.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.importers import wire
from tb_memplugin.importers.chunk_list import ChunkColumns, make_map, split_regions
from tb_memplugin.importers.xplane import device_name
from tb_memplugin.schema import MemoryMap

MAX_DUMP_BYTES = 256 << 20
"""Largest supported dump, about five million chunks."""
# Of tsl/protobuf/bfc_memory_map.proto; chunks stay serialized for `_read_chunks`.
_MESSAGES = {
    "MemAllocatorStats": "num_allocs 1 int64, bytes_in_use 2 int64, peak_bytes_in_use 3 int64",
    "BinSummary": "total_bytes_in_use 2 int64, total_bytes_in_bin 3 int64, total_chunks_in_use 4 int64, "
    "total_chunks_in_bin 5 int64",
    "MemoryDump": "allocator_name 1 bytes, bin_summary 2 BinSummary[], chunk 3 bytes[], stats 5 MemAllocatorStats",
}
_ADDRESS, _SIZE, _REQUESTED, _IN_USE = (8 * number + wire.VARINT for number in (1, 2, 3, 8))


@functools.cache
def _dump_class() -> Any:
    return wire.message_classes("memory_dump", _MESSAGES)["MemoryDump"]


def read_dump(data: bytes, wall_time: float, capacity_bytes: int | None = None) -> MemoryMap:
    """The memory map of a dump, which does not contain time and limit; a truncated one gives its first chunks, and a
    note.

    Raises:
        FormatError: The bytes are no dump, or its chunks are inconsistent.
    """
    dump, notes = _parse(data)
    name = dump.allocator_name.decode("utf-8", "replace")
    chunks = _read_chunks(list(dump.chunk), len(data))
    in_use = int(chunks.bytes[chunks.in_use].sum())
    listed = sum(entry.total_chunks_in_bin for entry in dump.bin_summary)
    complete = not notes and listed == len(dump.chunk)
    if listed > len(dump.chunk):
        missing = listed - len(dump.chunk)
        notes.append(f"{missing} of {listed} chunks are unknown: the dump does not list them.")
    if dump.HasField("stats") and dump.stats.bytes_in_use != in_use:
        notes.append(
            f"The dump is inconsistent: its chunks in use have {in_use} bytes, its statistics say "
            f"{dump.stats.bytes_in_use}. The chunks are shown."
        )
        complete = False
    pool = sum(entry.total_bytes_in_bin for entry in dump.bin_summary)
    total_in_use = sum(entry.total_bytes_in_use for entry in dump.bin_summary)
    return make_map(
        split_regions(chunks),
        device=device_name(name),
        wall_time=wall_time,
        in_use_bytes=in_use if complete else total_in_use or None,
        pool_bytes=int(chunks.bytes.sum()) if complete else pool or None,
        capacity_bytes=capacity_bytes,
        complete=complete,
        not_available=notes,
    )


class DumpSummary(NamedTuple):
    """The figures of a dump.

    Attributes:
        device: ``GPU:0``, or the allocator's name if it belongs to no device.
        chunks: Number of chunks, free ones included.
        in_use_bytes, pool_bytes: Sums of the chunks in use, and of all.
        stated_in_use_bytes: Bytes in use as the allocator counts them.
        largest_free_bytes: The largest free chunk, 0 without one.
    """

    device: str
    chunks: int
    in_use_bytes: int
    stated_in_use_bytes: int
    pool_bytes: int
    largest_free_bytes: int


def summarize_dump(data: bytes) -> DumpSummary:
    """The figures of a complete dump, which may have no chunks."""
    dump = _message(data, len(data))
    chunks = _read_chunks(list(dump.chunk), len(data))
    name = dump.allocator_name.decode("utf-8", "replace")
    return DumpSummary(
        device=device_name(name),
        chunks=len(dump.chunk),
        in_use_bytes=int(chunks.bytes[chunks.in_use].sum()),
        stated_in_use_bytes=int(dump.stats.bytes_in_use),
        pool_bytes=int(chunks.bytes.sum()),
        largest_free_bytes=int(chunks.bytes[~chunks.in_use].max(initial=0)),
    )


def looks_like_dump(data: bytes) -> bool:
    """Whether the bytes begin like a dump: field 1, the allocator's name, then field 2, the first bin."""
    named = len(data) > 2 and data[0] == 0x0A and data[1] < 0x80
    return named and data[2 + data[1] : 3 + data[1]] in (b"\x12", b"\x1a")


def _parse(data: bytes) -> tuple[Any, list[str]]:
    if not data:
        raise FormatError("the memory dump is empty (0 bytes)")
    if len(data) > MAX_DUMP_BYTES:
        raise FormatError(f"the memory dump has {len(data)} bytes; at most {MAX_DUMP_BYTES} are supported")
    whole = len(data)
    try:
        dump = _message(data, whole)
    except FormatError:
        whole = _complete_length(data)
        if whole == len(data):
            raise
        dump = _message(data, whole)
    if not dump.allocator_name or not dump.chunk:
        raise FormatError(f"not a memory dump of TensorFlow's allocator: its {len(data)} bytes contain no chunk")
    if whole < len(data) or not dump.HasField("stats"):
        return dump, [f"The remainder of the dump is missing: the file ends early, after {len(dump.chunk)} chunks."]
    return dump, []


def _message(data: bytes, length: int) -> Any:
    dump = _dump_class()()
    try:
        dump.ParseFromString(data[:length])
    except Exception as error:  # protobuf's DecodeError, whose module depends on the installed protobuf
        raise _not_a_dump(len(data), error) from None
    return dump


def _not_a_dump(length: int, error: Exception) -> FormatError:
    return FormatError(f"not a memory dump of TensorFlow's allocator: its {length} bytes do not parse ({error})")


def _read_chunks(parts: Sequence[bytes], length: int) -> ChunkColumns:
    try:
        found = wire.select(wire.joined(parts), _ADDRESS, _SIZE, _IN_USE, _REQUESTED)
    except FormatError:
        raise _not_a_dump(length, ValueError("a chunk is damaged")) from None
    address, size, in_use, requested = (field.column(len(parts)) for field in found)
    return ChunkColumns(address, size, in_use != 0, np.maximum(requested, 0))


def _complete_length(data: bytes) -> int:
    """Length of the complete fields at the beginning of a truncated message."""
    at = 0
    try:
        while at < len(data):
            key, start = wire.varint(data, at)
            length, start = wire.varint(data, start)
            if key & 7 != wire.LENGTH or start + length > len(data):  # every field of a dump is a text or a message
                break
            at = start + length
    except IndexError:
        pass
    return at
