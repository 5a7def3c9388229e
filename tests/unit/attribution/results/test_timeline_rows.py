"""Rows of a timeline are kept as columns while they are collected."""

import gc

from tb_memplugin.attribution.results.timeline_rows import Row, RowBuilder
from tb_memplugin.attribution.trace.window import Owner
from tb_memplugin.schema import MISSING


def test_rows_become_columns_with_numbers_for_names() -> None:
    owner, other = Owner("net/a", "weights", True), Owner("net/b", "activations", None)
    builder = RowBuilder()
    builder.add(Row(0, 4, owner, 1024, 24, "op", 4096, (2, 3), "train.py:7"))
    builder.add(Row(1, 2, other, 512, MISSING), count=3)
    builder.add(Row(2, 2, other, 512, 0))  # lives at no moment
    rows = builder.rows()
    assert rows.start.tolist() == [0, 1] and rows.end.tolist() == [4, 2] and rows.bytes.tolist() == [1024, 512]
    assert rows.rounding_bytes.tolist() == [24, MISSING] and rows.count.tolist() == [1, 3]
    assert list(builder.owners) == [owner, other] and rows.owner.tolist() == [0, 1]
    assert rows.op.tolist() == [0, -1] and rows.address.tolist() == [4096, -1]
    assert rows.shape.tolist() == [0, -1] and rows.line.tolist() == [0, -1]
    assert list(builder.ops) == ["op"] and list(builder.shapes) == [(2, 3)] and list(builder.lines) == ["train.py:7"]
    assert RowBuilder().rows().start.tolist() == []


def test_rows_are_few_objects_for_pythons_garbage_collector() -> None:
    """The more objects a recorder makes, the earlier those of the program grow old, and old ones are collected late."""
    builder, owner = RowBuilder(), Owner("net/a", "weights", True)
    gc.disable()
    try:
        before = len(gc.get_objects())
        for moment in range(2000):
            builder.add(Row(moment, moment + 1, owner, 256, 0, "op", 4096, (2, 3)))
        made = len(gc.get_objects()) - before
    finally:
        gc.enable()
    assert made < 20 and len(builder.rows().start) == 2000
