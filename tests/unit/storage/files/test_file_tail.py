"""The newest roll-up of a file, found from its end, against the whole file as the reader indexes it."""

import pathlib

import pytest
from reading_cases import MIB, equal, event_files, make_samples, make_snapshot
from rollup_cases import rollups_of

from tb_memplugin.analysis import summarize_session
from tb_memplugin.storage.files import Room, TagContent, event_file
from tb_memplugin.storage.files.event_file import Tail, read_tail
from tb_memplugin.storage.frames import parse_tag
from tb_memplugin.storage.read import decode_tag
from tb_memplugin.storage.write import RunWriter


def tail_of(path: pathlib.Path) -> Tail:
    data = path.read_bytes()
    return read_tail(lambda offset, size: data[offset : offset + size], len(data), "rollups")


def write(directory: pathlib.Path, rollups: int, after: int = 0) -> pathlib.Path:
    """Writes roll-ups, each after ten steps, and then as many samples and traced steps without one."""
    writer = RunWriter(directory / "run", summarize=summarize_session)
    for at in range(rollups):
        writer.samples(make_samples(range(10 * at, 10 * at + 10), [100 * MIB] * 10))
        writer.roll_up()
    for step in range(after):
        writer.samples(make_samples([1000 + step], [MIB]))
        writer.snapshot(make_snapshot(1000 + step))
    writer.close()
    (path,) = event_files(directory)
    return path


@pytest.mark.parametrize(("rollups", "after"), [(1, 0), (20, 0), (3, 50), (1, 800)])
def test_it_is_the_last_one_of_the_file(tmp_path: pathlib.Path, rollups: int, after: int) -> None:
    path = write(tmp_path, rollups, after)
    assert (path.stat().st_size > event_file.TAIL_BYTES[0]) == (after == 800)
    tail = tail_of(path)
    assert tail.frame is not None and tail.tag is not None and tail.missing is None
    tag = parse_tag(tail.tag)
    assert tag is not None
    decoded = decode_tag(tag, TagContent("run", tail.tag, (tail.frame,)), Room(1 << 30, 0))
    (*_, (session, _, expected)) = rollups_of(tmp_path)
    assert equal(decoded.pieces[0].value, expected) and expected.last_step == 10 * rollups - 1
    assert tag.session == session and tail.frame.step == expected.last_step


@pytest.mark.parametrize("cut", [1, 100, 400])
def test_one_that_is_still_being_written_is_skipped(tmp_path: pathlib.Path, cut: int) -> None:
    path = write(tmp_path, 3)
    path.write_bytes(path.read_bytes()[:-cut])
    tail = tail_of(path)
    assert tail.frame is not None and tail.frame.step == 19


def test_a_damaged_one_is_no_roll_up(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, 3)
    whole = path.read_bytes()
    place = whole.rindex(b"rollups/")
    for at in (place - 30, place + 100):  # its header, its content
        damaged = bytearray(whole)
        for byte in range(at, at + 8):
            damaged[byte] ^= 0x5A
        path.write_bytes(damaged)
        assert tail_of(path) == Tail(None, None, "its newest roll-up is damaged")


@pytest.mark.parametrize(("after", "missing"), [(1, "it has no roll-up"), (900, "it has no roll-up"), (0, None)])
def test_a_file_without_one_says_so_if_it_has_samples(tmp_path: pathlib.Path, after: int, missing: str | None) -> None:
    assert tail_of(write(tmp_path, 0, after)) == Tail(None, None, missing)
