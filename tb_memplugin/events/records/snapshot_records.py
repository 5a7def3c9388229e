"""Frames of snapshots, and the rows of ledgers in every kind of record."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.records import fields
from tb_memplugin.model import (
    CATEGORIES,
    MISSING,
    MODES,
    PHASES,
    Category,
    ChunkOwner,
    HeldTensorGroup,
    LedgerRow,
    Replay,
    SavedRow,
    Snapshot,
)
from tb_memplugin.model.basics import optional_column

MAX_LEDGER_ROWS = 200_000
"""Most rows of a ledger; the reader refuses more before it builds objects."""
MAX_OWNERS = 200_000


def ledger_columns(ledger: Sequence[LedgerRow]) -> dict[str, Any]:
    """The columns of a ledger."""
    return {
        "layer": [row.layer for row in ledger],
        "category": [row.category for row in ledger],
        "trainable": optional_column([None if row.trainable is None else int(row.trainable) for row in ledger]),
        "bytes": optional_column([row.bytes for row in ledger]),
        "rounding_bytes": optional_column([row.rounding_bytes for row in ledger]),
    }


def read_ledger(frame: Frame) -> tuple[LedgerRow, ...]:
    """Read the ledger of a snapshot or a failed allocation."""
    table = fields.table_of(frame, "ledger")
    categories = fields.strings(table, "category")
    if len(categories) > MAX_LEDGER_ROWS:
        raise FormatError(f"ledger of {len(categories)} rows is over the limit of {MAX_LEDGER_ROWS}")
    unknown = set(categories) - set(get_args(Category))
    if unknown:
        raise FormatError(f"unknown category {unknown.pop()!r:.40} in a ledger; expected one of {CATEGORIES}")
    layers, trainable = fields.strings(table, "layer"), fields.integers(table, "trainable")
    sizes, rounding = fields.known_bytes(table, "bytes"), fields.byte_column(table, "rounding_bytes")
    return tuple(
        LedgerRow(
            layer=layers[row],
            category=category,  # type: ignore[arg-type]  # checked above
            trainable=None if trainable[row] == MISSING else bool(trainable[row]),
            bytes=sizes[row],
            rounding_bytes=fields.maybe(rounding[row]),
        )
        for row, category in enumerate(categories)
    )


def owner_columns(owners: Sequence[ChunkOwner]) -> dict[str, Any]:
    """The columns of owners."""
    return {
        "layer": [owner.layer for owner in owners],
        "category": [owner.category for owner in owners],
        "trainable": optional_column([None if owner.trainable is None else int(owner.trainable) for owner in owners]),
    }


def read_owners(table: Mapping[str, Any]) -> tuple[ChunkOwner, ...]:
    """Read the owners of a table."""
    layers, categories = fields.strings(table, "layer"), fields.strings(table, "category")
    trainable = fields.integers(table, "trainable")
    if len(layers) > MAX_OWNERS or not set(categories) <= set(CATEGORIES):
        raise FormatError(f"owners need a category of {CATEGORIES}, and may be at most {MAX_OWNERS}")
    return tuple(
        ChunkOwner(layer, category, None if flag == MISSING else bool(flag))  # type: ignore[arg-type]  # checked above
        for layer, category, flag in zip(layers, categories, trainable.tolist(), strict=True)
    )


MAX_HELD_GROUPS = 10_000
"""Most groups of held tensors in one snapshot: the writer keeps the largest, the reader refuses more."""


def snapshot_frame(snapshot: Snapshot, sequence: int) -> Frame:
    """Frame of one snapshot."""
    attributes = {
        "phase": snapshot.phase,
        "device": snapshot.device,
        "wall_time": snapshot.wall_time,
        "batch_size": snapshot.batch_size,
        "mode": snapshot.mode,
        "in_use_bytes": snapshot.in_use_bytes,
        "pool_bytes": snapshot.pool_bytes,
        "largest_free_bytes": snapshot.largest_free_bytes,
        "capacity_bytes": snapshot.capacity_bytes,
        "fragmentation": snapshot.fragmentation,
        "rounding_bytes": snapshot.rounding_bytes,
        "not_available": list(snapshot.not_available),
        "replay": None if snapshot.replay is None else dataclasses.asdict(snapshot.replay),
    }
    ledger, saved = snapshot.ledger, snapshot.saved_for_backward
    tables: dict[str, dict[str, Any]] = {
        "ledger": ledger_columns(ledger),
        "saved_for_backward": {
            "layer": [row.layer for row in saved],
            "bytes": optional_column([row.bytes for row in saved]),
        },
        **_held_tensor_tables(snapshot.held_tensors[:MAX_HELD_GROUPS]),
    }
    return fields.make_frame("snapshots", sequence, np.asarray([snapshot.step]), attributes, tables)


def read_snapshot(frame: Frame) -> Snapshot:
    """Read the snapshot of a frame of stream ``snapshots``; its ledger sums to `in_use_bytes`."""
    attributes = frame.attributes
    phase, mode, notes = attributes.get("phase"), attributes.get("mode"), attributes.get("not_available")
    if phase not in PHASES or mode not in MODES or not isinstance(notes, list):
        raise FormatError(f"snapshot with unknown phase {phase!r:.20} or mode {mode!r:.20}")
    fragmentation = attributes.get("fragmentation")
    if fragmentation is not None and not 0 <= fields.number(attributes, "fragmentation") <= 1:
        raise FormatError(f"snapshot's fragmentation {fragmentation!r:.20} is not between 0 and 1")
    ledger = read_ledger(frame)
    in_use = fields.size(attributes, "in_use_bytes")
    if sum(row.bytes for row in ledger) != in_use:
        raise FormatError(f"snapshot's ledger does not sum to its {in_use} bytes in use")
    saved = fields.table_of(frame, "saved_for_backward")
    return Snapshot(
        step=frame.first_step,
        phase=phase,
        device=fields.device(attributes.get("device")),
        wall_time=fields.number(attributes, "wall_time"),
        mode=mode,
        in_use_bytes=in_use,
        pool_bytes=fields.optional_size(attributes, "pool_bytes"),
        largest_free_bytes=fields.optional_size(attributes, "largest_free_bytes"),
        capacity_bytes=fields.optional_size(attributes, "capacity_bytes"),
        fragmentation=None if fragmentation is None else float(fragmentation),
        rounding_bytes=fields.optional_size(attributes, "rounding_bytes"),
        ledger=ledger,
        saved_for_backward=tuple(
            SavedRow(layer, size)
            for layer, size in zip(fields.strings(saved, "layer"), fields.known_bytes(saved, "bytes"), strict=True)
        ),
        not_available=tuple(fields.text(note) for note in notes),
        replay=_read_replay(attributes.get("replay")),
        held_tensors=_read_held_tensors(frame),
        batch_size=fields.optional_size(attributes, "batch_size"),
    )


def _read_replay(value: Any) -> Replay | None:
    if value is None:  # recorded without memory maps
        return None
    if not isinstance(value, dict):
        raise FormatError("snapshot's replay is not an object")
    names = [field.name for field in dataclasses.fields(Replay)]
    replay = Replay(**{name: fields.size(value, name) for name in names})
    if replay.addresses > replay.of_addresses or replay.chunks > replay.of_chunks:
        raise FormatError("snapshot's replay reproduced more addresses or chunks than were recorded")
    return replay


def _held_tensor_tables(groups: Sequence[HeldTensorGroup]) -> dict[str, dict[str, Any]]:
    """Two tables, or none without groups."""
    if not groups:
        return {}
    columns = {
        "dtype": [group.dtype for group in groups],
        "rank": optional_column([len(group.shape) for group in groups]),
        "count": optional_column([group.count for group in groups]),
        "bytes": optional_column([group.bytes for group in groups]),
        "held_by": [group.held_by for group in groups],
        "line": [group.line for group in groups],
        "retaining_path": [group.retaining_path for group in groups],
        "category": [group.category for group in groups],
    }
    sizes = [size for group in groups for size in group.shape]
    return {"held_tensors": columns, "held_tensor_shapes": {"size": optional_column(sizes)}}


def _read_held_tensors(frame: Frame) -> tuple[HeldTensorGroup, ...]:
    if "held_tensors" not in frame.tables:
        return ()
    table = fields.table_of(frame, "held_tensors")
    shapes = fields.known_bytes(fields.table_of(frame, "held_tensor_shapes"), "size")
    dtypes = fields.strings(table, "dtype")
    texts = [fields.strings(table, name) for name in ("held_by", "line", "retaining_path")]
    # Without the column, all groups are of held tensors.
    texts.append(fields.strings({"category": ("held_tensors",) * len(dtypes), **table}, "category"))
    ranks, counts, sizes = (fields.known_bytes(table, name) for name in ("rank", "count", "bytes"))
    complete = None not in dtypes and set(texts[-1]) <= set(CATEGORIES)
    if len(dtypes) > MAX_HELD_GROUPS or sum(ranks) != len(shapes) or not complete:
        raise FormatError(
            f"held tensors need dtypes, shapes and categories, in at most {MAX_HELD_GROUPS} groups. "
            f"Received: {len(dtypes)} groups"
        )
    groups, at = [], 0
    for dtype, rank, count, size, *known in zip(dtypes, ranks, counts, sizes, *texts, strict=True):
        groups.append(HeldTensorGroup(tuple(shapes[at : at + rank]), str(dtype), count, size, *known))
        at += rank
    return tuple(groups)
