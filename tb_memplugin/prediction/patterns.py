"""Regular expressions for paths of layers, matched in linear time. Pure.

Patterns reach the server from strangers, and Python's `re` needs exponential time for some. A pattern has the syntax
and the meaning that `re.search` gives it; look-around, back-references, possessive quantifiers and flags are refused.
"""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Literal, TypeAlias

MAX_INSTRUCTIONS = 600
"""Most instructions of a compiled pattern: `x{1000}` has 1,000."""
_UNLIMITED = -1

_Test: TypeAlias = Callable[[str, int], bool]


@dataclasses.dataclass(frozen=True)
class _Node:
    """A part of a pattern: a test of a character or of a place, or other parts, repeated `least` to `most` times."""

    kind: Literal["test", "assert", "sequence", "either", "repeat"]
    test: _Test | None = None
    parts: "tuple[_Node, ...]" = ()
    least: int = 1
    most: int = 1


@dataclasses.dataclass(frozen=True)
class _Instruction:
    """``split`` and ``jump`` go to `target`, ``split`` to the next instruction as well."""

    kind: Literal["test", "assert", "split", "jump", "found"]
    test: _Test | None = None
    target: int = 0


_GROUP = re.compile(r"\((?:\?:|\?P<\w+>|(?!\?))")
_ASSERTION = re.compile(r"[\^$]|\\[AZbB]")
_LITERAL_BRACE = re.compile(r"\{(?!\d*,?\d*\})|\{\}")
_QUANTIFIER = re.compile(r"([*+?]|\{(\d*)(,?)(\d*)\})\??(\+?)")
_ATOM = re.compile(
    r"\[\^?\]?(?:\\.|[^\]\\])*\]"  # a set
    r"|\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|0[0-7]{0,2}|[^1-9A-Zbx0u]|[DSW])"
    r"|[^\\()|*+?\[^$]",
    re.DOTALL,
)


class PatternError(ValueError):
    """A pattern is no regular expression, or uses what is not supported; the message says which."""


class LayerPattern:
    """A compiled pattern.

    Args:
        pattern: A regular expression.

    Raises:
        PatternError: It is none, or uses what is not supported.
    """

    def __init__(self, pattern: str) -> None:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise PatternError(f"is not a regular expression ({error})") from None
        self._program: list[_Instruction] = []
        self._emit(_Parser(pattern).parsed())
        self._add(_Instruction("found"))
        self._known: dict[str, bool] = {}

    def found_in(self, text: str) -> bool:
        """Whether it matches anywhere in a text."""
        if text not in self._known:
            self._known[text] = self._search(text)
        return self._known[text]

    def _search(self, text: str) -> bool:
        starts: set[int] = set()
        for place in range(len(text) + 1):
            active = self._reached(starts | {0}, text, place)
            if len(self._program) - 1 in active:
                return True
            starts = {at + 1 for at in active if place < len(text) and self._passes("test", at, text, place)}
        return False

    def _passes(self, kind: str, at: int, text: str, place: int) -> bool:
        one = self._program[at]
        return one.kind == kind and one.test is not None and one.test(text, place)

    def _reached(self, starts: set[int], text: str, place: int) -> set[int]:
        """All instructions reached from some without a character."""
        reached: set[int] = set()
        waiting = list(starts)
        while waiting:
            at = waiting.pop()
            if at in reached:
                continue
            reached.add(at)
            one = self._program[at]
            if one.kind in ("split", "jump"):
                waiting.append(one.target)
            if one.kind == "split" or self._passes("assert", at, text, place):
                waiting.append(at + 1)
        return reached

    def _add(self, instruction: _Instruction) -> int:
        if len(self._program) >= MAX_INSTRUCTIONS:
            raise PatternError("repeats too much: use smaller numbers in {}")
        self._program.append(instruction)
        return len(self._program) - 1

    def _end_here(self, *places: int) -> None:
        """Set the target of instructions to the next one."""
        for at in places:
            self._program[at] = dataclasses.replace(self._program[at], target=len(self._program))

    def _emit(self, node: _Node) -> None:
        if node.kind == "sequence":
            for part in node.parts:
                self._emit(part)
        elif node.kind == "either":
            ends = []
            for part in node.parts[:-1]:
                split = self._add(_Instruction("split"))
                self._emit(part)
                ends.append(self._add(_Instruction("jump")))
                self._end_here(split)
            self._emit(node.parts[-1])
            self._end_here(*ends)
        elif node.kind == "repeat":
            self._emit_repeat(node)
        else:
            self._add(_Instruction(node.kind, node.test))

    def _emit_repeat(self, node: _Node) -> None:
        (part,) = node.parts
        for _ in range(node.least):
            self._emit(part)
        if node.most == _UNLIMITED:
            split = self._add(_Instruction("split"))
            self._emit(part)
            self._add(_Instruction("jump", target=split))
            self._end_here(split)
            return
        splits = []
        for _ in range(node.most - node.least):
            splits.append(self._add(_Instruction("split")))
            self._emit(part)
        self._end_here(*splits)


