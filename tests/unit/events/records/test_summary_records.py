"""Frames of summaries: what is written is read, and what a stranger made is refused."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from reading_cases import MIB, equal, make_samples, make_snapshot

from tb_memplugin.analysis.devices.worker_summary import summarize_session
from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames import codec
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.kept_session import KeptSession
from tb_memplugin.events.records.session_records import new_session_info
from tb_memplugin.events.records.summary_records import MAX_DEVICES, read_summary, summary_frame
from tb_memplugin.model.worker_summary import WorkerSummary


def made(samples: bool = True) -> WorkerSummary:
    """Two phases and devices, a traced step and a measured pool, or a traced step alone."""
    kept = KeptSession()
    if samples:
        kept.add_samples(make_samples(range(50), range(MIB, 51 * MIB, MIB), pools={4: (512 * MIB, 100 * MIB)}))
        kept.add_samples(make_samples([49, 49], [7, 9], phase="validation"))
        kept.add_samples(make_samples([50], [9], device="GPU:0"))
    kept.add_snapshot(make_snapshot(3))
    summary = kept.summary(new_session_info("s", "recorder", {}), summarize_session)
    assert summary is not None
    devices = (dataclasses.replace(device, rows=None) for device in summary.devices)
    return dataclasses.replace(summary, rows=None, devices=tuple(devices))


def stored(summary: WorkerSummary) -> Frame:
    return codec.decode(codec.encode(summary_frame(summary, 3)))


@pytest.mark.parametrize("samples", [True, False])
def test_what_is_written_is_read(samples: bool) -> None:
    for ended in (None, False, True):
        summary = dataclasses.replace(made(samples), ended=ended)
        assert equal(read_summary(stored(summary)), summary)
    assert sum(len(device.traced) for device in summary.devices) == 1
    assert (summary.first_step, len(summary.devices)) == ((0, 3) if samples else (None, 1))


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("devices", "name", ("CPU:0", "CPU:0", None)),
        ("devices", "name", tuple(f"GPU:{at}" for at in range(MAX_DEVICES + 1))),
        ("devices", "phase", 3),
        ("devices", "peak_bytes", -5),
        ("devices", "peak_step", -(2**63)),
        ("devices", "ooms", -1),
        ("devices", "pool_bytes", 2**60),
        ("devices", "traced_step", -1),
        ("parts", "device", 3),
        ("parts", "device", -1),
        ("parts", "bytes", -(2**63)),
        ("parts", "category", "wights"),
    ],
)
def test_values_out_of_range_are_refused(table: str, column: str, values: Any) -> None:
    frame = stored(made())
    columns = frame.tables[table]
    if isinstance(values, int):
        values = np.full(len(columns[column]), values)
    elif isinstance(values, str):
        values = (values,) * len(columns[column])
    with pytest.raises(FormatError):
        read_summary(dataclasses.replace(frame, tables={**frame.tables, table: {**columns, column: values}}))


@pytest.mark.parametrize(
    ("name", "value"),
    [("started", None), ("ended", 5), ("status", "fine"), ("first_step", "0"), ("last_wall_time", "now")],
)
def test_attributes_of_another_type_are_refused(name: str, value: Any) -> None:
    frame = stored(made())
    with pytest.raises(FormatError):
        read_summary(dataclasses.replace(frame, attributes={**frame.attributes, name: value}))


@pytest.mark.parametrize("table", ["devices", "parts"])
def test_a_missing_table_is_refused(table: str) -> None:
    frame = stored(made())
    tables = {name: columns for name, columns in frame.tables.items() if name != table}
    with pytest.raises(FormatError, match=table):
        read_summary(dataclasses.replace(frame, tables=tables))
