"""`RunningCall`: detects that `fit`, `evaluate` or `predict` raised; Keras does not notify callbacks."""

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from tb_memplugin.recorder.observe.calls.inputs import TRAINER_METHODS
from tb_memplugin.recorder.observe.graph.frames import keep_with, module_of
from tb_memplugin.recorder.observe.graph.keras_packages import PREFIXES


class RunningCall:
    """The innermost training method of Keras that runs on this thread.

    Args:
        ended: Called with this object when the method's frame is gone: as it returns, or when the traceback of its
            exception is dropped. Runs in a finalizer, on any thread, and at times although the method still runs.
    """

    def __init__(self, ended: Callable[["RunningCall"], None] | None = None) -> None:
        self._thread = threading.get_ident()
        frame = _trainer_method(sys._getframe(1))
        # Not the frame itself: it keeps the training's data alive.
        self._frame = (0, None) if frame is None else (id(frame), frame.f_code)
        if frame is not None and ended is not None:
            keep_with(frame, _Mark(ended, self))

    def is_running(self) -> bool:
        """Whether the method has not ended, False if there was none. Any thread may ask."""
        frame = sys._current_frames().get(self._thread)
        while frame is not None:
            if (id(frame), frame.f_code) == self._frame:
                return True
            frame = frame.f_back
        return False

    def has_ended(self) -> bool:
        """Whether there was such a method and it has ended. Any thread may ask."""
        return self._frame[1] is not None and not self.is_running()


class _Mark:
    """Lies among a frame's variables and so ends with the frame."""

    def __init__(self, ended: Callable[[RunningCall], None], call: RunningCall) -> None:
        self._ended = ended
        self._call = weakref.ref(call)

    def __del__(self) -> None:
        call = self._call()
        if call is not None:
            self._ended(call)


def _trainer_method(frame: Any) -> Any:
    while frame is not None:
        if frame.f_code.co_name in TRAINER_METHODS and module_of(frame).startswith(PREFIXES):
            return frame
        frame = frame.f_back
    return None
