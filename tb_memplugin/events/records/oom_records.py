"""Frames of failed allocations."""

import dataclasses
from typing import Any

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.records import fields
from tb_memplugin.events.records.memory_map_records import map_parts, read_map_parts
from tb_memplugin.events.records.snapshot_records import ledger_columns, read_ledger
from tb_memplugin.model import FAILED_DURING, OOM_STATUSES, VERDICTS, Oom

_OOM_SIZES = (
    "requested_bytes",
    "free_bytes",
    "largest_free_bytes",
    "in_use_bytes",
    "pool_bytes",
    "capacity_bytes",
)


def oom_frame(oom: Oom, sequence: int) -> Frame:
    """Frame of one failed allocation."""
    attributes: dict[str, Any] = {
        field.name: getattr(oom, field.name)
        for field in dataclasses.fields(oom)
        if field.name not in ("ledger", "fixes", "map", "not_available")
    }
    attributes["not_available"] = list(oom.not_available)
    attributes["map"], tables = (None, {}) if oom.map is None else map_parts(oom.map)
    tables["ledger"] = ledger_columns(oom.ledger)
    return fields.make_frame("oom", sequence, [oom.step or 0], attributes, tables)


def read_oom(frame: Frame) -> Oom:
    """Read the failed allocation of a frame of stream ``oom``."""
    attributes = frame.attributes
    status, verdict, notes = attributes.get("status"), attributes.get("verdict"), attributes.get("not_available")
    during = attributes.get("during")
    if status not in OOM_STATUSES or verdict not in (*VERDICTS, None) or not isinstance(notes, list):
        raise FormatError(f"failed allocation with unknown status {status!r:.20} or verdict {verdict!r:.20}")
    if during not in (*FAILED_DURING, None):
        raise FormatError(f"failed allocation at unknown place {during!r:.20}")
    map_attributes = attributes.get("map")
    if map_attributes is not None and not isinstance(map_attributes, dict):
        raise FormatError("memory map of a failed allocation is not an object")
    sizes = {name: fields.optional_size(attributes, name) for name in _OOM_SIZES}
    ledger = read_ledger(frame)
    if ledger and sum(row.bytes for row in ledger) != sizes["in_use_bytes"]:
        raise FormatError(f"ledger of a failed allocation does not sum to its {sizes['in_use_bytes']} bytes in use")
    return Oom(
        identifier=fields.text(attributes.get("identifier")),
        status=status,
        step=fields.optional_size(attributes, "step"),
        phase=fields.optional_phase(attributes.get("phase")),
        device=fields.device(attributes.get("device")),
        wall_time=fields.number(attributes, "wall_time"),
        verdict=verdict,
        reason=fields.text(attributes.get("reason")),
        op=fields.optional_text(attributes.get("op")),
        layer=fields.optional_text(attributes.get("layer")),
        shape=fields.optional_text(attributes.get("shape")),
        ledger=ledger,
        fixes=(),  # not recorded
        line=fields.optional_text(attributes.get("line")),
        batch_size=fields.optional_size(attributes, "batch_size"),
        during=during,
        map=None if map_attributes is None else read_map_parts(frame, map_attributes),
        not_available=tuple(fields.text(note) for note in notes),
        **sizes,
    )
