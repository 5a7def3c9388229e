"""Memory maps and failed allocations to frames and back; inconsistent frames are refused."""

import contextlib
import dataclasses
from typing import Any

import numpy as np
import pytest
from frame_cases import columns, spoiled
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_cases import DEVICE, START, equal, make_map, make_oom, session_of

from tb_memplugin.attribution.oom.post_mortem import OomEvent, post_mortem
from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames import codec
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.frames.metadata import STREAMS
from tb_memplugin.events.records import memory_map_records, oom_records
from tb_memplugin.model import MemoryMap, Oom, Session, SessionInfo
from tb_memplugin.reader.decode import streams

MAP, OOM = make_map(3), make_oom(59)
BARE = post_mortem(OomEvent("2", "failing", DEVICE, START), None)
FRAMES = {"maps": memory_map_records.map_frame(MAP, 4), "oom": oom_records.oom_frame(OOM, 5)}
KINDS = {"maps": MemoryMap, "oom": Oom}


def read(frame: Frame) -> Any:
    stored = codec.decode(codec.encode(frame))
    return memory_map_records.read_map(stored) if STREAMS[stored.stream] == "maps" else oom_records.read_oom(stored)


def test_everything_is_read_back_as_it_was_written() -> None:
    assert equal(read(FRAMES["maps"]), MAP)
    assert equal(read(FRAMES["oom"]), OOM)
    assert equal(read(oom_records.oom_frame(BARE, 0)), BARE)
    with_line = dataclasses.replace(OOM, line="models/unet.py:42")
    assert equal(read(oom_records.oom_frame(with_line, 0)), with_line)
    imported = make_map(None)
    assert equal(read(memory_map_records.map_frame(imported, 0)), imported)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (spoiled(FRAMES["maps"], "chunks", "state", np.asarray([0, 1, 2, 3, 0])), "state"),
        (spoiled(FRAMES["maps"], "chunks", "owner", np.asarray([0, 1, 2, 0, 0])), "owner"),
        (spoiled(FRAMES["maps"], "chunks", "region", np.asarray([0, 1, 2, 0, 0])), "region"),
        (spoiled(FRAMES["maps"], "chunks", "address", np.asarray([-1, 1, 2, 3, 4])), "addresses"),
        (spoiled(FRAMES["maps"], "chunks", "bytes", np.asarray([-1, 1, 2, 3, 4])), "byte counts are"),
        (spoiled(FRAMES["maps"], "owners", "category", ["weights", "nonsense"]), "category"),
        (spoiled(FRAMES["oom"], "ledger", "bytes", np.asarray([1, 2, 3, 4, 5])), "does not sum"),
    ],
)
def test_inconsistent_frames_are_refused(frame: Frame, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        read(frame)


@pytest.mark.parametrize("name", sorted(FRAMES))
@pytest.mark.parametrize("value", [10**400, -1, True, "text", None, [], {}, 1.5, 2**53, [1], {"device": 3}])
def test_any_attribute_gives_a_value_or_a_format_error(name: str, value: Any) -> None:
    for attribute in FRAMES[name].attributes:
        frame = dataclasses.replace(FRAMES[name], attributes={**FRAMES[name].attributes, attribute: value})
        with contextlib.suppress(FormatError):
            assert isinstance(read(frame), KINDS[name])


@settings(max_examples=300)
@given(st.sampled_from(sorted(FRAMES)), st.data())
def test_any_spoiled_column_gives_a_value_or_a_format_error(name: str, data: st.DataObject) -> None:
    frame = FRAMES[name]
    table = data.draw(st.sampled_from(sorted(frame.tables)))
    column = data.draw(st.sampled_from(sorted(frame.tables[table])))
    with contextlib.suppress(FormatError):
        assert isinstance(read(spoiled(frame, table, column, data.draw(columns))), KINDS[name])


def test_tolerated_failures_are_dropped_and_the_last_record_is_used() -> None:
    def session(*statuses: str) -> Session:
        ooms = [dataclasses.replace(OOM, status=status) for status in statuses]  # type: ignore[arg-type]
        return session_of("s", {streams.META: [SessionInfo("s", START, "recorder", {}, ())], streams.OOM: ooms})[0]

    assert session("failing", "tolerated").ooms == ()
    assert [oom.status for oom in session("failing", "failed").ooms] == ["failed"]
    assert [oom.status for oom in session("failing").ooms] == ["failing"]
