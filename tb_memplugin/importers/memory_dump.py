"""Reads the allocator's memory map in TensorFlow's serialized form, without TensorFlow.

TensorFlow writes such dumps to files when an allocation fails (``TF_BFC_MEMORY_DUMP``);
`recorder.native` gets them from the running allocator."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.errors import FormatError
from tb_memplugin.importers import wire
from tb_memplugin.importers.xplane import device_name
from tb_memplugin.schema import FREE, IN_USE, MISSING, UNKNOWN_STATE, Integers, MemoryMap

MAX_DUMP_BYTES = 256 << 20
"""Largest supported dump, about five million chunks."""
# Of tsl/protobuf/bfc_memory_map.proto; chunks stay serialized for `_read_chunks`.
_MESSAGES = {
    "MemAllocatorStats": "num_allocs 1 int64, bytes_in_use 2 int64, peak_bytes_in_use 3 int64",
    "BinSummary": "total_bytes_in_use 2 int64, total_bytes_in_bin 3 int64, total_chunks_in_use 4 int64, "
    "total_chunks_in_bin 5 int64",
    "MemoryDump": "allocator_name 1 bytes, bin_summary 2 BinSummary[], chunk 3 bytes[], stats 5 "
    "MemAllocatorStats",
}
_ADDRESS, _SIZE, _REQUESTED, _IN_USE = (8 * number + wire.VARINT for number in (1, 2, 3, 8))


class ListedChunk(NamedTuple):
    address: int
    bytes: int
    in_use: bool
    last: bool = False  # whether the list says that its region ends with it


ListedRegion: TypeAlias = tuple[Sequence[ListedChunk], int, int]
"""The chunks of one region in address order, at least one, its address and bytes: it may reach
beyond them."""


class ChunkColumns(NamedTuple):
    """Chunks in the order of a list, unchecked; `requested_bytes` is `MISSING` if unknown."""

    address: Integers
    bytes: Integers
    in_use: npt.NDArray[np.bool_]
    requested_bytes: Integers


class Regions(NamedTuple):
    """Regions in address order: their chunks one after another, the first one of each region, and
    its known extent."""

    chunks: ChunkColumns
    first: Integers
    address: Integers
    bytes: Integers


@functools.cache
def _dump_class() -> Any:
    return wire.message_classes("memory_dump", _MESSAGES)["MemoryDump"]


def read_dump(data: bytes, wall_time: float, capacity_bytes: int | None = None) -> MemoryMap:
    """The memory map of a dump; a truncated one gives its first chunks, and a note. Other bytes and
    inconsistent chunks are a `FormatError`."""
    dump, chunks, notes = _parse(data)
    name = dump.allocator_name.decode("utf-8", "replace")
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
        not_available=tuple(notes),
    )


class DumpSummary(NamedTuple):
    """The figures of a dump: sums of the chunks in use and of all, `stated_in_use_bytes` as the
    allocator counts them, and the largest free chunk, 0 without one."""

    device: str
    chunks: int
    in_use_bytes: int
    stated_in_use_bytes: int
    pool_bytes: int
    largest_free_bytes: int


def summarize_dump(data: bytes) -> DumpSummary:
    """The figures of a complete dump, which may have no chunks."""
    dump, chunks = _message(data, len(data))
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
    """Whether the bytes begin like a dump: field 1, the allocator's name, then field 2, the first
    bin."""
    named = len(data) > 2 and data[0] == 0x0A and data[1] < 0x80
    return named and data[2 + data[1] : 3 + data[1]] in (b"\x12", b"\x1a")


def _parse(data: bytes) -> tuple[Any, ChunkColumns, list[str]]:
    if not data:
        raise FormatError("the memory dump is empty (0 bytes)")
    if len(data) > MAX_DUMP_BYTES:
        raise FormatError(
            f"the memory dump has {len(data)} bytes; at most {MAX_DUMP_BYTES} are supported"
        )
    whole = len(data)
    try:
        dump, chunks = _message(data, whole)
    except FormatError:
        whole = _complete_length(data)
        if whole == len(data):
            raise
        dump, chunks = _message(data, whole)
    if not dump.allocator_name or not dump.chunk:
        raise FormatError(
            f"not a memory dump of TensorFlow's allocator: its {len(data)} bytes contain no chunk"
        )
    ends_early = whole < len(data) or not dump.HasField("stats")
    note = (
        f"The remainder of the dump is missing: the file ends early, after {len(chunks[0])} chunks."
    )
    return dump, chunks, [note] if ends_early else []


def _message(data: bytes, length: int) -> tuple[Any, ChunkColumns]:
    dump = _dump_class()()
    try:
        dump.ParseFromString(data[:length])
        found = wire.select(wire.joined(dump.chunk), _ADDRESS, _SIZE, _IN_USE, _REQUESTED)
    # protobuf's DecodeError, whose module depends on the installed protobuf
    except Exception as error:
        reason = "a chunk is damaged" if isinstance(error, FormatError) else error
        start = "not a memory dump of TensorFlow's allocator"
        raise FormatError(f"{start}: its {len(data)} bytes do not parse ({reason})") from None
    address, size, in_use, requested = (field.column(len(dump.chunk)) for field in found)
    return dump, ChunkColumns(address, size, in_use != 0, np.maximum(requested, 0))


def _complete_length(data: bytes) -> int:
    at = 0
    try:
        while at < len(data):
            key, start = wire.varint(data, at)
            length, start = wire.varint(data, start)
            # every field of a dump is a text or a message
            if key & 7 != wire.LENGTH or start + length > len(data):
                break
            at = start + length
    except IndexError:
        pass
    return at


# --- lists of chunks: regions, and the gaps between chunks
# ------------------------------------------------------------


MAX_CHUNKS = 500_000
END = 2**62
"""Addresses and sizes from here on are refused, so that sums of two do not overflow."""


def columns_of(chunks: Iterable[ListedChunk]) -> ChunkColumns:
    """The chunks as columns; impossible addresses and sizes become `END`."""
    address, size, in_use, _ = zip(*chunks, strict=True)
    return ChunkColumns(
        _bounded(address), _bounded(size), np.asarray(in_use), np.full(len(size), MISSING)
    )


def regions_of(regions: Iterable[ListedRegion]) -> Regions:
    parts, addresses, sizes = zip(*sorted(regions, key=lambda region: region[1]), strict=True)
    counts = np.asarray([len(part) for part in parts], np.int64)
    columns = columns_of(chunk for part in parts for chunk in part)
    return Regions(columns, np.cumsum(counts) - counts, _bounded(addresses), _bounded(sizes))


def split_regions(chunks: ChunkColumns) -> Regions:
    """The regions of chunks: one ends where the next chunk is not adjacent, and between two free
    chunks, which the allocator would have merged."""
    address, size, in_use, requested = chunks
    begins = np.ones(len(address), np.bool_)
    begins[1:] = (address[:-1] + size[:-1] != address[1:]) | ~(in_use[:-1] | in_use[1:])
    first = np.flatnonzero(begins)
    order = np.argsort(address[first], kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        # Sort regions by address, each with its chunks.
        number = np.repeat(np.argsort(order, kind="stable"), np.diff(first, append=len(address)))
        moved = np.argsort(number, kind="stable")
        chunks = ChunkColumns(address[moved], size[moved], in_use[moved], requested[moved])
        address, size = chunks.address, chunks.bytes
        first = np.flatnonzero(np.diff(number[moved], prepend=-1))
    last = np.append(first[1:], len(address)) - 1
    return Regions(chunks, first, address[first], address[last] + size[last] - address[first])


def make_map(regions: Regions, **figures: Any) -> MemoryMap:
    """The memory map of regions; parts without chunks have the state `UNKNOWN_STATE`. Chunks that
    overlap, have no size, or are too many are a `FormatError`."""
    address, size, state, requested_bytes, region = _rows(regions)
    if len(address) > MAX_CHUNKS:
        raise FormatError(f"the list has {len(address)} chunks; at most {MAX_CHUNKS} are supported")
    return MemoryMap(
        **figures,
        step=None,
        phase=None,
        address=address,
        bytes=size,
        requested_bytes=requested_bytes,
        state=state,
        owner=np.full(len(address), -1),
        source=np.zeros(len(address), np.int64),
        since=np.full(len(address), MISSING),
        region=region,
        owners=(),
        region_address=regions.address,
        region_bytes=regions.bytes,
    )


def _rows(regions: Regions) -> tuple[Integers, ...]:
    address, size, in_use, requested = regions.chunks
    bounded = (address >= 0) & (address < END) & (size > 0) & (size < END)
    end = np.where(bounded, address, 0) + np.where(bounded, size, 0)
    bounded &= end < END
    region_end = np.minimum(regions.address, END) + np.minimum(regions.bytes, END)
    last = np.append(regions.first[1:], len(address)) - 1
    # A chunk begins no earlier than the previous one ends, in a new region no earlier than the
    # region begins.
    earliest = np.zeros(len(address), np.int64)
    earliest[1:] = end[:-1]
    closed = np.maximum(end[last], region_end)
    earliest[regions.first] = np.maximum(regions.address, np.append(0, closed[:-1]))
    wrong = np.flatnonzero(~bounded | (address < earliest))
    if len(wrong):
        at = wrong[0]
        raise FormatError(
            f"the chunks are inconsistent: the chunk at {int(address[at]) % 2**64:#x} of "
            f"{size[at]} bytes begins before {int(earliest[at]):#x} or has no size"
        )
    number = np.repeat(np.arange(len(regions.first)), np.diff(regions.first, append=len(address)))
    rows = (
        address,
        size,
        np.where(in_use, IN_USE, FREE),
        np.where(in_use, requested, MISSING),
        number,
    )
    before = np.flatnonzero(address > earliest)
    after = np.flatnonzero(region_end > end[last])
    if not len(before) and not len(after):
        return rows
    places = np.concatenate([before, last[after] + 1])
    gap = (
        np.concatenate([earliest[before], end[last[after]]]),
        np.concatenate([(address - earliest)[before], (region_end - end[last])[after]]),
        np.full(len(places), UNKNOWN_STATE),
        np.full(len(places), MISSING),
        np.concatenate([number[before], after]),
    )
    # Between two regions, the gap at the end of the first comes before that at the start of the
    # second.
    order = np.lexsort((gap[4], places))
    return tuple(
        np.insert(column, places[order], missing[order])
        for column, missing in zip(rows, gap, strict=True)
    )


def _bounded(numbers: Sequence[int]) -> Integers:
    return np.asarray([min(max(number, -END), END) for number in numbers], np.int64)
