"""Event files under a log directory: links, depth and numbers."""

import os
import pathlib
import time

import pytest

from tb_memplugin.reader.files import directories
from tb_memplugin.reader.files.directories import event_files
from tb_memplugin.reader.files.storage import FileState


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
    os.symlink(tmp_path / "elsewhere" / "inner", tmp_path / "logs" / "run_7" / "inner")
    os.symlink(tmp_path / "logs" / "run_7", tmp_path / "logs" / "best")
    assert list(event_files(str(tmp_path / "logs")).files) == ["best", "run_7", "run_7/inner"]


def test_a_number_of_directories_over_the_limit_is_said(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(20):
        event_file(tmp_path / f"{at:02}")
    monkeypatch.setattr(directories, "MAX_DIRECTORIES", 10)
    found = event_files(str(tmp_path))
    assert len(found.files) == 9 and "only the first 10 directories are read" in found.damage["."][0]


def test_a_directory_whose_name_is_that_of_an_event_file_is_entered(tmp_path: pathlib.Path) -> None:
    event_file(tmp_path / "my.tfevents.logs")
    assert list(event_files(str(tmp_path)).files) == ["my.tfevents.logs"]


def listed(monkeypatch: pytest.MonkeyPatch, *names: str) -> directories.Found:
    """The event files of a store that lists `names` of them at once, each of as many bytes as its place."""
    tree = {f"s3://b/logs/{name}": FileState(at) for at, name in enumerate(names)}
    monkeypatch.setattr(directories.files, "tree", lambda directory, part: tree)
    return event_files("s3://b/logs")


def test_a_list_of_event_files_gives_the_runs_and_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = listed(monkeypatch, "b/memory/x.tfevents.2", "x.tfevents.1", "b/memory/x.tfevents.1")
    b = ["s3://b/logs/b/memory/x.tfevents.1", "s3://b/logs/b/memory/x.tfevents.2"]
    assert found.files == {".": ["s3://b/logs/x.tfevents.1"], "b/memory": b} and found.damage == {}
    assert found.states == {b[1]: FileState(0), "s3://b/logs/x.tfevents.1": FileState(1), b[0]: FileState(2)}


def test_a_list_of_event_files_is_read_as_deep_and_as_far_as_directories_are(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "/".join(f"d{at}" for at in range(directories.MAX_DEPTH))
    assert list(listed(monkeypatch, f"{deep}/x.tfevents").files) == [deep]
    assert listed(monkeypatch, f"{deep}/more/x.tfevents", "a//x.tfevents").files == {}
    monkeypatch.setattr(directories, "MAX_DIRECTORIES", 3)
    found = listed(monkeypatch, *(f"{at}/{name}" for at in range(4) for name in ("x.tfevents", "y.tfevents")))
    assert list(found.files) == ["0", "1", "2"] and found.damage == {".": ["only the first 3 directories are read"]}


def test_the_depth_of_directories_is_limited_as_well(tmp_path: pathlib.Path) -> None:
    deep = tmp_path.joinpath(*(f"d{at}" for at in range(directories.MAX_DEPTH)))
    event_file(deep)
    event_file(deep / "more")
    assert list(event_files(str(tmp_path)).files) == [deep.relative_to(tmp_path).as_posix()]
