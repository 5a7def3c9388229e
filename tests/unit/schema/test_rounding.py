"""Rounding as a category of its own: the split of ledgers."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from tb_memplugin.schema import CATEGORIES, LedgerRow, rounding_total, split_rounding

ROWS = st.lists(
    st.builds(
        LedgerRow,
        layer=st.sampled_from(["a", "b", None]),
        category=st.sampled_from(CATEGORIES),
        trainable=st.sampled_from([True, False, None]),
        bytes=st.integers(0, 2**40),
        rounding_bytes=st.none() | st.integers(0, 2**40),
    ),
    max_size=30,
)


@given(ROWS)
def test_the_split_keeps_every_byte_with_its_layer(rows: list[LedgerRow]) -> None:
    split = split_rounding(rows)
    for layer in ("a", "b", None):
        for trainable in (True, False, None):
            before, after = (
                sum(row.bytes for row in some if (row.layer, row.trainable) == (layer, trainable))
                for some in (rows, split)
            )
            assert before == after
    assert sum(row.bytes for row in split) == sum(row.bytes for row in rows)


@given(ROWS)
def test_after_the_split_no_row_is_partly_rounding(rows: list[LedgerRow]) -> None:
    split = split_rounding(rows)
    owners = [(row.layer, row.category, row.trainable) for row in split]
    assert len(set(owners)) == len(owners) and all(row.bytes > 0 for row in split)
    for row in split:
        assert row.rounding_bytes == row.bytes if row.category == "rounding" else row.rounding_bytes in (0, None)
    known = sum(row.bytes if row.category == "rounding" else min(row.rounding_bytes or 0, row.bytes) for row in rows)
    assert rounding_total(split) == known == sum(row.rounding_bytes or 0 for row in split)
    assert split_rounding(split) == split


def test_known_rounding_is_split_although_other_rounding_is_unknown() -> None:
    rows = [LedgerRow("a", "weights", False, 1024, 24), LedgerRow("a", "weights", False, 256, None)]
    assert split_rounding(rows) == (
        LedgerRow("a", "weights", False, 1256, None),
        LedgerRow("a", "rounding", False, 24, 24),
    )
    # AND an unsplit remainder is all rounding
    remainder = LedgerRow(None, "weights", True, 4096, 4096)
    assert split_rounding([remainder]) == (dataclasses.replace(remainder, category="rounding"),)
