"""Directories of this process: only its user can read them, and only those of ended processes are removed."""

import os
import pathlib
import stat
import tempfile
from typing import Any

import pytest

from tb_memplugin.recorder.base import PrivateDirectory, remove_abandoned
from tb_memplugin.recorder.base import isolation as private_directory


@pytest.fixture(autouse=True)
def places(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> tuple[pathlib.Path, pathlib.Path]:
    """The directories in place of the temporary one and of the one in memory."""
    on_disk, in_memory = tmp_path / "disk", tmp_path / "memory"
    for place in (on_disk, in_memory):
        place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(on_disk))
    monkeypatch.setattr(private_directory, "MEMORY", str(in_memory))
    return on_disk, in_memory


def test_a_directory_is_new_named_by_its_use_where_asked_for_and_readable_by_its_user_only(places, monkeypatch) -> None:
    first, second = PrivateDirectory("oom"), PrivateDirectory("oom")
    assert first.path != second.path
    for directory in (first, second):
        path = pathlib.Path(directory.path)
        assert path.parent == places[0] and path.name.startswith("tb_memplugin_oom_")
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        directory.remove()
    # AND one in memory lies there if the system has such a place
    in_memory = PrivateDirectory("profile", in_memory=True)
    assert pathlib.Path(in_memory.path).parent == places[1]
    monkeypatch.setattr(private_directory, "MEMORY", str(places[1] / "missing"))
    elsewhere = PrivateDirectory("profile", in_memory=True)
    assert pathlib.Path(elsewhere.path).parent == places[0]
    in_memory.remove()
    elsewhere.remove()


def test_removal_removes_the_contents_and_may_be_repeated(places: Any) -> None:
    directory = PrivateDirectory("probe")
    (pathlib.Path(directory.path) / "file").write_text("x", encoding="utf-8")
    descriptors = len(os.listdir("/proc/self/fd"))
    directory.remove()
    directory.remove()
    assert not os.path.exists(directory.path)
    # AND the lock's file descriptor is closed
    assert len(os.listdir("/proc/self/fd")) == descriptors - 1


def test_directories_of_ended_processes_are_removed_and_all_else_stays(places, monkeypatch) -> None:
    # GIVEN directories that nothing locks, as a killed process leaves them, in both places
    left = [places[0] / "tb_memplugin_oom_killed", places[1] / "tb_memplugin_profile_killed"]
    others = [places[0] / "tb_memplugin_other", places[1] / "someone_elses"]
    for path in (*left, *others):
        path.mkdir()
        (path / "file").write_text("x", encoding="utf-8")
    # ... a file with such a name, a link with such a name, and a directory that is in use
    file, link = places[0] / "tb_memplugin_oom_file", places[0] / "tb_memplugin_oom_link"
    file.write_text("x", encoding="utf-8")
    link.symlink_to(others[0])
    used = PrivateDirectory("oom")
    descriptors = len(os.listdir("/proc/self/fd"))
    # THEN none of another user's is removed ...
    with monkeypatch.context() as patch:
        user = os.geteuid()
        patch.setattr(os, "geteuid", lambda: user + 1)
        remove_abandoned()
    assert all(path.exists() for path in left)
    # ... a place that cannot be listed is skipped, and of this user's own all that were left are
    with monkeypatch.context() as patch:
        patch.setattr(private_directory, "MEMORY", str(places[1] / "missing"))
        remove_abandoned()
    assert [path.exists() for path in left] == [False, True]
    remove_abandoned()
    assert not any(path.exists() for path in left)
    assert all((path / "file").exists() for path in others)
    assert file.exists() and link.is_symlink() and os.path.isdir(used.path)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    used.remove()


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_place_that_removes_new_directories_at_once_is_named(places, monkeypatch, in_memory) -> None:
    tried = []

    def removed_at_once(prefix: str, dir: str | None) -> str:
        tried.append(dir)
        return str(places[0] / prefix)

    monkeypatch.setattr(tempfile, "mkdtemp", removed_at_once)
    with pytest.raises(OSError, match="Set TMPDIR to another directory") as raised:
        PrivateDirectory("oom", in_memory)
    assert f"new directories in {places[in_memory]} are removed at once" in str(raised.value)
    assert len(tried) == 10


@pytest.mark.parametrize("module", [False, True], ids=["no locks in Python", "none in the file system"])
def test_without_locks_a_directory_can_be_used(places: Any, monkeypatch: pytest.MonkeyPatch, module: bool) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    left = places[0] / "tb_memplugin_oom_theirs"
    left.mkdir()
    if module:
        monkeypatch.setattr(private_directory.fcntl, "flock", unsupported)
    else:
        monkeypatch.setattr(private_directory, "fcntl", None)
    descriptors = len(os.listdir("/proc/self/fd"))
    directory = PrivateDirectory("oom")
    remove_abandoned()
    # THEN no other one is removed, and no file stays open
    assert left.is_dir() and os.path.isdir(directory.path)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    directory.remove()
    assert not os.path.exists(directory.path)
