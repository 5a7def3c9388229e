"""Snapshots that users describe as mappings, validated."""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tb_memplugin.errors import RecordingError
from tb_memplugin.events.frames.column_codec import MAX_STRING_CHARACTERS
from tb_memplugin.model import CATEGORIES, PHASES, LedgerRow, SavedRow, Snapshot
from tb_memplugin.model.fields import MAX_BYTES
from tb_memplugin.model.rounding import rounding_total, split_rounding


def snapshot_from_mapping(fields: Mapping[str, Any]) -> Snapshot:
    """The snapshot described by `fields` as in `summary.allocator_snapshot`; its step is 0.

    Raises:
        RecordingError: A field is missing or invalid.
    """
    if not isinstance(fields, Mapping) or "device" not in fields or "in_use_bytes" not in fields:
        raise RecordingError(f"an allocator snapshot needs device and in_use_bytes. Received: {fields!r:.200}")
    known = set(Snapshot.__dataclass_fields__) - {"step", "wall_time", "replay", "held_tensors", "at_failure"}
    unknown = sorted(set(map(str, fields)) - known)
    if unknown:
        raise RecordingError(
            f"an allocator snapshot has the fields {', '.join(sorted(known))}. Received: {', '.join(unknown)}"
        )
    in_use = check_bytes(fields["in_use_bytes"], "in_use_bytes")
    fragmentation = fields.get("fragmentation")
    if fragmentation is not None and not (isinstance(fragmentation, (int, float)) and 0 <= fragmentation <= 1):
        raise RecordingError(f"fragmentation must be from 0 to 1. Received: fragmentation={fragmentation!r}")
    made = Snapshot(
        step=0,
        phase=_one_of(fields.get("phase", "train"), PHASES, "phase"),
        device=str(fields["device"]),
        wall_time=time.time(),
        mode=_one_of(fields.get("mode", "graph"), ("graph", "eager", "xla"), "mode"),
        in_use_bytes=in_use,
        pool_bytes=_maybe_bytes(fields, "pool_bytes"),
        largest_free_bytes=_maybe_bytes(fields, "largest_free_bytes"),
        capacity_bytes=_maybe_bytes(fields, "capacity_bytes"),
        rounding_bytes=_maybe_bytes(fields, "rounding_bytes"),
        fragmentation=None if fragmentation is None else float(fragmentation),
        ledger=_ledger(fields.get("ledger", ()), in_use),
        saved_for_backward=tuple(
            SavedRow(_maybe_layer(row.get("layer")), check_bytes(row.get("bytes"), "bytes of saved_for_backward"))
            for row in _rows(fields.get("saved_for_backward", ()), "saved_for_backward")
        ),
        not_available=_sentences(fields.get("not_available", ())),
        batch_size=_batch_size(fields.get("batch_size")),
    )
    return with_rounding_apart(made)


def _sentences(value: Any) -> tuple[str, ...]:
    """A sentence, or several."""
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, Sequence) or not all(isinstance(one, str) for one in several):
        raise RecordingError(f"not_available must be a sentence, or a list of sentences. Received: {value!r:.200}")
    return tuple(several)


def is_statistics(fields: Any) -> bool:
    """Whether `fields` is what `tf.config.experimental.get_memory_info` returns: ``current`` and ``peak``."""
    return isinstance(fields, Mapping) and set(fields) == {"current", "peak"}


def snapshot_from_statistics(statistics: Mapping[str, Any], device: str) -> Snapshot:
    """The snapshot at the peak of an allocator whose statistics are known; its step is 0.

    Raises:
        RecordingError: The figures are no numbers of bytes.
    """
    check_bytes(statistics["current"], "current")
    return snapshot_from_mapping({"device": device, "in_use_bytes": check_bytes(statistics["peak"], "peak")})


def with_rounding_apart(snapshot: Snapshot) -> Snapshot:
    """The snapshot with rounding as its own category, and with its total if that is not given."""
    ledger = split_rounding(snapshot.ledger)
    rounding = snapshot.rounding_bytes
    if rounding is None and any(row.rounding_bytes is not None for row in ledger):
        rounding = rounding_total(ledger)
    return dataclasses.replace(snapshot, ledger=ledger, rounding_bytes=rounding)


def _ledger(rows: Any, in_use: int) -> tuple[LedgerRow, ...]:
    ledger = []
    for row in _rows(rows, "ledger"):
        rounding = row.get("rounding_bytes")
        ledger.append(
            LedgerRow(
                layer=_maybe_layer(row.get("layer")),
                category=_one_of(row.get("category"), CATEGORIES, "category of a ledger row"),
                trainable=None if row.get("trainable") is None else bool(row["trainable"]),
                bytes=check_bytes(row.get("bytes"), "bytes of a ledger row"),
                rounding_bytes=None if rounding is None else check_bytes(rounding, "rounding_bytes of a ledger row"),
            )
        )
    remainder = in_use - sum(row.bytes for row in ledger)
    if remainder < 0:
        raise RecordingError(f"the ledger's rows add up to {in_use - remainder} bytes, more than in_use_bytes={in_use}")
    if remainder:
        ledger.append(LedgerRow(None, "unattributed", None, remainder, None))
    return tuple(ledger)


def check_layer(path: Any) -> str:
    """A layer path, validated."""
    if not isinstance(path, str) or not path or len(path) > MAX_STRING_CHARACTERS:
        raise RecordingError(
            f"a layer path must be a string of 1 to {MAX_STRING_CHARACTERS} characters. Received: {path!r:.100}"
        )
    return path


def _maybe_layer(path: Any) -> str | None:
    return None if path is None else check_layer(path)


def check_bytes(size: Any, what: str) -> int:
    """A byte count, validated; `what` names it in the error."""
    number = not isinstance(size, (bool, str, bytes)) and (hasattr(size, "__index__") or hasattr(size, "__float__"))
    value = float(size) if number else math.nan
    if not math.isfinite(value) or value < 0 or value != math.floor(value) or value > MAX_BYTES:
        raise RecordingError(f"{what} must be an integer number of bytes from 0. Received: {size!r:.100}")
    return int(size)


def _maybe_bytes(fields: Mapping[str, Any], name: str) -> int | None:
    return None if fields.get(name) is None else check_bytes(fields[name], name)


def _batch_size(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__") or not 0 < value <= MAX_BYTES):
        raise RecordingError(f"batch_size must be a number of examples from 1. Received: {value!r:.100}")
    return None if value is None else int(value)


def _one_of(value: Any, choices: tuple[Any, ...], what: str) -> Any:
    if value not in choices:
        raise RecordingError(f"{what} must be one of {', '.join(choices)}. Received: {value!r:.100}")
    return value


def _rows(rows: Any, what: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
        raise RecordingError(f"{what} must be a list of mappings. Received: {rows!r:.200}")
    return rows
