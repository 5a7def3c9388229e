"""Frames of roll-ups: what is written is read, and what a stranger made is refused."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from reading_cases import MIB, equal, make_oom, make_samples, make_snapshot

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames import codec
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.records.rollup_records import MAX_DEVICES, packed, read_rollup, rollup_frame, unpacked
from tb_memplugin.events.records.session_records import new_session_info
from tb_memplugin.events.session_rollup import SessionRollup
from tb_memplugin.model.rollup import Rollup


def made() -> Rollup:
    """Two phases, a traced step, a measured pool and a failure."""
    rollup = SessionRollup()
    rollup.add_samples(make_samples(range(50), range(MIB, 51 * MIB, MIB), pools={4: (512 * MIB, 100 * MIB)}))
    rollup.add_samples(make_samples([49, 49], [7, 9], phase="validation"))
    rollup.add_samples(make_samples([50], [9], device="GPU:0", epoch=-(2**63)))
    rollup.add_snapshot(make_snapshot(3))
    rollup.add_oom(make_oom(51))
    return rollup.rollup(new_session_info("s", "recorder", {}))


def stored(frame: Frame) -> Frame:
    return codec.decode(codec.encode(frame))


def test_what_is_written_is_read() -> None:
    rollup = made()
    read = read_rollup(stored(rollup_frame(rollup, 3)))
    assert equal(read, rollup)
    assert read.devices[0].phases["train"].traced is not None and read.devices[0].ooms == 1


def test_devices_that_went_on_after_a_failure_are_named() -> None:
    rollup = made()
    devices = (dataclasses.replace(rollup.devices[0], went_on=True), *rollup.devices[1:])
    read = read_rollup(stored(rollup_frame(dataclasses.replace(rollup, devices=devices), 3)))
    assert [device.went_on for device in read.devices] == [True, False]
    for wrong in ([1000], [-1], [True], ["CPU:0"], {"0": 1}):
        frame = rollup_frame(rollup, 3)
        frame.attributes["went_on"] = wrong
        with pytest.raises(FormatError, match="went on"):
            read_rollup(stored(frame))


def test_a_closed_session_says_when_it_ended() -> None:
    rollup = dataclasses.replace(made(), ended=5.5)
    assert read_rollup(stored(rollup_frame(rollup, 0))).ended == 5.5


def test_a_session_without_samples_is_read() -> None:
    rollup = SessionRollup()
    rollup.add_snapshot(make_snapshot(3))
    expected = rollup.rollup(new_session_info("s", "import", {}))
    assert equal(read_rollup(stored(rollup_frame(expected, 0))), expected)
    assert expected.first_step is None and not expected.is_recorders


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("phases", "device", 2),
        ("phases", "phase", 3),
        ("phases", "steps", -1),
        ("phases", "peak_bytes", -5),
        ("traced", "row", 99),
        ("traced", "peak_bytes", -(2**63)),
        ("parts", "row", -1),
        ("parts", "bytes", 2**60),
        ("pools", "free_bytes", -(2**63)),
        ("devices", "ooms", -1),
        ("spans", "phase", 7),
        ("spans", "first_step", 1000),
        ("spans", "first_step", -1),
        ("peaks", "peak_bytes", -3),
        ("levels", "step", -1),
    ],
)
def test_values_out_of_range_are_refused(table: str, column: str, value: int) -> None:
    frame = stored(rollup_frame(made(), 0))
    changed = np.array(unpacked(frame)[table][column])
    changed[0] = value
    with pytest.raises(FormatError):
        read_rollup(with_column(frame, table, column, changed))


def with_column(frame: Frame, table: str, column: str, values: Any) -> Frame:
    """The frame with other values in a column of integers, or of texts."""
    if table in frame.tables:
        return dataclasses.replace(frame, tables={**frame.tables, table: {column: values}})
    tables = {name: dict(columns) for name, columns in unpacked(frame).items()}
    tables[table][column] = values
    lengths, packed_values = packed(tables)
    return dataclasses.replace(
        frame,
        attributes={**frame.attributes, "lengths": lengths},
        tables={**frame.tables, "integers": {"value": packed_values}},
    )


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("names", "name", ("CPU:0", "CPU:0")),
        ("names", "name", ("CPU:0", None)),
        ("names", "name", ("CPU:0",)),
        ("names", "name", tuple(f"GPU:{at}" for at in range(MAX_DEVICES + 1))),
        ("categories", "category", ("wights",) * 10),
        ("categories", "category", ("weights",)),
        ("times", "last_wall_time", np.zeros(1)),
        ("integers", "value", np.zeros(7, np.int64)),
        ("peaks", "peak_step", np.zeros(5, np.int64)),
        ("level_sizes", "in_use_bytes", np.zeros(5, np.int64)),
    ],
)
def test_columns_that_do_not_fit_are_refused(table: str, column: str, values: Any) -> None:
    with pytest.raises(FormatError):
        read_rollup(with_column(stored(rollup_frame(made(), 0)), table, column, values))


@pytest.mark.parametrize(
    ("name", "value"),
    [("started", None), ("is_recorders", 1), ("samples", -1), ("first_step", "0"), ("lengths", 3)],
)
def test_attributes_of_another_type_are_refused(name: str, value: Any) -> None:
    frame = stored(rollup_frame(made(), 0))
    with pytest.raises(FormatError):
        read_rollup(dataclasses.replace(frame, attributes={**frame.attributes, name: value}))


@pytest.mark.parametrize("table", ["integers", "names", "categories", "times"])
def test_a_missing_table_is_refused(table: str) -> None:
    frame = stored(rollup_frame(made(), 0))
    tables = {name: columns for name, columns in frame.tables.items() if name != table}
    with pytest.raises(FormatError, match=table):
        read_rollup(dataclasses.replace(frame, tables=tables))
