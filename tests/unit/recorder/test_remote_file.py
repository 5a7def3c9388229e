"""A file that TensorFlow uploads: after a failure it is let go of for good."""

import pathlib
import sys
from typing import Any

import pytest
import tensorflow as tf

from tb_memplugin.recorder import remote_file
from tb_memplugin.recorder.remote_file import RemoteRecordFile


class File:
    """TensorFlow's file, whose calls fail as told."""

    fails: str = ""
    calls: list[str]  # of the last file
    destroyed: int

    def __init__(self, path: str, mode: str) -> None:
        File.calls = [path, mode]

    def _called(self, name: str) -> None:
        File.calls.append(name)
        if name == File.fails:
            raise tf.errors.AbortedError(None, None, "All 10 retry attempts failed")

    def write(self, data: bytes) -> None:
        self._called("write")

    def flush(self) -> None:
        self._called("flush")

    def close(self) -> None:
        self._called("close")

    def __del__(self) -> None:
        File.destroyed += 1


@pytest.fixture
def uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    File.fails, File.destroyed = "", 0
    monkeypatch.setattr(tf.io.gfile, "GFile", File)


def test_tensorflow_reads_what_is_written(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "records")
    file = RemoteRecordFile(path)
    records = [b"", b"a", bytes(range(256)) * 1000]
    for record in records[:2]:
        file.write(record)
    file.flush()
    assert list(tf.data.TFRecordDataset(path).as_numpy_iterator()) == records[:2]
    file.write(records[2])
    file.close()
    assert list(tf.data.TFRecordDataset(path).as_numpy_iterator()) == records


def test_what_is_closed_is_destroyed(uploaded: None) -> None:
    file = RemoteRecordFile("gs://bucket/run")
    file.write(b"a")
    file.write(b"b")
    assert File.calls == ["gs://bucket/run", "wb"]  # records wait for the next upload
    file.flush()
    file.flush()
    file.close()
    assert File.calls[2:] == ["write", "flush", "flush", "close"]
    del file
    assert File.destroyed == 1


@pytest.mark.parametrize(("fails", "calls"), [("write", 1), ("flush", 2), ("close", 4)])
def test_after_a_failure_nothing_is_tried_again(uploaded: None, fails: str, calls: int) -> None:
    file = RemoteRecordFile("gs://bucket/run")
    File.fails = fails
    with pytest.raises(tf.errors.AbortedError):
        file.write(b"a")
        file.flush()
        file.write(b"b")
        file.close()
    file.write(b"c")
    with pytest.raises(OSError, match="could not be uploaded before"):
        file.flush()
    file.close()
    assert len(File.calls) == 2 + calls and File.calls[-1] == fails
    # AND TensorFlow's destructor, which would try it again, never runs
    del file
    assert File.destroyed == 0


def test_a_file_that_is_let_go_of_is_never_destroyed(uploaded: None) -> None:
    file = RemoteRecordFile("gs://bucket/run")
    file.write(b"a")
    inner: Any = file._file
    references = sys.getrefcount(inner)
    file.abandon()
    file.abandon()
    assert sys.getrefcount(inner) == references + 1
    del file, inner
    assert File.destroyed == 0 and File.calls == ["gs://bucket/run", "wb"]


def test_directories_are_made_by_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(tf.io.gfile, "makedirs", made.append)
    remote_file.make_directories("gs://bucket/run/memory")
    assert made == ["gs://bucket/run/memory"]
