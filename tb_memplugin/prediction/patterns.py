"""Regular expressions for paths of layers, matched in linear time. Pure.

Patterns reach the server from strangers, and Python's `re` needs exponential time for some. A pattern has the syntax
and the meaning that `re.search` gives it; look-around, back-references, possessive quantifiers and flags are refused.
"""

import dataclasses
import functools
from typing import Literal

from tb_memplugin.prediction.pattern_syntax import UNLIMITED, Node, PatternError, Test, parse

MAX_INSTRUCTIONS = 300
"""Most instructions of a compiled pattern: `x{1000}` has 1,000."""
MAX_EMITTED = 10 * MAX_INSTRUCTIONS
"""Most parts of a pattern, repetitions included."""


@dataclasses.dataclass(frozen=True)
class _Instruction:
    """``split`` and ``jump`` go to `target`, ``split`` to the next instruction as well."""

    kind: Literal["test", "assert", "split", "jump", "found"]
    test: Test | None = None
    target: int = 0


class LayerPattern:
    """A compiled pattern.

    Args:
        pattern: A regular expression.

    Raises:
        PatternError: It is none, or uses what is not supported.
    """

    def __init__(self, pattern: str) -> None:
        self._program: list[_Instruction] = []
        self._emitted = 0
        self._emit(parse(pattern))
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
            raise _too_much()
        self._program.append(instruction)
        return len(self._program) - 1

    def _end_here(self, *places: int) -> None:
        """Set the target of instructions to the next one."""
        for at in places:
            self._program[at] = dataclasses.replace(self._program[at], target=len(self._program))

    def _emit(self, node: Node) -> None:
        # Empty groups have no instructions, however often they are repeated.
        self._emitted += 1
        if self._emitted > MAX_EMITTED:
            raise _too_much()
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

    def _emit_repeat(self, node: Node) -> None:
        (part,) = node.parts
        for _ in range(node.least):
            self._emit(part)
        if node.most == UNLIMITED:
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


def _too_much() -> PatternError:
    return PatternError("repeats too much: use smaller numbers in {}")


@functools.lru_cache(maxsize=32)
def layer_pattern(pattern: str) -> LayerPattern:
    """The compiled pattern.

    Raises:
        PatternError: See `LayerPattern`.
    """
    return LayerPattern(pattern)
