"""An object among a frame's variables: it ends with the frame, however the function ends."""

import sys
import threading
from collections.abc import Callable

import pytest

from tb_memplugin.recorder.watch.frames import keep_with, running_functions


class Marker:
    def __init__(self, gone: Callable[[], None]) -> None:
        self.gone = gone

    def __del__(self) -> None:
        self.gone()


def run(gone: list[int], error: type[BaseException] | None, seen: list[set[str]]) -> None:
    # Without `assert`, for which pytest puts a call of `locals()` here: such functions are not read.
    keep_with(sys._getframe(), Marker(lambda: gone.append(1)))
    for frame, variables in running_functions():
        if frame.f_code is run.__code__:
            seen.append(set(variables))
    seen.append({"gone"} if gone else set())
    del frame, variables
    if error is not None:
        raise error


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, ValueError])
def test_it_ends_with_the_function_or_with_the_traceback_of_its_exception(error: type[BaseException] | None) -> None:
    gone: list[int] = []
    seen: list[set[str]] = []
    try:
        run(gone, error, seen)
    except (KeyboardInterrupt, ValueError):
        assert gone == []
    # THEN reading the variables, as the search for holders does, does not show the marker and keeps it
    variables, gone_meanwhile = seen
    assert {"gone", "error", "seen"} <= variables <= {"gone", "error", "seen", "frame", "variables"}
    assert gone_meanwhile == set() and gone == [1]


def test_it_reads_another_threads_functions() -> None:
    begun, end = threading.Event(), threading.Event()

    def other() -> None:
        here = "there"
        begun.set()
        end.wait(60)
        del here

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert begun.wait(60) and thread.ident is not None
        found = [variables.get("here") for frame, variables in running_functions(thread.ident) if "other" in str(frame)]
        assert found == ["there"]
    finally:
        end.set()
        thread.join()
