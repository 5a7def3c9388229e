"""Lines of the user's code that call layers and ops: of the innermost frame outside TensorFlow, Keras and libraries.

A layer that only Keras calls, inside `fit`, has the line that made it, if that is known, instead of the line of `fit`.

The names of source files are stored so that they identify neither a person nor a machine.
"""

import logging
import os
import pathlib
import sys
import sysconfig
import weakref
from collections.abc import Iterable
from typing import Any

from tb_memplugin.recorder.observe.graph.call_notes import GraphNotes
from tb_memplugin.recorder.observe.graph.constructor_lines import ConstructorLines
from tb_memplugin.recorder.observe.graph.graph_layers import GRADIENT_SCOPE, OpLayers
from tb_memplugin.recorder.observe.graph.graph_ops import GraphOps
from tb_memplugin.recorder.observe.graph.keras_packages import packages

_INSTALLED = ("site-packages", "dist-packages")


class SourceFiles:
    """Tells the user's files from those of libraries.

    Names are relative to the working directory at construction. Files outside it, and all files if the working
    directory contains the home directory, have no directory in their names.

    Args:
        libraries: Directories of libraries, besides Python's own and what is installed in ``site-packages``.
    """

    def __init__(self, libraries: Iterable[str]) -> None:
        python = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
        self._libraries = tuple(os.path.join(os.path.realpath(path), "") for path in (*libraries, *python))
        self._directory = _working_directory()
        self._names: dict[str, str | None] = {}

    def name(self, file_name: str) -> str | None:
        """The stored name of a file; None for a library's file and for code without a file."""
        try:
            return self._names[file_name]
        except KeyError:
            self._names[file_name] = name = self._find(file_name)
            return name

    def _find(self, file_name: str) -> str | None:
        if not file_name or file_name.startswith("<"):
            return None
        path = os.path.realpath(file_name)
        if path.startswith(self._libraries) or any(part in _INSTALLED for part in path.split(os.sep)):
            return None
        if self._directory is None or not path.startswith(self._directory):
            return os.path.basename(path)
        return path[len(self._directory) :].replace(os.sep, "/")


def _working_directory() -> str | None:
    """The working directory with a separator at its end; None if it is gone, or an ancestor of the home directory."""
    try:
        directory = os.path.join(os.path.realpath(os.getcwd()), "")
    except OSError:
        return None
    home = os.path.realpath(os.path.expanduser("~"))
    return None if home.startswith(directory) else directory


logger = logging.getLogger("tb_memplugin")

MAX_OPS = 20_000
"""Most ops of a recording whose lines are read, 50 to 200 µs each on the training's thread."""
_TRAINERS = frozenset({"fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"})
"""Methods of Keras on the stack between a line of the user's and the layers that only Keras calls."""
_WITHOUT_LINE = frozenset({"Placeholder", "Const", "NoOp", "ReadVariableOp", "VarHandleOp"})
"""Types of ops that request no memory in a step."""


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
            layer = span.layer() if span.kind == "layer" and span.layer is not None else None
            numbers = range(span.start, min(span.end, len(lines)))
            if layer is None or not any(lines[number] in self._of_trainers for number in numbers):
                continue
            made = self._constructors.of(layer)
            for number in numbers:
                if made is not None and lines[number] in self._of_trainers:
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
            by_trainer = by_trainer or frame.f_code.co_name in _TRAINERS
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
                by_trainer = by_trainer or frame.name in _TRAINERS
        except Exception:  # an op without a stack
            logger.debug("the stack of op %s could not be read", op.name, exc_info=True)
        return None


def _libraries() -> list[str]:
    """Directories of TensorFlow, Keras and this package."""
    import tensorflow as tf

    own = str(pathlib.Path(__file__).absolute().parents[3])
    return [own, *(os.path.dirname(module.__file__) for module in (*packages(), tf) if module.__file__)]


def _calls(graph: GraphOps, layers: OpLayers, notes: GraphNotes) -> dict[int, int]:
    """Number of each op that a tape or an optimizer made to the number of the first op of that call."""
    calls: dict[int, int] = {}
    for span in notes.spans:
        if span.kind != "layer":
            for number in range(span.start, min(span.end, len(graph))):
                if layers.pass_name[number] == span.kind and not layers.in_layer[number]:
                    calls[number] = span.start
    return calls


def _scopes(graph: GraphOps, lines: list[str | None]) -> dict[str, str | None]:
    """Name scope to the line of the forward ops in it; None if they have several."""
    scopes: dict[str, str | None] = {}
    for number, op in enumerate(graph.ops):
        line = lines[number]
        if line is not None and GRADIENT_SCOPE not in op.name:
            scope = op.name.rpartition("/")[0]
            scopes[scope] = line if scopes.get(scope, line) == line else None
    return scopes


def _forward_line(graph: GraphOps, number: int, lines: list[str | None], scopes: dict[str, str | None]) -> str | None:
    """The line of the forward op, or scope, in whose scope TensorFlow made a gradient op; None without one."""
    name = graph.ops[number].name
    at = name.rfind(GRADIENT_SCOPE)
    scope = name[at + len(GRADIENT_SCOPE) :].rpartition("/")[0] if at >= 0 else ""
    while scope:
        forward = graph.number.get(scope)
        if forward is not None:
            return lines[forward]
        if scope in scopes:
            return scopes[scope]
        scope = scope.rpartition("/")[0]
    return None
