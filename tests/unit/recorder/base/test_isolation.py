"""Directories of this process: only its user can read them, and only those of ended processes are
removed."""

import gc
import logging
import os
import pathlib
import stat
import tempfile
from typing import Any

import pytest

from tb_memplugin.recorder.base import Faults, PrivateDirectory, remove_abandoned
from tb_memplugin.recorder.base import isolation as process
from tb_memplugin.recorder.base.isolation import MAX_STEP_NOTES


@pytest.fixture(autouse=True)
def places(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[pathlib.Path, pathlib.Path]:
    """The directories in place of the temporary one and of the one in memory."""
    on_disk, in_memory = tmp_path / "disk", tmp_path / "memory"
    for place in (on_disk, in_memory):
        place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(on_disk))
    monkeypatch.setattr(process, "MEMORY", str(in_memory))
    return on_disk, in_memory


def test_a_directory_is_new_named_by_its_use_where_asked_for_and_readable_by_its_user_only(
    places, monkeypatch
) -> None:
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
    monkeypatch.setattr(process, "MEMORY", str(places[1] / "missing"))
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
        patch.setattr(process, "MEMORY", str(places[1] / "missing"))
        remove_abandoned()
    assert [path.exists() for path in left] == [False, True]
    remove_abandoned()
    assert not any(path.exists() for path in left)
    assert all((path / "file").exists() for path in others)
    assert file.exists() and link.is_symlink() and os.path.isdir(used.path)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    used.remove()


@pytest.mark.parametrize(("removed", "in_memory"), [(2, False), (9, True), (10, False), (10, True)])
def test_directories_removed_before_they_are_locked_are_made_again_or_the_place_is_named(
    places, monkeypatch, removed, in_memory
) -> None:
    make, made = tempfile.mkdtemp, []

    def removes(**where: Any) -> str:
        made.append(make(**where))
        if len(made) <= removed:
            os.rmdir(made[-1])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", removes)
    if removed < 10:
        directory = PrivateDirectory("oom", in_memory)
        assert directory.path == made[removed] and os.path.isdir(directory.path)
        directory.remove()
    else:
        with pytest.raises(OSError, match="Set TMPDIR to another directory") as raised:
            PrivateDirectory("oom", in_memory)
        assert (f"new directories in {places[in_memory]} are removed at once") in str(
            raised.value
        ) and len(made) == 10


@pytest.mark.parametrize(
    "module", [False, True], ids=["no locks in Python", "none in the file system"]
)
def test_without_locks_a_directory_can_be_used(
    places: Any, monkeypatch: pytest.MonkeyPatch, module: bool
) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    left = places[0] / "tb_memplugin_oom_theirs"
    left.mkdir()
    if module:
        monkeypatch.setattr(process.fcntl, "flock", unsupported)
    else:
        monkeypatch.setattr(process, "fcntl", None)
    descriptors = len(os.listdir("/proc/self/fd"))
    directory = PrivateDirectory("oom")
    remove_abandoned()
    # THEN no other one is removed, and no file stays open
    assert left.is_dir() and os.path.isdir(directory.path)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    directory.remove()
    assert not os.path.exists(directory.path)


def fail() -> None:
    raise OSError("no space\nleft")


def test_a_part_that_fails_is_reported_once_and_not_run_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran, noted = [], []
    faults = Faults(noted.append)
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        for _ in range(3):
            faults.run("writing", lambda: ran.append("tried") or fail())
            faults.run("sampling", lambda: ran.append("sampled"))
    # THEN there is one warning, on one line, and the other part went on
    assert [record.message for record in caplog.records] == [
        "writing stopped: OSError: no space left; training is not affected"
    ]
    assert noted == [caplog.records[0].message]
    assert ran == ["tried", "sampled", "sampled", "sampled"]
    assert faults.stopped("writing") and not faults.stopped("sampling")


