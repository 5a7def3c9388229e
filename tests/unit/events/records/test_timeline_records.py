"""Timelines to frames and back; inconsistent frames are refused."""

import contextlib
import dataclasses
from typing import Any

import numpy as np
import pytest
from frame_cases import columns, spoiled
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_cases import equal, make_timeline

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames import codec
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.records import timeline_records
from tb_memplugin.events.records.timeline_records import read_timeline, timeline_frame
from tb_memplugin.model import Timeline
from tb_memplugin.recorder.tracing.schedule import ALL_OF_FIRST, KeptTimelines

TAKEN = make_timeline(3)
FRAME = timeline_frame(TAKEN, 4)


def read(frame: Frame) -> Timeline:
    return read_timeline(codec.decode(codec.encode(frame)))


def test_everything_is_read_back_as_it_was_written() -> None:
    assert equal(read(FRAME), TAKEN)
    bare = dataclasses.replace(TAKEN, bands=(), compiled=(), not_available=())
    assert equal(read(timeline_frame(bare, 0)), bare)


@pytest.mark.parametrize(
    ("table", "column", "value", "reason"),
    [
        ("allocations", "start", np.asarray([2, 0, 0, 5]), "start"),
        ("allocations", "end", np.asarray([4, 5, 5, 6]), "end"),
        ("allocations", "end", np.asarray([1, 5, 5, 5]), "ends before it starts"),
        ("allocations", "owner", np.asarray([0, 1, 2, 4]), "owner"),
        ("allocations", "op", np.asarray([0, 1, -1, -1]), "op"),
        ("allocations", "address", np.asarray([-2, 1, 1, 1]), "address"),
        ("allocations", "address", np.asarray([2**53, 1, 1, 1]), "address"),
        ("allocations", "shape", np.asarray([1, 0, -1, -1]), "shape"),
        ("allocations", "line", np.asarray([-1, -1, -1, 1]), "line"),
        ("shapes", "dimensions", np.asarray([3]), "need 3 dimensions"),
        ("shapes", "dimensions", np.asarray([-1]), "dimensions"),
        ("shapes", "dimensions", np.asarray([255]), "dimensions"),
        ("shapes", "dtype", [None], "lacks a text"),
        ("dimensions", "size", np.asarray([-1, 5]), "size"),
        ("dimensions", "size", np.asarray([64.0, 32.0]), "does not hold integers"),
        ("lines", "name", [None], "lacks a text"),
        ("lines", "name", np.asarray([5]), "another type"),
        ("allocations", "count", np.asarray([-1, 1, 1, 1]), "count"),
        ("allocations", "bytes", np.asarray([1, 2, 3, 4]), "do not|not to its"),
        ("allocations", "bytes", np.asarray([2**53 - 1] * 4), "not to its"),
        ("moments", "time_ns", np.asarray([0, 3, 2, 4, 5]), "decreases"),
        ("moments", "event", np.asarray([0, 1, 1, -1, 5]), "event"),
        ("owners", "category", ["weights", "nonsense", "weights", "weights"], "category"),
        ("bands", "name", ["forward", "sideways", "update", "update"], "band"),
        ("bands", "end", np.asarray([9, 9, 9, 9]), "end"),
        ("compiled", "end", np.asarray([1]), "ends before it starts"),
    ],
)
def test_inconsistent_frames_are_refused(table: str, column: str, value: Any, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        read(spoiled(FRAME, table, column, value))


@pytest.mark.parametrize("value", [10**400, -1, True, "text", None, [], {}, 1.5, 2**53, [1], {"device": 3}])
def test_any_attribute_gives_a_value_or_a_format_error(value: Any) -> None:
    for attribute in FRAME.attributes:
        frame = dataclasses.replace(FRAME, attributes={**FRAME.attributes, attribute: value})
        with contextlib.suppress(FormatError):
            assert isinstance(read(frame), Timeline)


@settings(max_examples=300)
@given(st.data())
def test_any_spoiled_column_gives_a_value_or_a_format_error(data: st.DataObject) -> None:
    table = data.draw(st.sampled_from(sorted(FRAME.tables)))
    column = data.draw(st.sampled_from(sorted(FRAME.tables[table])))
    with contextlib.suppress(FormatError):
        assert isinstance(read(spoiled(FRAME, table, column, data.draw(columns))), Timeline)


def test_sums_over_64_bits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_records, "MAX_TOTAL_BYTES", 2.0**40)
    with pytest.raises(FormatError, match="allocations of a timeline sum to over"):
        read(spoiled(FRAME, "allocations", "bytes", np.asarray([2**39] * 4)))


def test_more_dimensions_than_accepted_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_records, "MAX_ALL_DIMENSIONS", 1)
    with pytest.raises(FormatError, match="at most 1"):
        read(FRAME)


def test_columns_without_their_table_are_refused() -> None:
    for table in ("shapes", "lines", "dimensions"):
        left = {name: columns for name, columns in FRAME.tables.items() if name != table}
        with pytest.raises(FormatError, match=r"shape|line|dimensions"):
            read(dataclasses.replace(FRAME, tables=left))


def test_timelines_over_the_limit_are_neither_written_nor_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = codec.decode(codec.encode(FRAME))
    monkeypatch.setattr(timeline_records, "MAX_MOMENTS", 3)
    with pytest.raises(FormatError, match="limit of 3"):
        timeline_frame(TAKEN, 0)
    with pytest.raises(FormatError, match="1 to 3 are accepted"):
        read_timeline(stored)


def test_a_long_run_keeps_ever_fewer_but_every_new_peak() -> None:
    kept = KeptTimelines()
    wanted = [kept.wants("GPU:0", "train", 100) for _ in range(8 * ALL_OF_FIRST)]
    assert all(wanted[:ALL_OF_FIRST])
    assert [sum(wanted[ALL_OF_FIRST * n : ALL_OF_FIRST * (n + 1)]) for n in (1, 2, 4)] == [32, 16, 8]
    assert kept.wants("GPU:0", "train", 101) and kept.wants("GPU:0", "validation", 1)
