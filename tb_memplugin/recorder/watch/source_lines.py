"""Lines of the user's code that call layers and ops: of the innermost frame outside TensorFlow, Keras and libraries.

A layer that only Keras calls, inside `fit`, has the line that made it, if that is known, instead of the line of `fit`.
The names of source files are stored so that they identify neither a person nor a machine.
"""

import ast
import logging
import os
import pathlib
import re
import sys
import sysconfig
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tb_memplugin.recorder.watch.call_notes import GraphNotes
from tb_memplugin.recorder.watch.frames import TRAINER_METHODS
from tb_memplugin.recorder.watch.graph_ops import GRADIENT_SCOPE, GraphOps, OpLayers

logger = logging.getLogger("tb_memplugin")

MAX_OPS = 20_000
"""Most ops of a recording whose lines are read, 50 to 200 µs each on the training's thread."""
MAX_BYTES = 512 << 10
"""Most bytes of source files that are parsed, in all, about 0.3 s: of a larger program no layer has a line, because
the files that are left may make it, too."""
_MIN_LETTERS = 3
"""Least characters that a formatted name must contain besides what it inserts."""
_STARTED = time.time()
_INSTALLED = ("site-packages", "dist-packages")
_WITHOUT_LINE = frozenset({"Placeholder", "Const", "NoOp", "ReadVariableOp", "VarHandleOp"})
"""Types of ops that request no memory in a step."""


class SourceFiles:
    """Tells the user's files from those of libraries: of these directories, Python's own and those in ``site-
    packages``.

    Names are relative to the working directory at construction. Files outside it, and all files if the working
    directory contains the home directory, have no directory in their names.
    """

    def __init__(self, libraries: Iterable[str]) -> None:
        python = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
        self._libraries = tuple(os.path.join(os.path.realpath(path), "") for path in (*libraries, *python))
        self._names: dict[str, str | None] = {}
        try:
            directory = os.path.join(os.path.realpath(os.getcwd()), "")
        except OSError:
            directory = ""  # it is gone
        home = os.path.realpath(os.path.expanduser("~"))
        self._directory = None if not directory or home.startswith(directory) else directory

    def name(self, file_name: str) -> str | None:
        """The stored name of a file; None for a library's file and for code without a file."""
        if file_name not in self._names:
            self._names[file_name] = self._find(file_name)
        return self._names[file_name]

    def _find(self, file_name: str) -> str | None:
        if not file_name or file_name.startswith("<"):
            return None
        path = os.path.realpath(file_name)
        if path.startswith(self._libraries) or any(part in _INSTALLED for part in path.split(os.sep)):
            return None
        if self._directory is None or not path.startswith(self._directory):
            return os.path.basename(path)
        return path[len(self._directory) :].replace(os.sep, "/")


class ConstructorLines:
    """Finds the lines on which layers were made, as file and number, for layers that only Keras calls.

    A layer of a functional or sequential model is called by `fit`, so no line of the user's is on the stack of its ops
    but that of `fit`. Keras does not note where a layer was made. The program does: a layer with a name of its own was
    made by the call of its class with that name, if there is only one.
    """

    def __init__(self, name_of: Callable[[str], str | None]) -> None:
        self._name_of = name_of
        self._modules = 0
        self._read: set[str] = set()
        self._left = MAX_BYTES
        self._calls: list[tuple[str, re.Pattern[str], str]] = []  # class, pattern of the name, line
        self._known: weakref.WeakKeyDictionary[Any, str | None] = weakref.WeakKeyDictionary()

    def of(self, layer: Any) -> str | None:
        """The line that made a layer; None if none or several may have."""
        if layer not in self._known:
            self._read_sources()
            self._known[layer] = self._find(layer)
        return self._known[layer]

    def _find(self, layer: Any) -> str | None:
        kind, name = type(layer).__name__, getattr(layer, "name", None)
        if not isinstance(name, str) or self._left < 0:
            return None
        lines = {line for made, pattern, line in self._calls if made == kind and pattern.fullmatch(name)}
        return lines.pop() if len(lines) == 1 else None

    def _read_sources(self) -> None:
        """Read the user's modules that were imported since the last call."""
        if len(sys.modules) == self._modules:
            return
        self._modules = len(sys.modules)
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if not isinstance(path, str) or path in self._read:
                continue
            self._read.add(path)
            name = self._name_of(path)
            if name is not None and path.endswith(".py"):
                calls = _named_calls(self._parsed(path))
                self._calls.extend((made, pattern, f"{name}:{number}") for made, pattern, number in calls)

    def _parsed(self, path: str) -> ast.AST:
        """A file's syntax tree; an empty one of a file that cannot be relied on or names no layer."""
        nothing = ast.Module([], [])
        try:
            # A file that was changed has other lines than the program that runs.
            if self._left < 0 or os.stat(path).st_mtime > _STARTED:
                return nothing
            with open(path, encoding="utf-8") as file:
                text = file.read(MAX_BYTES + 1)
            if "name=" not in text:
                return nothing
            self._left -= len(text)
            return nothing if self._left < 0 else ast.parse(text)
        except (OSError, SyntaxError, ValueError, RecursionError):
            return nothing


def _named_calls(tree: ast.AST) -> Iterator[tuple[str, re.Pattern[str], int]]:
    """Class, pattern of the name, and line of each call with a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            made = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for keyword in node.keywords:
                pattern = _pattern(keyword.value) if keyword.arg == "name" else None
                if pattern is not None:
                    yield made, pattern, node.lineno


def _pattern(value: ast.expr) -> re.Pattern[str] | None:
    """Pattern of the names that an expression can be; None if it can be almost any."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return re.compile(re.escape(value.value))
    if not isinstance(value, ast.JoinedStr):
        return None
    parts = [str(part.value) if isinstance(part, ast.Constant) else None for part in value.values]
    if sum(len(part) for part in parts if part is not None) < _MIN_LETTERS:
        return None
    return re.compile("".join(".+" if part is None else re.escape(part) for part in parts))


