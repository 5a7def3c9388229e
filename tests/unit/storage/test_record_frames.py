"""Every record is a frame and a frame a record, or a format error."""

import contextlib
import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest
from frame_cases import columns, spoiled
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_cases import (
    START,
    equal,
    make_activations,
    make_map,
    make_oom,
    make_samples,
    make_snapshot,
    make_table,
    make_timeline,
    write_records,
)
from requests_cases import make_traced

import tb_memplugin
from tb_memplugin.errors import FormatError
from tb_memplugin.schema import (
    MAX_ADDRESS,
    MAX_BYTES,
    MISSING,
    Counters,
    DeviceSummary,
    Field,
    GroupBytes,
    HeldTensorGroup,
    LedgerRow,
    Replay,
    Samples,
    SessionInfo,
    Size,
    Snapshot,
    TracedPeak,
    WorkerSummary,
    as_json,
    fields_of,
    join_rows,
    stored_fields,
    take_rows,
)
from tb_memplugin.storage import ACTIVATION_HEADS, decode_tag
from tb_memplugin.storage.files import ByteBudget, StoredFrame, TagContent
from tb_memplugin.storage.frames import Frame, Tag, codec, frame_of, read_frame

MAX_COUNTER_ROWS = 4096
COUNTERS = Counters(
    step=np.asarray([2, 2, 9]),
    kind=("models_alive", "traces", "traces"),
    name=("GPU:0", "train_step", "train_step"),
    count=np.asarray([1, 1, 2]),
    bytes=np.asarray([MAX_BYTES, MISSING, MISSING]),
)
HAND_MADE = make_traced()[3].requests
REPLAY = Replay(addresses=99, of_addresses=100, chunks=7, of_chunks=8, peak_bytes=MAX_BYTES)
HELD = (
    HeldTensorGroup((3, 0), "float32", 2, 24, "list `history`", "train.py:3"),
    HeldTensorGroup((), "bool", 1, 1, None),
)
SNAPSHOT = dataclasses.replace(make_snapshot(7), replay=REPLAY, held_tensors=HELD)
PARTS = (GroupBytes("weights", False, 5), GroupBytes("activations", None, MAX_BYTES))
DEVICES = (
    DeviceSummary("GPU:0", "train", 9, 3, None, 7, None, 1, 2, (TracedPeak(3, 9, PARTS),)),
    DeviceSummary("CPU:0", "predict", 9, 3, 11, 7, 8, 0, 0, ()),
)
SUMMARY = WorkerSummary("", 1, START, None, "ok", 0, 50, START + 9, DEVICES)
RECORDS: dict[str, tuple[str, Any]] = {
    "session": (
        "meta",
        SessionInfo("s", START + 0.25, "recorder", {"keras": "3"}, ("no driver",), earlier=3),
    ),
    "layers": ("meta", make_table(9, unfrozen=True)),
    "samples": ("samples", make_samples([3, 4, 5], [10, MAX_BYTES, 30], pools={4: (MAX_BYTES, 7)})),
    "activations": (
        "activations",
        make_activations([1, 2], ["a", "b", "c"], [[1, 2, 3], [4, MISSING, 6]]),
    ),
    "counters": ("counters", COUNTERS),
    "snapshot": ("snapshots", SNAPSHOT),
    "map": ("maps", make_map(3)),
    "imported map": ("maps", make_map(None)),
    "oom": ("oom", make_oom(59)),
    "timeline": ("timelines", make_timeline(3)),
    "requests": ("requests", HAND_MADE),
    "summary": ("rollups", SUMMARY),
}
GIVEN = {SessionInfo: {"session": "s"}, WorkerSummary: {"worker": "", "sessions": 1}}
FRAMES = {name: frame_of(stream, record, 3) for name, (stream, record) in RECORDS.items()}
EMPTY = {
    **dict.fromkeys(("not_available", "bands", "compiled", "ledger", "held_tensors"), ()),
    "map": None,
    "replay": None,
}


def read(name: str, frame: Frame) -> Any:
    record = type(RECORDS[name][1])
    return read_frame(record, codec.decode(codec.encode(frame)), **GIVEN.get(record, {}))


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_is_read_as_it_was_written(name: str) -> None:
    stream, record = RECORDS[name]
    assert equal(read(name, FRAMES[name]), record)
    removable = {field.name for field in fields_of(type(record))} & EMPTY.keys()
    removable -= {"ledger"} if name == "snapshot" else set()
    bare = dataclasses.replace(record, **{key: EMPTY[key] for key in removable})
    assert equal(read(name, frame_of(stream, bare, 0)), bare)


def wrong_scalars(field: Field) -> list[Any]:
    """Values that a frame cannot hold for a field that is no column."""
    wrong: list[Any] = [10**400, [[]], {"x": 3}, "x" * 4097] + (
        [] if field.optional or field.kind == "texts" else [None]
    )
    wrong += (
        [value for value in (True, -1) if field.kind not in ("flag", "number")]
        if field.bounds
        else []
    )
    wrong += ["nonsense"] if field.choices or field.kind != "text" else [3]
    wrong += [field.bounds.most + 1] if field.bounds and field.kind != "text" else []
    return wrong + ([""] if field.bounds and field.kind == "text" else [])


