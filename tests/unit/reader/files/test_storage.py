"""Log directories that do not exist, stores that keep their listings, and stores that fail."""

import pathlib
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tensorboard.compat.tensorflow_stub.io import gfile

from tb_memplugin.errors import NotFoundError
from tb_memplugin.reader.files import directories, object_stores
from tb_memplugin.reader.files import storage as files
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.files.source import SourceError


class Store(MemoryFileSystem):
    """A store in memory, as another process writes into it."""

    protocol = "written"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]


class KeepingStore(Store):
    """The same store, whose listings are kept, as the file system of Google Cloud Storage does."""

    protocol = "keeping"
    kept: ClassVar[dict[str, Any]] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("keeping://")))

    def ls(self, path: str, detail: bool = True, **more: Any) -> Any:
        path = self._strip_protocol(path)
        if path not in self.kept:
            self.kept[path] = super().ls(path, detail=True)
        return self.kept[path] if detail else [entry["name"] for entry in self.kept[path]]

    def info(self, path: str, **more: Any) -> Any:
        path = self._strip_protocol(path)
        for entry in self.kept.get(self._parent(path), ()):
            if entry["name"] == path:
                return entry
        return super().info(path)

    def invalidate_cache(self, path: str | None = None) -> None:
        self.kept.pop(self._strip_protocol(path), None)


class RefusingStore(Store):
    """The same store, which refuses to say what the path `refused` is."""

    protocol = "refusing"
    refused: ClassVar[str] = ""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("refusing://")))

    def info(self, path: str, **more: Any) -> Any:
        if self._strip_protocol(path) == self.refused:
            raise PermissionError("Forbidden: https://store/o/exp")
        return super().info(path)


class S3:
    """What TensorBoard's file system for S3 does: a directory `exp` with a file of ten bytes, which fails as told.

    Attributes:
        unknown: Name of which it cannot be found out now whether it is a directory.
        answers: Results of the next reads: lengths of the answer, or exceptions.
    """

    def __init__(self) -> None:
        self.unknown = ""
        self.answers: list[int | Exception] = []

    def join(self, path: str, *names: str) -> str:
        return "/".join((path, *names))

    def isdir(self, path: str) -> bool:
        if path.endswith(f"/{self.unknown}"):
            raise RuntimeError("An error occurred (500): Internal Error")
        return not path.endswith("tfevents")

    def listdir(self, path: str) -> list[str]:
        return ["tfevents"] if path.endswith("exp") else ["exp"]

    def read(self, path: str, binary_mode: bool, size: int, continue_from: dict[str, int]) -> tuple[bytes, None]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        begin = continue_from["byte_offset"]
        return b"0123456789"[begin : begin + min(size + 1, answer)], None


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> S3:
    store = S3()
    monkeypatch.setitem(gfile._REGISTERED_FILESYSTEMS, "faulty", store)
    monkeypatch.setattr(files, "_PAUSE_SECONDS", 0)
    return store


@pytest.fixture
def written() -> Iterator[Store]:
    fsspec.register_implementation("keeping", KeepingStore, clobber=True)
    fsspec.register_implementation("refusing", RefusingStore, clobber=True)
    yield Store()
    RefusingStore.refused = ""
    Store.store.clear()
    KeepingStore.kept.clear()


@pytest.mark.parametrize(
    ("path", "what"),
    [("/none/", "the log directory"), ("s3://bucket", "a directory in the bucket, such as s3://bucket/runs")],
)
def test_a_missing_directory_is_a_sentence(path: str, what: str) -> None:
    # TensorBoard's file layer reads directories in an S3 bucket, not the bucket.
    with pytest.raises(NotFoundError) as raised:
        files.log_directory(path)
    assert str(raised.value) == f"no directory {path.rstrip('/')}; pass {what}, as for tensorboard --logdir"


def test_a_growing_run_is_seen_in_a_store_that_keeps_its_listings(written: Store) -> None:
    written.pipe("/bucket/exp/a", b"0123456789")
    assert [entry.name for entry in files.entries("keeping://bucket/exp")] == ["a"]
    assert files.state("keeping://bucket/exp/a").length == 10
    # WHEN the file is replaced by a longer one, and another one comes
    written.pipe({"/bucket/exp/a": b"0123456789abcdef", "/bucket/exp/b": b"0"})
    assert files.state("keeping://bucket/exp/a").length == 10  # as the store says until it is listed again
    # THEN the next listing has both
    assert [entry.name for entry in files.entries("keeping://bucket/exp")] == ["a", "b"]
    assert files.state("keeping://bucket/exp/a").length == 16
    assert files.reader("keeping://bucket/exp/a")(10, 6) == b"abcdef"


def test_a_run_of_unknown_kind_is_damage_and_does_not_vanish(store: S3) -> None:
    assert directories.event_files("faulty://bucket/runs").files == {"exp": ["faulty://bucket/runs/exp/tfevents"]}
    store.unknown = "exp"
    found = directories.event_files("faulty://bucket/runs")
    reason = "the directory cannot be listed: An error occurred (500): Internal Error"
    assert (found.files, found.damage) == ({}, {".": [f"run .: {reason}"]})


def test_a_log_directory_that_cannot_be_read_is_not_called_missing(store: S3, written: Store) -> None:
    store.unknown = "runs"
    with pytest.raises(SourceError) as raised:
        files.log_directory("faulty://bucket/runs")
    reason = "An error occurred (500): Internal Error"
    assert str(raised.value) == f"the log directory faulty://bucket/runs cannot be read now: {reason}"
    # The file systems of fsspec answer `isdir` with False if the request was refused.
    written.pipe("/bucket/exp/a", b"0")
    RefusingStore.refused = "/bucket/exp"
    with pytest.raises(SourceError, match="cannot be read now: Forbidden"):
        files.log_directory("refusing://bucket/exp")
    RefusingStore.refused = ""
    assert files.log_directory("refusing://bucket/exp/") == "refusing://bucket/exp"
    with pytest.raises(NotFoundError):
        files.log_directory("refusing://bucket/none")


