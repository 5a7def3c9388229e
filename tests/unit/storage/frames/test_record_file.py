"""The local event file: records wait in memory, and a failed write leaves whole records."""

import errno
import os
import pathlib
import shutil
from collections.abc import Callable

import numpy as np
import pytest
from reading_cases import make_samples
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

from tb_memplugin.storage.frames import LocalRecordFile, tfrecord
from tb_memplugin.storage.frames.tfrecord import MAX_WAITING_BYTES, Record, walk_records
from tb_memplugin.storage.write import RunWriter, recordings


def records(path: pathlib.Path) -> list[bytes]:
    data = path.read_bytes()
    found = list(walk_records(lambda offset, size: data[offset : offset + size], 0, len(data)))
    assert all(isinstance(one, Record) and one.is_intact() for one in found)
    return [one.data for one in found if isinstance(one, Record)]


def test_tensorboards_own_reader_reads_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "events.out.tfevents.1.x"
    written = [bytes(np.random.default_rng(size).bytes(size)) for size in (0, 1, 500, 5000, 100_000)]
    for part, append in ((written[:3], False), (written[3:], True)):
        file, before = LocalRecordFile(str(path), append=append), path.stat().st_size
        for record in part:
            file.write(record)
        assert path.stat().st_size == before
        file.close()
    assert list(RawEventFileLoader(str(path)).Load()) == written == records(path)
    # AND the records that wait are bounded
    file = LocalRecordFile(str(path))
    file.write(bytes(MAX_WAITING_BYTES))
    assert path.stat().st_size > MAX_WAITING_BYTES
    file.abandon()


def test_a_failed_write_leaves_whole_records_and_close_still_closes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    file = LocalRecordFile(str(path))
    file.write(b"kept")
    file.flush()
    descriptor = file._descriptor
    assert descriptor is not None
    file.write(b"lost" * 100)
    write: Callable[..., int] = os.write
    left = [30]

    def full(descriptor: int, data: memoryview) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        count, left[0] = write(descriptor, data[: left[0]]), 0
        return count

    with monkeypatch.context() as patch:
        patch.setattr(tfrecord.os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            file.flush()
    assert records(path) == [b"kept"]
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_run_writer_unlocks_after_a_failure(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RunWriter(tmp_path)
    assert recordings.any_live(writer.directory)
    writer.samples(make_samples([0], [1000]))
    shutil.rmtree(writer.directory)
    for _ in range(2):
        try:
            writer.close()
        except FileNotFoundError as error:
            assert "was deleted during the run" in str(error)
    next_one = RunWriter(tmp_path)
    assert next_one.directory == writer.directory
    next_one.close()


def test_a_writer_that_rested_makes_way_for_another_process(tmp_path: pathlib.Path) -> None:
    # GIVEN a writer that closed its file, and another one that records into the run meanwhile
    first = RunWriter(tmp_path)
    first.samples(make_samples([0], [1000]))
    first.note("a note")
    first.close()
    second = RunWriter(tmp_path)
    assert second.directory == first.directory
    before = first.session
    # WHEN the first one goes on
    first.samples(make_samples([1], [1000]))
    # THEN it is a session of its own in another directory, with its notes.
    assert first.directory != second.directory and first.session not in (before, second.session)
    assert first.info.notes == ("a note",)
    first.close()
    second.close()
