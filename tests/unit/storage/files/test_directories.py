"""Event files under a log directory: links, depth and numbers."""

import os
import pathlib
import time

import fsspec
import pytest

from tb_memplugin.storage.files import file_systems
from tb_memplugin.storage.files.file_systems import FileState, event_files


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
    found = event_files(str(tmp_path)).files
    # THEN each directory is there under its own name, and every link is followed once
    assert set(names) <= found.keys() and len(found) == 12 + 12 * 11
    assert time.process_time() - began < 2


def test_the_path_with_the_fewest_links_is_followed(tmp_path: pathlib.Path) -> None:
    # GIVEN a run behind a link in a run, and a link to that run whose name comes first
    event_file(tmp_path / "elsewhere" / "inner")
    event_file(tmp_path / "logs" / "run_7")
    event_file(tmp_path / "logs" / "my.tfevents.logs")  # a directory named like an event file is entered
    os.symlink(tmp_path / "elsewhere" / "inner", tmp_path / "logs" / "run_7" / "inner")
    os.symlink(tmp_path / "logs" / "run_7", tmp_path / "logs" / "best")
    assert list(event_files(str(tmp_path / "logs")).files) == ["best", "my.tfevents.logs", "run_7", "run_7/inner"]


def test_the_number_and_the_depth_of_directories_are_limited(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path.joinpath("deep", *(f"d{at}" for at in range(1, file_systems.MAX_DEPTH)))
    event_file(deep)
    event_file(deep / "more")
    assert list(event_files(str(tmp_path)).files) == [deep.relative_to(tmp_path).as_posix()]
    for at in range(20):
        event_file(tmp_path / "many" / f"{at:02}")
    monkeypatch.setattr(file_systems, "MAX_DIRECTORIES", 10)
    found = event_files(str(tmp_path / "many"))
    assert len(found.files) == 9 and "only the first 10 directories are read" in found.damage["."][0]


def test_a_stores_listing_has_the_bytes_of_its_files() -> None:
    store = fsspec.filesystem("memory")
    store.pipe({"memory://logs/b/memory/x.tfevents.1": b"12", "memory://logs/x.tfevents.1": b"1"})
    try:
        found = event_files("memory://logs")
    finally:
        store.rm("/logs", recursive=True)
    inner, outer = "memory://logs/b/memory/x.tfevents.1", "memory://logs/x.tfevents.1"
    assert found.files == {".": [outer], "b/memory": [inner]} and found.damage == {}
    assert found.states == {inner: FileState(2), outer: FileState(1)}
