"""Keeps TensorFlow's profiler from printing on stderr when it starts and stops."""

import contextlib
import ctypes
import functools
import logging
import threading
from collections.abc import Callable, Iterator

from tb_memplugin.recorder.base.forks import abandon_in_child
from tb_memplugin.recorder.native import builds
from tb_memplugin.recorder.native.framework import check_switch, open_library
from tb_memplugin.recorder.native.mapped_memory import MappedMemory

logger = logging.getLogger("tb_memplugin")

_WARNING = 1
"""``absl::LogSeverityAtLeast::kWarning``"""


class QuietLog:
    """Raises the level at which TensorFlow logs to warnings, for some milliseconds. Any thread may call it.

    The profiler has no option for this, and its log knows neither threads nor files: while a block runs, no information
    of other threads is logged either. Warnings and errors are. Where the level cannot be changed safely, it stays.
    """

    def __init__(self) -> None:
        self._blocks = 0
        self._before = 0
        self._lock = threading.Lock()

    def _abandon(self) -> None:
        """Log as before in a forked child, in which the block does not end."""
        self._lock = threading.Lock()
        if self._blocks:
            self._blocks = 0
            self._set(self._before)

    @contextlib.contextmanager
    def warnings_only(self) -> Iterator[None]:
        """Log only warnings and errors in this block."""
        self._begin()
        try:
            yield
        finally:
            self._end()

    def _begin(self) -> None:
        with self._lock:
            self._blocks += 1
            if self._blocks == 1:
                self._before = self._level()
                if self._before < _WARNING:
                    self._set(_WARNING)

    def _end(self) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks and self._before < _WARNING == self._level():
                self._set(self._before)

    def _level(self) -> int:
        functions = _functions()
        return _WARNING if functions is None else functions[0]()

    def _set(self, level: int) -> None:
        functions = _functions()
        if functions is not None:
            functions[1](level)


@functools.cache
def _functions() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """TensorFlow's functions that return and set the lowest level that is logged; None if they cannot be called."""
    import tensorflow as tf

    try:
        check_switch()
        library = open_library(tf.__version__, MappedMemory())
        get, change = builds.LOG_LEVEL[tf.__version__]
        integer = ctypes.c_int
        return ctypes.PYFUNCTYPE(integer)((get, library)), ctypes.PYFUNCTYPE(None, integer)((change, library))
    except Exception as error:
        logger.debug("TensorFlow's profiler logs as it starts and stops: %s", error)
        return None


quiet_log = QuietLog()
abandon_in_child(quiet_log)
