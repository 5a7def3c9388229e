"""The syntax of regular expressions for paths of layers: that of `re`, without what needs backtracking. Pure."""

import dataclasses
import re
from collections.abc import Callable
from typing import Literal, TypeAlias

UNLIMITED = -1
"""Stands in `Node.most` for any number."""

Test: TypeAlias = Callable[[str, int], bool]
"""Whether a text passes at a place."""


@dataclasses.dataclass(frozen=True)
class Node:
    """A part of a pattern: a test of a character or of a place, or other parts, repeated `least` to `most` times."""

    kind: Literal["test", "assert", "sequence", "either", "repeat"]
    test: Test | None = None
    parts: "tuple[Node, ...]" = ()
    least: int = 1
    most: int = 1


class PatternError(ValueError):
    """A pattern is no regular expression, or uses what is not supported; the message says which."""


def parse(pattern: str) -> Node:
    """The tree of a pattern.

    Raises:
        PatternError: It is no regular expression, or uses what is not supported.
    """
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"is not a regular expression ({error})") from None
    return _Parser(pattern).parsed()


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


class _Parser:
    """Parses a pattern that `re` accepts."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def parsed(self) -> Node:
        node = self._either()
        if self._at < len(self._pattern):
            raise self._unsupported()
        return node

    def _either(self) -> Node:
        branches = [self._sequence()]
        while self._pattern.startswith("|", self._at):
            self._at += 1
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Node("either", parts=tuple(branches))

    def _sequence(self) -> Node:
        parts = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            parts.append(self._quantified(self._atom()))
        return Node("sequence", parts=tuple(parts))

    def _take(self, wanted: "re.Pattern[str]") -> "re.Match[str] | None":
        match = wanted.match(self._pattern, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _atom(self) -> Node:
        if self._take(_GROUP):
            node = self._either()
            if not self._pattern.startswith(")", self._at):
                raise self._unsupported()
            self._at += 1
            return node
        assertion = self._take(_ASSERTION)
        if assertion is not None:
            return Node("assert", _ASSERTIONS[assertion[0]])
        atom = self._take(_LITERAL_BRACE) if self._pattern.startswith("{", self._at) else self._take(_ATOM)
        if atom is None:
            raise self._unsupported()
        if atom[0] == "{}":
            self._at -= 1
        return Node("test", _one_of(re.compile(atom[0].replace("{}", "{"))))

    def _quantified(self, node: Node) -> Node:
        if _LITERAL_BRACE.match(self._pattern, self._at):
            return node
        quantifier = self._take(_QUANTIFIER)
        if quantifier is None:
            return node
        if quantifier[5]:
            raise self._unsupported()
        least, most = {"*": (0, UNLIMITED), "+": (1, UNLIMITED), "?": (0, 1)}.get(quantifier[1], (-1, -1))
        if least < 0:
            least = int(quantifier[2] or 0)
            most = int(quantifier[4]) if quantifier[4] else UNLIMITED if quantifier[3] else least
        return Node("repeat", parts=(node,), least=least, most=most)

    def _unsupported(self) -> PatternError:
        rest = self._pattern[self._at : self._at + 12]
        return PatternError(
            f"uses something that is not supported here, at {rest!r}: use groups, sets and | * + ? {{}}"
        )


def _one_of(atom: "re.Pattern[str]") -> Test:
    """A test for one character; the atom of a pattern cannot backtrack."""
    return lambda text, place: atom.fullmatch(text[place]) is not None


def _is_boundary(text: str, place: int) -> bool:
    sides = [0 <= at < len(text) and (text[at].isalnum() or text[at] == "_") for at in (place - 1, place)]
    return sides[0] != sides[1]


_ASSERTIONS: dict[str, Test] = {
    "^": lambda text, place: place == 0,
    "\\A": lambda text, place: place == 0,
    "$": lambda text, place: place == len(text) or text[place:] == "\n",
    "\\Z": lambda text, place: place == len(text),
    "\\b": _is_boundary,
    "\\B": lambda text, place: not _is_boundary(text, place),
}
