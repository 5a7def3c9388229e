"""Frames of failed allocations."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.events import fields
from tb_memplugin.events.codec import Frame
from tb_memplugin.events.ledger_records import ledger_columns, read_ledger
from tb_memplugin.events.memory_map_records import map_parts, read_map_parts
from tb_memplugin.model import FIX_KINDS, MISSING, OOM_STATUSES, VERDICTS, Fix, Oom

_STORED_FIXES = "remedies"
_STORED_STATUS = {"failed": "died"}
"""Old names in stored frames, which keep them: the table of fixes, and a status."""
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
    attributes["status"] = _STORED_STATUS.get(oom.status, oom.status)
    attributes["not_available"] = list(oom.not_available)
    attributes["map"], tables = (None, {}) if oom.map is None else map_parts(oom.map)
    tables["ledger"] = ledger_columns(oom.ledger)
    tables[_STORED_FIXES] = {
        "kind": [fix.kind for fix in oom.fixes],
        "sentence": [fix.sentence for fix in oom.fixes],
        "bytes": fields.optional_column([fix.bytes for fix in oom.fixes]),
        "enough": fields.optional_column([None if fix.enough is None else int(fix.enough) for fix in oom.fixes]),
        "simulated": np.asarray([int(fix.simulated) for fix in oom.fixes], np.int64),
        "batch_size": fields.optional_column([fix.batch_size for fix in oom.fixes]),
        "capacity_bytes": fields.optional_column([fix.capacity_bytes for fix in oom.fixes]),
    }
    return fields.make_frame("oom", sequence, [oom.step or 0], attributes, tables)


def read_oom(frame: Frame) -> Oom:
    """Read the failed allocation of a frame of stream ``oom``."""
    attributes = frame.attributes
    status, verdict, notes = attributes.get("status"), attributes.get("verdict"), attributes.get("not_available")
    status = next((name for name, stored in _STORED_STATUS.items() if stored == status), status)
    if status not in OOM_STATUSES or verdict not in (*VERDICTS, None) or not isinstance(notes, list):
        raise FormatError(f"failed allocation with unknown status {status!r:.20} or verdict {verdict!r:.20}")
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
        fixes=_read_fixes(fields.table_of(frame, _STORED_FIXES)),
        line=fields.optional_text(attributes.get("line")),
        map=None if map_attributes is None else read_map_parts(frame, map_attributes),
        not_available=tuple(fields.text(note) for note in notes),
        **sizes,
    )


def _read_fixes(table: Mapping[str, Any]) -> tuple[Fix, ...]:
    """Read fixes. Earlier versions added up bytes and simulated nothing, so whether theirs are enough is unknown."""
    kinds, sentences = fields.strings(table, "kind"), fields.strings(table, "sentence")
    if not set(kinds) <= set(FIX_KINDS) or None in sentences:
        raise FormatError(f"fixes of a failed allocation need a sentence and a kind of {FIX_KINDS}")
    sizes = fields.byte_column(table, "bytes")
    if "simulated" not in table:
        return tuple(
            Fix(kind, str(sentence), fields.maybe(size))  # type: ignore[arg-type]  # checked above
            for kind, sentence, size in zip(kinds, sentences, sizes, strict=True)
        )
    enough, simulated = fields.integers(table, "enough"), fields.integers(table, "simulated")
    batches, capacities = fields.byte_column(table, "batch_size"), fields.byte_column(table, "capacity_bytes")
    return tuple(
        Fix(
            kind,  # type: ignore[arg-type]  # checked above
            str(sentence),
            fields.maybe(sizes[row]),
            None if enough[row] == MISSING else bool(enough[row]),
            bool(simulated[row]),
            fields.maybe(batches[row]),
            fields.maybe(capacities[row]),
        )
        for row, (kind, sentence) in enumerate(zip(kinds, sentences, strict=True))
    )
