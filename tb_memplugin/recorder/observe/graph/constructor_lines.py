"""Lines of the user's code that make layers, for layers that only Keras calls.

A layer of a functional or sequential model is called by `fit`, so no line of the user's is on the stack of its ops but
that of `fit`. Keras does not note where a layer was made. The program does: a layer with a name of its own was made by
the call of its class with that name, if there is only one.
"""

import ast
import os
import re
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

MAX_BYTES = 512 << 10
"""Most bytes of source files that are parsed, in all, about 0.3 s: of a larger program no layer has a line, because
the files that are left may make it, too."""
_MIN_LETTERS = 3
"""Least characters that a formatted name must contain besides what it inserts."""
_STARTED = time.time()


class ConstructorLines:
    """Finds the lines on which layers were made, as file and number.

    Args:
        name_of: The stored name of a source file, None for a library's file.
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
        try:
            return self._known[layer]
        except KeyError:
            self._read_sources()
            self._known[layer] = line = self._find(layer)
            return line

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
                self._calls.extend((made, pattern, f"{name}:{number}") for made, pattern, number in self._named(path))

    def _named(self, path: str) -> list[tuple[str, re.Pattern[str], int]]:
        """Class, pattern of the name, and line of each call with a name in a file."""
        try:
            # A file that was changed has other lines than the program that runs.
            if self._left < 0 or os.stat(path).st_mtime > _STARTED:
                return []
            with open(path, encoding="utf-8") as file:
                text = file.read(MAX_BYTES + 1)
            if "name=" not in text:
                return []
            self._left -= len(text)
            return [] if self._left < 0 else list(_named_calls(ast.parse(text)))
        except (OSError, SyntaxError, ValueError, RecursionError):
            return []


def _named_calls(tree: ast.AST) -> Iterator[tuple[str, re.Pattern[str], int]]:
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
