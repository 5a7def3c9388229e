"""`ProfilerWindow`: runs TensorFlow's profiler during one step, unless the user's code wants it."""

import functools
import glob
import os
import threading
from collections.abc import Callable
from typing import Any

from tb_memplugin.recorder.base.private_directory import PrivateDirectory
from tb_memplugin.recorder.native.quiet_log import quiet_log


class ProfilerBusyError(Exception):
    """Another profiler runs in this process; only one can run."""


class ProfilerWindow:
    """Starts the profiler; `stop` ends it and returns the profile. For the training's thread.

    If the user's code starts the profiler meanwhile, on any thread, the window gives way: its profile is dropped, and
    the user's starts. The public API can only write a file, which goes to memory (``/dev/shm``) if possible. Raises
    `ProfilerBusyError` if a profiler is already running.
    """

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
            self._restore_start()
            if self._open:
                _drop()
            self._directory.remove()
            if isinstance(error, tf.errors.AlreadyExistsError):
                raise ProfilerBusyError(str(error)) from None
            raise

    def stop(self) -> bytes:
        """Stop the profiler and return the serialized XSpace; `ProfilerBusyError` if the window gave way."""
        import tensorflow as tf

        try:
            with self._lock:
                if self.gave_way:
                    raise ProfilerBusyError("the program started the profiler itself")
                self._open = False
                self._restore_start()
                with quiet_log.warnings_only():
                    tf.profiler.experimental.stop()
            files = glob.glob(os.path.join(self._directory.path, "**", "*.xplane.pb"), recursive=True)
            if not files:
                raise RuntimeError("the profiler wrote no profile")
            with open(files[0], "rb") as file:
                return file.read()
        finally:
            self._directory.remove()

    def _wrap_start(self) -> None:
        import tensorflow as tf
        from tensorflow.python.profiler import profiler_v2

        for module in (tf.profiler.experimental, profiler_v2):
            original = module.start
            wrapper = self._giving_way(original)
            module.start = wrapper
            self._originals.append((module, original, wrapper))

    def _restore_start(self) -> None:
        for module, original, wrapper in self._originals:
            if module.start is wrapper:  # else somebody wrapped the wrapper, which then only calls the original
                module.start = original
        self._originals.clear()

    def _giving_way(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def start(*arguments: Any, **named: Any) -> None:
            self._give_way()
            original(*arguments, **named)

        return start

    def _give_way(self) -> None:
        with self._lock:
            if not self._open:
                return
            self._open, self.gave_way = False, True
            self._restore_start()
            _drop()
            self._directory.remove()


def _drop() -> None:
    import tensorflow as tf

    with quiet_log.warnings_only():
        tf.profiler.experimental.stop(save=False)
