"""Frames of memory maps."""

from collections.abc import Mapping
from typing import Any

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.records import fields
from tb_memplugin.events.records.snapshot_records import owner_columns, read_owners
from tb_memplugin.model import OWNER_SOURCES, UNKNOWN_STATE, Integers, MemoryMap
from tb_memplugin.model.basics import fields_of

MAX_CHUNKS = 500_000
"""Most chunks of a map; a larger one is neither written nor read."""
MAX_REGIONS = 10_000
MAX_ADDRESS = 2**62
"""Addresses of a 64-bit process lie far below."""

_CHUNK_COLUMNS = ("address", "bytes", "requested_bytes", "state", "owner", "source", "since", "region")


def map_frame(memory_map: MemoryMap, sequence: int) -> Frame:
    """Frame of one memory map."""
    attributes, tables = map_parts(memory_map)
    return fields.make_frame("maps", sequence, [memory_map.step or 0], attributes, tables)


def read_map(frame: Frame) -> MemoryMap:
    """Read the map of a frame of stream ``maps``; its columns are consistent."""
    return read_map_parts(frame, frame.attributes)


def map_parts(memory_map: MemoryMap) -> tuple[dict[str, Any], dict[str, Any]]:
    """The attributes and tables of a map."""
    if len(memory_map) > MAX_CHUNKS:
        raise FormatError(f"memory map of {len(memory_map)} chunks is over the limit of {MAX_CHUNKS}")
    attributes = {
        "step": memory_map.step,
        "phase": memory_map.phase,
        "device": memory_map.device,
        "wall_time": memory_map.wall_time,
        "in_use_bytes": memory_map.in_use_bytes,
        "pool_bytes": memory_map.pool_bytes,
        "capacity_bytes": memory_map.capacity_bytes,
        "complete": memory_map.complete,
        "not_available": list(memory_map.not_available),
    }
    tables = {
        "chunks": fields_of(memory_map, *_CHUNK_COLUMNS),
        "owners": owner_columns(memory_map.owners),
        "regions": {"address": memory_map.region_address, "bytes": memory_map.region_bytes},
    }
    return attributes, tables


def read_map_parts(frame: Frame, attributes: Mapping[str, Any]) -> MemoryMap:
    """Read a map from its attributes and a frame's tables."""
    notes, complete = attributes.get("not_available"), attributes.get("complete")
    if not isinstance(notes, list) or not isinstance(complete, bool):
        raise FormatError("memory map lacks its notes or whether it is complete")
    chunks, owners = fields.table_of(frame, "chunks"), read_owners(fields.table_of(frame, "owners"))
    regions = fields.table_of(frame, "regions")
    columns = {name: fields.integers(chunks, name) for name in _CHUNK_COLUMNS}
    region_address = addresses(regions, "address")
    if len(columns["address"]) > MAX_CHUNKS or len(region_address) > MAX_REGIONS:
        raise FormatError(
            f"memory map of {len(columns['address'])} chunks in {len(region_address)} regions is over the limit of "
            f"{MAX_CHUNKS} chunks or {MAX_REGIONS} regions"
        )
    columns["address"] = addresses(chunks, "address")
    fields.known_bytes(chunks, "bytes")
    fields.byte_column(chunks, "requested_bytes")
    fields.check_range("state", columns["state"], 0, UNKNOWN_STATE)
    fields.check_range("owner", columns["owner"], -1, len(owners) - 1)
    fields.check_range("source", columns["source"], 0, len(OWNER_SOURCES) - 1)
    fields.check_range("region", columns["region"], 0, len(region_address) - 1)
    fields.byte_column(chunks, "since")
    fields.known_bytes(regions, "bytes")
    return MemoryMap(
        step=fields.optional_size(attributes, "step"),
        phase=fields.optional_phase(attributes.get("phase")),
        device=fields.device(attributes.get("device")),
        wall_time=fields.number(attributes, "wall_time"),
        owners=owners,
        region_address=region_address,
        region_bytes=fields.integers(regions, "bytes"),
        in_use_bytes=fields.optional_size(attributes, "in_use_bytes"),
        pool_bytes=fields.optional_size(attributes, "pool_bytes"),
        capacity_bytes=fields.optional_size(attributes, "capacity_bytes"),
        complete=complete,
        not_available=tuple(fields.text(note) for note in notes),
        **columns,
    )


def addresses(table: Mapping[str, Any], name: str) -> Integers:
    """A column of addresses."""
    column = fields.integers(table, name)
    if len(column) and (column.min() < 0 or column.max() > MAX_ADDRESS):
        raise FormatError(f"addresses must be 0 to {MAX_ADDRESS}. Received: {int(column.min())} to {int(column.max())}")
    return column
