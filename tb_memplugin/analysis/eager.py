"""Eager execution: ops carry no names then, so what made a chunk is told by the spans that the recorder put round
calls.
"""

import numpy as np

from tb_memplugin.analysis.distinct import distinct
from tb_memplugin.model import Integers
from tb_memplugin.trace import AllocationTrace, OpFact, Pass

_PASSES: dict[str, Pass] = {"(backward)": "backward", "(update)": "update"}


class EagerSpans:
    """Spans of layer calls, backward passes and updates, nested, by thread."""

    def __init__(self, trace: AllocationTrace) -> None:
        spans = trace.layers
        self._names = [trace.strings[index] for index in spans.name.tolist()]
        self._start, self._end = spans.start_ps, spans.end_ps
        self._rows = {int(thread): np.flatnonzero(spans.thread == thread) for thread in distinct(spans.thread)}
        self._parent = [-1] * len(spans)
        for rows in self._rows.values():
            self._nest(rows.tolist())
        self._facts: dict[int, OpFact] = {}

    def __bool__(self) -> bool:
        return bool(self._names)

    def _nest(self, rows: list[int]) -> None:
        """Finds each span's innermost enclosing one; rows are in the order of their starts."""
        stack: list[int] = []
        for row in sorted(rows, key=lambda row: (int(self._start[row]), -int(self._end[row]))):
            while stack and self._end[stack[-1]] <= self._start[row]:
                stack.pop()
            self._parent[row] = stack[-1] if stack else -1
            stack.append(row)

    def fact(self, thread: int, time: int) -> OpFact | None:
        """Layer and pass of what a thread did at a time; None on threads without spans."""
        rows = self._rows.get(thread)
        if rows is None:
            return None
        place = int(np.searchsorted(self._start[rows], time, side="right")) - 1
        row = int(rows[place]) if place >= 0 else -1
        while row >= 0 and self._end[row] < time:
            row = self._parent[row]
        if row not in self._facts:
            self._facts[row] = self._describe(row)
        return self._facts[row]

    def _describe(self, row: int) -> OpFact:
        layer: str | None = None
        phase: Pass = "other"
        while row >= 0:
            name = self._names[row]
            if name in _PASSES:
                return OpFact(layer, _PASSES[name])
            layer = name if layer is None else layer
            phase = "forward"
            row = self._parent[row]
        return OpFact(layer, phase)

    def backward(self) -> list[tuple[int, int]]:
        """(start, end) of the backward passes, in order."""
        return self.named("(backward)")

    def named(self, name: str) -> list[tuple[int, int]]:
        """(start, end) of the spans of that name, in order."""
        rows = [row for row, one in enumerate(self._names) if one == name]
        return sorted((int(self._start[row]), int(self._end[row])) for row in rows)

    def backward_starts(self) -> Integers:
        """Times at which backward passes begin: the forward passes have ended then."""
        return np.asarray([start for start, _ in self.backward()], dtype=np.int64)
