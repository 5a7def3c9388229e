"""The rotation of tags, which keeps TensorBoard's readers from dropping events."""

from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tb_memplugin.events.metadata import EVENTS_PER_TAG, parse_tag
from tb_memplugin.events.tags import TagRotation, new_session_id


@given(st.lists(st.integers(0, 30), max_size=100))
def test_no_tag_holds_more_than_its_events_and_steps_grow_within_it(steps: list[int]) -> None:
    rotation = TagRotation("s", "samples")
    held = defaultdict(list)
    for step in steps:
        held[rotation.next(step)].append(step)
    for of_tag in held.values():
        assert len(of_tag) <= EVENTS_PER_TAG
        assert all(later > earlier for earlier, later in pairwise(of_tag))


def test_tags_are_numbered_in_order_and_frames_are_counted() -> None:
    rotation = TagRotation("s", "meta")
    tags = [str(rotation.next(step)) for step in range(17)]
    assert tags == ["meta/s/0"] * 8 + ["meta/s/1"] * 8 + ["meta/s/2"]
    assert rotation.sequence == 17


def test_session_ids_differ_and_fit_into_a_tag() -> None:
    ids = {new_session_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(parse_tag(f"meta/{identifier}/0") is not None for identifier in ids)
