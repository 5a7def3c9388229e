"""Profiles and memory dumps, read without TensorFlow: against its own protos, the allocator and
XProf; bad files."""

import functools
import gzip
import json
import math
import pathlib
from typing import Any

import numpy as np
import pytest
from dump_cases import CHUNKS, make_dump
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_cases import MESSAGES

from tb_memplugin.attribution import AttributedStep, facts_from_names
from tb_memplugin.errors import FormatError
from tb_memplugin.importers import (
    device_name,
    hlo_class,
    looks_like_dump,
    memory_dump,
    read_dump,
    read_module,
    read_traces,
    wire,
)
from tb_memplugin.importers.hlo_instructions import buffer_shape
from tb_memplugin.importers.xplane import in_allocator_order
from tb_memplugin.schema import DTYPE_BYTES, FREE, IN_USE, MISSING, AllocationTrace, TensorShape

XSpace = MESSAGES["XSpace"]
PROFILES = pathlib.Path(__file__).parents[2] / "fixtures" / "profiles"
TRUTH: dict[str, Any] = json.loads((PROFILES / "truth.json").read_text())


@functools.cache
def profile(name: str) -> bytes:
    return gzip.decompress((PROFILES / f"{name}.xplane.pb.gz").read_bytes())


def parsed(name: str) -> tuple[Any, Any]:
    space = XSpace()
    space.ParseFromString(profile(name))
    (host,) = (plane for plane in space.planes if plane.name == b"/host:CPU")
    return space, host


def only_trace(name: str) -> AllocationTrace:
    (trace,) = read_traces(profile(name))
    return trace


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_figures_are_those_of_tensorflows_protos_of_the_allocator_and_of_xprof(name: str) -> None:
    trace, truth = only_trace(name), TRUTH[name]
    assert int((trace.kind == 1).sum()) == truth["allocations"]
    assert int((trace.kind == -1).sum()) == truth["deallocations"]
    assert int(trace.requested[trace.kind == 1].sum()) == truth["requested_bytes"]
    peak = int(np.argmax(trace.in_use))
    assert trace.missed == 0
    assert trace.start_in_use == truth["start_bytes"]
    assert int(trace.in_use[peak]) == truth["peak_bytes"] == truth["xprof_peak_bytes"]
    assert float(trace.fragmentation[peak]) == pytest.approx(truth["xprof_fragmentation"], abs=1e-9)


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_the_executions_of_asynchronous_ops_have_their_names(name: str) -> None:
    (_, host), trace = parsed(name), only_trace(name)
    events = {entry.key: entry.value.name for entry in host.event_metadata}
    stats = {entry.key: entry.value.name for entry in host.stat_metadata}
    expected = {
        (stat.str_value or stats[stat.ref_value]).decode()
        for line in host.lines
        for event in line.events
        if events[event.metadata_id] == b"ExecutorState::ProcessAsync::Start"
        for stat in event.stats
        if stats[stat.metadata_id] == b"name"
    }
    assert {trace.strings[index] for index in trace.launches.name.tolist()} == expected
    assert (trace.launches.start_ps <= trace.launches.end_ps).all()


def test_compiled_modules_are_read_from_the_same_file() -> None:
    trace = only_trace("xla")
    (module,) = trace.modules
    assert module.function == "one_step_on_data"
    largest = max(module.allocations, key=lambda allocation: allocation.bytes)
    assert largest.bytes in trace.requested[trace.kind == 1].tolist()
    for buffer in largest.buffers:
        assert 0 <= buffer.offset <= buffer.offset + buffer.bytes <= largest.bytes
        assert buffer.start <= buffer.end
    assert not only_trace("graph").modules
    buffers = [buffer for one in module.allocations for buffer in one.buffers]
    known = [(buffer.shape, buffer.bytes) for buffer in buffers if buffer.shape is not None]
    assert (
        len(known) > 0.9 * len(buffers)
        and (TensorShape((2048, 512), "float32"), 2048 * 512 * 4) in known
    )
    assert all(math.prod(shape.shape) * DTYPE_BYTES[shape.dtype] == size for shape, size in known)


def test_layer_spans_of_eager_steps_are_read() -> None:
    trace = only_trace("eager")
    names = {trace.strings[index] for index in trace.layers.name.tolist()}
    assert {"sequential/below", "sequential/dense", "(backward)", "(update)"} <= names


