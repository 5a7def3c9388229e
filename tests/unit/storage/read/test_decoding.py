"""Frames of a tag: several at once, only some of their columns, and what they may take in memory."""

import dataclasses
import pathlib
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from reading_cases import MIB, START, equal, make_samples, make_snapshot, write_frames
from worker_runs import top_bytes, top_step, write_workers

from tb_memplugin.errors import FormatError
from tb_memplugin.schema import MISSING, Samples
from tb_memplugin.storage import Reader
from tb_memplugin.storage.files import FileSource, Room, StoredFrame, TagContent
from tb_memplugin.storage.frames import STREAMS, Frame, OpenFrame, Tag, codec, frame_of, read_frame
from tb_memplugin.storage.read import BASIC_FIGURES, FIGURES, DecodedTag, decode_tag, join_samples, tables_of
from tb_memplugin.storage.write import RunWriter

TAG = Tag("s", "samples", 0)


def table(at: int, rows: int = 10) -> Samples:
    return make_samples(range(rows * at, rows * at + rows), (np.arange(rows) * 7919 + at) % 1000 * MIB)


def frame(at: int, rows: int = 10) -> bytes:
    return codec.encode(frame_of("samples", table(at, rows), at))


def decoded(frames: Sequence[bytes], room: Room | None = None) -> DecodedTag:
    content = TagContent("run", str(TAG), tuple(StoredFrame(at, data) for at, data in enumerate(frames)))
    return decode_tag(TAG, content, room or Room(1 << 30, 1 << 20))


def rows_of(tag: DecodedTag) -> Samples:
    return join_samples(tables_of([piece.value for piece in tag.pieces]))[0]


def test_frames_that_are_decoded_together_hold_what_each_holds_alone() -> None:
    # GIVEN frames of which three and two have equal heads, and one between them has other rows
    frames = [frame(0), frame(1), frame(2), frame(3, rows=7), frame(4), frame(5)]
    tag = decoded(frames)
    alone = [read_frame(Samples, codec.decode(data)) for data in frames]
    # THEN the frames together, any of them, and all of them joined are those of the frames alone
    assert [piece.value.frames for piece in tag.pieces] == [3, 3, 3, 1, 2, 2]
    for piece, own in zip(tag.pieces, alone, strict=True):
        assert equal(*tables_of([piece.value]), own)
    assert equal(rows_of(tag), join_samples(alone)[0])
    some = [tag.pieces[at].value for at in (1, 2, 4)]
    assert equal(join_samples(tables_of(some))[0], join_samples([alone[at] for at in (1, 2, 4)])[0])


@pytest.mark.parametrize("broken", [0, 1, 3])
def test_a_damaged_frame_among_equal_ones_costs_only_itself(broken: int) -> None:
    # GIVEN frames with equal heads of which one states other steps than it holds
    frames = [frame(at) for at in range(4)]
    part = frame_of("samples", table(broken), broken)
    frames[broken] = codec.encode(dataclasses.replace(part, last_step=part.last_step + 1))
    tag = decoded(frames)
    assert [piece.sequence for piece in tag.pieces] == [at for at in range(4) if at != broken]
    (sentence,) = tag.damage
    assert f"event of step {broken}: " in sentence and "does not hold these steps" in sentence


def test_a_copy_that_ends_early_loses_nothing(tmp_path: pathlib.Path) -> None:
    # GIVEN two event files with the same tag, of which the second lacks the last frames
    frames = [(str(TAG), at, frame(at)) for at in range(6)]
    write_frames(tmp_path / "run" / "memory", frames)
    write_frames(tmp_path / "run" / "memory", frames[:3])
    run = Reader().run(FileSource(tmp_path), "run").run
    assert run.samples.step.tolist() == list(range(60)) and run.damage == ()


def test_a_frame_that_states_too_much_is_refused_before_memory_is_taken() -> None:
    # GIVEN a frame of a few kilobytes with 32 million rows of one byte, 256 MB as integers
    rows = 1 << 22
    columns = dict.fromkeys("abcdefgh", 1 + np.arange(rows) % 2)
    data = codec.encode(Frame(STREAMS.index("samples"), 0, 0, 1, rows, {"devices": []}, {"samples": columns}), 9)
    assert len(data) < 100_000
    tracemalloc.start()
    try:
        tag = decoded([data, frame(1)], Room(96 << 20, 1 << 20))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tag.pieces == () and "2 frames are not shown" in tag.damage[0]
    assert most < 4 * MIB


def test_figures_are_those_of_whole_samples(tmp_path: pathlib.Path) -> None:
    write_workers(tmp_path / "run", 2, 3, 950)
    writer = RunWriter(tmp_path / "small")
    writer.samples(make_samples(range(50), [MIB * (1 + at) for at in range(50)]))
    writer.samples(make_samples([49], [5 * MIB], phase="validation", start=START + 100))
    writer.snapshot(make_snapshot(3))
    writer.close()
    source = FileSource(tmp_path)
    for name in ("run", "small"):
        some, every = (Reader().run(source, name, *streams) for streams in ([BASIC_FIGURES], []))
        assert some.by_worker.keys() == every.by_worker.keys() and equal(some.run.snapshots, every.run.snapshots)
        for worker, run in some.by_worker.items():
            other = every.by_worker[worker].samples
            for field in ("step", "phase", "epoch", "wall_time", "host_resident_bytes"):
                np.testing.assert_array_equal(getattr(run.samples, field), getattr(other, field))
            for device, figures in run.samples.devices.items():
                for field, column in dataclasses.asdict(figures).items():
                    expected = getattr(other.devices[device], field) if field in FIGURES else MISSING
                    np.testing.assert_array_equal(column, np.broadcast_to(expected, len(column)), f"{device} {field}")
    peaks = Reader().run(source, "run", BASIC_FIGURES).by_worker["worker_1"].samples.devices["GPU:2"].peak_bytes
    assert int(peaks.argmax()) == top_step(1, 2, 950) and int(peaks.max()) == top_bytes(1, 2)


def test_bodies_that_end_early_are_refused_together_and_alone() -> None:
    frames = [OpenFrame(frame(at)) for at in range(2)]
    head = frames[0].head()
    frames[1].take(5)
    with pytest.raises(FormatError):
        codec.decode_columns(head, frames)
