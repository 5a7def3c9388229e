"""When the functions for uncaught failures are called, and when not."""

import multiprocessing
import sys
import threading
import types
from typing import Any

import pytest

from tb_memplugin.recorder.failure import uncaught_failures

kind_of = type(uncaught_failures)


class Recording:
    def __init__(self) -> None:
        self.calls: list[BaseException] = []

    def on_uncaught(self, error: BaseException) -> None:
        self.calls.append(error)


def raised(error: BaseException) -> None:
    sys.excepthook(type(error), error, None)


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Recording:
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(error))
    shown.clear()
    found = Recording()
    kind_of().add(found)
    return found


shown: list[BaseException] = []


def test_the_earlier_hook_comes_first_and_is_called_once(recording: Recording) -> None:
    error = RuntimeError("out of memory")
    raised(error)
    assert shown == [error] and recording.calls == [error]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_is_no_exception_of_the_program_is_only_shown(
    error: BaseException, recording: Recording
) -> None:
    raised(error)
    assert shown == [error] and recording.calls == []


def test_other_threads_and_interactive_interpreters_end_nothing(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = threading.Thread(target=raised, args=(RuntimeError(),))
    thread.start()
    thread.join()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    raised(RuntimeError())
    assert len(shown) == 2 and recording.calls == []


def test_a_forked_child_calls_nothing(recording: Recording) -> None:
    def child(queue: Any) -> None:
        raised(RuntimeError())
        queue.put(len(recording.calls))

    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    assert queue.get() == 0
    process.join()


def test_many_recordings_install_one_hook_and_dropped_ones_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    uncaught = kind_of()
    kept = Recording()
    uncaught.add(kept)
    hook = sys.excepthook
    for _ in range(100):
        uncaught.add(Recording())
    raised(RuntimeError())
    assert sys.excepthook == hook and len(kept.calls) == 1


def test_ipython_is_asked_after_each_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = {}
    events = types.SimpleNamespace(register=registered.__setitem__)
    shell = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(events=events))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    recording, error = Recording(), RuntimeError()
    kind_of().add(recording)
    for one in (None, error):
        registered["post_run_cell"](types.SimpleNamespace(error_in_exec=one))
    assert recording.calls == [error]
