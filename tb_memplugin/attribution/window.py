"""One traced window as the ownership rules read it: its chunks, their events, and the names of its ops."""

from typing import NamedTuple

from tb_memplugin.attribution.inputs import input_events
from tb_memplugin.attribution.lifetimes import all_chunks, readers
from tb_memplugin.attribution.op_names import OpNames
from tb_memplugin.attribution.reordered import reordered_ops
from tb_memplugin.model import Category
from tb_memplugin.model.trace import AllocationTrace, Pass, TensorFact, TraceFacts


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
        self.names.regard_as_early(reordered_ops(trace, self.names))
        self.allocating = {
            trace.strings[index]
            for index in set(trace.op[(trace.kind == 1) & (trace.region != -1)].tolist())
            if index >= 0
        }
        self._tensors_at_end = {fact.address: fact for fact in facts.tensors_at_end}

    def outlives(self, chunk: int) -> bool:
        """Whether a chunk is still in use when the window closes."""
        return self.death[chunk] == self.events

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
