"""Which recorder records into a run, and that each is closed before the process ends."""

import atexit
import gc
import os
from types import SimpleNamespace
from typing import Any

import pytest

from tb_memplugin.recorder.base.background import weakly
from tb_memplugin.recorder.loop import session as lifetime
from tb_memplugin.recorder.loop.lifetime import close_at_exit, is_recording, is_unclosed, take_place
from tb_memplugin.storage.write import own_recordings


class Recorder:
    def __init__(self, log_dir: str = "runs/a", closed: bool = False, paused: bool = False) -> None:
        self.closed, self.paused = closed, paused
        self.settings = SimpleNamespace(log_dir=log_dir)
        self.calls: list[str] = []

    def close(self) -> None:
        self.calls.append("close")

    def close_without_waiting(self) -> None:
        self.calls.append("close")

    def warn_incomplete(self) -> None:
        self.calls.append("warn")

    def drain(self) -> bool:
        self.calls.append("drain")
        return False


@pytest.fixture(autouse=True)
def own_recorders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorders of this test only."""
    monkeypatch.setattr(lifetime, "_by_place", type(lifetime._by_place)())
    monkeypatch.setattr(lifetime, "_unclosed", type(lifetime._unclosed)())
    monkeypatch.setattr(own_recordings, "register", lambda directory, write: written.__setitem__(directory, write))
    written.clear()


written: dict[str, Any] = {}
"""What a reader of a run directory in this process waits for."""


def test_the_open_predecessor_of_a_run_is_returned() -> None:
    first, second, third = Recorder(), Recorder(), Recorder()
    assert take_place(first, "/runs/a", "") is None
    # AND other workers and runs are not the same run
    assert take_place(Recorder(), "/runs/a", "worker_1") is None
    assert take_place(Recorder(), "/runs/b", "") is None
    assert take_place(second, "/runs/a", "") is first
    # AND one that is closed or gone is none
    second.closed = True
    assert take_place(third, "/runs/a", "") is None
    del third
    gc.collect()
    assert take_place(Recorder(), "/runs/a", "") is None


@pytest.mark.parametrize(("closed", "calls"), [(False, ["drain"]), (True, [])])
def test_a_reader_waits_for_what_the_runs_recorder_has_recorded(
    monkeypatch: pytest.MonkeyPatch, closed: bool, calls: list[str]
) -> None:
    monkeypatch.setattr(lifetime, "wait", lambda: True)
    recorder = Recorder(closed=closed)
    take_place(recorder, "runs/a", "")
    # THEN an open recorder says itself whether all is written, and for others the background thread does
    assert written["runs/a"]() is closed
    assert recorder.calls == calls
    monkeypatch.setattr(lifetime, "wait", lambda: False)
    del recorder
    gc.collect()
    assert written["runs/a"]() is False


@pytest.mark.parametrize(
    ("recorder", "recording"),
    [(Recorder(), True), (Recorder(closed=True), False), (Recorder(paused=True), False), (Recorder("runs/own"), False)],
)
def test_an_open_session_records_unless_it_is_paused_or_left_out(recorder: Recorder, recording: bool) -> None:
    assert not is_recording([])
    close_at_exit(recorder)
    assert is_recording(["runs/own", "runs/other"]) is recording


@pytest.mark.parametrize("in_time", [True, False])
def test_recorders_are_closed_at_exit_with_one_wait_for_all(monkeypatch: pytest.MonkeyPatch, in_time: bool) -> None:
    waits: list[int] = []

    def wait() -> bool:
        waits.append(1)
        return in_time

    monkeypatch.setattr(lifetime, "wait", wait)
    first, second, closed = Recorder(), Recorder(), Recorder(closed=True)
    for recorder in (first, second, closed):
        close_at_exit(recorder)
    lifetime._close_all()
    assert first.calls == second.calls == (["close"] if in_time else ["close", "warn"])
    assert closed.calls == [] and waits == [1]


def test_closing_runs_before_what_was_registered_earlier_until_a_recorder_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(atexit, "unregister", lambda function: calls.append(("unregister", function)))
    monkeypatch.setattr(atexit, "register", lambda function: calls.append(("register", function)))
    close_at_exit(Recorder())
    assert calls == [("unregister", lifetime._close_all), ("register", lifetime._close_all)]
    recorder, other = Recorder(), Recorder()
    close_at_exit(recorder)
    assert is_unclosed(recorder) and not is_unclosed(other)
    recorder.closed = True
    assert not is_unclosed(recorder)


def test_a_weak_method_is_called_while_its_object_exists() -> None:
    owner = Recorder()
    calls = owner.calls
    call = weakly(owner.close)
    call()
    del owner
    gc.collect()
    call()
    assert calls == ["close"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_forgets_the_recorders(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    take_place(recorder, "runs/a", "")
    close_at_exit(recorder)
    child = os.fork()
    if not child:
        known = is_recording([]) or take_place(Recorder(), "runs/a", "") is not None
        os._exit(1 if known else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert is_recording([])