@pytest.mark.parametrize("name", RECORDS)
def test_attributes_outside_of_their_types_and_bounds_are_refused(name: str) -> None:
    frame, record = FRAMES[name], type(RECORDS[name][1])
    taken = []
    for field in stored_fields(record):
        if field.kind in ("rows", "record", "devices") or field.table:
            continue
        for value in wrong_scalars(field):
            changed = dataclasses.replace(frame, attributes={**frame.attributes, field.name: value})
            with contextlib.suppress(FormatError):
                taken.append(
                    (field.name, value, read_frame(record, changed, **GIVEN.get(record, {})))
                )
    assert not taken


def wrong_columns(field: Field, count: int) -> list[Any]:
    """Columns that no table can hold for a field."""
    if field.kind in ("text", "texts"):
        lacking = [] if field.optional else [(None,) * count]
        return [
            np.zeros(count, np.int64),
            *([("nonsense",) * count] if field.choices else []),
            *lacking,
        ]
    wrong: list[Any] = [
        ("text",) * count,
        np.zeros(count) if field.kind != "numbers" else np.zeros(count, np.int64),
    ]
    if field.kind == "numbers" or (
        field.kind == "integers" and not field.bounds and not field.index
    ):
        return wrong
    is_open = (field.index and field.index.unknown) or field.kind == "flag" or not field.bounds
    least = -1 if is_open else field.bounds.least
    return [*wrong, np.full(count, least - 1, np.int64), np.full(count, MAX_ADDRESS + 1, np.int64)]


@pytest.mark.parametrize("name", RECORDS)
def test_columns_outside_of_their_types_and_bounds_are_refused(name: str) -> None:
    frame, taken = FRAMES[name], []
    for holder in stored_fields(type(RECORDS[name][1])):
        fields = fields_of(holder.record) if holder.kind == "rows" else (holder,)
        table = holder.table.name if holder.table else holder.name
        for field in fields if holder.kind != "devices" else ():
            column = frame.tables.get(table, {}).get(field.name)
            for value in (
                wrong_columns(field, len(column)) if column is not None and len(column) else ()
            ):
                with contextlib.suppress(FormatError):
                    taken.append(
                        (field.name, value, read(name, spoiled(frame, table, field.name, value)))
                    )
            left = {
                key: one for key, one in frame.tables.get(table, {}).items() if key != field.name
            }
            if not field.optional and column is not None and len(column):
                with contextlib.suppress(FormatError):
                    missing = dataclasses.replace(frame, tables={**frame.tables, table: left})
                    taken.append((field.name, "missing", read(name, missing)))
    assert not taken


@settings(max_examples=500)
@given(st.sampled_from(sorted(RECORDS)), st.data())
def test_any_spoiled_column_gives_a_record_or_a_format_error(
    name: str, data: st.DataObject
) -> None:
    frame = FRAMES[name]
    if not frame.tables:
        return
    table = data.draw(st.sampled_from(sorted(frame.tables)))
    column = data.draw(st.sampled_from(sorted(frame.tables[table])))
    with contextlib.suppress(FormatError):
        assert isinstance(
            read(name, spoiled(frame, table, column, data.draw(columns))), type(RECORDS[name][1])
        )


@pytest.mark.parametrize(
    ("name", "table", "column", "value", "reason"),
    [
        ("snapshot", "ledger", "bytes", np.asarray([1] * len(SNAPSHOT.ledger)), "does not sum"),
        ("oom", "ledger", "bytes", np.asarray([1] * len(RECORDS["oom"][1].ledger)), "does not sum"),
        ("activations", "layers", "layers", ("a", "b", "a"), "not unique"),
        ("activations", "bytes", "bytes", np.asarray([1, 2, 3]), "do not fit"),
        ("timeline", "allocations", "end", np.asarray([1, 5, 5, 5]), "ends before it starts"),
        ("timeline", "allocations", "bytes", np.asarray([1, 2, 3, 4]), "not to its"),
        ("timeline", "allocations", "bytes", np.asarray([MAX_BYTES] * 4), "not to its"),
        ("timeline", "moments", "time_ns", np.asarray([0, 3, 2, 4, 5]), "decrease"),
        ("timeline", "bands", "end", np.asarray([9, 9, 9, 9]), "ends before it starts"),
        ("timeline", "compiled", "end", np.asarray([1]), "ends before it starts"),
        ("timeline", "shapes", "shape", np.asarray([3]), "do not fit"),
    ],
)
def test_broken_invariants_are_refused(
    name: str, table: str, column: str, value: Any, reason: str
) -> None:
    with pytest.raises(FormatError, match=reason):
        read(name, spoiled(FRAMES[name], table, column, value))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"events": HAND_MADE.events + 1}, "do not match a step"),
        ({"death": np.maximum(HAND_MADE.birth, 0)}, "before it is allocated"),
        ({"requested": HAND_MADE.allocated + 1}, "more requested than allocated"),
        ({"address": HAND_MADE.address * 0}, "overlap"),
    ],
)
def test_requests_that_no_step_can_make_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        read("requests", frame_of("requests", dataclasses.replace(HAND_MADE, **changes), 0))


