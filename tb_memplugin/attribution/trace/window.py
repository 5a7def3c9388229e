"""One traced window as the ownership rules read it: its chunks, their events, and the names of its ops.

TensorFlow's graph optimizer regroups products: it computes ``gradient * (3 * x ** 2)`` instead of
``(gradient * 3) * x ** 2``, and ``3 * x ** 2`` then runs in the forward pass under the name of ``gradient * 3``. Such a
backward op runs before ops that it needs in the traced graph; it was made independent of gradients.
"""

import math
from typing import NamedTuple

import numpy as np

from tb_memplugin.attribution.trace.lifetimes import all_chunks, input_events, readers
from tb_memplugin.attribution.trace.op_names import OpNames, depends_on_gradients
from tb_memplugin.schema import AllocationTrace, Category, Pass, TensorFact, TraceFacts, dimensions, distinct

Span = tuple[float, float]
"""Times in picoseconds at which an op's first and last execution began."""


def reordered_ops(trace: AllocationTrace, names: OpNames, before_backward: bool = False) -> set[str]:
    """Names of the backward ops that began before all ops that they depend on in the traced graph.

    All, because the optimizer moves casts behind ops that depend on them. Both the first and the last executions count,
    as a trace may begin or end within a step. Only ops that may have made a chunk are looked at. In a last step that
    failed `before_backward`, the ops that they depend on never ran.
    """
    index, first_began, last_began = _began(trace, names)
    reordered: set[str] = set()
    graphs: dict[tuple[int, str], tuple[dict[str, list[str]], dict[str, Span]]] = {}
    for name in _makers(trace, names):
        place = names.place(name) if name in index and depends_on_gradients(names.fact(name)) else None
        if place is None:
            continue
        _, ops, prefix = place
        # Inputs of each op, and when it and those that it depends on first began.
        inputs_of, earliest = graphs.setdefault((id(ops), prefix), ({}, {}))
        pending = [name[len(prefix) :]]
        while pending:
            op = pending[-1]
            inputs = inputs_of.get(op)
            if inputs is None:
                inputs = [source for source in ops[op].gradient_inputs if depends_on_gradients(ops.get(source))]
                inputs_of[op] = inputs
                unknown = [source for source in inputs if source not in inputs_of]
                if unknown:
                    pending += unknown
                    continue
            pending.pop()
            if op in earliest:
                continue
            first = last = math.inf
            for source in inputs:
                if source in earliest:  # unless it depends on this op in turn
                    source_first, source_last = earliest[source]
                    first, last = min(first, source_first), min(last, source_last)
            own = index.get(prefix + op)
            if own is not None:
                own_first, own_last = first_began[own], last_began[own]
                if inputs and own_first < first and (before_backward or own_last < last < math.inf):
                    reordered.add(prefix + op)
                else:
                    first, last = min(first, own_first), min(last, own_last)
            earliest[op] = first, last
    return reordered


def _makers(trace: AllocationTrace, names: OpNames) -> set[str]:
    """Names of the ops that requested memory, and of those that ran meanwhile on the same thread."""
    born = (trace.kind == 1) & (trace.op >= 0)
    running = readers(trace)[trace.kind == 1]
    running = distinct(trace.ops.name[running[running >= 0]])
    return {trace.strings[index] for index in distinct(trace.op[born]).tolist()}.union(
        names.executed[index] for index in running.tolist()
    )


def _began(trace: AllocationTrace, names: OpNames) -> tuple[dict[str, int], dict[int, int], dict[int, int]]:
    """Op to its index; index to when the op first and last began.

    On accelerators, where that is not seen of backward ops, these are the times at which it allocated.
    """
    index = dict(zip(names.executed.values(), names.executed, strict=True))
    keys, times = trace.ops.name, trace.ops.start_ps
    if not any(depends_on_gradients(names.fact(name)) for name in reversed(index)):  # the backward pass comes late
        born = (trace.kind == 1) & (trace.op >= 0)
        keys, times = trace.op[born], trace.time_ps[born]
        index = {trace.strings[key]: key for key in distinct(keys).tolist()}
    order = np.argsort(times, kind="stable")
    ordered = list(zip(keys[order].tolist(), times[order].tolist(), strict=True))
    return index, dict(reversed(ordered)), dict(ordered)


class Owner(NamedTuple):
    layer: str | None
    category: Category
    trainable: bool | None


class Window:
    """The chunks of one trace, with the columns that the rules look up chunk by chunk.

    Attributes:
        events: Number of the trace's events.
        address, allocated, requested, birth, death: Columns of `chunks`, as lists.
        op, time: For each event, the index of the op's name, and when it took place, in picoseconds.
        reader: For each event, the op execution that ran last on its thread.
        is_input: For each event, whether the input pipeline allocates.
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
        self.time: list[int] = trace.time_ps.tolist()
        self.reader: list[int] = readers(trace).tolist()
        self.is_input: list[bool] = input_events(trace, facts.arguments).tolist()
        self.names = OpNames(trace, facts)
        self.names.regard_as_early(reordered_ops(trace, self.names, facts.before_backward))
        self.allocating = {
            trace.strings[index]
            for index in set(trace.op[(trace.kind == 1) & (trace.region != -1)].tolist())
            if index >= 0
        }
        self._dimensions: dict[int, tuple[int, ...] | None] = {}
        self._tensors_at_end = {fact.address: fact for fact in facts.tensors_at_end}

    def outlives(self, chunk: int) -> bool:
        return self.death[chunk] == self.events

    def is_temporary(self, chunk: int) -> bool:
        """Whether an op requested a chunk for itself, and not for a result."""
        birth = self.birth[chunk]
        return birth >= 0 and self.trace.text(int(self.trace.region[birth])) == "temp"

    def op_name(self, chunk: int) -> str | None:
        """Name of the op that requested a chunk; None if the chunk is older or the event names no op."""
        birth = self.birth[chunk]
        return None if birth < 0 else self.trace.text(self.op[birth])

    def dimensions(self, event: int) -> tuple[int, ...] | None:
        """Dimensions of the tensor that an allocation is for; None if unknown."""
        number = int(self.trace.shape[event])
        if number not in self._dimensions:
            text = self.trace.text(number)
            self._dimensions[number] = () if text == "[]" else dimensions(text)
        return self._dimensions[number]

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
        return Owner(layer, category, None if layer is None else self.facts.trainable.get(layer))
