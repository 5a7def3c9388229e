"""Running Python functions: their variables, Keras's training method among them, and the user's
lines in their files.

A line is that of the innermost frame outside TensorFlow, Keras and libraries. A layer that only
Keras calls, inside `fit`, has the line that made it, if that is known, instead of the line of
`fit`. The names of source files are stored so that they identify neither a person nor a machine."""

import ast
import contextlib
import inspect
import itertools
import os
import re
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tb_memplugin.recorder.base import ByIdentity, own, quiet

# beginnings of the names of Keras's modules: Keras 3, and Keras 2
PREFIXES = ("keras.", "tf_keras.")
DATASET_METHODS = ("fit", "evaluate", "predict")
TRAINER_METHODS = (*DATASET_METHODS, "train_on_batch", "test_on_batch", "predict_on_batch")
INSTALLED = ("site-packages", "dist-packages")
MAX_FRAMES = 100  # most frames of a stack that are read
# most ops of a recording whose lines are read, 50 to 200 µs each on the training's thread
MAX_OPS = 20_000
MAX_BYTES = 512 << 10
"""Most bytes of source files that are parsed, in all, about 0.3 s: of a larger program no layer has
a line, because the files that are left may make it, too."""
_MIN_LETTERS = 3  # least characters that a formatted name must contain besides what it inserts
_STARTED = time.time()
_OWN = __name__.partition(".")[0]
_READS_ITS_VARIABLES = frozenset({"locals", "vars", "dir", "eval", "exec"})
_MARK = "(tb_memplugin)"  # not a name that a function can have for a variable
_KEEPS_A_COPY = sys.version_info < (3, 13)
"""Before Python 3.13, a frame keeps the dict of its variables, and so their values, until it ends.
A function that calls ``locals()`` gets the same dict."""


def running_functions(thread: int | None = None) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Frames of a thread's (default: this thread's) running functions with their variables,
    innermost first. Keeps no value alive. Leaves out the recorder's own functions and those that
    could notice that their variables were read."""
    innermost = sys._getframe(1) if thread is None else sys._current_frames().get(thread)
    for frame in itertools.islice(_stack(innermost), MAX_FRAMES):
        code, package = frame.f_code, module_of(frame).partition(".")[0]
        notices = not code.co_flags & inspect.CO_OPTIMIZED or _READS_ITS_VARIABLES & {
            *code.co_names
        }
        if package != _OWN and not notices:
            yield frame, _variables(frame)


def _stack(frame: Any) -> Iterator[Any]:
    while frame is not None:
        yield frame
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
    """Keep `value` as long as a frame, which ends with its function or with its exception's
    traceback."""
    values = frame.f_locals
    if _KEEPS_A_COPY:
        values.clear()
    values[_MARK] = value


class RunningCall:
    """The innermost training method of Keras that runs on this thread. Detects that it raised, of
    which Keras does not notify callbacks. `ended` is called with this object when the method's
    frame is gone: as it returns, or when the traceback of its exception is dropped; in a finalizer,
    on any thread, and at times although the method still runs.
    """

    def __init__(self, ended: Callable[["RunningCall"], None] | None = None) -> None:
        self._thread = threading.get_ident()
        frame = next(filter(is_trainer, _stack(sys._getframe(1))), None)
        # Not the frame itself: it keeps the training's data alive.
        self._frame = (0, None) if frame is None else (id(frame), frame.f_code)
        if frame is not None and ended is not None:
            keep_with(frame, _Mark(ended, self))

    def is_running(self) -> bool:
        frames = _stack(sys._current_frames().get(self._thread))
        return any((id(frame), frame.f_code) == self._frame for frame in frames)

    def has_ended(self) -> bool:
        return self._frame[1] is not None and not self.is_running()


class _Mark:
    def __init__(self, ended: Callable[[RunningCall], None], call: RunningCall) -> None:
        self._ended, self._call = ended, weakref.ref(call)

    def __del__(self) -> None:
        if (call := self._call()) is not None:
            self._ended(call)


class SourceFiles:
    """Names the user's files, relative to the working directory at construction; those of libraries
    have none. Files outside it, and all files if the working directory contains the home directory,
    have no directory in their names."""

    def __init__(self) -> None:
        import keras
        import tensorflow as tf

        packages = [sys.modules[_OWN], keras, sys.modules.get("tf_keras"), tf]
        files = [file for package in packages if (file := getattr(package, "__file__", None))]
        libraries = [
            *map(os.path.dirname, files),
            sysconfig.get_path("stdlib"),
            sysconfig.get_path("platstdlib"),
        ]
        self._libraries = tuple(os.path.join(os.path.realpath(path), "") for path in libraries)
        self._names: dict[str, str | None] = {}
        directory = ""
        with contextlib.suppress(OSError):  # it is gone
            directory = os.path.join(os.path.realpath(os.getcwd()), "")
        home = os.path.realpath(os.path.expanduser("~"))
        self._directory = None if not directory or home.startswith(directory) else directory

    def name(self, file_name: str) -> str | None:
        if file_name not in self._names:
            self._names[file_name] = self._name(os.path.realpath(file_name), file_name)
        return self._names[file_name]

    def _name(self, path: str, file_name: str) -> str | None:
        is_installed = not set(INSTALLED).isdisjoint(path.split(os.sep))
        is_code = bool(file_name) and not file_name.startswith("<")
        if is_installed or not is_code or path.startswith(self._libraries):
            return None
        if self._directory is None or not path.startswith(self._directory):
            return os.path.basename(path)
        return path[len(self._directory) :].replace(os.sep, "/")


class ConstructorLines:
    """Finds the lines on which layers were made. Keras does not note them, but a layer with a name
    of its own was made by the program's call of its class with that name, if there is only one."""

    def __init__(self, files: SourceFiles) -> None:
        self._files = files
        self._modules = 0
        self._read: set[str] = set()
        self._left = MAX_BYTES
        self._calls: list[tuple[str, re.Pattern[str], str]] = []  # class, pattern of the name, line
        self._known = ByIdentity[str | None]()

    def of(self, layer: Any) -> str | None:
        if layer not in self._known:
            if len(sys.modules) != self._modules:
                self._read_sources()
            kind, name = type(layer).__name__, own(layer, "name", own(layer, "_name"))
            lines = {
                line
                for made, pattern, line in self._calls
                if made == kind and type(name) is str and pattern.fullmatch(name)
            }
            self._known[layer] = lines.pop() if len(lines) == 1 and self._left >= 0 else None
        line: str | None = self._known.get(layer)
        return line

    def _read_sources(self) -> None:
        self._modules = len(sys.modules)
        paths = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        for path in {path for path in paths if isinstance(path, str)} - self._read:
            self._read.add(path)
            name = self._files.name(path)
            if name is not None and path.endswith(".py"):
                for node in ast.walk(self._parsed(path)):
                    if isinstance(node, ast.Call):
                        self._note(node, f"{name}:{node.lineno}")

    def _note(self, call: ast.Call, line: str) -> None:
        made = getattr(call.func, "attr", getattr(call.func, "id", ""))
        for keyword in call.keywords:
            pattern = _pattern(keyword.value) if keyword.arg == "name" else None
            if pattern is not None:
                self._calls.append((made, pattern, line))

    def _parsed(self, path: str) -> ast.AST:
        """A file's syntax tree; an empty one of a file that cannot be relied on or names no
        layer."""
        nothing = ast.Module([], [])
        try:
            # A file that was changed has other lines than the program that runs.
            if self._left < 0 or os.stat(path).st_mtime > _STARTED:
                return nothing
            with open(path, encoding="utf-8") as file:
                text = file.read(MAX_BYTES + 1)
            self._left -= len(text) if "name=" in text else 0
            return ast.parse(text) if "name=" in text and self._left >= 0 else nothing
        except (OSError, SyntaxError, ValueError, RecursionError):
            return nothing


