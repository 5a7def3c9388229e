"""Sources of frames: event files, also while they are written, and a data provider."""

import os
import pathlib
import shutil
import time
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np
import pytest
from reading_cases import event_files, make_samples, write_small_run
from tensorboard import errors
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.data import provider as provider_lib
from tensorboard.summary.writer.record_writer import RecordWriter

from tb_memplugin.storage.files import FileSource, ProviderSource, SourceError, TagContent
from tb_memplugin.storage.frames import Tag, frame_summary, tfrecord
from tb_memplugin.storage.write import RunWriter


def all_contents(source: FileSource | ProviderSource) -> list[TagContent]:
    return list(source.read({run: list(tags) for run, tags in source.listing().items()}))


def frames_of(source: FileSource | ProviderSource) -> dict[tuple[str, str], list[bytes]]:
    contents = all_contents(source)
    return {
        (content.event_run, content.tag): [frame.data for frame in content.frames]
        for content in contents
    }


def frames(source: FileSource) -> int:
    return sum(map(len, frames_of(source).values()))


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
    scalars = [
        summary_pb2.Summary.Value(tag=tag, simple_value=1.0) for tag in ("loss", "tb_memplugin")
    ]
    others = [
        event_pb2.Event(step=1, summary=summary_pb2.Summary(value=[value])) for value in scalars
    ]
    append(path, *others, OURS, others[0])
    # THEN only ours is listed, byte for byte
    assert frames_of(FileSource(tmp_path)) == {("exp", "samples/s/0"): [b"frame"]}


def test_only_what_grew_is_read_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    def spy(
        read_at: tfrecord.ReadAt, start: int, end: int
    ) -> Iterator[tfrecord.Record | tfrecord.Loss]:
        read.append(start)
        return original(read_at, start, end)

    monkeypatch.setattr(tfrecord, "walk_records", spy)
    second = source.listing()
    # THEN the look begins where the last one ended, and only the tag that grew has another mark
    assert read == [before]
    changed = {
        tag for tag, mark in second["exp/memory"].items() if first["exp/memory"].get(tag) != mark
    }
    # A flush also writes a roll-up when one is due.
    assert {tag.split("/")[0] for tag in changed} - {"rollups"} == {"samples"}
    writer.close()


def test_a_file_replaced_by_a_shorter_one_is_read_anew(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp")
    (path,) = event_files(tmp_path)
    source = FileSource(tmp_path)
    source.listing()
    path.unlink()
    append(path, OURS)
    assert list(frames_of(source)) == [("exp/memory", "samples/s/0")]


def test_files_that_vanish_between_listing_and_reading_are_a_source_error_or_left_out(
    tmp_path: pathlib.Path,
) -> None:
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


LARGE = tensor_shape_pb2.TensorShapeProto(
    dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=40_000_000)]
)


@pytest.mark.parametrize(
    "tensor",
    [
        tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING, tensor_shape=LARGE, string_val=[b"x" * 100]
        ),
        tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[b"a", b"b"]),
        tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING),
        tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[1.0]),
    ],
    ids=["a large stated shape", "two strings", "none", "a number"],
)
def test_a_tensor_that_is_not_one_string_is_refused(
    tensor: tensor_pb2.TensorProto, tmp_path: pathlib.Path
) -> None:
    # GIVEN such a tensor before a frame
    odd = event_pb2.Event(step=1, summary=OURS.summary)
    odd.summary.value[0].tensor.CopyFrom(tensor)
    append(tmp_path / "events.out.tfevents.1", odd, OURS)
    # THEN the frame is there, and the other event is damage
    source = FileSource(tmp_path)
    assert list(frames_of(source).values()) == [[b"frame"]]
    assert (
        "the event of step 1 at byte 12 of events.out.tfevents.1 does not hold one string"
    ) in source.damage()["."][0]


