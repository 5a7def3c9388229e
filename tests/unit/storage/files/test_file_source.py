"""Event files read directly: only this plugin's records, incrementally, and robust to changes of the files."""

import os
import pathlib
import shutil
from collections.abc import Iterator

import fsspec
import pytest
from reading_cases import MIB, event_files, make_samples, write_small_run
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from tb_memplugin.storage.files import FileSource, SourceError, TagContent
from tb_memplugin.storage.frames import Tag, codec, frame_summary, tfrecord
from tb_memplugin.storage.write import RunWriter


def all_contents(source: FileSource) -> dict[tuple[str, str], TagContent]:
    listing = source.listing()
    wanted = {run: list(tags) for run, tags in listing.items()}
    return {(content.event_run, content.tag): content for content in source.read(wanted)}


def append(path: pathlib.Path, *events: event_pb2.Event) -> None:
    with path.open("ab") as file:
        writer = RecordWriter(file)
        for event in events:
            writer.write(event.SerializeToString())


OURS = event_pb2.Event(step=2, summary=frame_summary(Tag("s", "samples", 0), b"frame"))


def test_a_users_own_events_beside_ours_are_left_alone(tmp_path: pathlib.Path) -> None:
    # GIVEN a user's event file with scalars, one under our name, and one of our frames
    path = tmp_path / "exp" / "events.out.tfevents.1.host"
    path.parent.mkdir()
    scalars = [summary_pb2.Summary.Value(tag=tag, simple_value=1.0) for tag in ("loss", "tb_memplugin")]
    others = [event_pb2.Event(step=1, summary=summary_pb2.Summary(value=[value])) for value in scalars]
    append(path, *others, OURS, others[0])
    # THEN only ours is listed, byte for byte
    contents = all_contents(FileSource(tmp_path))
    assert [(key, [frame.data for frame in content.frames]) for key, content in contents.items()] == [
        (("exp", "samples/s/0"), [b"frame"])
    ]


def test_only_what_grew_is_read_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a run that is being written
    writer = RunWriter(tmp_path / "exp")
    writer.samples(make_samples(range(1000), range(1000)))
    writer.flush()
    source = FileSource(tmp_path)
    first = source.listing()
    # WHEN nothing happens, the marks stay
    assert source.listing() == first
    # WHEN it grows
    (path,) = event_files(tmp_path)
    before = path.stat().st_size
    writer.samples(make_samples([1000], [5]))
    writer.flush()
    read: list[int] = []
    original = tfrecord.walk_records

    def spy(read_at: tfrecord.ReadAt, start: int, end: int) -> Iterator[tfrecord.Record | tfrecord.Loss]:
        read.append(start)
        return original(read_at, start, end)

    monkeypatch.setattr(tfrecord, "walk_records", spy)
    second = source.listing()
    # THEN the look begins where the last one ended, and only the tag that grew has another mark
    assert read == [before]
    changed = {tag for tag, mark in second["exp/memory"].items() if first["exp/memory"].get(tag) != mark}
    # A flush also writes a roll-up when one is due.
    assert {tag.split("/")[0] for tag in changed} - {"rollups"} == {"samples"}
    writer.close()


def test_a_record_that_was_half_written_is_read_when_it_is_whole(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp")
    (path,) = event_files(tmp_path)
    whole, source, counts = path.read_bytes(), FileSource(tmp_path), []
    for content in (whole[:-10], whole):
        path.write_bytes(content)
        counts.append(sum(len(content.frames) for content in all_contents(source).values()))
        damage = source.damage()
        assert damage == {} if content == whole else "ends inside a record" in damage["exp/memory"][0]
    assert counts[1] == counts[0] + 1


def test_a_file_replaced_by_a_shorter_one_is_read_anew(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp")
    (path,) = event_files(tmp_path)
    source = FileSource(tmp_path)
    source.listing()
    path.unlink()
    append(path, OURS)
    assert list(all_contents(source)) == [("exp/memory", "samples/s/0")]


def test_files_that_vanish_between_listing_and_reading_are_a_source_error_or_left_out(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp")
    source = FileSource(tmp_path)
    wanted = {run: list(tags) for run, tags in source.listing().items()}
    shutil.rmtree(tmp_path / "exp")
    with pytest.raises(SourceError, match="cannot be read now"):
        list(source.read(wanted))
    assert source.listing() == {}


def test_links_are_followed_and_cycles_are_not(tmp_path: pathlib.Path) -> None:
    # GIVEN a run behind a link, and links back to where they came from
    write_small_run(tmp_path / "elsewhere" / "exp")
    logs = tmp_path / "logs"
    logs.mkdir()
    os.symlink(tmp_path / "elsewhere" / "exp", logs / "linked")
    os.symlink(logs, logs / "circle")
    os.symlink(tmp_path / "nowhere", logs / "dangling")
    # THEN the run is read once under the link's name
    assert list(FileSource(logs).listing()) == ["linked/memory"]


def test_a_log_directory_may_be_the_run_or_its_memory_directory(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp")
    assert list(FileSource(tmp_path / "exp").listing()) == ["memory"]
    assert list(FileSource(str(tmp_path / "exp" / "memory") + "/").listing()) == ["."]


def test_several_files_of_one_session_are_one(tmp_path: pathlib.Path) -> None:
    # GIVEN a writer that begins a new file after each flush, as on remote file systems
    writer = RunWriter(tmp_path / "exp", max_file_bytes=1)
    for first in range(0, 40, 10):
        writer.samples(make_samples(range(first, first + 10), [MIB] * 10))
        writer.flush()
    writer.close()
    assert len(event_files(tmp_path)) == 5
    contents = all_contents(FileSource(tmp_path)).values()
    frames = [frame.data for content in contents if content.tag.startswith("samples") for frame in content.frames]
    assert [codec.decode(data).sequence for data in frames] == [0, 1, 2, 3]


def test_a_remote_file_system_is_read() -> None:
    files = fsspec.filesystem("memory")
    writer = RunWriter(
        "memory://logs/exp",
        open_file=lambda path: RecordWriter(files.open(path, "wb")),
        make_directories=lambda path: files.makedirs(path, exist_ok=True),
    )
    writer.samples(make_samples(range(10), range(10)))
    writer.close()
    found = {(run, tag.split("/")[0]) for run, tag in all_contents(FileSource("memory://logs"))}
    assert found == {("exp/memory", stream) for stream in ("meta", "samples", "peak")}


LARGE = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=40_000_000)])


@pytest.mark.parametrize(
    "tensor",
    [
        tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, tensor_shape=LARGE, string_val=[b"x" * 100]),
        tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[b"a", b"b"]),
        tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING),
        tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[1.0]),
    ],
    ids=["a large stated shape", "two strings", "none", "a number"],
)
def test_a_tensor_that_is_not_one_string_is_refused(tensor: tensor_pb2.TensorProto, tmp_path: pathlib.Path) -> None:
    # GIVEN such a tensor before a frame
    odd = event_pb2.Event(step=1, summary=OURS.summary)
    odd.summary.value[0].tensor.CopyFrom(tensor)
    append(tmp_path / "events.out.tfevents.1", odd, OURS)
    # THEN the frame is there, and the other event is damage
    source = FileSource(tmp_path)
    (content,) = all_contents(source).values()
    assert [frame.data for frame in content.frames] == [b"frame"]
    assert "the event of step 1 at byte 12 of events.out.tfevents.1 does not hold one string" in source.damage()["."][0]