DAMAGED = (b"\x08", b"\x08\xff", b"\x22\x05abc", b"\x0b\x00", b"\xff" * 12, b"\x22" + b"\xff" * 9)
"""Ends of a message: cut off, of unknown wire types, longer than any number, or longer than the
data."""


@pytest.mark.parametrize(
    "data", [b"", b"not a profile", b"\x00" * 100, bytes(range(256)), *DAMAGED]
)
def test_foreign_bytes_are_one_clear_error(data: bytes) -> None:
    with pytest.raises(FormatError, match="profile"):
        read_traces(data)


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_event_is_an_error(damaged: bytes) -> None:
    # GIVEN an event whose statistics end wrongly, or that ends wrongly itself
    for of_event, of_stat in ((damaged, b""), (b"", damaged)):
        stat = b"\x08\x01" + of_stat
        event = b"\x08\x07\x22" + bytes([len(stat)]) + stat + of_event
        line = b"\x22" + bytes([len(event)]) + event
        entry = MESSAGES["XPlane"](name=b"/host:CPU")
        entry.event_metadata.add(key=7).value.name = b"MemoryAllocation"
        plane = entry.SerializeToString() + b"\x1a" + bytes([len(line)]) + line
        space = b"\x0a" + bytes([len(plane)]) + plane
        with pytest.raises(FormatError, match="truncated"):
            read_traces(space)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1), st.integers(0, 255))
def test_truncated_or_damaged_profiles_give_traces_or_an_error(part: float, byte: int) -> None:
    data = bytearray(profile("graph"))
    place = int(part * (len(data) - 1))
    for damaged in (
        bytes(data[:place]),
        bytes(data[:place]) + bytes([byte]) + bytes(data[place + 1 :]),
    ):
        try:
            traces = read_traces(damaged)
        except FormatError:
            continue
        for trace in traces:
            assert len(trace.kind) == len(trace.address) == len(trace.in_use)


def test_several_hosts_are_refused_and_several_allocators_are_several_traces() -> None:
    space, host = parsed("graph")
    space.planes.add().CopyFrom(host)
    with pytest.raises(FormatError, match="2 hosts"):
        read_traces(space.SerializeToString())
    space, host = parsed("graph")
    names = {entry.key: entry.value.name for entry in host.stat_metadata}
    host.stat_metadata.add(key=99_999).value.name = b"GPU_1_bfc"
    for line in host.lines:
        for event in list(line.events):
            if any(names.get(stat.metadata_id) == b"allocator_name" for stat in event.stats):
                copy = line.events.add()
                copy.CopyFrom(event)
                for stat in copy.stats:
                    if names.get(stat.metadata_id) == b"allocator_name":
                        stat.ref_value = 99_999
    traces = read_traces(space.SerializeToString())
    assert [trace.device for trace in traces] == ["CPU:0", "GPU:1"]
    assert len(traces[0]) == len(traces[1])


def test_a_profile_without_memory_events_has_no_traces_and_without_their_sizes_is_refused() -> None:
    space = XSpace()
    plane = space.planes.add(name=b"/host:CPU")
    plane.lines.add(name=b"python").events.add(metadata_id=7)
    assert read_traces(space.SerializeToString()) == ()
    plane.event_metadata.add(key=7).value.name = b"MemoryAllocation"
    with pytest.raises(FormatError, match="lack their address"):
        read_traces(space.SerializeToString())


def test_a_buffer_beyond_its_tuple_or_of_an_unknown_type_has_no_shape() -> None:
    proto = hlo_class()()
    shape = proto.hlo_module.computations.add().instructions.add().shape
    part = shape.tuple_shapes.add()
    part.element_type, part.dimensions[:] = 11, [2, 3]
    assert buffer_shape(shape, (0,), 24) == TensorShape((2, 3), "float32")
    assert [buffer_shape(shape, index, 24) for index in ((), (1,), (-1,), (0, 0))] == [None] * 4
    assert buffer_shape(part, (), 25) is None
    part.dimensions[:] = [-2, -3]
    assert buffer_shape(part, (), 24) is None