class _Parser:
    """Parses a pattern that `re` accepts."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def parsed(self) -> _Node:
        node = self._either()
        if self._at < len(self._pattern):
            raise self._unsupported()
        return node

    def _either(self) -> _Node:
        branches = [self._sequence()]
        while self._pattern.startswith("|", self._at):
            self._at += 1
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else _Node("either", parts=tuple(branches))

    def _sequence(self) -> _Node:
        parts = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            parts.append(self._quantified(self._atom()))
        return _Node("sequence", parts=tuple(parts))

    def _take(self, wanted: "re.Pattern[str]") -> "re.Match[str] | None":
        match = wanted.match(self._pattern, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _atom(self) -> _Node:
        if self._take(_GROUP):
            node = self._either()
            if not self._pattern.startswith(")", self._at):
                raise self._unsupported()
            self._at += 1
            return node
        assertion = self._take(_ASSERTION)
        if assertion is not None:
            return _Node("assert", _ASSERTIONS[assertion[0]])
        atom = self._take(_LITERAL_BRACE) if self._pattern.startswith("{", self._at) else self._take(_ATOM)
        if atom is None:
            raise self._unsupported()
        if atom[0] == "{}":
            self._at -= 1
        return _Node("test", _one_of(re.compile(atom[0].replace("{}", "{"))))

    def _quantified(self, node: _Node) -> _Node:
        if _LITERAL_BRACE.match(self._pattern, self._at):
            return node
        quantifier = self._take(_QUANTIFIER)
        if quantifier is None:
            return node
        if quantifier[5]:
            raise self._unsupported()
        least, most = {"*": (0, _UNLIMITED), "+": (1, _UNLIMITED), "?": (0, 1)}.get(quantifier[1], (-1, -1))
        if least < 0:
            least = int(quantifier[2] or 0)
            most = int(quantifier[4]) if quantifier[4] else _UNLIMITED if quantifier[3] else least
        return _Node("repeat", parts=(node,), least=least, most=most)

    def _unsupported(self) -> PatternError:
        rest = self._pattern[self._at : self._at + 12]
        return PatternError(
            f"uses something that is not supported here, at {rest!r}: use groups, sets and | * + ? {{}}"
        )


def _one_of(atom: "re.Pattern[str]") -> _Test:
    """A test for one character; the atom of a pattern cannot backtrack."""
    return lambda text, place: atom.fullmatch(text[place]) is not None


def _is_boundary(text: str, place: int) -> bool:
    sides = [0 <= at < len(text) and (text[at].isalnum() or text[at] == "_") for at in (place - 1, place)]
    return sides[0] != sides[1]


_ASSERTIONS: dict[str, _Test] = {
    "^": lambda text, place: place == 0,
    "\\A": lambda text, place: place == 0,
    "$": lambda text, place: place == len(text) or text[place:] == "\n",
    "\\Z": lambda text, place: place == len(text),
    "\\b": _is_boundary,
    "\\B": lambda text, place: not _is_boundary(text, place),
}


@functools.lru_cache(maxsize=32)
def layer_pattern(pattern: str) -> LayerPattern:
    """The compiled pattern.

    Raises:
        PatternError: See `LayerPattern`.
    """
    return LayerPattern(pattern)