def test_an_object_that_stands_for_its_directory_is_no_entry(written: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    written.pipe("/bucket/exp/a", b"0")
    listed = [{"name": "/bucket/exp/", "type": "file"}, {"name": "/bucket/exp/a", "type": "file"}]
    monkeypatch.setattr(RefusingStore, "ls", lambda *arguments, **more: listed)
    assert [entry.name for entry in files.entries("refusing://bucket/exp")] == ["a"]


class CutError(Exception):
    """The body of an answer broke off."""


def test_bytes_that_do_not_all_come_are_asked_for_again(store: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_stores._TensorBoard, "cut", (CutError,))
    read_at = files.reader("faulty://bucket/exp/tfevents")
    store.answers = [CutError(), 3, 10]
    assert read_at(2, 6) == b"234567"
    assert read_at(2, 0) == b""  # S3 refuses an empty range
    # WHEN none of the answers is whole
    store.answers = [5, CutError(), 3, 10]
    with pytest.raises(OSError, match="3 of 6 bytes at byte 2 were received"):
        read_at(2, 6)
    store.answers = [3, 5, CutError("broken"), 10]
    with pytest.raises(CutError, match="broken"):
        read_at(2, 6)
    # THEN the next reading has them, and a failed request is not repeated: the client did that
    assert store.answers == [10] and read_at(2, 6) == b"234567"
    store.answers = [RuntimeError("500"), 10]
    with pytest.raises(RuntimeError):
        read_at(2, 6)


def test_an_object_of_fsspec_that_has_become_shorter_is_no_end(written: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_PAUSE_SECONDS", 0)
    written.pipe("/bucket/exp/a", b"0123456789")
    files.entries("keeping://bucket/exp")
    read_at = files.reader("keeping://bucket/exp/a")
    written.pipe("/bucket/exp/a", b"01234")
    assert files.state("keeping://bucket/exp/a").length == 10
    with pytest.raises(OSError, match="3 of 8 bytes at byte 2 were received"):
        read_at(2, 8)


def test_the_reason_of_a_failure_has_no_address() -> None:
    error = FileNotFoundError("https://storage/download/o/runs%2Fexp%2Ftfevents?alt=media")
    assert files.reason(error, "gs://bucket/runs/exp/tfevents") == "it does not exist"
    refused = OSError("Forbidden: https://storage/download/o/runs%2Fexp%2Ftfevents?alt=media\nAccess denied")
    assert files.reason(refused, "gs://bucket/runs/exp/tfevents") == "Forbidden: …"


def test_a_worker_whose_file_has_no_known_length_is_said_to_be_missing(store: S3) -> None:
    # GIVEN a file that is listed, and a store that does not say how long it is: this one has no `stat`
    source = FileSource("faulty://bucket/runs", found=directories.Found({"exp/memory": ["faulty://b/tfevents"]}, {}))
    assert list(source.event_runs()) == ["exp/memory"]
    (newest,) = source.newest(["exp/memory"], "rollups")
    assert newest.contents == () and newest.missing is not None
    assert newest.missing.startswith("it cannot be read: ")


class Listing:
    """A store that lists everything at once, or fails with `error`."""

    error: Exception | None = None

    def tree(self, directory: str, part: str) -> dict[str, int] | None:
        if self.error is not None:
            raise self.error
        assert part == "tfevents"
        return {"exp/b": 4, "exp/a": 3} if directory.endswith("runs") else None


def test_a_tree_is_listed_at_once_where_a_store_can(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Listing()
    monkeypatch.setattr(files, "store_of", lambda path: store)
    assert files.tree(str(tmp_path), "tfevents") is None and files.tree("s3://bucket/other", "tfevents") is None
    a, b = "s3://bucket/runs/exp/a", "s3://bucket/runs/exp/b"
    assert files.tree("s3://bucket/runs", "tfevents") == {a: files.FileState(3), b: files.FileState(4)}
    # WHEN it cannot now, each directory is listed, which says why
    store.error = PermissionError("Access Denied")
    assert files.tree("s3://bucket/runs", "tfevents") is None


def test_several_requests_to_a_store_run_at_a_time_and_none_to_a_disk() -> None:
    together = threading.Barrier(3, timeout=60)
    assert list(files.at_once(lambda item: (together.wait() >= 0, item), [3, 1, 2], "gs://bucket")) == [
        (True, 3),
        (True, 1),
        (True, 2),
    ]
    # On this machine each item is asked for when its result is taken.
    asked: list[int] = []
    results = files.at_once(asked.append, [1, 2, 3], "/logs")
    next(results)
    assert asked == [1]
    assert list(files.at_once(len, [], "gs://bucket")) == []
    assert list(files.at_once(len, ["one"], "gs://bucket")) == [3]


def test_a_local_directory_is_asked_of_the_operating_system_alone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Asked:
        def is_directory(self, path: str) -> bool:
            asked.append(path)
            return path.endswith("runs")

    monkeypatch.setattr(files, "store_of", lambda path: Asked())
    assert files.is_directory(str(tmp_path)) and not files.is_directory(str(tmp_path / "none"))
    assert asked == []
    assert files.is_directory("gs://bucket/runs") and not files.is_directory("gs://bucket/none")
    assert asked == ["gs://bucket/runs", "gs://bucket/none"]
