"""Runs a Python program in this process as the interpreter would: ``python FILE …`` and ``python -m MODULE …``."""

import builtins
import contextlib
import importlib.machinery
import io
import os
import pkgutil
import runpy
import sys
import threading
import types
from collections.abc import Sequence
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""Directory whose frames are left out of tracebacks: this package's."""


def run_file(path: str, arguments: Sequence[str]) -> None:
    """Run a script, or a directory or zip file with a ``__main__.py``.

    `sys.argv`, ``sys.path[0]`` and the module ``__main__`` are those of ``python path arguments…``, for good: threads
    and handlers that outlive the script need them as well.

    Raises:
        OSError: The file cannot be read.
    """
    sys.argv[:] = [path, *arguments]
    if os.path.isdir(path) or pkgutil.get_importer(path) is not None:
        _search_first(path)
        _new_main()
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]  # what the interpreter calls, too
        return
    absolute = os.path.abspath(path)
    with io.open_code(absolute) as file:
        code: Any = pkgutil.read_code(file)  # of a .pyc file
    if code is None:
        with io.open_code(absolute) as file:
            source = file.read()
    _search_first(os.path.dirname(os.path.realpath(path)))
    main = _new_main()
    main.__file__, main.__cached__ = absolute, None  # type: ignore[attr-defined]
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", absolute)
    if code is None:
        code = compile(source, absolute, "exec", dont_inherit=True)
    exec(code, vars(main))


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module as ``python -m name arguments…`` does; `SystemExit` with a message if there is none."""
    sys.argv[:] = ["-m", *arguments]
    _search_first(os.getcwd())
    _new_main()
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def show_exception(error: BaseException) -> None:
    """Print an exception that ends the program as the interpreter does, without frames of this package."""
    _strip(error, set())
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    sys.last_exc = error  # type: ignore[attr-defined, unused-ignore]  # since Python 3.12
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException as failure:
        print("Error in sys.excepthook:", file=sys.stderr)
        _strip(failure, set())
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)


def wait_for_threads() -> None:
    """Wait for the program's threads, as the interpreter does when its main thread ends."""
    with contextlib.suppress(KeyboardInterrupt):
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()


def _search_first(directory: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = directory


def _new_main() -> types.ModuleType:
    main = types.ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    main.__annotations__ = {}
    sys.modules["__main__"] = main
    return main


def _strip(error: BaseException | None, seen: set[int]) -> None:
    """Remove the frames of this package from an exception and its causes."""
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = _without_ours(error.__traceback__)
        _strip(error.__cause__, seen)
        error = error.__context__


def _without_ours(trace: types.TracebackType | None) -> types.TracebackType | None:
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(PACKAGE + os.sep):
            kept.append(trace)
        trace = trace.tb_next
    result: types.TracebackType | None = None
    for one in reversed(kept):
        result = types.TracebackType(result, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return result
