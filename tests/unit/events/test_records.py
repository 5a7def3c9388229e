"""Model objects to frames and back; inconsistent frames are refused."""

import contextlib
import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_cases import equal, make_activations, make_samples, make_snapshot, make_table

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames import codec
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.frames.metadata import STREAMS
from tb_memplugin.events.records import sample_records, session_records, snapshot_records
from tb_memplugin.model import MISSING, Layer, Replay, SessionInfo

INFO = SessionInfo("s", 1_790_000_000.25, "recorder", {"tensorflow": "2.21.0"}, ("no figure of the driver",), earlier=3)
SAMPLES = make_samples([3, 4, 5], [10, 2**53 - 1, 30], pools={4: (2**53 - 1, 7)})
ACTIVATIONS = make_activations([1, 2], ["a", "b", "c"], [[1, 2, 3], [4, MISSING, 6]])
SNAPSHOT = make_snapshot(7)
TABLE = make_table(9, unfrozen=True)
FRAMES = {
    "session": session_records.session_frame(INFO, 0),
    "analyzing": session_records.session_frame(dataclasses.replace(INFO, analyzing=12), 0),
    "layers": session_records.layer_table_frame(TABLE, 1),
    "samples": sample_records.samples_frame(SAMPLES, 2),
    "activations": sample_records.activations_frame(ACTIVATIONS, 3),
    "snapshots": snapshot_records.snapshot_frame(SNAPSHOT, 4),
}


def read(frame: Frame) -> Any:
    """What the reader makes of a frame."""
    stream = STREAMS[frame.stream]
    if stream == "meta":
        return session_records.read_meta("s", frame)
    readers: dict[str, Any] = {
        "samples": sample_records.read_samples,
        "peak": sample_records.read_samples,
        "activations": sample_records.read_activations,
        "snapshots": snapshot_records.read_snapshot,
    }
    return readers[stream](frame)


REPLAY = Replay(addresses=99, of_addresses=100, chunks=7, of_chunks=8, peak_bytes=2**53 - 1)
REPLAYED = dataclasses.replace(SNAPSHOT, replay=REPLAY)


def stored(frame: Frame) -> Frame:
    return codec.decode(codec.encode(frame))


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("session", INFO),
        ("analyzing", dataclasses.replace(INFO, analyzing=12)),
        ("layers", TABLE),
        ("samples", SAMPLES),
        ("activations", ACTIVATIONS),
        ("snapshots", SNAPSHOT),
    ],
)
def test_everything_is_read_back_as_it_was_written(name: str, written: object) -> None:
    assert equal(read(stored(FRAMES[name])), written)


def test_a_snapshots_replay_is_read_back_as_it_was_written() -> None:
    assert equal(read(stored(snapshot_records.snapshot_frame(REPLAYED, 0))), REPLAYED)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        "complete",
        3,
        {},
        {"addresses": 1},
        {**dataclasses.asdict(REPLAY), "peak_bytes": -1},
        {**dataclasses.asdict(REPLAY), "chunks": 1.5},
        {**dataclasses.asdict(REPLAY), "chunks": True},
        {**dataclasses.asdict(REPLAY), "chunks": None},
        {**dataclasses.asdict(REPLAY), "of_chunks": 2**70},
        {**dataclasses.asdict(REPLAY), "of_chunks": "8"},
        {**dataclasses.asdict(REPLAY), "addresses": 101},  # more than all
        {**dataclasses.asdict(REPLAY), "chunks": 9},
    ],
)
def test_an_impossible_replay_is_refused(wrong: object) -> None:
    frame = stored(snapshot_records.snapshot_frame(REPLAYED, 0))
    damaged = dataclasses.replace(frame, attributes={**frame.attributes, "replay": wrong})
    with pytest.raises(FormatError, match=r"replay|byte count"):
        read(damaged)


@given(
    st.lists(
        st.builds(
            Layer,
            path=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
            type=st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
            trainable=st.booleans(),
            parameters=st.integers(0, 2**53 - 1),
            weight_bytes=st.integers(0, 2**53 - 1),
            trainable_weight_bytes=st.integers(0, 2**53 - 1),
            optimizer_bytes=st.integers(0, 2**53 - 1),
            output_shape=st.none() | st.lists(st.integers(-1, 10_000), max_size=4).map(tuple),
            output_dtype=st.none() | st.sampled_from(["float32", "bfloat16"]),
            output_bytes=st.none() | st.integers(0, 2**53 - 1),
        ),
        max_size=5,
    )
)
def test_any_layer_table_is_read_back_as_it_was_written(layers: list[Layer]) -> None:
    table = dataclasses.replace(TABLE, layers=tuple(layers))
    assert equal(read(stored(session_records.layer_table_frame(table, 0))), table)


