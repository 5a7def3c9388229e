"""Counters to frames and back, through the writer and the reader."""

import dataclasses
import pathlib

import numpy as np
import pytest
from frame_cases import columns, spoiled
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import START, equal, make_samples

import tb_memplugin
from tb_memplugin.errors import FormatError
from tb_memplugin.events import codec
from tb_memplugin.events.counter_records import MAX_ROWS, counters_frame, join_counters, read_counters, take_counters
from tb_memplugin.events.fields import MAX_BYTES
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.model import MISSING, Counters

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
    many = join_counters([COUNTERS] * (MAX_ROWS // 3 + 1))
    assert many is not None
    with pytest.raises(FormatError, match="the limit is 4096"):
        read_counters(counters_frame(many, 0))


def test_a_run_has_the_counters_of_each_session(tmp_path: pathlib.Path) -> None:
    many = join_counters([COUNTERS] * (MAX_ROWS // 3 + 1))
    assert many is not None
    for counters, start in ((COUNTERS, START), (many, START + 1000)):
        writer = RunWriter(tmp_path / "run")
        writer.samples(make_samples([2, 9], [10, 10], start=start))
        writer.counters(counters)
        writer.close()
    run = tb_memplugin.load(tmp_path)["run"]
    assert run.damage == () and sorted(map(len, run.counters)) == [3, len(many)]
    assert any(equal(one, COUNTERS) for one in run.counters) and any(equal(one, many) for one in run.counters)
