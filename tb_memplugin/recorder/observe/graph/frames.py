"""Reads the variables of running functions without keeping their values alive."""

import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

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
    """Frames of a thread's running functions with their variables, innermost first.

    Leaves out the recorder's own functions and those that could notice that their variables were read.

    Args:
        thread: Identifier of the thread; this thread by default.
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
    """Name of the module of a frame's function."""
    return str(frame.f_globals.get("__name__", ""))


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
