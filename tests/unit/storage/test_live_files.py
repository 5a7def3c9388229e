"""Directories that are listed again and again while they change."""

import os
import pathlib
import time

import pytest
from reading_cases import event_files, make_samples, write_small_run
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from tb_memplugin.storage.files import FileSource, file_source
from tb_memplugin.storage.write import RunWriter


def age(path: pathlib.Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def frames(source: FileSource) -> int:
    wanted = {run: list(tags) for run, tags in source.listing().items()}
    return sum(len(content.frames) for content in source.read(wanted))


def test_a_record_that_is_being_written_is_no_damage(tmp_path: pathlib.Path) -> None:
    # GIVEN a file that ends inside a record
    write_small_run(tmp_path / "exp")
    (path,) = event_files(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])

    def damage(live: bool) -> str:
        source = FileSource(tmp_path, live=live)
        source.listing()
        return str(source.damage())

    # WHEN it was written a moment ago, a server waits
    assert damage(live=True) == "{}"
    # AND for a single look it is damage, as for a server later
    assert "ends inside a record" in damage(live=False)
    age(path, 60)
    assert damage(live=True) == damage(live=False)


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


def test_pipes_and_broken_links_are_not_opened_and_sentences_contain_no_path(tmp_path: pathlib.Path) -> None:
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
            writer.write(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[value])).SerializeToString())
        file.write(path.read_bytes())
    monkeypatch.setattr(file_source, "_OTHER_SECONDS", 0.01)
    monkeypatch.setattr(file_source, "SCAN_SECONDS", 0.02)
    source = FileSource(tmp_path, live=True)
    # WHEN it is listed with little time, the run is there at once
    assert list(source.listing()) == ["exp/memory"]
    # AND after some listings everything is, which is said until then
    listings = 0
    while any("still being read" in text for text in source.damage().get("user", ())) or listings == 0:
        source.listing()
        listings += 1
        assert listings < 1000
    assert frames(source) == frames(FileSource(tmp_path)) and source.damage() == {}