def spoiled(frame: Frame, table: str, column: str, value: Any) -> Frame:
    return dataclasses.replace(frame, tables={**frame.tables, table: {**frame.tables[table], column: value}})


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (spoiled(FRAMES["samples"], "samples", "step", np.asarray([-1, 0, 1])), "out of range"),
        (spoiled(FRAMES["samples"], "samples", "phase", np.asarray([0, 4, 0])), "phase other than 0 to 2: 4"),
        (spoiled(FRAMES["samples"], "samples", "peak_bytes/CPU:0", np.asarray([0, -5, 0])), "byte counts are"),
        (spoiled(FRAMES["samples"], "samples", "peak_bytes/CPU:0", np.asarray([0, 2**53, 0])), "byte counts are"),
        (spoiled(FRAMES["samples"], "samples", "pool_bytes/CPU:0", np.asarray([0, -5, 0])), "byte counts are"),
        (spoiled(FRAMES["samples"], "samples", "wall_time", np.asarray([0, 1, 2])), "does not hold numbers"),
        (dataclasses.replace(FRAMES["samples"], attributes={"devices": ["GPU:9"]}), "missing or of another type"),
        (dataclasses.replace(FRAMES["samples"], attributes={"devices": ["x" * 5_000]}), "device names"),
        (dataclasses.replace(FRAMES["samples"], attributes={}), "list at most 256 devices"),
        (dataclasses.replace(FRAMES["samples"], tables={}), "lacks the table"),
        (spoiled(FRAMES["activations"], "bytes", "bytes", np.asarray([1, 2, 3])), "do not fit"),
        (spoiled(FRAMES["activations"], "layers", "layer", ["a", "a", "b"]), "unique"),
        (spoiled(FRAMES["snapshots"], "ledger", "category", ["weights", "nonsense", *["inputs"] * 3]), "category"),
        (spoiled(FRAMES["snapshots"], "ledger", "bytes", np.asarray([1, 2, 3, 4, 5])), "does not sum"),
        (spoiled(FRAMES["layers"], "layers", "output_rank", np.asarray([4, 5])), "do not fit its dimensions"),
        (spoiled(FRAMES["layers"], "layers", "path", ["a", None]), "lacks a path"),
    ],
)
def test_inconsistent_frames_are_refused(frame: Frame, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        read(stored(frame))


@pytest.mark.parametrize("name", ["analyzing", "layers", "snapshots"])
@pytest.mark.parametrize("value", [10**400, -1, True, "text", None, [], {}, 1.5, 2**53, 1e308])
def test_any_attribute_gives_a_value_or_a_format_error(name: str, value: Any) -> None:
    for attribute in FRAMES[name].attributes:
        frame = dataclasses.replace(FRAMES[name], attributes={**FRAMES[name].attributes, attribute: value})
        with contextlib.suppress(FormatError):
            assert dataclasses.is_dataclass(read(stored(frame)))


values = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=3)
    | st.booleans()
    | st.lists(st.integers(), max_size=2)
)
columns = (
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(lambda column: np.asarray(column, np.int64))
    | st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=4).map(
        lambda column: np.asarray(column, np.float64)
    )
    | st.lists(st.none() | st.text(max_size=3), max_size=4).map(tuple)
)


@settings(max_examples=400)
@given(st.sampled_from(sorted(FRAMES)), st.data())
def test_any_spoiled_part_gives_a_value_or_a_format_error(name: str, data: st.DataObject) -> None:
    frame = FRAMES[name]
    spoil_attribute: bool = data.draw(st.booleans())
    if frame.attributes and spoil_attribute:
        key = data.draw(st.sampled_from(sorted(frame.attributes)))
        frame = dataclasses.replace(frame, attributes={**frame.attributes, key: data.draw(values)})
    elif frame.tables:
        table = data.draw(st.sampled_from(sorted(frame.tables)))
        column = data.draw(st.sampled_from(sorted(frame.tables[table])))
        frame = spoiled(frame, table, column, data.draw(columns))
    with contextlib.suppress(FormatError):
        assert dataclasses.is_dataclass(read(frame))


def test_a_ledger_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_records, "MAX_LEDGER_ROWS", 3)
    with pytest.raises(FormatError, match="over the limit of 3"):
        read(stored(FRAMES["snapshots"]))