def age(path: pathlib.Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_record_that_is_being_written_is_no_damage_and_read_when_it_is_whole(
    tmp_path: pathlib.Path,
) -> None:
    # GIVEN a file that ends inside a record
    write_small_run(tmp_path / "exp")
    (path,) = event_files(tmp_path)
    whole, single, server = path.read_bytes(), FileSource(tmp_path), FileSource(tmp_path, live=True)
    path.write_bytes(whole[:-10])
    before, _ = frames(single), frames(server)
    # WHEN it was written a moment ago THEN a server waits, and for a single look it is damage, as
    # for a server later
    assert server.damage() == {} and "ends inside a record" in single.damage()["exp/memory"][0]
    age(path, 60)
    later = FileSource(tmp_path, live=True)
    assert frames(later) == before and later.damage() == single.damage()
    path.write_bytes(whole)
    assert frames(single) == before + 1 and single.damage() == {}


def test_the_end_of_a_file_whose_writer_lives_is_no_damage(tmp_path: pathlib.Path) -> None:
    writer = RunWriter(tmp_path / "exp")
    writer.samples(make_samples(range(10), range(10)))
    writer.flush()
    (path,) = event_files(tmp_path)
    with path.open("ab") as file:
        file.write(b"\x10")
    age(path, 60)
    source = FileSource(tmp_path)
    source.listing()
    assert source.damage() == {}
    writer.close()
    source.listing()
    assert "ends inside a record" in source.damage()["exp/memory"][0]


def test_a_listing_that_finds_no_change_is_the_same_object(tmp_path: pathlib.Path) -> None:
    write_small_run(os.fsdecode(os.fsencode(tmp_path) + b"/exp\xff"))
    source = FileSource(tmp_path)
    assert source.listing() is source.listing()
    # AND names that are not UTF-8 are read
    assert list(source.listing()) == ["exp\\xff/memory"] and frames(source) > 0


def test_pipes_and_broken_links_are_not_opened_and_sentences_contain_no_path(
    tmp_path: pathlib.Path,
) -> None:
    write_small_run(tmp_path / "exp")
    os.mkfifo(tmp_path / "exp" / "memory" / "events.out.tfevents.9")
    os.symlink(tmp_path / "nowhere", tmp_path / "exp" / "memory" / "events.out.tfevents.a")
    source = FileSource(tmp_path)
    assert frames(source) > 0
    first, second = source.damage()["exp/memory"]
    assert first == "run exp/memory: events.out.tfevents.9 cannot be read: not a regular file"
    assert "events.out.tfevents.a" in second and str(tmp_path) not in second


def test_a_file_changed_in_place_is_read_anew(tmp_path: pathlib.Path) -> None:
    # GIVEN a file that was listed, and then a byte of it changes
    write_small_run(tmp_path / "exp")
    (path,) = event_files(tmp_path)
    source = FileSource(tmp_path)
    before = source.listing()["exp/memory"]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    age(path, 5)
    # THEN it is read again, and no cached content fits its marks
    after = source.listing()["exp/memory"]
    assert source.damage()["exp/memory"] and not after.items() & before.items()


def test_a_longer_file_in_its_place_is_not_taken_for_one_that_grew(tmp_path: pathlib.Path) -> None:
    for name in ("exp", "other/exp"):
        write_small_run(tmp_path / name)
    (path,), (other,) = (event_files(tmp_path / name) for name in ("exp", "other"))
    source = FileSource(tmp_path / "exp")
    source.listing()
    path.write_bytes(other.read_bytes() * 2)
    found, expected = source.listing(), FileSource(tmp_path / "other" / "exp").listing()
    assert found.keys() == {"memory"} and source.damage() == {}
    assert found["memory"].keys() == expected["memory"].keys()


def test_records_of_others_delay_a_server_only_briefly_and_nothing_stays_unread(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a run, and a user's file with many scalars before one of our frames
    write_small_run(tmp_path / "exp")
    (path,) = event_files(tmp_path)
    (tmp_path / "user").mkdir()
    user = tmp_path / "user" / "events.out.tfevents.1"
    with user.open("wb") as file:
        writer = RecordWriter(file)
        for step in range(20_000):
            value = summary_pb2.Summary.Value(tag="loss", simple_value=step)
            writer.write(
                event_pb2.Event(
                    step=step, summary=summary_pb2.Summary(value=[value])
                ).SerializeToString()
            )
        file.write(path.read_bytes())
    monkeypatch.setattr("tb_memplugin.storage.files.file_source._OTHER_SECONDS", 0.01)
    monkeypatch.setattr("tb_memplugin.storage.files.file_source.SCAN_SECONDS", 0.02)
    source = FileSource(tmp_path, live=True)
    # WHEN it is listed with little time, the run is there at once
    assert list(source.listing()) == ["exp/memory"]
    # AND after some listings everything is, which is said until then
    listings = 0
    while (
        any("still being read" in text for text in source.damage().get("user", ())) or listings == 0
    ):
        source.listing()
        listings += 1
        assert listings < 1000
    assert frames(source) == frames(FileSource(tmp_path)) and source.damage() == {}


class Provider:
    """Holds `data[run][tag]` as lists of frames; `fails` says for which (run, tag) pairs a read
    fails."""

    def __init__(
        self, data: Mapping[str, Mapping[str, list[bytes]]], fails: Any = lambda pairs: False
    ) -> None:
        self.data, self.fails, self.batches = data, fails, []  # type: ignore[var-annotated]

    def list_tensors(self, context: Any, *, experiment_id: str, plugin_name: str) -> Any:
        assert (experiment_id, plugin_name) == ("", "tb_memplugin")
        return {
            run: {
                tag: provider_lib.TensorTimeSeries(
                    max_step=len(frames),
                    max_wall_time=1.0,
                    plugin_content=b"",
                    description="",
                    display_name="",
                )
                for tag, frames in tags.items()
            }
            for run, tags in self.data.items()
        }

    def read_tensors(
        self,
        context: Any,
        *,
        experiment_id: str,
        plugin_name: str,
        downsample: int,
        run_tag_filter: Any,
    ) -> Any:
        assert downsample == 2**31 - 1
        pairs = [
            (run, tag)
            for run in run_tag_filter.runs
            for tag in run_tag_filter.tags
            if tag in self.data.get(run, {})
        ]
        self.batches.append(len(pairs))
        if self.fails(pairs):
            raise RuntimeError("RESOURCE_EXHAUSTED: message larger than max\nmore")
        found: dict[str, dict[str, list[provider_lib.TensorDatum]]] = {}
        for run, tag in pairs:
            found.setdefault(run, {})[tag] = [
                provider_lib.TensorDatum(
                    step=at, wall_time=1.0, numpy=np.array(frame, dtype=object)
                )
                for at, frame in enumerate(self.data[run][tag])
            ]
        return found


def source(provider: Any) -> ProviderSource:
    return ProviderSource(provider, None, "")


def test_everything_is_read_once_in_growing_batches() -> None:
    data = {
        "r": {
            f"samples/s/{at}": [b"\x00" + bytes([at % 256]) * 10 + b"\x00\x00"] * 8
            for at in range(1000)
        }
    }
    provider = Provider(data)
    assert frames_of(source(provider)) == {("r", tag): frames for tag, frames in data["r"].items()}
    assert sum(provider.batches) == 1000 and len(provider.batches) < 8


def test_batches_stay_below_what_an_answer_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tb_memplugin.storage.files.source.AIM_BATCH_BYTES", 4_000)
    provider = Provider({"r": {f"samples/s/{at}": [bytes(1_000)] for at in range(64)}})
    all_contents(source(provider))
    assert provider.batches[0] == 16 and max(provider.batches[1:]) <= 4


def test_one_tag_that_cannot_be_converted_costs_itself() -> None:
    data = {"r": {f"samples/s/{at}": [b"x"] for at in range(20)}}
    provider = Provider(data, fails=lambda pairs: ("r", "samples/s/7") in pairs)
    contents = {content.tag: content for content in all_contents(source(provider))}
    assert [tag for tag, content in contents.items() if not content.frames] == ["samples/s/7"]
    assert (
        "RESOURCE_EXHAUSTED" in contents["samples/s/7"].damage[0]
        and "\n" not in contents["samples/s/7"].damage[0]
    )


def test_a_provider_that_is_gone_is_a_source_error_after_few_tries() -> None:
    provider = Provider(
        {"r": {f"samples/s/{at}": [b"x"] for at in range(1000)}}, fails=lambda pairs: True
    )
    with pytest.raises(SourceError, match="cannot be read now"):
        all_contents(source(provider))
    assert len(provider.batches) <= 30


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (ConnectionError("gone"), SourceError, "cannot be listed now"),
        # TensorBoard's own
        (errors.PermissionDeniedError("not yours"), errors.PermissionDeniedError, "not yours"),
    ],
)
def test_a_listing_that_fails_is_a_source_error(
    error: Exception, raised: type[Exception], message: str
) -> None:
    with pytest.raises(raised, match=message):
        source(mock.Mock(**{"list_tensors.side_effect": error})).listing()


def test_responses_of_none_are_empty_and_tags_that_vanished_are_left_out() -> None:
    empty = source(
        mock.Mock(**{"list_tensors.return_value": None, "read_tensors.return_value": None})
    )
    assert empty.listing() == {} and list(empty.read({"r": ["meta/s/0"]})) == []
    assert list(source(Provider({"r": {}})).read({"r": ["meta/s/0"], "gone": ["meta/s/1"]})) == []


@pytest.mark.parametrize("odd", [3.5, [b"x"] * 400_000], ids=["a number", "many strings"])
def test_values_other_than_one_string_are_reported_and_left_out(odd: Any) -> None:
    (content,) = source(Provider({"r": {"meta/s/0": [b"frame", odd]}})).read({"r": ["meta/s/0"]})
    assert [frame.data for frame in content.frames] == [b"frame"]
    assert content.damage == ("1 events of the tag do not hold one string",)
