"""Tables of layers and categories that several streams share: ledgers, and owners of chunks."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from tb_memplugin.errors import FormatError
from tb_memplugin.events import fields
from tb_memplugin.events.codec import Frame
from tb_memplugin.model import CATEGORIES, MISSING, Category, ChunkOwner, LedgerRow

MAX_LEDGER_ROWS = 200_000
"""Most rows of a ledger; the reader refuses more before it builds objects."""
MAX_OWNERS = 200_000


def ledger_columns(ledger: Sequence[LedgerRow]) -> dict[str, Any]:
    """The columns of a ledger."""
    return {
        "layer": [row.layer for row in ledger],
        "category": [row.category for row in ledger],
        "trainable": fields.optional_column([None if row.trainable is None else int(row.trainable) for row in ledger]),
        "bytes": fields.optional_column([row.bytes for row in ledger]),
        "rounding_bytes": fields.optional_column([row.rounding_bytes for row in ledger]),
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
        "trainable": fields.optional_column(
            [None if owner.trainable is None else int(owner.trainable) for owner in owners]
        ),
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
