"""Eager mode: ops have no names, so the recorder's spans around calls tell which layer made a chunk."""

import dataclasses

import numpy as np

from tb_memplugin.attribution.owners.graph import GraphExecution
from tb_memplugin.attribution.trace.window import Window
from tb_memplugin.model import Integers
from tb_memplugin.model.basics import distinct
from tb_memplugin.model.trace import LINE_MARK, AllocationTrace, OpFact, Pass

KEEPING_BACKWARD = "(backward, kept)"
"""Span name of a backward pass whose persistent tape keeps the saved forward results."""
DIFFERENTIATED_BACKWARD = "(backward, differentiated)"
"""Span name of a backward pass that another tape records: part of the forward pass of that tape's target."""
BACKWARD = "(backward)"
_PASSES: dict[str, Pass] = {BACKWARD: "backward", "(update)": "update", DIFFERENTIATED_BACKWARD: "forward"}


class EagerSpans:
    """Spans of layer calls, backward passes and updates, nested, by thread."""

    def __init__(self, trace: AllocationTrace) -> None:
        spans = trace.layers
        parts = [trace.strings[index].partition(LINE_MARK) for index in spans.name.tolist()]
        names, self._lines = [part[0] for part in parts], [part[2] or None for part in parts]
        self._names = [BACKWARD if name == KEEPING_BACKWARD else name for name in names]
        self._start, self._end = spans.start_ps, spans.end_ps
        self._rows = {int(thread): np.flatnonzero(spans.thread == thread) for thread in distinct(spans.thread)}
        self._parent = [-1] * len(spans)
        for rows in self._rows.values():
            self._nest(rows.tolist())
        self._kept = np.asarray([row for row, name in enumerate(names) if name == KEEPING_BACKWARD], np.int64)
        self._facts: dict[int, OpFact] = {}

    def __bool__(self) -> bool:
        return bool(self._names)

    def _nest(self, rows: list[int]) -> None:
        """Find the innermost span around each one; rows are in the order of their starts."""
        stack: list[int] = []
        for row in sorted(rows, key=lambda row: (int(self._start[row]), -int(self._end[row]))):
            while stack and self._end[stack[-1]] <= self._start[row]:
                stack.pop()
            self._parent[row] = stack[-1] if stack else -1
            stack.append(row)

    def fact(self, thread: int, time: int) -> OpFact | None:
        """Layer and pass that a thread was in at a time; None on threads without spans."""
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
        pass_name: Pass = "other"
        line = self._lines[row] if row >= 0 else None
        while row >= 0:
            name = self._names[row]
            if name in _PASSES:
                return OpFact(layer, _PASSES[name], line=line)
            layer = name if layer is None else layer
            pass_name = "forward"
            row = self._parent[row]
        return OpFact(layer, pass_name, line=line)

    def backward(self) -> list[tuple[int, int]]:
        """(start, end) of the backward passes, in order."""
        return self.named(BACKWARD)

    def kept(self, birth: int, death: int) -> bool:
        """Whether a backward pass with a persistent tape ran between two times."""
        rows = self._kept
        return bool(((self._start[rows] >= birth) & (self._end[rows] <= death)).any())

    def named(self, name: str) -> list[tuple[int, int]]:
        """(start, end) of the spans with a name, in order."""
        rows = [row for row, label in enumerate(self._names) if label == name]
        return sorted((int(self._start[row]), int(self._end[row])) for row in rows)

    def backward_starts(self) -> Integers:
        """Times at which backward passes begin, which is where the forward passes end."""
        return np.asarray([start for start, _ in self.backward()], dtype=np.int64)


class EagerExecution(GraphExecution):
    """Makers and passes of the chunks of one window, by spans; on threads without spans, by op names."""

    def __init__(self, window: Window, spans: EagerSpans) -> None:
        self._spans = spans
        super().__init__(window)
        self._gradients = self._find_gradients()

    def _find_forward_ends(self) -> Integers:
        return self._spans.backward_starts()

    def _find_gradients(self) -> dict[int, OpFact]:
        """Chunks of the variables' gradients that a backward pass returned."""
        window = self._window
        gradients: dict[int, OpFact] = {}
        for start, end in self._spans.backward():
            first, last = (int(event) for event in np.searchsorted(window.trace.time_ps, (start, end)))
            live = window.chunks.live(last - 1).tolist()
            by_address = {window.address[chunk]: chunk for chunk in live if window.birth[chunk] >= first}
            for address, size, layer in window.facts.gradients:
                chunk = by_address.get(address)
                if chunk is not None and window.requested[chunk] == size:
                    gradients[chunk] = OpFact(layer, "backward", is_gradient=True, gradient_of=layer)
        return gradients

    def _find_maker(self, chunk: int) -> OpFact | None:
        """Facts of the layer call or pass that made a chunk."""
        window, birth = self._window, self._window.birth[chunk]
        if birth < 0:
            return None
        fact = self._spans.fact(int(window.trace.thread[birth]), int(window.trace.time_ps[birth]))
        if fact is None:
            return super()._find_maker(chunk)
        gradient = self._gradients.get(chunk)
        return fact if gradient is None else dataclasses.replace(gradient, line=fact.line)

    def requested_by_op(self, chunk: int) -> bool:
        """Whether any op requested a chunk."""
        return self._window.op_name(chunk) is not None

    def freed_by_backward(self, chunk: int) -> bool:
        """Whether a chunk was freed within a backward pass."""
        if self._window.outlives(chunk):
            return False
        time = int(self._window.trace.time_ps[self._window.death[chunk]])
        return any(start <= time <= end for start, end in self._spans.backward())

    def kept_by_tape(self, chunk: int) -> bool:
        """Whether a tape keeps a forward result that Python does not hold otherwise.

        A persistent tape keeps it beyond the backward pass; any tape does if the step was interrupted before that. A
        persistent tape that outlives the step keeps its tensors as Python objects, whose holder cannot be found: the
        tape is a C++ object.
        """
        window = self._window
        if window.facts.interrupted and window.outlives(chunk):
            return True
        tensor = window.tensor_at_end(chunk)
        if tensor is not None and (tensor.category != "held_tensors" or tensor.held_by is not None):
            return False
        times = window.trace.time_ps
        end = int(times[-1]) if window.outlives(chunk) else int(times[window.death[chunk]])
        return self._spans.kept(int(times[window.birth[chunk]]), end)
