"""Tags, run names, and event metadata."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto import summary_pb2

from tb_memplugin.storage.frames import (
    EVENTS_PER_TAG,
    Tag,
    TagRotation,
    frame_summary,
    new_session_id,
    parse_tag,
    run_name,
    summary_metadata,
)


@pytest.mark.parametrize("text", ["samples/20260921T131313Z-0a1b2c3d/0", "meta/s_1/12", "peak/x/999999999"])
def test_a_tag_is_read_back_as_it_was_written(text: str) -> None:
    tag = parse_tag(text)
    assert tag is not None and str(tag) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "samples", "samples/s", "samples/s/", "samples/s/-1", "samples/s/1.5", "other/s/1", "Samples/s/1"),
        *("samples//1", "samples/s/1/2", "samples/../1", "samples/s/1234567890", "samples/s/1\n", "samples/é/1"),
        "samples/" + "s" * 65 + "/1",
    ],
)
def test_anything_else_is_no_tag(text: str) -> None:
    assert parse_tag(text) is None


def test_tags_sort_by_session_then_stream_then_number() -> None:
    tags = [Tag("b", "meta", 0), Tag("a", "samples", 10), Tag("a", "samples", 9), Tag("a", "meta", 1)]
    assert [str(tag) for tag in sorted(tags)] == ["meta/a/1", "samples/a/9", "samples/a/10", "meta/b/0"]


@pytest.mark.parametrize(
    ("event_run", "run", "worker"),
    [
        ("exp1/memory", "exp1", ""),
        ("a/b/memory", "a/b", ""),
        ("exp1/memory/worker_3", "exp1", "worker_3"),
        ("memory", ".", ""),
        ("memory/w", ".", "w"),
        (".", ".", ""),
        ("exp1", "exp1", ""),
        ("exp1/train", "exp1/train", ""),
        ("memory/memory", "memory", ""),
        ("exp1\\memory", "exp1", ""),
        ("../x/memory", "../x", ""),
        ("memory/a/b/c", "memory/a/b/c", ""),
    ],
)
def test_a_run_is_shown_under_the_name_of_the_directory_that_holds_memory(
    event_run: str, run: str, worker: str
) -> None:
    assert run_name(event_run) == (run, worker)


def test_a_summary_carries_the_frame_as_a_scalar_string_of_the_class_that_readers_keep() -> None:
    (value,) = frame_summary(Tag("s", "meta", 0), b"\x00\xff\x00").value
    assert value.tag == "meta/s/0" and list(value.tensor.string_val) == [b"\x00\xff\x00"]
    assert not value.tensor.tensor_shape.dim
    assert value.metadata == summary_metadata()
    assert value.metadata.data_class == summary_pb2.DATA_CLASS_TENSOR
    assert value.metadata.plugin_data.plugin_name == "tb_memplugin"


@given(st.lists(st.integers(0, 30), max_size=100))
def test_no_tag_holds_more_than_its_events_and_steps_grow_within_it(steps: list[int]) -> None:
    rotation, held = TagRotation("s", "samples"), defaultdict(list)
    for step in steps:
        held[rotation.next(step)].append(step)
    for of_tag in held.values():
        assert len(of_tag) <= EVENTS_PER_TAG and of_tag == sorted(set(of_tag))


def test_tags_are_numbered_in_order_and_frames_are_counted() -> None:
    rotation = TagRotation("s", "meta")
    tags = [str(rotation.next(step)) for step in range(17)]
    assert tags == ["meta/s/0"] * 8 + ["meta/s/1"] * 8 + ["meta/s/2"]
    assert rotation.sequence == 17


def test_session_ids_differ_and_fit_into_a_tag() -> None:
    ids = {new_session_id() for _ in range(100)}
    assert len(ids) == 100 and None not in {parse_tag(f"meta/{identifier}/0") for identifier in ids}
