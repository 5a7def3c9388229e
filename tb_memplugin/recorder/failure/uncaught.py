"""`uncaught_failures`: calls functions once a failed allocation has ended the program, or a cell of
IPython."""

import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any


class UncaughtFailures:
    """Calls each recording's `on_uncaught` with an exception that nobody caught, after its
    traceback was printed: as the process ends, and in IPython after the cell. Not in other threads
    or in forked children."""

    def __init__(self) -> None:
        self._recordings: weakref.WeakSet[Any] = weakref.WeakSet()
        self._process = 0  # in which the hooks were installed
        self._before: Callable[..., Any] = sys.__excepthook__

    def add(self, recording: Any) -> None:
        self._recordings.add(recording)
        if self._process != os.getpid():
            self._process = os.getpid()
            if sys.excepthook != self._hook:  # in a forked child it is there
                self._before, sys.excepthook = sys.excepthook, self._hook
            shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
            if shell is not None:
                shell.events.register(
                    "post_run_cell", lambda result: self._answer(result.error_in_exec)
                )

    def _hook(self, kind: Any, error: BaseException, trace: Any) -> None:
        self._before(kind, error, trace)
        if not (sys.flags.interactive or hasattr(sys, "ps1")):  # or the program does not end
            self._answer(error)

    def _answer(self, error: BaseException | None) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and isinstance(error, Exception) and self._process == os.getpid():
            for recording in list(self._recordings):
                recording.on_uncaught(error)


uncaught_failures = UncaughtFailures()
