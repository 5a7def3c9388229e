"""Which op or layer made a chunk, and when the passes of a step ran.

In graph mode, op names tell which op requested a chunk, and which ran when it was freed. Eager ops
have no names: the recorder's spans around calls tell which layer made a chunk."""

import bisect
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tb_memplugin.attribution.names import UNKNOWN_OP
from tb_memplugin.attribution.window import Window
from tb_memplugin.schema import LINE_MARK, Band, BandName, OpFact, Pass, rows_of

KEEPING_BACKWARD = "(backward, kept)"
"""Span name of a backward pass whose persistent tape keeps the saved forward results."""
DIFFERENTIATED_BACKWARD = "(backward, differentiated)"
"""Span name of a backward pass that another tape records: part of the forward pass of that tape's
target."""
BACKWARD, UPDATE = "(backward)", "(update)"
_PASSES: dict[str, Pass] = {
    BACKWARD: "backward",
    KEEPING_BACKWARD: "backward",
    UPDATE: "update",
    DIFFERENTIATED_BACKWARD: "forward",
}


class LayerRun(NamedTuple):
    """One execution of an op of a layer, or one of its allocations; `name` is an index, times are
    in picoseconds."""

    pass_name: Pass
    name: int
    begin_ps: int
    end_ps: int


class Turn(NamedTuple):
    """When a forward pass ended, and when the backward pass after it began and ended; in
    picoseconds."""

    end_ps: int
    begin_ps: int
    done_ps: int


