"""Rounding as a category of its own: the split of ledgers, and runs stored before the category existed."""

import dataclasses
import logging
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import make_snapshot
from timeline_cases import split_columns

import tb_memplugin
from tb_memplugin.events.frames import codec
from tb_memplugin.events.frames.record_frames import frame_of, read_frame
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.events.snapshot_mapping import snapshot_from_mapping
from tb_memplugin.model import CATEGORIES, MISSING, LedgerRow, Snapshot
from tb_memplugin.model.rounding import rounding_total, split_rounding

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


@given(ROWS)
def test_split_ledger_stays_the_same(rows: list[LedgerRow]) -> None:
    assert split_rounding(split_rounding(rows)) == split_rounding(rows)


def test_known_rounding_is_split_although_other_rounding_is_unknown() -> None:
    known = LedgerRow("a", "weights", False, 1024, 24)
    unknown = LedgerRow("a", "weights", False, 256, None)
    assert split_rounding([known, unknown]) == (
        LedgerRow("a", "weights", False, 1256, None),
        LedgerRow("a", "rounding", False, 24, 24),
    )


def test_an_unsplit_remainder_is_all_rounding() -> None:
    assert split_rounding([LedgerRow(None, "weights", True, 4096, 4096)]) == (
        LedgerRow(None, "rounding", True, 4096, 4096),
    )


def test_columns_are_split_as_rows_are() -> None:
    requested, rounding = split_columns(np.asarray([1024, 256, 512]), np.asarray([24, MISSING, 0]))
    assert (requested.tolist(), rounding.tolist()) == ([1000, 256, 512], [24, 0, 0])


# --- summaries -------------------------------------------------------------------------------------------------------


def test_rounding_in_the_rows_of_a_summary_is_split() -> None:
    row = {"layer": "net/conv", "category": "weights", "trainable": True, "bytes": 768, "rounding_bytes": 4}
    made = snapshot_from_mapping({"device": "GPU:0", "in_use_bytes": 1000, "ledger": [row]})
    assert made.ledger == (
        LedgerRow("net/conv", "weights", True, 764, 0),
        LedgerRow(None, "unattributed", None, 232, None),
        LedgerRow("net/conv", "rounding", True, 4, 4),
    )
    assert made.rounding_bytes == 4


def test_described_snapshot_is_a_valid_summary() -> None:
    taken = make_snapshot(0)
    rows = [dataclasses.asdict(row) for row in taken.ledger]
    made = snapshot_from_mapping({"device": "GPU:0", "in_use_bytes": taken.in_use_bytes, "ledger": rows})
    assert set(made.ledger) == set(taken.ledger) and made.rounding_bytes == 512


def test_held_tensors_are_a_category() -> None:
    row = {"layer": None, "category": "held_tensors", "trainable": None, "bytes": 1000, "rounding_bytes": 0}
    made = snapshot_from_mapping({"device": "GPU:0", "in_use_bytes": 1000, "ledger": [row]})
    assert read_frame(Snapshot, codec.decode(codec.encode(frame_of("snapshots", made, 0)))).ledger == (
        LedgerRow(None, "held_tensors", None, 1000, 0),
    )


def test_frames_of_the_next_format_are_skipped_with_one_warning(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a run of the next format
    this = codec.FORMAT_VERSION
    monkeypatch.setattr(codec, "FORMAT_VERSION", this + 1)
    writer = RunWriter(tmp_path / "new")
    writer.snapshot(make_snapshot(3))
    writer.snapshot(make_snapshot(4))
    writer.close()
    monkeypatch.setattr(codec, "FORMAT_VERSION", this)
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        run = tb_memplugin.load(tmp_path)["new"]
    assert run.snapshots == () and run.sessions == ()
    assert [record.getMessage().count(f"format {this + 1}") for record in caplog.records] == [1]
    assert len(run.damage) == 1
