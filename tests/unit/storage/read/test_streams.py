"""How the records of sessions and workers become those of a run."""

import dataclasses
from typing import Any

import pytest
from reading_cases import empty_activations, make_map, make_oom, make_samples, make_snapshot, make_table, make_timeline
from requests_cases import hand_made_requests

from tb_memplugin.schema import Session, SessionInfo
from tb_memplugin.storage.frames import FrameHead
from tb_memplugin.storage.read import LaterSessions, streams

CHUNKS = (("net/a", "activations", "net/a/Conv2D", 1024, 0, 1),)


def workers(stream: streams.Stream) -> dict[str, tuple[object, ...]]:
    made = {
        "maps": lambda step: make_map(step),
        "timelines": lambda step: make_timeline(step),
        "snapshots": lambda step: make_snapshot(step),
        "requests": lambda step: dataclasses.replace(hand_made_requests(CHUNKS), step=step),  # type: ignore[arg-type]
    }[stream.tag]
    return {"a": (made(3), made(9)), "b": (made(1), made(5))}


LARGE = (streams.MAPS, streams.TIMELINES, streams.REQUESTS)


@pytest.mark.parametrize("stream", [*LARGE, streams.SNAPSHOTS])
def test_records_of_sessions_are_ordered_by_step_and_large_ones_of_workers_stay_together(stream: Any) -> None:
    of = workers(stream)
    joined, left_out = stream.of_workers(of)
    expected = [("a", 3), ("a", 9), ("b", 1), ("b", 5)]
    by_step = sorted(expected, key=lambda place: place[1])
    assert [(one.device.partition("/")[0], one.step) for one in joined] == (expected if stream in LARGE else by_step)
    assert left_out is None
    assert [one.step for one in stream.of_sessions([of["a"], of["b"]], True)] == [1, 3, 5, 9]
    # AND what a later session repeats is left out
    records = (*of["b"], *of["a"])
    assert [one.step for one in stream.without_repeats(records, later_session(4, 6))] == [1, 3, 9]


def test_of_a_failed_allocation_the_last_record_counts_and_a_tolerated_one_is_none() -> None:
    failing = dataclasses.replace(make_oom(4), status="failing")
    other = dataclasses.replace(make_oom(7), identifier="2", status="failed")
    for last, expected in (("failed", ["failed", "failed"]), ("tolerated", ["failed"])):
        joined, _ = streams.OOM.of_frames([failing, other, dataclasses.replace(failing, status=last)])
        assert [oom.status for oom in joined] == expected


def test_a_runs_layer_tables_are_those_of_the_first_worker_that_has_any() -> None:
    table = make_table(0, unfrozen=False)
    assert streams.META.of_workers({"a": (), "b": (table,), "c": ()}) == ((table,), None)
    assert streams.META.of_workers({"a": ()}) == ((), None)
    info = SessionInfo("a", 0.0, "recorder", {}, ())
    assert streams.META.of_frames([info, table]) == ((table,), None)


def test_steps_are_put_in_order_only_if_that_is_asked() -> None:
    parts = [make_samples(range(5, 9), [1] * 4), make_samples(range(3), [1] * 3)]
    assert streams.SAMPLES.of_sessions(parts, True).step.tolist() == [0, 1, 2, 5, 6, 7, 8]
    assert streams.SAMPLES.of_sessions(parts, False).step.tolist() == [5, 6, 7, 8, 0, 1, 2]


def test_each_tag_has_one_stream_and_a_figure_needs_few_columns() -> None:
    assert set(streams.OF_TAG) == {stream.tag for stream in (*streams.ALL, streams.ROLLUPS)}
    assert len(streams.OF_TAG) == len(streams.ALL) + 1
    needed = streams.SAMPLE_FIGURES.is_needed
    assert needed("step") and needed("peak_bytes/CPU:0") and not needed("largest_free_bytes/CPU:0")
    assert streams.SAMPLES.is_needed("largest_free_bytes/CPU:0")
    assert streams.basic_streams(None) == streams.BASIC
    assert streams.SAMPLES not in streams.basic_streams("worker 1")


def later_session(first: int, last: int) -> LaterSessions:
    later = LaterSessions()
    samples = make_samples(range(first, last + 1), [1] * (last + 1 - first))
    info = SessionInfo("later", 0.0, "recorder", {}, ())
    later.add(Session(info=info, layer_tables=(), samples=samples, activations=empty_activations(), snapshots=()))
    return later


def test_a_map_of_no_step_a_failure_and_another_layer_table_stay() -> None:
    later = later_session(4, 6)
    assert len(streams.MAPS.without_repeats((make_map(None), make_map(5)), later)) == 1
    assert len(streams.OOM.without_repeats((make_oom(5),), later)) == 1
    tables = tuple(make_table(step, unfrozen=False) for step in (0, 5, 7))
    assert [table.step for table in streams.META.without_repeats(tables, later)] == [0, 7]


def test_a_frame_takes_the_bytes_of_its_columns_and_of_the_objects_of_its_rows() -> None:
    head = FrameHead(0, 0, 3, 3, 1, {}, {"owners": [("layer", "i8", 7)], "chunks": [("bytes", "i8", 100)]}, ())
    assert head.nbytes >= 107 * 8
    assert streams.MAPS.head_bytes(head) == streams.ROW_BYTES + head.nbytes + 7 * streams.ROW_BYTES
    assert streams.SAMPLES.head_bytes(head) == streams.ROW_BYTES + head.nbytes


def test_a_stream_is_a_field_of_the_run_by_its_tag_unless_it_has_another() -> None:
    assert (streams.MAPS.field, streams.OOM.field, streams.PEAK.field) == ("maps", "ooms", "samples")