def test_a_fault_in_one_step_costs_that_step(caplog: pytest.LogCaptureFixture) -> None:
    ran, noted = list[int](), list[str]()
    faults = Faults(noted.append)
    with caplog.at_level(logging.DEBUG, "tb_memplugin"):
        for step in range(1, 7):
            faults.run_step(
                "step timelines",
                step,
                fail if step in (2, 3, 5) else lambda step=step: ran.append(step),
            )
    # THEN the other steps are analyzed, and each fault is noted with its traceback at debug level
    assert ran == [1, 4, 6] and not faults.stopped("step timelines")
    assert noted == [
        f"step timelines failed for step {step}: OSError: no space left; training is not affected"
        for step in (2, 3, 5)
    ]
    assert [
        record.message for record in caplog.records if record.levelno == logging.WARNING
    ] == noted
    assert (
        sum(
            record.exc_info is not None
            for record in caplog.records
            if record.levelno == logging.DEBUG
        )
        == 3
    )


def test_three_faults_in_a_row_stop_the_part_and_others_are_noted_a_few_times(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran: list[int] = []
    faults = Faults()
    for step in (1, 2, 3, 4):
        faults.run_step("step timelines", step, lambda step=step: ran.append(step) or fail())
    assert ran == [1, 2, 3] and faults.stopped("step timelines")
    assert len(caplog.records) == 3
    assert caplog.records[-1].message == (
        "step timelines stopped: OSError: no space left; training is not affected"
    )
    # AND others do not, however many they are
    caplog.clear()
    faults = Faults()
    for step in range(100):
        faults.run_step("step timelines", step, fail if step % 2 else lambda: None)
    assert len(caplog.records) == MAX_STEP_NOTES and not faults.stopped("step timelines")


def test_an_interrupt_is_not_a_fault_and_a_failing_report_is_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Faults().run_step("anything", 1, interrupt)
    with pytest.raises(KeyboardInterrupt):
        Faults().run("anything", interrupt)
    tried = []

    def report(sentence: str) -> None:
        tried.append(sentence)
        raise OSError(sentence)

    faults = Faults(report)
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        faults.run("writing", fail)
    assert tried == [record.message for record in caplog.records] and len(tried) == 1
    assert faults.stopped("writing")


@pytest.mark.parametrize(
    ("sentence", "stored"),
    [
        ("No such file: '/data/runs/exp1/memory/x'", "No such file: '<path>'"),
        (
            "[Errno 2] No such file: '/data/Jo Doe/runs, old/x' of 3/4",
            "[Errno 2] No such file: '<path>' of 3/4",
        ),
        ("no '/device:CPU:0' and no '/device:CPU:1'", "no '/device:CPU:0' and no '/device:CPU:1'"),
        (r"cannot open C:\data\runs, stopped", "cannot open <path>, stopped"),
        ("layer vgg16/block1_conv1 on /device:CPU:0", "layer vgg16/block1_conv1 on /device:CPU:0"),
        ("0/0 is no share; 3/4 is", "0/0 is no share; 3/4 is"),
        # Unquoted, with spaces
        ("No such file: /home/ada lovelace/runs/x", "No such file: <path>"),
        ("cannot open /home/ada king lovelace/x: gone", "cannot open <path>: gone"),
        (r"cannot open C:\Users\Ada Lovelace\runs, stopped", "cannot open <path>, stopped"),
        ("no file ~ada/runs/x", "no file <path>"),
        ("no '~/my runs/x'", "no '<path>'"),
    ],
)
def test_the_stored_sentence_contains_no_path(sentence: str, stored: str) -> None:
    noted = []
    Faults(noted.append).warn(sentence)
    assert noted == [stored]


def test_of_a_path_that_exists_no_part_is_stored(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "Ada Lovelace" / "my last run"
    place.mkdir(parents=True)
    noted: list[str] = []
    Faults(noted.append).warn(f"the directory {place} is full")
    assert noted == ["the directory <path> is full"]


class Held:
    abandoned = 0

    def _abandon(self) -> None:
        self.abandoned += 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_abandons_each_item_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Items of other tests are kept out: they are recorders of a process with many threads.
    monkeypatch.setattr(process, "_inherited", type(process._inherited)())
    first, second = Held(), Held()
    for item in (first, second, second):
        process.abandon_in_child(item)
    child = os.fork()
    if not child:
        os._exit(10 * first.abandoned + second.abandoned)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
    # AND the parent keeps them
    assert (first.abandoned, second.abandoned) == (0, 0)
    # AND one that is gone is not kept
    del second, item
    gc.collect()
    assert len(process._inherited) == 1
    # AND in a child of the child they are not abandoned again
    for _ in range(2):
        process._abandon_all()
    assert first.abandoned == 1
