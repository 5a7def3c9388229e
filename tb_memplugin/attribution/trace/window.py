"""One traced window as the ownership rules read it: its chunks, their events, and the names of its ops.

TensorFlow's graph optimizer regroups products: it computes ``gradient * (3 * x ** 2)`` instead of
``(gradient * 3) * x ** 2``, and ``3 * x ** 2`` then runs in the forward pass under the name of ``gradient * 3``. Such a
backward op runs before ops that it needs in the traced graph; it was made independent of gradients.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tb_memplugin.attribution.trace.inputs import input_events
from tb_memplugin.attribution.trace.lifetimes import all_chunks, readers
from tb_memplugin.attribution.trace.op_names import OpNames, depends_on_gradients
from tb_memplugin.model import Category, Integers
from tb_memplugin.model.basics import distinct
from tb_memplugin.model.trace import AllocationTrace, Pass, TensorFact, TraceFacts

Span = tuple[int, int]
"""Times in picoseconds at which an op's first and last execution began."""


def reordered_ops(trace: AllocationTrace, names: OpNames, before_backward: bool = False) -> set[str]:
    """Names of the backward ops that began before all ops that they depend on in the traced graph.

    All, because the optimizer moves casts behind ops that depend on them. Both the first and the last executions count,
    as a trace may begin or end within a step. Only ops that may have made a chunk are looked at.

    Args:
        trace, names: The trace and its ops.
        before_backward: `TraceFacts.before_backward`: in the last step, the ops that they depend on never ran.
    """
    began = _began(trace, names)
    reordered: set[str] = set()
    inputs_of: dict[str, list[str]] = {}
    earliest: dict[str, Span | None] = {}  # an op's own span, or that of an op that it depends on
    pending = [name for name in _makers(trace, names) if name in began and depends_on_gradients(names.fact(name))]
    while pending:
        name = pending[-1]
        if name not in inputs_of:
            inputs_of[name] = names.gradient_inputs(name)
            unknown = [source for source in inputs_of[name] if source not in inputs_of]
            if unknown:
                pending += unknown
                continue
        pending.pop()
        if name in earliest:
            continue
        # Without a span of an op that does not run, and of one that depends on this op in turn.
        spans = [span for span in map(earliest.get, inputs_of[name]) if span is not None]
        own = began.get(name)
        if own is not None:
            if inputs_of[name] and _reordered(own, spans, before_backward):
                reordered.add(name)
            else:
                spans.append(own)
        earliest[name] = _earliest(spans) if spans else None
    return reordered


def _earliest(spans: list[Span]) -> Span:
    return min(spans)[0], min(last for _, last in spans)


def _reordered(own: Span, spans: list[Span], before_backward: bool) -> bool:
    """Whether an op ran before the ops that it depends on, which began at `spans` if they ran."""
    if not spans:
        return before_backward
    first, last = _earliest(spans)
    return own[0] < first and (before_backward or own[1] < last)


def _makers(trace: AllocationTrace, names: OpNames) -> set[str]:
    """Names of the ops that requested memory, and of those that ran meanwhile on the same thread."""
    born = (trace.kind == 1) & (trace.op >= 0)
    running = readers(trace)[trace.kind == 1]
    running = distinct(trace.ops.name[running[running >= 0]])
    return {trace.strings[index] for index in distinct(trace.op[born]).tolist()}.union(
        names.executed[index] for index in running.tolist()
    )


def _began(trace: AllocationTrace, names: OpNames) -> dict[str, Span]:
    """Op to when it began; on accelerators, where that is not seen of backward ops, to when it allocated."""
    began = {names.executed[index]: span for index, span in _spans(trace.ops.name, trace.ops.start_ps)}
    if any(depends_on_gradients(names.fact(name)) for name in began):
        return began
    born = (trace.kind == 1) & (trace.op >= 0)
    return {trace.strings[index]: span for index, span in _spans(trace.op[born], trace.time_ps[born])}


def _spans(keys: Integers, times: Integers) -> Iterator[tuple[int, Span]]:
    """Each key with its first and last time."""
    order = np.lexsort((times, keys))
    keys, times = keys[order], times[order]
    first, last = np.flatnonzero(np.diff(keys, prepend=-1)), np.flatnonzero(np.diff(keys, append=-1))
    spans = zip(times[first].tolist(), times[last].tolist(), strict=True)
    return zip(keys[first].tolist(), spans, strict=True)


class Owner(NamedTuple):
    """Layer, category and trainability of some bytes."""

    layer: str | None
    category: Category
    trainable: bool | None


class Window:
    """The chunks of one trace, with the columns that the rules look up chunk by chunk.

    Attributes:
        trace, facts: The allocator's events, and the recorder's facts about the program.
        events: Number of the trace's events.
        chunks: The trace's chunks.
        address, allocated, requested, birth, death: Columns of `chunks`, as lists.
        op: For each event, the index of the op's name.
        reader: For each event, the op execution that ran last on its thread.
        is_input: For each event, whether the input pipeline allocates.
        names: Facts of the ops.
        allocating: Names of the ops that allocated tensors of their own.
    """

    def __init__(self, trace: AllocationTrace, facts: TraceFacts) -> None:
        self.trace, self.facts = trace, facts
        self.events = len(trace)
        self.chunks = chunks = all_chunks(trace, facts)
        self.address: list[int] = chunks.address.tolist()
        self.allocated: list[int] = chunks.allocated.tolist()
        self.requested: list[int] = chunks.requested.tolist()
        self.birth: list[int] = chunks.birth.tolist()
        self.death: list[int] = chunks.death.tolist()
        self.op: list[int] = trace.op.tolist()
        self.reader: list[int] = readers(trace).tolist()
        self.is_input: list[bool] = input_events(trace, facts.arguments).tolist()
        self.names = OpNames(trace, facts)
        self.names.regard_as_early(reordered_ops(trace, self.names, facts.before_backward))
        self.allocating = {
            trace.strings[index]
            for index in set(trace.op[(trace.kind == 1) & (trace.region != -1)].tolist())
            if index >= 0
        }
        self._tensors_at_end = {fact.address: fact for fact in facts.tensors_at_end}

    def outlives(self, chunk: int) -> bool:
        """Whether a chunk is still in use when the window closes."""
        return self.death[chunk] == self.events

    def is_temporary(self, chunk: int) -> bool:
        """Whether an op requested a chunk for itself, and not for a result."""
        birth = self.birth[chunk]
        return birth >= 0 and self.trace.text(int(self.trace.region[birth])) == "temp"

    def op_name(self, chunk: int) -> str | None:
        """Name of the op that requested a chunk; None if the chunk is older or the event names no op."""
        birth = self.birth[chunk]
        return None if birth < 0 else self.trace.text(self.op[birth])

    def last_reader_pass(self, chunk: int) -> Pass | None:
        """Pass of the op that ran last on the thread that freed a chunk; None if unknown or not freed."""
        if self.outlives(chunk):
            return None
        reader = self.reader[self.death[chunk]]
        fact = None if reader < 0 else self.names.fact(self.names.executed[int(self.trace.ops.name[reader])])
        return None if fact is None else fact.pass_name

    def tensor_at_end(self, chunk: int) -> TensorFact | None:
        """The tensor in a chunk that outlives the window, if Python holds one there."""
        return self._tensors_at_end.get(self.address[chunk]) if self.outlives(chunk) else None

    def layer_owner(self, layer: str | None, category: Category) -> Owner:
        """The owner for a layer and a category."""
        return Owner(layer, category, None if layer is None else self.facts.trainable.get(layer))
