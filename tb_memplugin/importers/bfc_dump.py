"""Reads the files that ``TF_BFC_MEMORY_DUMP`` makes TensorFlow write when an allocation fails, without TensorFlow."""

from typing import Any

from tb_memplugin.errors import FormatError
from tb_memplugin.importers.chunk_list import ListedChunk, make_map, split_regions
from tb_memplugin.importers.descriptors import memory_dump_class
from tb_memplugin.importers.xplane import device_name
from tb_memplugin.model import AllocatorMap

MAX_DUMP_BYTES = 256 << 20
"""Largest dump that is read: some five million chunks."""


def read_dump(data: bytes, wall_time: float, capacity_bytes: int | None = None) -> AllocatorMap:
    """The map that a dump holds. Its limit is not in it, so it is the caller's to give.

    Of a truncated dump, the chunks before its end; a sentence says so.

    Raises:
        FormatError: The bytes are no dump, or nothing of it can be used.
    """
    dump, notes = _parse(data)
    name = dump.allocator_name.decode("utf-8", "replace")
    chunks = [
        ListedChunk(chunk.address, chunk.size, chunk.in_use, max(0, chunk.requested_size)) for chunk in dump.chunk
    ]
    regions = split_regions(chunks)
    in_use = sum(chunk.bytes for chunk in chunks if chunk.in_use)
    listed = sum(entry.total_chunks_in_bin for entry in dump.bin_summary)
    complete = not notes and listed == len(chunks)
    if listed > len(chunks):
        lost = listed - len(chunks)
        notes.append(f"{lost} of {listed} chunks are not available, because the dump does not list them.")
    if dump.HasField("stats") and dump.stats.bytes_in_use != in_use:
        notes.append(
            f"The dump's chunks in use are {in_use} bytes, its statistics say {dump.stats.bytes_in_use}: it does not "
            "hold together, and the chunks are shown."
        )
        complete = False
    pool = sum(entry.total_bytes_in_bin for entry in dump.bin_summary)
    total_in_use = sum(entry.total_bytes_in_use for entry in dump.bin_summary)
    return make_map(
        regions,
        device=device_name(name),
        wall_time=wall_time,
        in_use_bytes=in_use if complete else total_in_use or None,
        pool_bytes=sum(chunk.bytes for chunk in chunks) if complete else pool or None,
        capacity_bytes=capacity_bytes,
        complete=complete,
        not_available=notes,
    )


def looks_like_dump(data: bytes) -> bool:
    """Whether the bytes begin as a dump does: field 1, the allocator's name, then field 2, the first bin."""
    named = len(data) > 2 and data[0] == 0x0A and data[1] < 0x80
    return named and data[2 + data[1] : 3 + data[1]] in (b"\x12", b"\x1a")


def _parse(data: bytes) -> tuple[Any, list[str]]:
    if not data:
        raise FormatError("the memory dump is empty: it has 0 bytes")
    if len(data) > MAX_DUMP_BYTES:
        raise FormatError(f"the memory dump has {len(data)} bytes, more than the {MAX_DUMP_BYTES} that are read")
    whole = _complete_length(data)
    dump = memory_dump_class()()
    try:
        dump.ParseFromString(data[:whole])
    except Exception as error:  # protobuf's DecodeError, whose module depends on the installed protobuf
        raise FormatError(
            f"not a memory dump of TensorFlow's allocator: its {len(data)} bytes do not parse ({error})"
        ) from None
    if not dump.allocator_name or not dump.chunk:
        raise FormatError(f"not a memory dump of TensorFlow's allocator: its {len(data)} bytes name no chunk")
    if whole < len(data) or not dump.HasField("stats"):
        end = f"after {len(dump.chunk)} chunks"
        return dump, [f"The rest of the dump is not available, because the file ends early, {end}."]
    return dump, []


def _complete_length(data: bytes) -> int:
    """Bytes of the whole fields at the beginning of a message: what a truncated file still says."""
    at = 0
    while at < len(data):
        key, start = _varint(data, at)
        if start < 0 or key & 7 != 2:  # every field of a dump is a text or a message
            return at
        length, start = _varint(data, start)
        if start < 0 or start + length > len(data):
            return at
        at = start + length
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, where it ends), (0, -1) if the bytes end before it does."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    return 0, -1