class GraphExecution:
    """Makers and passes of the chunks of one window, by op names.

    Attributes:
        forward_ends: Times in picoseconds at which a forward pass ended."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._makers: dict[int, OpFact] = {}
        self._turns = sorted(self._find_turns())
        self.forward_ends = [turn.end_ps for turn in self._turns]

    def _find_turns(self) -> list[Turn]:
        return _turns(self._layer_runs(allocating=True))

    def maker(self, chunk: int) -> OpFact:
        """Facts of the op that made a chunk: the requesting op, or the one that was running on the
        thread."""
        if chunk not in self._makers:
            self._makers[chunk] = self._find_maker(chunk)
        return self._makers[chunk]

    def _find_maker(self, chunk: int) -> OpFact:
        window, ops = self._window, self._window.trace.ops
        birth, fact = window.birth[chunk], window.requester(chunk)
        if fact is not UNKNOWN_OP or birth < 0 or window.reader[birth] < 0:
            return fact
        still_runs = ops.end_ps[window.reader[birth]] >= window.trace.time_ps[birth]
        return window.running(birth) if still_runs else UNKNOWN_OP

    def requested_by_op(self, chunk: int) -> bool:
        """Whether an op of the program requested a chunk, and not one of TensorFlow's own, e.g. a
        sum over replicas."""
        return self._window.requester(chunk) is not UNKNOWN_OP

    def kept_by_tape(self, chunk: int) -> bool:
        """Whether a GradientTape keeps a forward result beyond its backward pass; graph mode has no
        such tape."""
        return False

    def marks(self, saved_bytes: Callable[[int], int]) -> list["Marks"]:
        """The passes of each training step: moment n is the state after n events; none with more
        than `MAX_STEPS`.

        `saved_bytes` gives the bytes saved for the backward pass at a time: of a step's forward
        passes, the one that saves most counts."""
        steps = list(_steps(self._layer_runs(), self.forward_ends))
        if len(steps) > MAX_STEPS:
            return []
        return [self._marks(*step, saved_bytes) for step in steps]

    def _marks(
        self, runs: list[LayerRun], ends: list[int], saved_bytes: Callable[[int], int]
    ) -> "Marks":
        begin = self._at(runs[0].begin_ps)
        if not ends:
            return Marks(begin)
        end = max(ends, key=saved_bytes)
        backward = [run.end_ps for run in runs if run.pass_name == "backward" and run.end_ps > end]
        update = [run for run in runs if run.pass_name == "update" and run.begin_ps >= end]
        updated = (
            (
                self._at(min(run.begin_ps for run in update)),
                self._after(max(run.end_ps for run in update)),
            )
            if update
            else (None, None)
        )
        done = self._after(max(backward)) if backward else None
        return Marks(begin, self._after(end), done, *updated)

    def _after(self, time: int) -> int:
        """First moment that begins after a time."""
        return bisect.bisect_right(self._window.time, time) + 1

    def _at(self, time: int) -> int:
        """First moment that begins at a time or after it."""
        return bisect.bisect_left(self._window.time, time) + 1

    def waits_for_backward(self, chunk: int) -> bool:
        """Whether a chunk that was allocated before a forward pass ended was in use when the
        backward pass had begun. One that outlives the window counts only if the step failed there.
        In a forward pass that failed, that is what ops of the backward pass made that ran early: no
        others read it."""
        window, turn, outlives = self._window, self._turn(chunk), self._window.outlives(chunk)
        if turn is not None and outlives:
            return window.facts.interrupted
        if turn is not None:
            return turn.begin_ps < window.time[window.death[chunk]]
        fact = self.maker(chunk)
        is_early = fact.pass_name == "backward" and fact.gradient_free
        return is_early and window.facts.before_backward and outlives

    def is_result(self, chunk: int) -> bool:
        """Whether a chunk that `waits_for_backward` is freed after that pass on a thread that runs
        no ops, as the loss that a step returns is: if no backward op reads it, it is a result of
        the step."""
        window, turn = self._window, self._turn(chunk)
        if turn is None or window.outlives(chunk):
            return False
        death = window.death[chunk]
        return window.reader[death] < 0 and turn.done_ps < window.time[death]

    def _turn(self, chunk: int) -> Turn | None:
        """The first turn after the allocation of a new chunk."""
        place = bisect.bisect_left(self.forward_ends, self._window.time[self._window.birth[chunk]])
        return self._turns[place] if place < len(self._turns) else None

    def _layer_runs(self, allocating: bool = False) -> list[LayerRun]:
        """Executions of layers' ops, in order. The host does not see executions on an accelerator:
        there, the ops' allocations stand for them. `allocating` ones are enough to find the ends of
        forward passes."""
        trace, ops = self._window.trace, self._window.trace.ops
        executed = self._window.names.executed
        if allocating:
            names = self._window.allocating
            executed = {index: name for index, name in executed.items() if name in names}
        facts = self._of_passes(executed)
        if any(fact.pass_name != "update" for fact in facts.values()):
            rows = np.argsort(ops.start_ps, kind="stable")
            columns = (ops.name, ops.start_ps, ops.end_ps)
        else:
            found = set(self._window.op) - {-1}
            facts = self._of_passes({index: trace.strings[index] for index in found})
            rows = np.flatnonzero(trace.kind == 1)
            columns = (trace.op, trace.time_ps, trace.time_ps)
        rows = rows[np.isin(columns[0][rows], list(facts))]
        runs: list[LayerRun] = []
        returned = False
        for name, begin, end in rows_of(*(column[rows] for column in columns)):
            fact = facts[name]
            is_forward = fact.pass_name == "forward"
            # Ops of the loss that begin in the backward pass do not count, such as the sum over the
            # examples. Without layers the loss cannot be told from the model.
            if returned and is_forward and fact.layer is None and self._forward_has_layers:
                continue
            if fact.pass_name != "update":
                returned = not is_forward
            runs.append(LayerRun(fact.pass_name, name, begin, end))
        return runs

    @cached_property
    def _forward_has_layers(self) -> bool:
        facts = map(self._window.names.fact, self._window.allocating)
        return any(fact.pass_name == "forward" and fact.layer for fact in facts)

    def _of_passes(self, names: Mapping[int, str]) -> dict[int, OpFact]:
        """Facts of the ops of a layer or the loss; not of other ops, and of those that may run long
        before their pass. The backward pass reads what ops of the loss make, and not what those of
        metrics do. In a program without layers, such as a `tf.Module`, every op counts."""
        found: dict[int, OpFact] = {}
        for index, name in names.items():
            fact = self._window.names.fact(name)
            if fact.relayout or fact.gradient_free or fact.pass_name == "other":
                continue
            of_loss = fact.pass_name == "forward" and fact.saved_for_backward
            counts = fact.layer is not None or of_loss or not self._forward_has_layers
            if counts and (fact.pass_name == "update" or name in self._window.allocating):
                found[index] = fact
        return found


def _turns(runs: Iterable[LayerRun]) -> list[Turn]:
    """The turns from a forward pass to a backward pass; runs are in the order in which they begin.

    A forward pass ends with its last op. A forward op that no backward op waits for (e.g. a moving
    average's) may still run during the backward pass: then the forward pass ended when that began.
    The op's own end counts too, as backward ops need not have waited for it."""
    turns: list[Turn] = []
    last: int | None = None
    overlapped = False
    for run in runs:
        if run.pass_name == "forward":
            last, overlapped = run.end_ps if last is None else max(last, run.end_ps), False
        elif run.pass_name == "backward" and last is not None:
            if last <= run.begin_ps:
                turns.append(Turn(last, run.begin_ps, run.end_ps))
                last, overlapped = None, False
            elif not overlapped:
                turns.append(Turn(run.begin_ps, run.begin_ps, run.end_ps))
                overlapped = True
        if run.pass_name == "backward" and turns:
            turns[-1] = turns[-1]._replace(done_ps=max(turns[-1].done_ps, run.end_ps))
    return turns


class _Call(NamedTuple):
    """A span around a call; the facts are those of what it makes itself."""

    name: str
    start: int
    end: int
    fact: OpFact
    parent: "_Call | None"


_OUTSIDE = OpFact(None, "other")
"""Facts of what a thread with spans makes outside them."""


class EagerExecution(GraphExecution):
    """Makers and passes of the chunks of one window, by nested spans of layer calls, backward
    passes and updates; on threads without spans, by op names."""

    def __init__(self, window: Window) -> None:
        spans, strings = window.trace.layers, window.trace.strings
        self._calls: dict[int, list[_Call]] = {}  # by thread, in the order in which they begin
        columns = (spans.thread, spans.start_ps, -spans.end_ps, spans.name)
        for thread, start, minus_end, index in sorted(rows_of(*columns)):
            calls = self._calls.setdefault(thread, [])
            parent = calls[-1] if calls else None
            while parent is not None and parent.end <= start:
                parent = parent.parent
            name, _, line = strings[index].partition(LINE_MARK)
            within: Pass = "forward" if parent is None else parent.fact.pass_name
            layer = None if name in _PASSES else name
            fact = OpFact(layer, _PASSES.get(name, within), line=line or None)
            calls.append(_Call(name, start, -minus_end, fact, parent))
        self._kept = self._spans(KEEPING_BACKWARD)
        self._backward = self._spans(BACKWARD, KEEPING_BACKWARD)
        super().__init__(window)
        self._gradients = self._find_gradients()

    def _spans(self, *names: str) -> list[tuple[int, int]]:
        calls = (call for calls in self._calls.values() for call in calls)
        return sorted((call.start, call.end) for call in calls if call.name in names)

    def _find_turns(self) -> list[Turn]:
        return [Turn(start, start, end) for start, end in self._backward]

    def is_result(self, chunk: int) -> bool:
        return False  # what the program's variables keep may be read by the tape as well

    def marks(self, saved_bytes: Callable[[int], int]) -> list["Marks"]:
        backward, update = self._backward, self._spans(UPDATE)
        if not backward:
            return super().marks(saved_bytes)
        marks: list[Marks] = []
        begin = 0
        for place, (start, end) in enumerate(backward):
            following = backward[place + 1][0] if place + 1 < len(backward) else math.inf
            own = [span for span in update if start <= span[0] < following]
            updated = (self._at(own[0][0]), self._after(own[-1][1])) if own else (None, None)
            marks.append(Marks(begin, self._at(start), self._after(end), *updated))
            begin = updated[1] or self._after(end)
        return marks if len(backward) <= MAX_STEPS else []

    def _find_gradients(self) -> dict[int, OpFact]:
        window = self._window
        gradients: dict[int, OpFact] = {}
        for span in self._backward:
            first, last = np.searchsorted(window.trace.time_ps, span).tolist()
            live = window.chunks.live(last - 1)
            made = {window.address[chunk]: chunk for chunk in live if window.birth[chunk] >= first}
            for address, size, layer in window.facts.gradients:
                chunk = made.get(address)
                if chunk is not None and window.requested[chunk] == size:
                    fact = OpFact(layer, "backward", is_gradient=True, gradient_of=layer)
                    gradients[chunk] = fact
        return gradients

    def _find_maker(self, chunk: int) -> OpFact:
        window, birth = self._window, self._window.birth[chunk]
        if birth < 0:
            return UNKNOWN_OP
        trace, time = window.trace, window.time[birth]
        calls = self._calls.get(int(trace.thread[birth]))
        if calls is None:  # a thread without spans
            return super()._find_maker(chunk)
        place = bisect.bisect_right(calls, time, key=lambda call: call.start) - 1
        call = calls[place] if place >= 0 else None
        while call is not None and call.end < time:
            call = call.parent
        fact = _OUTSIDE if call is None else call.fact
        gradient = self._gradients.get(chunk)
        return fact if gradient is None else dataclasses.replace(gradient, line=fact.line)

    def requested_by_op(self, chunk: int) -> bool:
        return self._window.op_name(chunk) is not None

    def kept_by_tape(self, chunk: int) -> bool:
        """Whether a tape keeps a forward result that Python does not hold otherwise: a persistent
        tape beyond the backward pass, any tape if the step was interrupted before that. A tape is a
        C++ object, so the holder of its tensors cannot be found."""
        window = self._window
        if window.facts.interrupted and window.outlives(chunk):
            return True
        tensor = window.tensor_at_end(chunk)
        if tensor is not None and (tensor.category != "held_tensors" or tensor.held_by is not None):
            return False
        begin = window.time[window.birth[chunk]]
        end = window.time[min(window.death[chunk], window.events - 1)]
        return any(begin <= start and stop <= end for start, stop in self._kept)


MAX_STEPS = 100
"""Most training steps of a window with known passes; with more, all passes are unknown."""


class Marks(NamedTuple):
    """First moments of, or after, the passes of one training step; None for a pass that did not
    run."""

    begin: int
    forward_end: int | None = None
    backward_end: int | None = None
    update_begin: int | None = None
    update_end: int | None = None


def bands(marks: Iterable[Marks], moments: int) -> tuple[Band, ...]:
    """The bands of the steps, in order; `moments` is the number of moments."""
    edges: list[tuple[int, BandName | None]] = []
    for step in marks:
        edges.append((step.begin, "forward"))
        if step.forward_end is None or step.backward_end is None:
            continue
        edges.append((step.forward_end, "backward"))
        if step.update_begin is None or step.update_end is None:
            edges.append((step.backward_end, None))
            continue
        begin = max(step.update_begin, step.forward_end)
        if begin < step.backward_end:
            edges.append((begin, "backward_and_update"))
        edges.append((max(begin, step.backward_end), "update"))
        edges.append((max(step.update_end, step.backward_end), None))
    ends = [place for place, _ in edges[1:]] + [moments] * bool(edges)
    all_bands = (
        Band(name, min(place, moments), min(end, moments))
        for (place, name), end in zip(edges, ends, strict=True)
        if name is not None
    )
    return tuple(band for band in all_bands if band.start < band.end)


def _steps(runs: list[LayerRun], ends: list[int]) -> Iterator[tuple[list[LayerRun], list[int]]]:
    """Runs of each step, with the ends of its forward passes. A new step begins when a forward op
    runs again that ran before the current step's backward pass; recomputation does not count: those
    ops have other names."""
    step: list[LayerRun] = []
    before: set[int] = set()
    returned = False
    for run in runs:
        if run.pass_name == "forward" and returned and run.name in before:
            yield step, [end for end in ends if step[0].begin_ps <= end < run.begin_ps]
            ends = [end for end in ends if end >= run.begin_ps]
            step, before, returned = [], set(), False
        if run.pass_name == "forward" and not returned:
            before.add(run.name)
        returned = returned or run.pass_name == "backward"
        step.append(run)
    if step:
        yield step, ends
