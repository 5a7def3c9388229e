"""Snapshots that users describe as mappings, validated."""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tb_memplugin.errors import RecordingError
from tb_memplugin.schema import (
    MAX_BYTES,
    Field,
    LedgerRow,
    Snapshot,
    fields_of,
    rounding_total,
    split_rounding,
)
from tb_memplugin.storage.frames import MAX_STRING_CHARACTERS

_OF_RECORDER = {"step", "wall_time", "replay", "held_tensors", "at_failure", "largest_tensors"}


def snapshot_from_mapping(fields: Mapping[str, Any]) -> Snapshot:
    """The snapshot described by `fields` as in `summary.allocator_snapshot`; its step is 0. Raises
    RecordingError."""
    if not isinstance(fields, Mapping) or "device" not in fields or "in_use_bytes" not in fields:
        raise RecordingError(
            f"an allocator snapshot needs device and in_use_bytes. Received: {fields!r:.200}"
        )
    known = set(Snapshot.__dataclass_fields__) - _OF_RECORDER
    unknown = sorted(set(map(str, fields)) - known)
    if unknown:
        raise RecordingError(
            f"an allocator snapshot has the fields {', '.join(sorted(known))}. Received: "
            f"{', '.join(unknown)}"
        )
    described = {"phase": "train", "mode": "graph", **fields}
    values = {
        field.name: _checked(field, described)
        for field in fields_of(Snapshot)
        if field.name in known
    }
    made = Snapshot(step=0, wall_time=time.time(), **values)
    remainder = made.in_use_bytes - sum(row.bytes for row in made.ledger)
    if remainder < 0:
        raise RecordingError(
            f"the ledger's rows add up to {made.in_use_bytes - remainder} bytes, more than "
            f"in_use_bytes={made.in_use_bytes}"
        )
    if remainder:
        rest = LedgerRow(None, "unattributed", None, remainder, None)
        made = dataclasses.replace(made, ledger=(*made.ledger, rest))
    return with_rounding_apart(made)


def _checked(field: Field, described: Mapping[str, Any], of: str = "") -> Any:
    """The value of a field of a snapshot or of one of its rows; `of` names the row in the error."""
    value: Any = described.get(field.name)
    if field.kind == "texts":
        value = described.get(field.name, ())
        several = (value,) if isinstance(value, str) else value
        if not isinstance(several, Sequence) or not all(isinstance(one, str) for one in several):
            raise RecordingError(
                f"{field.name} must be a sentence, or a list of sentences. Received: {value!r:.200}"
            )
        return tuple(several)
    if field.kind == "rows":
        row, rows = f" of a {field.name} row", described.get(field.name, ())
        if not isinstance(rows, Sequence) or not all(isinstance(one, Mapping) for one in rows):
            raise RecordingError(
                f"{field.name} must be a list of mappings. Received: {rows!r:.200}"
            )
        parts = fields_of(field.record)
        return tuple(
            field.record(**{one.name: _checked(one, given, row) for one in parts}) for given in rows
        )
    if value is None and (field.optional or field.kind == "flag"):
        return None
    if field.choices and value not in field.choices:
        raise RecordingError(
            f"{field.name}{of} must be one of {', '.join(field.choices)}. Received: {value!r:.100}"
        )
    if field.name == "batch_size":
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 < value <= MAX_BYTES:
            raise RecordingError(
                f"batch_size must be a number of examples from 1. Received: {value!r:.100}"
            )
        return int(value)
    if field.kind == "integer":
        return check_bytes(value, field.name + of)
    if field.kind == "number" and not (isinstance(value, (int, float)) and 0 <= value <= 1):
        raise RecordingError(f"{field.name} must be from 0 to 1. Received: {field.name}={value!r}")
    if field.name == "layer":
        return check_layer(value)
    return {"number": float, "flag": bool}.get(field.kind, str)(value)


def is_statistics(fields: Any) -> bool:
    """Whether `fields` is what `tf.config.experimental.get_memory_info` returns: ``current`` and
    ``peak``."""
    return isinstance(fields, Mapping) and set(fields) == {"current", "peak"}


def snapshot_from_statistics(statistics: Mapping[str, Any], device: str) -> Snapshot:
    """The snapshot at the peak of an allocator whose statistics are known; its step is 0. Raises
    RecordingError."""
    check_bytes(statistics["current"], "current")
    return snapshot_from_mapping(
        {"device": device, "in_use_bytes": check_bytes(statistics["peak"], "peak")}
    )


def with_rounding_apart(snapshot: Snapshot) -> Snapshot:
    """The snapshot with rounding as its own category, and with its total if that is not given."""
    ledger = split_rounding(snapshot.ledger)
    rounding = snapshot.rounding_bytes
    if rounding is None and any(row.rounding_bytes is not None for row in ledger):
        rounding = rounding_total(ledger)
    return dataclasses.replace(snapshot, ledger=ledger, rounding_bytes=rounding)


def check_layer(path: Any) -> str:
    """A layer path, validated."""
    if not isinstance(path, str) or not path or len(path) > MAX_STRING_CHARACTERS:
        raise RecordingError(
            f"a layer path must be a string of 1 to {MAX_STRING_CHARACTERS} characters. "
            f"Received: {path!r:.100}"
        )
    return path


def check_bytes(size: Any, what: str) -> int:
    """A byte count, validated; `what` names it in the error."""
    number = not isinstance(size, (bool, str, bytes)) and (
        hasattr(size, "__index__") or hasattr(size, "__float__")
    )
    value = float(size) if number else math.nan
    if not math.isfinite(value) or value < 0 or value != math.floor(value) or value > MAX_BYTES:
        raise RecordingError(
            f"{what} must be an integer number of bytes from 0. Received: {size!r:.100}"
        )
    return int(size)
