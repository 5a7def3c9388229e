"""Running Python functions: their variables, and Keras's training method among them."""

import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

PREFIXES = ("keras.", "tf_keras.")
"""Beginnings of the names of Keras's modules: Keras 3, and Keras 2."""
DATASET_METHODS = ("fit", "evaluate", "predict")
TRAINER_METHODS = (*DATASET_METHODS, "train_on_batch", "test_on_batch", "predict_on_batch")
MAX_FRAMES = 100
"""Most frames of a stack that are read."""
_OWN = __name__.partition(".")[0]
_READS_ITS_VARIABLES = frozenset({"locals", "vars", "dir", "eval", "exec"})
_MARK = "(tb_memplugin)"
"""Not a name that a function can have for a variable."""
_KEEPS_A_COPY = sys.version_info < (3, 13)
"""Before Python 3.13, a frame keeps the dict of its variables, and so their values, until it ends. A function that
calls ``locals()`` gets the same dict."""


def running_functions(thread: int | None = None) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Frames of a thread's running functions with their variables, innermost first; of this thread by default.

    Keeps no value alive. Leaves out the recorder's own functions and those that could notice that their variables were
    read.
    """
    frame: Any = sys._getframe(1) if thread is None else sys._current_frames().get(thread)
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        code = frame.f_code
        own = module_of(frame).partition(".")[0] == _OWN
        if not own and code.co_flags & inspect.CO_OPTIMIZED and _READS_ITS_VARIABLES.isdisjoint(code.co_names):
            yield frame, _variables(frame)
        frame = frame.f_back


def module_of(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", ""))


def is_trainer(frame: Any) -> bool:
    return frame.f_code.co_name in TRAINER_METHODS and module_of(frame).startswith(PREFIXES)


def _variables(frame: Any) -> Mapping[str, Any]:
    values = frame.f_locals
    copy = dict(values)
    mark = copy.pop(_MARK, None)
    if _KEEPS_A_COPY:
        values.clear()
        if mark is not None:
            values[_MARK] = mark
    return copy


def keep_with(frame: Any, value: Any) -> None:
    """Keep `value` alive as long as a running function's frame, which ends with the function or with the traceback of
    the exception that ended the function."""
    values = frame.f_locals
    if _KEEPS_A_COPY:
        values.clear()
    values[_MARK] = value


class RunningCall:
    """The innermost training method of Keras that runs on this thread. Detects that it raised, of which Keras does not
    notify callbacks.

    Args:
        ended: Called with this object when the method's frame is gone: as it returns, or when the traceback of its
            exception is dropped. Runs in a finalizer, on any thread, and at times although the method still runs.
    """

    def __init__(self, ended: Callable[["RunningCall"], None] | None = None) -> None:
        self._thread = threading.get_ident()
        frame: Any = sys._getframe(1)
        while frame is not None and not is_trainer(frame):
            frame = frame.f_back
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
