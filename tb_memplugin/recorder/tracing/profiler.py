"""`ProfilerWindow`: runs TensorFlow's profiler during one step, quietly, unless the user's code
wants it."""

import contextlib
import ctypes
import functools
import glob
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tb_memplugin.recorder.base import PrivateDirectory, abandon_in_child
from tb_memplugin.recorder.devices import MappedMemory, exported_names, open_library

logger = logging.getLogger("tb_memplugin")

_WARNING = 1  # ``absl::LogSeverityAtLeast::kWarning``
_GET = rb"_ZN4absl\d+lts_\d+11MinLogLevelEv"
"""``absl::LogSeverityAtLeast absl::MinLogLevel()``, in a namespace named after Abseil's release.
The type is an enumeration of `int`. Before 2.21 TensorFlow's own logging read its lowest level
once, for good."""
_SET = rb"_ZN4absl\d+lts_\d+14SetMinLogLevelENS\d*_\d*18LogSeverityAtLeastE"
"""``void absl::SetMinLogLevel(absl::LogSeverityAtLeast)``"""


class QuietLog:
    """Raises the level at which TensorFlow logs to warnings, for some milliseconds; the profiler
    has no option for it. Any thread may call it. The level is the process's: while a block runs, no
    information of other threads is logged either. Where the level cannot be changed safely, it
    stays."""

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
        with self._lock:
            self._blocks += 1
            if self._blocks == 1:
                self._before = self._level()
                if self._before < _WARNING:
                    self._set(_WARNING)
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks and self._before < _WARNING == self._level():
                    self._set(self._before)

    def _level(self) -> int:
        return _functions()[0]()

    def _set(self, level: int) -> None:
        _functions()[1](level)


@functools.cache
def _functions() -> tuple[Callable[[], int], Callable[[int], Any]]:
    """TensorFlow's functions that return and set the lowest level that is logged, or such as change
    nothing."""
    try:
        library = open_library(MappedMemory())
        (get,), (change,) = (exported_names(library._name, pattern) for pattern in (_GET, _SET))
        integer = ctypes.c_int
        return ctypes.PYFUNCTYPE(integer)((get, library)), ctypes.PYFUNCTYPE(None, integer)(
            (change, library)
        )
    except Exception as error:
        logger.debug("TensorFlow's profiler logs as it starts and stops: %s", error)
        return lambda: _WARNING, lambda level: None


quiet_log = QuietLog()
abandon_in_child(quiet_log)


class ProfilerBusyError(Exception):
    """Another profiler runs in this process; only one can run."""


class ProfilerWindow:
    """Starts the profiler, or raises `ProfilerBusyError` if one runs already; `stop` ends it.
    For the training's thread.

    If the user's code starts the profiler meanwhile, on any thread, the window gives way: its
    profile is dropped, and the user's starts. The public API can only write a file, which goes to
    memory (``/dev/shm``) if possible."""

    def __init__(self) -> None:
        import tensorflow as tf

        self.gave_way = False
        self._open = False
        self._lock = threading.Lock()
        self._originals: list[tuple[Any, Callable[..., None], Callable[..., None]]] = []
        self._directory = PrivateDirectory("profile", in_memory=True)
        try:
            with quiet_log.warnings_only():
                tf.profiler.experimental.start(self._directory.path)
            self._open = True
            self._wrap_start()
        except BaseException as error:
            self._drop()
            if isinstance(error, tf.errors.AlreadyExistsError):
                raise ProfilerBusyError(str(error)) from None
            raise

    def stop(self) -> str:
        """Stop the profiler and return the path of the serialized XSpace, a file that exists until
        `remove`; `ProfilerBusyError` if the window gave way."""
        import tensorflow as tf

        try:
            with self._lock:
                if self.gave_way:
                    raise ProfilerBusyError("the program started the profiler itself")
                self._open = False
                self._restore_start()
                with quiet_log.warnings_only():
                    tf.profiler.experimental.stop()
            files = glob.glob(
                os.path.join(self._directory.path, "**", "*.xplane.pb"), recursive=True
            )
            if not files:
                raise RuntimeError("the profiler wrote no profile")
            return files[0]
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the profile."""
        self._directory.remove()

    def _wrap_start(self) -> None:
        import tensorflow as tf
        from tensorflow.python.profiler import profiler_v2

        for module in (tf.profiler.experimental, profiler_v2):
            original = module.start

            @functools.wraps(original)
            def start(
                *arguments: Any, _original: Callable[..., None] = original, **named: Any
            ) -> None:
                self._give_way()
                _original(*arguments, **named)

            module.start = start
            self._originals.append((module, original, start))

    def _restore_start(self) -> None:
        for module, original, wrapper in self._originals:
            # else somebody wrapped the wrapper, which then only calls the original
            if module.start is wrapper:
                module.start = original
        self._originals.clear()

    def _give_way(self) -> None:
        with self._lock:
            if not self._open:
                return
            self.gave_way = True
            self._drop()

    def _drop(self) -> None:
        import tensorflow as tf

        self._restore_start()
        if self._open:
            self._open = False
            with quiet_log.warnings_only():
                tf.profiler.experimental.stop(save=False)
        self._directory.remove()
