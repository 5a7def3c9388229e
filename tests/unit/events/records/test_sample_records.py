"""Frames of the parts of host memory: what is written is read, and hostile numbers are refused."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest
from frame_cases import columns, spoiled
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import START, equal, make_samples

import tb_memplugin
from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames import codec
from tb_memplugin.events.records.fields import MAX_BYTES
from tb_memplugin.events.records.sample_records import (
    MAX_COUNTER_ROWS,
    counters_frame,
    host_frame,
    join_counters,
    read_counters,
    read_host,
    take_counters,
)
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.model import HOST_COLUMNS, MISSING, Counters, HostSamples


def make_host() -> HostSamples:
    return HostSamples.of(
        {
            "step": [3, 900],
            "phase": [0, 1],
            "wall_time": [1.5, 2.5],
            "resident_bytes": [1000, 2000],
            "file_bytes": [300, 300],
            "shared_memory_bytes": [0, 10],
            "pinned_pool_bytes": [MISSING, 40],
            "cpu_pool_bytes": [MISSING, 500],
            "python_objects_bytes": [200, 200],
            "c_heap_bytes": [5000, MISSING],
            "c_heap_free_bytes": [1, MISSING],
            "tf_data_bytes": [MISSING, 0],
        }
    )


def test_rows_survive_the_round_trip() -> None:
    host = make_host()
    read = read_host(codec.decode(codec.encode(host_frame(host, 0))))
    for name in HOST_COLUMNS:
        assert getattr(read, name).tolist() == getattr(host, name).tolist()
    assert read.other_bytes().tolist() == [500, 950]


@pytest.mark.parametrize(
    "changed",
    [
        {"resident_bytes": np.array([499, 2000])},  # smaller than its parts
        {"file_bytes": np.array([-1, 300])},
        {"c_heap_bytes": np.array([2**60, 0])},
        {"phase": np.array([0, 9])},
        {"step": np.array([-1, 3])},
        {"wall_time": np.array([0.0, np.inf])},
        {"python_objects_bytes": np.array([0.5, 1.0])},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_hostile_numbers_are_refused(changed: dict[str, Any]) -> None:
    frame = host_frame(make_host(), 0)
    table = {**frame.tables["host"], **changed}
    with pytest.raises(FormatError):
        read_host(dataclasses.replace(frame, tables={"host": table}))


def test_a_missing_column_is_refused() -> None:
    frame = host_frame(make_host(), 0)
    table = {name: column for name, column in frame.tables["host"].items() if name != "tf_data_bytes"}
    with pytest.raises(FormatError):
        read_host(dataclasses.replace(frame, tables={"host": table}))


COUNTERS = Counters(
    step=np.asarray([2, 2, 9]),
    kind=("models_alive", "traces", "traces"),
    name=("GPU:0", "train_step", "train_step"),
    count=np.asarray([1, 1, 2]),
    bytes=np.asarray([MAX_BYTES, MISSING, MISSING]),
    detail=(None, None, "argument `scale` changed from 1 to 2 (Python value)"),
)


def stored(counters: Counters) -> Counters:
    return read_counters(codec.decode(codec.encode(counters_frame(counters, 7))))


def test_counters_are_read_back() -> None:
    assert equal(stored(COUNTERS), COUNTERS)


def test_rows_of_an_unknown_kind_are_left_out() -> None:
    newer = dataclasses.replace(COUNTERS, kind=("models_alive", "of_a_later_version", "traces"))  # type: ignore[arg-type]
    assert equal(stored(newer), take_counters(COUNTERS, np.asarray([True, False, True])))


@given(st.sampled_from(["step", "kind", "name", "count", "bytes", "detail"]), columns)
def test_any_spoiled_column_gives_counters_or_a_format_error(column: str, value: object) -> None:
    try:
        frame = codec.decode(codec.encode(spoiled(counters_frame(COUNTERS, 0), "counters", column, value)))
        read = read_counters(frame)
    except FormatError:
        return
    assert len(read) == len(read.kind) == len(read.name) == len(read.count) == len(read.bytes) == len(read.detail)
    assert (read.count >= 0).all() and (read.bytes >= MISSING).all()


def test_too_many_rows_are_refused() -> None:
    many = join_counters([COUNTERS] * (MAX_COUNTER_ROWS // 3 + 1))
    assert many is not None
    with pytest.raises(FormatError, match="the limit is 4096"):
        read_counters(counters_frame(many, 0))


def test_a_run_has_the_counters_of_each_session(tmp_path: pathlib.Path) -> None:
    many = join_counters([COUNTERS] * (MAX_COUNTER_ROWS // 3 + 1))
    assert many is not None
    for counters, start in ((COUNTERS, START), (many, START + 1000)):
        writer = RunWriter(tmp_path / "run")
        writer.samples(make_samples([2, 9], [10, 10], start=start))
        writer.counters(counters)
        writer.close()
    run = tb_memplugin.load(tmp_path)["run"]
    assert run.damage == () and sorted(map(len, run.counters)) == [3, len(many)]
    assert any(equal(one, COUNTERS) for one in run.counters) and any(equal(one, many) for one in run.counters)