def _pattern(value: ast.expr) -> re.Pattern[str] | None:
    """The names that a text, or a formatted one, may give; None for others."""
    if isinstance(value, ast.Constant):
        return re.compile(re.escape(value.value)) if isinstance(value.value, str) else None
    parts = value.values if isinstance(value, ast.JoinedStr) else []
    texts = [str(part.value) if isinstance(part, ast.Constant) else "" for part in parts]
    if sum(map(len, texts)) < _MIN_LETTERS:
        return None
    return re.compile("".join(re.escape(text) or ".+" for text in texts))


class SourceLines:
    """Finds lines such as ``train.py:42``; for the training's thread. TensorFlow keeps the stack of
    every op."""

    def __init__(self) -> None:
        self._files = SourceFiles()
        self._constructors = ConstructorLines(self._files)
        self._known = ByIdentity[dict[str, str | None]]()  # by graph and name of the op
        self._of_trainers: set[str] = set()
        self._left = MAX_OPS

    def may_read(self, graph: Any, ops: Iterable[Any]) -> bool:
        return len({op.name for op in ops} - self._known.get(graph, {}).keys()) <= self._left

    def made(self, layer: Any, line: str | None) -> str | None:
        """The line that made a layer with an op of this line, if only Keras called the layer."""
        return self._constructors.of(layer) if line in self._of_trainers else None

    def calling(self, layer: Any = None) -> str | None:
        """The line of this thread's stack; that which made the called layer, if only Keras calls
        it."""
        frames = (
            (one.f_code.co_filename, one.f_lineno, one.f_code.co_name)
            for one in _stack(sys._getframe(1))
        )
        line, by_trainer = self._innermost(frames)
        made = self._constructors.of(layer) if by_trainer and line and layer is not None else None
        return made or line

    def _innermost(self, frames: Iterable[tuple[str, int, str]]) -> tuple[str | None, bool]:
        """The user's innermost line among (file, line, function), and whether Keras's training
        method called it."""
        by_trainer = False
        for file, number, function in frames:
            if (name := self._files.name(file)) is not None:
                return f"{name}:{number}", by_trainer
            by_trainer = by_trainer or function in TRAINER_METHODS
        return None, by_trainer

    def of_op(self, graph: Any, op: Any) -> str | None:
        known: dict[str, str | None] = self._known.setdefault(graph, {})
        if op.name not in known:
            known[op.name] = self._read(op)
            self._left -= 1
        return known[op.name]

    @quiet
    def _read(self, op: Any) -> str | None:
        """The line of an op's stack; None for an op without one."""
        stack = op.traceback
        frames = map(stack.__getitem__, range(len(stack) - 1, -1, -1))
        line, by_trainer = self._innermost((one.filename, one.lineno, one.name) for one in frames)
        if by_trainer and line:
            self._of_trainers.add(line)
        return line
