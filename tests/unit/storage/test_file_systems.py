"""Directories and files, local and in stores that keep their listings or fail."""

import os
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tb_memplugin.errors import NotFoundError
from tb_memplugin.storage.files import FileSource, SourceError, file_systems
from tb_memplugin.storage.files import file_systems as files


class Store(MemoryFileSystem):
    """A store in memory, as another process writes into it."""

    protocol = "written"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix(f"{cls.protocol}://")))


class KeepingStore(Store):
    """The same store, whose listings are kept, as the file system of Google Cloud Storage does."""

    protocol = "keeping"
    kept: ClassVar[dict[str, Any]] = {}

    def ls(self, path: str, detail: bool = True, **more: Any) -> Any:
        path = self._strip_protocol(path)
        if path not in self.kept or not self.dircache.use_listings_cache:
            self.kept[path] = super().ls(path, detail=True)
        return self.kept[path] if detail else [entry["name"] for entry in self.kept[path]]

    def info(self, path: str, **more: Any) -> Any:
        path = self._strip_protocol(path)
        for entry in (
            self.kept.get(self._parent(path), ()) if self.dircache.use_listings_cache else ()
        ):
            if entry["name"] == path:
                return entry
        return super().info(path)


class FaultyStore(Store):
    """The same store, which fails as told.

    Attributes:
        unknown: Path of which `error` tells that it cannot be found out now what it is.
        answers: Results of the next reads: lengths of the answer, or exceptions.
    """

    protocol = "faulty"
    unknown: ClassVar[str] = ""
    error: ClassVar[Exception] = RuntimeError("An error occurred (500): Internal Error")
    answers: ClassVar[list[int | Exception]] = []

    def info(self, path: str, **more: Any) -> Any:
        if self._strip_protocol(path) == self.unknown:
            raise self.error
        return super().info(path)

    def ls(self, path: str, detail: bool = True, **more: Any) -> Any:
        return [self.info(entry["name"]) for entry in super().ls(path, detail=True)]

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **more: Any
    ) -> bytes:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bytes(super().cat_file(path, start, end)[:answer])


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store with a file of ten bytes in the directory of a run."""
    fsspec.register_implementation("keeping", KeepingStore, clobber=True)
    fsspec.register_implementation("faulty", FaultyStore, clobber=True)
    monkeypatch.setattr(files, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(FaultyStore, "unknown", "")
    made = Store()
    made.pipe(RUN + "/tfevents", b"0123456789")
    yield made
    Store.store.clear()
    KeepingStore.kept.clear()


RUN = "/bucket/runs/exp"


def test_a_missing_directory_and_a_missing_client_are_sentences(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ("/none/", str(tmp_path / "file")):
        with pytest.raises(NotFoundError) as raised:
            files.log_directory(path)
        place = path.rstrip("/")
        assert str(raised.value) == (
            f"no directory {place}; pass the log directory, as for tensorboard --logdir"
        )
    with pytest.raises(SourceError, match=r"cannot be read now: .*oci"):
        files.log_directory("oci://bucket/runs")
    assert not files.is_readable("oci://bucket/runs")


def test_a_growing_run_is_seen_in_a_store_that_keeps_its_listings(store: Store) -> None:
    run = f"keeping:/{RUN}"
    assert [entry.name for entry in files.entries(run)] == ["tfevents"]
    assert files.state(f"{run}/tfevents").length == 10
    # WHEN the file is replaced by a longer one, and another one comes
    store.pipe({f"{RUN}/tfevents": b"0123456789abcdef", f"{RUN}/tfevents.b": b"0"})
    # THEN the next listing has both
    assert [entry.name for entry in files.entries(run)] == ["tfevents", "tfevents.b"]
    assert files.state(f"{run}/tfevents").length == 16
    assert files.reader(f"{run}/tfevents")(10, 6) == b"abcdef"


def test_a_run_of_unknown_kind_is_damage_and_does_not_vanish(store: Store) -> None:
    assert files.event_files("faulty://bucket/runs").files == {"exp": [f"faulty:/{RUN}/tfevents"]}
    FaultyStore.unknown = RUN
    found = files.event_files("faulty://bucket/runs")
    reason = "the directory cannot be listed: An error occurred (500): Internal Error"
    assert (found.files, found.damage) == ({}, {".": [f"run .: {reason}"]})


def test_a_log_directory_that_cannot_be_read_is_not_called_missing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    FaultyStore.unknown = "/bucket/runs"
    with pytest.raises(SourceError) as raised:
        files.log_directory("faulty://bucket/runs")
    reason = "An error occurred (500): Internal Error"
    assert str(raised.value) == (
        f"the log directory faulty://bucket/runs cannot be read now: {reason}"
    )
    # The file systems of fsspec answer `isdir` with False if the request was refused.
    monkeypatch.setattr(FaultyStore, "error", PermissionError("Forbidden: https://store/o/exp"))
    with pytest.raises(SourceError, match="cannot be read now: Forbidden"):
        files.log_directory("faulty://bucket/runs")
    FaultyStore.unknown = ""
    assert files.log_directory("faulty://bucket/runs/") == "faulty://bucket/runs"
    with pytest.raises(NotFoundError):
        files.log_directory("faulty://bucket/none")


def test_an_object_that_stands_for_its_directory_is_no_entry(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [{"name": f"{RUN}/", "type": "file"}, {"name": f"{RUN}/a", "type": "file", "size": 1}]
    monkeypatch.setattr(FaultyStore, "ls", lambda *arguments, **more: listed)
    assert [entry.name for entry in files.entries(f"faulty:/{RUN}")] == ["a"]


def test_bytes_that_do_not_all_come_are_asked_for_again(store: Store) -> None:
    read_at = files.reader(f"faulty:/{RUN}/tfevents")
    FaultyStore.answers = [5, 3, 10]
    assert read_at(2, 6) == b"234567"
    assert read_at(2, 0) == b""  # S3 refuses an empty range
    # WHEN none of the answers is whole
    FaultyStore.answers = [5, 4, 3, 10]
    with pytest.raises(OSError, match="3 of 6 bytes at byte 2 were received"):
        read_at(2, 6)
    # THEN the next reading has them, and a failed request is not repeated: the client did that
    assert FaultyStore.answers == [10] and read_at(2, 6) == b"234567"
    FaultyStore.answers = [RuntimeError("500"), 10]
    with pytest.raises(RuntimeError):
        read_at(2, 6)


def test_the_reason_of_a_failure_has_no_address() -> None:
    error = FileNotFoundError("https://storage/download/o/runs%2Fexp%2Ftfevents?alt=media")
    assert files.reason(error, "gs://bucket/runs/exp/tfevents") == "it does not exist"
    refused = OSError(
        "Forbidden: https://storage/download/o/runs%2Fexp%2Ftfevents?alt=media\nAccess denied"
    )
    assert files.reason(refused, "gs://bucket/runs/exp/tfevents") == "Forbidden: …"


def test_a_worker_whose_file_has_no_known_length_is_said_to_be_missing(store: Store) -> None:
    # GIVEN a file that is listed, and a store that does not say how long it is
    source = FileSource(
        "faulty://bucket/runs", found=files.Found({"exp/memory": [f"faulty:/{RUN}/tfevents"]}, {})
    )
    FaultyStore.unknown = f"{RUN}/tfevents"
    assert list(source.event_runs()) == ["exp/memory"]
    (newest,) = source.newest(["exp/memory"], "rollups")
    assert newest.contents == () and newest.missing is not None
    assert newest.missing.startswith("it cannot be read: ")


def test_several_requests_to_a_store_run_at_a_time_and_none_to_a_disk() -> None:
    together = threading.Barrier(3, timeout=60)
    assert list(
        files.at_once(lambda item: (together.wait() >= 0, item)[1], [3, 1, 2], "gs://bucket")
    ) == [3, 1, 2]
    # On this machine each item is asked for when its result is taken.
    asked: list[int] = []
    next(files.at_once(asked.append, [1, 2, 3], "/logs"))
    assert asked == [1]
    assert list(files.at_once(len, [], "gs://bucket")) == []
    assert list(files.at_once(len, ["one"], "gs://bucket")) == [3]


def event_file(directory: pathlib.Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "events.out.tfevents.1").write_bytes(b"")


def test_directories_that_link_to_each_other_cost_little(tmp_path: pathlib.Path) -> None:
    # GIVEN twelve directories, each with links to all others: 12! paths
    names = [f"d{at:02}" for at in range(12)]
    for name in names:
        event_file(tmp_path / name)
        for other in names:
            if other != name:
                os.symlink(tmp_path / other, tmp_path / name / f"to_{other}")
    began = time.process_time()
    found = files.event_files(str(tmp_path)).files
    # THEN each directory is there under its own name, and every link is followed once
    assert set(names) <= found.keys() and len(found) == 12 + 12 * 11
    assert time.process_time() - began < 2


def test_the_path_with_the_fewest_links_is_followed(tmp_path: pathlib.Path) -> None:
    # GIVEN a run behind a link in a run, and a link to that run whose name comes first
    event_file(tmp_path / "elsewhere" / "inner")
    event_file(tmp_path / "logs" / "run_7")
    # a directory named like an event file is entered
    event_file(tmp_path / "logs" / "my.tfevents.logs")
    os.symlink(tmp_path / "elsewhere" / "inner", tmp_path / "logs" / "run_7" / "inner")
    os.symlink(tmp_path / "logs" / "run_7", tmp_path / "logs" / "best")
    assert list(files.event_files(str(tmp_path / "logs")).files) == [
        "best",
        "my.tfevents.logs",
        "run_7",
        "run_7/inner",
    ]


def test_the_number_and_the_depth_of_directories_are_limited(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path.joinpath("deep", *(f"d{at}" for at in range(1, file_systems.MAX_DEPTH)))
    event_file(deep)
    event_file(deep / "more")
    assert list(files.event_files(str(tmp_path)).files) == [deep.relative_to(tmp_path).as_posix()]
    for at in range(20):
        event_file(tmp_path / "many" / f"{at:02}")
    monkeypatch.setattr(file_systems, "MAX_DIRECTORIES", 10)
    found = files.event_files(str(tmp_path / "many"))
    assert (
        len(found.files) == 9 and ("only the first 10 directories are read") in found.damage["."][0]
    )


def test_a_stores_listing_has_the_bytes_of_its_files() -> None:
    store = fsspec.filesystem("memory")
    store.pipe(
        {"memory://listing/b/memory/x.tfevents.1": b"12", "memory://listing/x.tfevents.1": b"1"}
    )
    try:
        found = files.event_files("memory://listing")
    finally:
        store.rm("/listing", recursive=True)
    inner, outer = "memory://listing/b/memory/x.tfevents.1", "memory://listing/x.tfevents.1"
    assert found.files == {".": [outer], "b/memory": [inner]} and found.damage == {}
    assert found.states == {inner: files.FileState(2), outer: files.FileState(1)}