def test_a_module_without_a_schedule_runs_as_its_instructions_are_listed() -> None:
    # GIVEN the same module as TensorFlow 2.16 would have written it
    space, _ = parsed("xla")
    (data,) = (
        stat.bytes_value
        for plane in space.planes
        if plane.name == b"/host:metadata"
        for entry in plane.event_metadata
        for stat in entry.value.stats
    )
    proto = hlo_class()()
    proto.ParseFromString(data)
    scheduled = read_module(proto.SerializeToString())
    proto.hlo_module.ClearField("schedule")
    listed = read_module(proto.SerializeToString())
    # THEN it has the same allocations with the same buffers, live from their instruction to their
    # last reader
    assert [block.bytes for block in listed.allocations] == [
        block.bytes for block in scheduled.allocations
    ]
    for ours, theirs in zip(listed.allocations, scheduled.allocations, strict=True):
        assert {(one.offset, one.bytes) for one in ours.buffers} == {
            (one.offset, one.bytes) for one in theirs.buffers
        }
        assert all(one.start <= one.end for one in ours.buffers)


@pytest.mark.parametrize(("levels", "calls"), [(60, 2), (20_000, 1)])
def test_module_with_excessive_nesting_is_read_at_once_or_skipped(levels: int, calls: int) -> None:
    # GIVEN computations each of which calls the next one, twice: 2 to the 60th runs; or 20,000 deep
    proto = hlo_class()()
    proto.buffer_assignment.buffer_allocations.add(index=0, size=256)
    proto.hlo_module.entry_computation_id = 1
    for level in range(1, levels + 1):
        computation = proto.hlo_module.computations.add(id=level, root_id=10 * level)
        for call in range(calls):
            called = [level + 1] if level < levels else []
            instruction = computation.instructions.add(id=10 * level + call, opcode=b"call")
            instruction.called_computation_ids.extend(called)
    # THEN it is read at once, or left out as one without a buffer assignment or other bytes are
    assert (
        read_module(hlo_class()().SerializeToString()) is None
        and read_module(b"\xff\xff\xff") is None
    )
    module = read_module(proto.SerializeToString())
    assert (module is None) == (levels > 1000)


def test_op_null_means_no_op() -> None:
    space, host = parsed("graph")
    trace = only_trace("graph")
    name = max((trace.text(number) or "" for number in trace.op.tolist()), key=len)
    (entry,) = (entry for entry in host.stat_metadata if entry.value.name == name.encode())
    entry.value.name = b"(null)"
    (renamed,) = read_traces(space.SerializeToString())
    of_it = trace.op == trace.strings.index(name)
    assert of_it.any() and set(renamed.op[of_it].tolist()) == {-1}


def test_order_is_repaired_from_the_bytes_in_use_and_missing_events_are_counted() -> None:
    change = np.asarray([256, 512, -256, 1024, -512])
    in_use = 1000 + np.cumsum(change)
    for kept, gaps in (([0, 2, 1, 4, 3], 0), ([0, 1, 3], 1)):
        order, missed = in_allocator_order(change[kept], in_use[kept])
        assert missed == gaps and np.asarray(kept)[order].tolist() == sorted(kept)


@given(
    st.lists(
        st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=200)), max_size=20
    )
)
def test_messages_read_in_parallel_or_split_are_those_of_protobuf(
    rows: list[tuple[int, bytes]],
) -> None:
    parts = [
        MESSAGES["XStat"](int64_value=number, str_value=text).SerializeToString()
        for number, text in rows
    ]
    messages = wire.joined(parts)
    numbers, texts = wire.select(messages, 8 * 4 + wire.VARINT, 8 * 5 + wire.LENGTH)
    assert numbers.column(len(rows)).tolist() == [number for number, _ in rows]
    read = dict(zip(texts.message.tolist(), wire.texts(texts.inner(messages.data)), strict=True))
    assert read == {at: text for at, (_, text) in enumerate(rows) if text}
    whole = wire.split(messages.data, 0, len(messages.data))
    assert whole.of(8 * 4).value.tolist() == [number for number, _ in rows if number]
    assert wire.texts(whole.of(8 * 5 + wire.LENGTH).inner(messages.data)) == [
        text for _, text in rows if text
    ]


def test_device_names() -> None:
    names = {
        "GPU_11_bfc": "GPU:11",
        "bfc_cpu_allocator_for_gpu": "CPU:0",
        "gpu_host_bfc": "gpu_host_bfc",
    }
    assert {name: device_name(name) for name in names} == names


