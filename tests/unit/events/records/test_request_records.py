"""Requests of steps to frames and back; inconsistent frames are refused."""

import contextlib
import dataclasses
from typing import Any

import numpy as np
import pytest
from frame_cases import columns, spoiled
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_cases import equal
from requests_cases import make_traced

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames import codec
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.records import request_records
from tb_memplugin.events.records.request_records import read_requests, requests_frame
from tb_memplugin.model import StepRequests
from tb_memplugin.prediction.prediction import reproduce
from tb_memplugin.recorder.tracing.schedule import EACH_BATCH, EACH_CHANGE, MOST, KeptRequests

TAKEN = make_traced()[3].requests
FRAME = requests_frame(TAKEN, 4)
CHUNKS = len(TAKEN)


def read(frame: Frame) -> StepRequests:
    return read_requests(codec.decode(codec.encode(frame)))


def changed(name: str, row: int, value: int) -> np.ndarray:
    column = getattr(TAKEN, name).copy()
    column[row] = value
    return column


def test_everything_is_read_back_as_it_was_written() -> None:
    assert equal(read(FRAME), TAKEN)
    assert reproduce(read(FRAME)).whole
    bare = dataclasses.replace(TAKEN, batch_size=None, capacity_bytes=None)
    assert equal(read(requests_frame(bare, 0)), bare)
    odd = dataclasses.replace(TAKEN, unrepeatable=("net/noise",))
    assert read(requests_frame(odd, 0)).unrepeatable == ("net/noise",)


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("birth", changed("birth", CHUNKS - 1, TAKEN.events), "birth"),
        ("birth", changed("birth", 0, 3), "do not match a step"),
        ("death", changed("death", CHUNKS - 1, TAKEN.events + 1), "death"),
        ("death", np.maximum(TAKEN.birth, 0), "freed before"),
        ("owner", changed("owner", 0, len(TAKEN.owners)), "owner"),
        ("op", changed("op", 0, len(TAKEN.ops)), "op"),
        ("batch_power", changed("batch_power", 0, 3), "batch_power"),
        ("requested", TAKEN.allocated + 1, "more requested than allocated"),
        ("allocated", changed("allocated", 0, -1), "byte counts"),
        ("allocated", np.where(TAKEN.birth < 0, TAKEN.allocated + (1 << 30), TAKEN.allocated), "overlap"),
        ("address", changed("address", 0, -5), "addresses"),
    ],
)
def test_inconsistent_frames_are_refused(column: str, value: Any, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        read(spoiled(FRAME, "chunks", column, value))


@pytest.mark.parametrize("value", [10**400, -1, True, "text", None, [], {}, 1.5, 2**53, [1], {"device": 3}])
def test_any_attribute_gives_a_value_or_a_format_error(value: Any) -> None:
    for attribute in FRAME.attributes:
        frame = dataclasses.replace(FRAME, attributes={**FRAME.attributes, attribute: value})
        with contextlib.suppress(FormatError):
            assert isinstance(read(frame), StepRequests)


@settings(max_examples=300)
@given(st.data())
def test_any_spoiled_column_gives_a_step_that_can_be_replayed_or_a_format_error(data: st.DataObject) -> None:
    table = data.draw(st.sampled_from(sorted(FRAME.tables)))
    column = data.draw(st.sampled_from(sorted(FRAME.tables[table])))
    with contextlib.suppress(FormatError):
        assert reproduce(read(spoiled(FRAME, table, column, data.draw(columns)))).of >= 0


def test_a_step_with_too_many_chunks_is_neither_written_nor_read(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = requests_frame(TAKEN, 0)
    monkeypatch.setattr(request_records, "MAX_REQUESTS", CHUNKS - 1)
    with pytest.raises(FormatError, match="over the limit"):
        requests_frame(TAKEN, 0)
    with pytest.raises(FormatError, match="over the limit"):
        read(frame)


def test_the_first_step_after_a_change_and_a_few_of_each_batch_size_are_kept() -> None:
    kept = KeptRequests()

    def wants(batch: int, first: bool = False, count: int = 1) -> list[bool]:
        return [kept.wants("GPU:0", "train", batch, first) for _ in range(count)]

    assert wants(8, first=True) == [True]
    assert wants(8, count=EACH_BATCH + 2) == [True] * EACH_BATCH + [False] * 2
    assert wants(5) == [True]
    assert kept.wants("GPU:1", "train", 8, False) and kept.wants("GPU:0", "validation", 8, False)
    assert sum(sum(wants(size)) for size in range(100, 200)) == EACH_CHANGE - 2 - EACH_BATCH
    assert wants(8, first=True) == [True] and wants(8) == [True]
    assert sum(wants(8, first=True, count=100)) <= MOST
