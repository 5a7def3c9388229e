"""Frames of allocator maps and post-mortems; those of the other streams are in `records`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from tb_memplugin import record_fields as fields
from tb_memplugin.codec import MISSING, Frame
from tb_memplugin.errors import FormatError
from tb_memplugin.model import (
    CATEGORIES,
    OOM_STATUSES,
    OWNER_SOURCES,
    PHASES,
    UNKNOWN_STATE,
    VERDICTS,
    AllocatorMap,
    ChunkOwner,
    Integers,
    Oom,
    Remedy,
)
from tb_memplugin.records import ledger_columns, read_ledger

MAX_CHUNKS = 500_000
"""Most chunks of a map; a larger one is neither written nor read."""
MAX_REGIONS = 10_000
MAX_OWNERS = 200_000
MAX_ADDRESS = 2**62
"""Addresses of a 64-bit process lie far below."""

_CHUNK_COLUMNS = ("address", "bytes", "requested_bytes", "state", "owner", "source", "since", "region")
_OOM_SIZES = (
    "requested_bytes",
    "free_bytes",
    "largest_free_bytes",
    "in_use_bytes",
    "pool_bytes",
    "capacity_bytes",
)


# --- maps ------------------------------------------------------------------------------------------------------------


def map_frame(taken: AllocatorMap, sequence: int) -> Frame:
    """Frame of one allocator map."""
    attributes, tables = _map_parts(taken)
    return fields.make_frame("maps", sequence, [taken.step or 0], attributes, tables)


def read_map(frame: Frame) -> AllocatorMap:
    """The map of a frame of stream ``maps``; its columns are known to hold together."""
    return _read_map(frame, frame.attributes)


def _map_parts(taken: AllocatorMap) -> tuple[dict[str, Any], dict[str, Any]]:
    if len(taken) > MAX_CHUNKS:
        raise FormatError(f"allocator map of {len(taken)} chunks is over the limit of {MAX_CHUNKS}")
    attributes = {
        "step": taken.step,
        "phase": taken.phase,
        "device": taken.device,
        "wall_time": taken.wall_time,
        "in_use_bytes": taken.in_use_bytes,
        "pool_bytes": taken.pool_bytes,
        "capacity_bytes": taken.capacity_bytes,
        "complete": taken.complete,
        "not_available": list(taken.not_available),
    }
    tables = {
        "chunks": {name: getattr(taken, name) for name in _CHUNK_COLUMNS},
        "owners": owner_columns(taken.owners),
        "regions": {"address": taken.region_address, "bytes": taken.region_bytes},
    }
    return attributes, tables


def _read_map(frame: Frame, attributes: Mapping[str, Any]) -> AllocatorMap:
    notes, complete = attributes.get("not_available"), attributes.get("complete")
    if not isinstance(notes, list) or not isinstance(complete, bool):
        raise FormatError("allocator map lacks its facts")
    chunks, owners = fields.table_of(frame, "chunks"), read_owners(fields.table_of(frame, "owners"))
    regions = fields.table_of(frame, "regions")
    columns = {name: fields.integers(chunks, name) for name in _CHUNK_COLUMNS}
    region_address = _addresses(regions, "address")
    if len(columns["address"]) > MAX_CHUNKS or len(region_address) > MAX_REGIONS:
        raise FormatError(f"allocator map of {len(columns['address'])} chunks is over the limit of {MAX_CHUNKS}")
    columns["address"] = _addresses(chunks, "address")
    fields.known_bytes(chunks, "bytes")
    fields.byte_column(chunks, "requested_bytes")
    check_range("state", columns["state"], 0, UNKNOWN_STATE)
    check_range("owner", columns["owner"], -1, len(owners) - 1)
    check_range("source", columns["source"], 0, len(OWNER_SOURCES) - 1)
    check_range("region", columns["region"], 0, len(region_address) - 1)
    fields.byte_column(chunks, "since")
    fields.known_bytes(regions, "bytes")
    return AllocatorMap(
        step=fields.optional_size(attributes, "step"),
        phase=_phase(attributes.get("phase")),
        device=fields.text(attributes.get("device")),
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


def owner_columns(owners: Sequence[ChunkOwner]) -> dict[str, Any]:
    """The columns of owners."""
    return {
        "layer": [owner.layer for owner in owners],
        "category": [owner.category for owner in owners],
        "trainable": fields.optional_column(
            [None if owner.trainable is None else int(owner.trainable) for owner in owners]
        ),
    }


def read_owners(table: Mapping[str, Any]) -> tuple[ChunkOwner, ...]:
    """The owners, checked."""
    layers, categories = fields.strings(table, "layer"), fields.strings(table, "category")
    trainable = fields.integers(table, "trainable")
    if len(layers) > MAX_OWNERS or not set(categories) <= set(CATEGORIES):
        raise FormatError(f"there are over {MAX_OWNERS} owners, or a category that is none of {CATEGORIES}")
    return tuple(
        ChunkOwner(layer, category, None if flag == MISSING else bool(flag))  # type: ignore[arg-type]  # checked above
        for layer, category, flag in zip(layers, categories, trainable.tolist(), strict=True)
    )


def _addresses(table: Mapping[str, Any], name: str) -> Integers:
    column = fields.integers(table, name)
    if len(column) and (column.min() < 0 or column.max() > MAX_ADDRESS):
        raise FormatError(f"addresses {int(column.min())} to {int(column.max())} are none")
    return column


def check_range(name: str, column: Integers, least: int, most: int) -> None:
    """Refuses a column with a value outside of a range."""
    if len(column) and (column.min() < least or column.max() > most):
        raise FormatError(f"column {name!r} holds {int(column.min())} to {int(column.max())}, not {least} to {most}")


def _phase(value: Any) -> Any:
    if value is not None and value not in PHASES:
        raise FormatError(f"unknown phase {value!r:.20}")
    return value


# --- post-mortems ----------------------------------------------------------------------------------------------------


def oom_frame(oom: Oom, sequence: int) -> Frame:
    """Frame of one post-mortem."""
    attributes: dict[str, Any] = {
        field.name: getattr(oom, field.name)
        for field in dataclasses.fields(oom)
        if field.name not in ("ledger", "remedies", "map", "not_available")
    }
    attributes["not_available"] = list(oom.not_available)
    attributes["map"], tables = (None, {}) if oom.map is None else _map_parts(oom.map)
    tables["ledger"] = ledger_columns(oom.ledger)
    tables["remedies"] = {
        "kind": [remedy.kind for remedy in oom.remedies],
        "sentence": [remedy.sentence for remedy in oom.remedies],
        "bytes": np.asarray([remedy.bytes for remedy in oom.remedies], np.int64),
        "enough": np.asarray([int(remedy.enough) for remedy in oom.remedies], np.int64),
    }
    return fields.make_frame("oom", sequence, [oom.step or 0], attributes, tables)


def read_oom(frame: Frame) -> Oom:
    """The post-mortem of a frame of stream ``oom``."""
    attributes = frame.attributes
    status, found, notes = attributes.get("status"), attributes.get("verdict"), attributes.get("not_available")
    if status not in OOM_STATUSES or found not in (*VERDICTS, None) or not isinstance(notes, list):
        raise FormatError(f"post-mortem of unknown status {status!r:.20} or verdict {found!r:.20}")
    inner = attributes.get("map")
    if inner is not None and not isinstance(inner, dict):
        raise FormatError("post-mortem's map is none")
    sizes = {name: fields.optional_size(attributes, name) for name in _OOM_SIZES}
    ledger = read_ledger(fields.table_of(frame, "ledger"))
    if ledger and sum(row.bytes for row in ledger) != sizes["in_use_bytes"]:
        raise FormatError(f"post-mortem's ledger does not sum to its {sizes['in_use_bytes']} bytes in use")
    return Oom(
        identifier=fields.text(attributes.get("identifier")),
        status=status,
        step=fields.optional_size(attributes, "step"),
        phase=_phase(attributes.get("phase")),
        device=fields.text(attributes.get("device")),
        wall_time=fields.number(attributes, "wall_time"),
        verdict=found,
        reason=fields.text(attributes.get("reason")),
        op=_optional_text(attributes.get("op")),
        layer=_optional_text(attributes.get("layer")),
        shape=_optional_text(attributes.get("shape")),
        ledger=ledger,
        remedies=_read_remedies(fields.table_of(frame, "remedies")),
        map=None if inner is None else _read_map(frame, inner),
        not_available=tuple(fields.text(note) for note in notes),
        **sizes,
    )


def _read_remedies(table: Mapping[str, Any]) -> tuple[Remedy, ...]:
    kinds, sentences = fields.strings(table, "kind"), fields.strings(table, "sentence")
    sizes, enough = fields.known_bytes(table, "bytes"), fields.integers(table, "enough")
    accepted = get_args(Remedy.__annotations__["kind"])
    if not set(kinds) <= set(accepted) or None in sentences:
        raise FormatError(f"post-mortem has a remedy of a kind that is none of {accepted}")
    return tuple(
        Remedy(kind, str(sentence), size, bool(flag))  # type: ignore[arg-type]  # checked above
        for kind, sentence, size, flag in zip(kinds, sentences, sizes, enough.tolist(), strict=True)
    )


def _optional_text(value: Any) -> str | None:
    return None if value is None else fields.text(value)