class SourceLines:
    """Finds lines, as file and number: ``train.py:42``; for the training's thread.

    TensorFlow keeps the stack of every op of a function graph, so reading it costs nothing while functions are traced.
    """

    def __init__(self) -> None:
        self._files = SourceFiles(_libraries())
        self._constructors = ConstructorLines(self._files.name)
        self._known: weakref.WeakKeyDictionary[Any, dict[str, str | None]] = weakref.WeakKeyDictionary()
        self._of_trainers: set[str] = set()
        self._left = MAX_OPS

    def of_graph(self, graph: GraphOps, layers: OpLayers, notes: GraphNotes) -> list[str | None]:
        """The line of each op. A gradient has that of its forward op; if that is unknown, of the call of the tape.

        A graph has no lines if reading them would exceed `MAX_OPS`: with some of them, a gradient may get a wrong one.
        """
        lines: list[str | None] = [None] * len(graph)
        calls = _calls(graph, layers, notes)
        own = [at for at, op_type in enumerate(graph.types) if at not in calls and op_type not in _WITHOUT_LINE]
        known = self._known.setdefault(graph.graph, {})
        unread = {name for at in (*own, *calls.values()) if (name := graph.ops[at].name) not in known}
        if len(unread) > self._left:
            return lines
        for number in own:
            lines[number] = self.of_op(graph.graph, graph.ops[number])
        self._place_layers(notes, lines)
        scopes = _scopes(graph, lines)
        for number, call in calls.items():
            forward = _forward_line(graph, number, lines, scopes)
            lines[number] = self.of_op(graph.graph, graph.ops[call]) if forward is None else forward
        return lines

    def _place_layers(self, notes: GraphNotes, lines: list[str | None]) -> None:
        """Give ops of layers that only Keras called the line that made the innermost layer with a known one."""
        for span in sorted(notes.spans, key=lambda span: -span.depth):
            layer = None if span.layer is None else span.layer()
            numbers = [at for at in range(span.start, min(span.end, len(lines))) if lines[at] in self._of_trainers]
            made = self._constructors.of(layer) if layer is not None and numbers else None
            for number in numbers if made is not None else ():
                lines[number] = made

    def calling(self, layer: Any = None) -> str | None:
        """The line of this thread's stack; that which made the called layer, if only Keras calls it."""
        frame: Any = sys._getframe(1)
        by_trainer = False
        while frame is not None:
            name = self._files.name(frame.f_code.co_filename)
            if name is not None:
                made = self._constructors.of(layer) if by_trainer and layer is not None else None
                return made or f"{name}:{frame.f_lineno}"
            by_trainer = by_trainer or frame.f_code.co_name in TRAINER_METHODS
            frame = frame.f_back
        return None

    def of_op(self, graph: Any, op: Any) -> str | None:
        """The line of the stack on which an op of a function graph was made."""
        known = self._known.setdefault(graph, {})
        if op.name not in known:
            known[op.name] = self._read(op)
            self._left -= 1
        return known[op.name]

    def _read(self, op: Any) -> str | None:
        """The line of an op's stack. Never raises: without lines, the graph's other facts are known all the same."""
        try:
            stack, by_trainer = op.traceback, False
            for place in range(len(stack) - 1, -1, -1):
                frame = stack[place]
                name = self._files.name(frame.filename)
                if name is not None:
                    line = f"{name}:{frame.lineno}"
                    if by_trainer:
                        self._of_trainers.add(line)
                    return line
                by_trainer = by_trainer or frame.name in TRAINER_METHODS
        except Exception:  # an op without a stack
            logger.debug("the stack of op %s could not be read", op.name, exc_info=True)
        return None


def _libraries() -> list[str]:
    import keras
    import tensorflow as tf

    files = (getattr(module, "__file__", None) for module in (keras, sys.modules.get("tf_keras"), tf))
    return [str(pathlib.Path(__file__).absolute().parents[3]), *(os.path.dirname(file) for file in files if file)]


def _calls(graph: GraphOps, layers: OpLayers, notes: GraphNotes) -> dict[int, int]:
    """Number of each op that a tape or an optimizer made to the number of the first op of that call."""
    return {
        number: span.start
        for span in notes.spans
        if span.kind != "layer"
        for number in range(span.start, min(span.end, len(graph)))
        if layers.pass_name[number] == span.kind and not layers.in_layer[number]
    }


def _scopes(graph: GraphOps, lines: list[str | None]) -> dict[str, str | None]:
    """Name scope to the line of the forward ops in it; None if they have several."""
    scopes: dict[str, str | None] = {}
    for op, line in zip(graph.ops, lines, strict=True):
        if line is not None and GRADIENT_SCOPE not in op.name:
            scope = op.name.rpartition("/")[0]
            scopes[scope] = line if scopes.get(scope, line) == line else None
    return scopes


def _forward_line(graph: GraphOps, number: int, lines: list[str | None], scopes: dict[str, str | None]) -> str | None:
    """The line of the forward op, or scope, in whose scope TensorFlow made a gradient op; None without one."""
    _, gradient, scope = graph.ops[number].name.rpartition(GRADIENT_SCOPE)
    while gradient and (scope := scope.rpartition("/")[0]):
        forward = graph.number.get(scope)
        if forward is not None:
            return lines[forward]
        if scope in scopes:
            return scopes[scope]
    return None
