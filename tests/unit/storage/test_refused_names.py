"""Frames that state impossible steps or a device without a name."""

import dataclasses

import pytest
from reading_cases import make_samples

from tb_memplugin.errors import FormatError
from tb_memplugin.schema import Samples
from tb_memplugin.storage.files import Room, StoredFrame, TagContent
from tb_memplugin.storage.frames import Tag, codec, frame_of, read_frame
from tb_memplugin.storage.read import ACTIVATION_HEADS, decode_tag


@pytest.mark.parametrize(("first", "last"), [(-1, 0), (2, 1), (0, 2**53), (-(2**63), 2**63 - 1)])
def test_steps_that_cannot_be_are_refused(first: int, last: int) -> None:
    frame = frame_of("samples", make_samples([0], [1]), 0)
    data = codec.encode(dataclasses.replace(frame, first_step=first, last_step=last))
    tag = Tag("s", "samples", 0)
    content = TagContent("run", str(tag), (StoredFrame(0, data),))
    for stream in (None, ACTIVATION_HEADS):
        result = decode_tag(tag, content, Room(1 << 20, 1 << 20), stream)
        assert len(result.damage) == 1 and "steps are 0 to" in result.damage[0]


def test_samples_of_a_device_without_a_name_are_refused() -> None:
    with pytest.raises(FormatError, match="devices must be"):
        read_frame(Samples, frame_of("samples", make_samples([0], [1], device=""), 0))