def test_a_replay_of_more_than_was_recorded_is_refused() -> None:
    wrong = dataclasses.replace(SNAPSHOT, replay=dataclasses.replace(REPLAY, addresses=101))
    with pytest.raises(FormatError, match="more addresses or chunks"):
        read("snapshot", frame_of("snapshots", wrong, 0))


def test_rows_over_the_limit_are_neither_written_nor_read() -> None:
    many = join_rows([COUNTERS] * (MAX_COUNTER_ROWS // 3 + 1))
    with pytest.raises(FormatError, match="over the limit of 4096"):
        frame_of("counters", many, 0)
    frame = FRAMES["counters"]
    long = {name: np.resize(frame.tables["counters"][name], 4098) for name in ("step", "count")}
    with pytest.raises(FormatError, match="over the limit of 4096"):
        read_frame(Counters, dataclasses.replace(frame, tables={"counters": long}))


@dataclasses.dataclass(frozen=True)
class WiderRow(LedgerRow):
    chunks: Size | None = None


@dataclasses.dataclass(frozen=True)
class WiderSnapshot(Snapshot):
    ledger: tuple[WiderRow, ...]  # type: ignore[assignment]


def test_a_new_field_of_a_row_is_stored_checked_and_answered_by_its_declaration_alone() -> None:
    rows = tuple(WiderRow(**vars(row), chunks=at) for at, row in enumerate(SNAPSHOT.ledger))
    wider = WiderSnapshot(**{**vars(SNAPSHOT), "ledger": rows})
    frame = codec.decode(codec.encode(frame_of("snapshots", wider, 0)))
    read_back = read_frame(WiderSnapshot, frame)
    assert equal(read_back, wider)
    assert as_json(read_back)["ledger"][1]["chunks"] == 1
    with pytest.raises(FormatError, match="chunks"):
        read_frame(WiderSnapshot, spoiled(frame, "ledger", "chunks", np.full(len(rows), -5)))


def test_a_frame_without_rows_is_not_written() -> None:
    with pytest.raises(FormatError, match="at least one row"):
        frame_of("samples", make_samples([], []), 0)


def test_rows_are_taken_with_their_devices_and_texts() -> None:
    samples, mask = make_samples([3, 4, 5], [1, 2, 3]), np.asarray([True, False, True])
    assert equal(take_rows(samples, mask), take_rows(samples, [0, 2]))
    (figures,) = take_rows(samples, slice(1, 3)).devices.values()
    assert (
        figures.peak_bytes.tolist() == [2, 3]
        and figures.capacity_bytes.strides == samples.step[:0].strides
    )
    assert take_rows(COUNTERS, mask).kind == ("models_alive", "traces")
    assert equal(join_rows([take_rows(COUNTERS, [0]), take_rows(COUNTERS, [1, 2])]), COUNTERS)


def test_a_run_has_the_counters_of_each_session(tmp_path: pathlib.Path) -> None:
    many = join_rows([COUNTERS] * (MAX_COUNTER_ROWS // 3 + 1))
    for counters, start in ((COUNTERS, START), (many, START + 1000)):
        write_records(tmp_path / "run", make_samples([2, 9], [10, 10], start=start), counters)
    run = tb_memplugin.load(tmp_path)["run"]
    assert run.damage == () and sorted(map(len, run.counters)) == [3, len(many)]
    assert any(equal(one, COUNTERS) for one in run.counters) and any(
        equal(one, many) for one in run.counters
    )


@pytest.mark.parametrize(("first", "last"), [(-1, 0), (2, 1), (0, 2**53), (-(2**63), 2**63 - 1)])
def test_steps_that_cannot_be_are_refused(first: int, last: int) -> None:
    frame = frame_of("samples", make_samples([0], [1]), 0)
    data = codec.encode(dataclasses.replace(frame, first_step=first, last_step=last))
    tag = Tag("s", "samples", 0)
    content = TagContent("run", str(tag), (StoredFrame(0, data),))
    for stream in (None, ACTIVATION_HEADS):
        result = decode_tag(tag, content, ByteBudget(1 << 20), stream)
        assert len(result.damage) == 1 and "steps are 0 to" in result.damage[0]


def test_samples_of_a_device_without_a_name_are_refused() -> None:
    with pytest.raises(FormatError, match="devices must be"):
        read_frame(Samples, frame_of("samples", make_samples([0], [1], device=""), 0))
