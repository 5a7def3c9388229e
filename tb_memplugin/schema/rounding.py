"""Rounding as a category of its own: splits allocated bytes into requested bytes and rounding. Pure.

In every row, before and after the split, `rounding_bytes` is the part of `bytes` that was not requested. After the
split it is 0, or all bytes of a row of category ``rounding``; if it is unknown, the row has allocated bytes.
"""

from collections.abc import Iterable

from tb_memplugin.schema.snapshot import Category, LedgerRow

_Key = tuple[str | None, Category, bool | None]


def split_rounding(rows: Iterable[LedgerRow]) -> tuple[LedgerRow, ...]:
    """The rows with all known rounding in rows of category ``rounding``, which keep their owners' layer and trainable.

    The sum of bytes stays the same. There is one row for each (layer, category, trainable), largest first, and none
    without bytes. Rows that are already split stay the same.
    """
    sums: dict[_Key, int] = {}
    unknown: set[_Key] = set()

    def add(key: _Key, size: int) -> None:
        if size:
            sums[key] = sums.get(key, 0) + size

    for row in rows:
        own: _Key = (row.layer, row.category, row.trainable)
        rounding = min(max(row.rounding_bytes or 0, 0), row.bytes)
        if row.category == "rounding":
            rounding = row.bytes
        elif row.rounding_bytes is None:
            unknown.add(own)
        add(own, 0 if row.category == "rounding" else row.bytes - rounding)
        add((row.layer, "rounding", row.trainable), rounding)
    split = (
        LedgerRow(
            layer,
            category,
            trainable,
            size,
            size if category == "rounding" else None if (layer, category, trainable) in unknown else 0,
        )
        for (layer, category, trainable), size in sums.items()
    )
    return tuple(sorted(split, key=lambda row: (-row.bytes, row.category, row.layer or "", str(row.trainable))))


def rounding_total(rows: Iterable[LedgerRow]) -> int:
    """Bytes of category ``rounding``."""
    return sum(row.bytes for row in rows if row.category == "rounding")