def test_a_profile_made_without_the_recorder_has_a_ledger_by_name_scopes() -> None:
    trace = only_trace("graph")
    snapshot = AttributedStep(
        trace, facts_from_names(trace), step=0, phase="train", wall_time=0.0
    ).snapshot
    assert (
        sum(row.bytes for row in snapshot.ledger)
        == snapshot.in_use_bytes
        == TRUTH["graph"]["peak_bytes"]
    )
    waiting = {row.layer: row.bytes for row in snapshot.saved_for_backward}
    assert waiting["sequential_1/below_1"] == 2048 * 512 * 4
    assert any("name scopes" in sentence for sentence in snapshot.not_available)


USED, UNUSED = True, False


def test_complete_dump_has_its_chunks_in_their_regions() -> None:
    memory_map = read_dump(make_dump(), 12.5, 8192)
    assert memory_map.device == "GPU:0" and memory_map.complete and memory_map.not_available == ()
    assert memory_map.address.tolist() == [address for address, *_ in CHUNKS]
    assert memory_map.bytes.tolist() == [size for _, size, *_ in CHUNKS]
    assert memory_map.state.tolist() == [IN_USE, FREE, IN_USE, FREE]
    assert memory_map.requested_bytes.tolist()[0::2] == [300, 1000]
    assert memory_map.region_bytes.tolist() == [768, 5120]
    assert (memory_map.in_use_bytes, memory_map.pool_bytes, memory_map.capacity_bytes) == (
        1536,
        5888,
        8192,
    )
    assert read_dump(make_dump(b"gpu_host_bfc"), 0.0).device == "gpu_host_bfc"


def test_regions_end_where_chunks_are_not_adjacent_or_two_free_ones_meet_and_are_sorted() -> None:
    rows = [
        *(
            (4096, 256, 255, USED),
            (4352, 256, 0, UNUSED),
            (0, 256, 200, USED),
            (256, 256, 0, UNUSED),
        ),
        *((512, 256, 0, UNUSED), (768, 256, 7, USED), (2048, 256, 0, UNUSED)),
    ]
    found = read_dump(make_dump(listed=rows), 0.0)
    assert found.region_address.tolist() == [0, 512, 2048, 4096]
    assert found.region_bytes.tolist() == [512, 512, 256, 512] and found.region.tolist() == [
        0,
        0,
        1,
        1,
        2,
        3,
        3,
    ]
    assert found.address.tolist() == sorted(row[0] for row in rows)
    assert found.requested_bytes.tolist() == [200, MISSING, MISSING, 7, MISSING, 255, MISSING]


@pytest.mark.parametrize(
    "wrong",
    [
        *([(0, 512), (256, 256)], [(512, 256), (0, 768)]),  # overlap
        *([(0, 0)], [(0, 1 << 63)], [(1 << 63, 256)], [(1 << 62, 256)], [((1 << 62) - 256, 512)]),
    ],
)
def test_chunks_that_cannot_be_are_refused(wrong: list[tuple[int, int]]) -> None:
    with pytest.raises(FormatError, match="the chunks are inconsistent"):
        read_dump(make_dump(listed=[(address, size, 1, USED) for address, size in wrong]), 0.0)


def test_too_many_chunks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_dump, "MAX_CHUNKS", 3)
    with pytest.raises(FormatError, match="the list has 4 chunks; at most 3 are supported"):
        read_dump(make_dump(), 0.0)


def test_a_truncated_dump_gives_its_first_chunks_or_an_error_and_an_inconsistent_one_a_note() -> (
    None
):
    whole = make_dump()
    for length in range(len(whole)):
        try:
            memory_map = read_dump(whole[:length], 0.0)
        except FormatError:
            continue
        assert not memory_map.complete and "ends early" in memory_map.not_available[0]
        assert memory_map.address.tolist() == [address for address, *_ in CHUNKS][: len(memory_map)]
    memory_map = read_dump(make_dump(in_use=99), 0.0)
    assert not memory_map.complete and "is inconsistent" in memory_map.not_available[0]


@given(st.binary(max_size=200))
def test_any_bytes_give_a_map_or_a_format_error(data: bytes) -> None:
    try:
        read_dump(data, 0.0)
    except FormatError as error:
        assert str(len(data)) in str(error) or "are inconsistent" in str(error)


def test_dumps_are_recognized_by_their_first_bytes() -> None:
    assert looks_like_dump(make_dump())
    assert (
        not looks_like_dump(b"")
        and not looks_like_dump(b"2020-01-01 some log")
        and not looks_like_dump(b"\n\n\n\n")
    )
