"""One traced window as the ownership rules read it: its chunks, their events, and the facts of its
ops."""

import dataclasses
from collections import Counter, defaultdict

import numpy as np

from tb_memplugin.attribution.chunks import all_chunks, input_events, readers
from tb_memplugin.attribution.names import UNKNOWN_OP, OpNames, reordered_ops, texts
from tb_memplugin.schema import (
    AllocationTrace,
    Category,
    ChunkOwner,
    OpFact,
    Pass,
    TensorFact,
    TraceFacts,
    VariableFact,
    dimensions,
)


def layerless(category: Category) -> ChunkOwner:
    return ChunkOwner(None, category, None)


class Window:
    """The chunks of one trace, with the columns that the rules look up chunk by chunk, as lists.

    Attributes:
        facts: The facts, with the addresses of all variables that are known.
        op, time: For each event, the index of the op's name, and when it took place, in
            picoseconds.
        reader: For each event, the op execution that ran last on its thread.
        is_input: For each event, whether the input pipeline allocates.
        launched: Allocations inside compiled ops of layers, to the op's name.
        allocating: Names of the ops that allocated tensors of their own."""

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
        running = readers(trace)
        self.reader: list[int] = running.tolist()
        self.is_input: list[bool] = input_events(trace, facts.arguments).tolist()
        self.names = OpNames(trace, facts)
        self.names.regard_as_early(reordered_ops(trace, self.names, running, facts.before_backward))
        self.launched = self._launched_by()
        self.allocating = texts(trace, trace.op[(trace.kind == 1) & (trace.region != -1)])
        self._dimensions: dict[int, tuple[int, ...] | None] = {}
        self._owners: dict[tuple[str | None, Category], ChunkOwner] = {}
        self._tensors_at_end = {fact.address: fact for fact in facts.tensors_at_end}
        if trace.start_map is not None:
            self.facts = dataclasses.replace(facts, variables=self._located_variables())

    def _launched_by(self) -> dict[int, str]:
        """Allocations of compiled modules inside ops of layers, such as Keras's grouped
        convolutions on a CPU, to the op's name: XLA's requests name none. A module with several
        layers tells more by itself. A profile lacks a launch that had not ended with it: if only
        one op calls a module's function unseen, it was that."""
        trace, names, found = self.trace, self.trace.launches.name, dict[int, str]()
        sizes = [one.bytes for module in trace.modules for one in module.allocations]
        unnamed = (trace.kind == 1) & (trace.op < 0) & np.isin(trace.requested, sizes)
        for event in np.flatnonzero(unnamed).tolist():
            row = self._launch(event)
            found[event] = trace.text(-1 if row is None else int(names[row])) or ""
        calls = self.names.calls({module.function for module in trace.modules} if found else set())
        unseen = calls - set(found.values())
        last = unseen.pop() if len(unseen) == 1 else ""
        outer = {"", *(path.rpartition("/")[0] for path in self.facts.trainable)}
        named = ((event, name or last) for event, name in found.items())
        fact = self.names.fact
        return {event: op for event, op in named if (fact(op).layer or "") not in outer}

    def _launch(self, event: int) -> int | None:
        """The launch during which an event took place: the last one that began on its thread, if it
        still runs and no other op began there since."""
        launches, time, reader = self.trace.launches, self.time[event], self.reader[event]
        began = (launches.thread == self.trace.thread[event]) & (launches.start_ps <= time)
        for row in np.flatnonzero(began)[-1:].tolist():
            is_next = reader < 0 or self.trace.ops.start_ps[reader] <= launches.start_ps[row]
            if is_next and time <= launches.end_ps[row]:
                return int(row)
        return None

    def _located_variables(self) -> tuple[VariableFact, ...]:
        """The variables with the addresses of copy-on-read variables corrected. A sparse update,
        such as an embedding's, makes a variable copy-on-read for good. Python then sees no address,
        or that of a copy that no longer exists. The op that assigns the variable frees the chunk
        with its value before. Other variables are in the chunks of their size with unknown
        contents, if there are as many, or as many as they and the constants of that size. Variables
        of sessions are all found so."""
        facts, chunks = self.facts, self.chunks.live(-1)
        sizes = {self.address[chunk]: self.requested[chunk] for chunk in chunks}
        known: set[int | None] = {fact.address for fact in facts.tensors}
        known |= {at for at, chunk in facts.earlier.chunks.items() if chunk.category == "inputs"}
        lost: dict[str, VariableFact] = {}
        for fact in facts.variables:
            if sizes.get(fact.start_address or -1) == fact.requested_bytes:
                known.add(fact.start_address)
            else:
                lost[fact.name] = fact
        found: dict[str, int] = {}
        for chunk in chunks if lost else ():
            freed_by = UNKNOWN_OP if self.outlives(chunk) else self.running(self.death[chunk])
            owner, address = lost.get(freed_by.assigns or ""), self.address[chunk]
            if owner and self.requested[chunk] == owner.requested_bytes and address not in known:
                found.setdefault(owner.name, address)
        alike: dict[int, list[str]] = defaultdict(list)
        for name in lost.keys() - found.keys():
            alike[lost[name].requested_bytes].append(name)
        known |= set(found.values())
        constants = Counter(one.requested_bytes for one in facts.constants)
        for size, names in alike.items():
            free = [at for at, requested in sizes.items() if requested == size and at not in known]
            if len(names) <= len(free) <= len(names) + constants[size]:
                found.update(zip(sorted(names), sorted(free, reverse=True), strict=False))
        return tuple(
            dataclasses.replace(fact, start_address=found.get(fact.name, fact.start_address))
            for fact in facts.variables
        )

    def outlives(self, chunk: int) -> bool:
        return self.death[chunk] == self.events

    def is_temporary(self, chunk: int) -> bool:
        """Whether a chunk is an op's scratch space. Some ops request their results as such: these
        outlive the op."""
        birth, death, ops = self.birth[chunk], self.death[chunk], self.trace.ops
        if birth in self.launched and death < self.events:
            thread, reader = self.trace.thread, self.reader
            return bool(thread[birth] == thread[death]) and reader[birth] == reader[death]
        if birth < 0 or self.trace.text(int(self.trace.region[birth])) != "temp":
            return False
        op, last = self.reader[birth], min(death, self.events - 1)
        own = op < 0 or ops.end_ps[op] < self.time[birth] or self.time[last] <= ops.end_ps[op]
        return bool(own) or (last == death and self.reader[death] == op)

    def op_name(self, chunk: int) -> str | None:
        birth = self.birth[chunk]
        if birth in self.launched:
            return self.launched[birth]
        return None if birth < 0 else self.trace.text(self.op[birth])

    def dimensions(self, event: int) -> tuple[int, ...] | None:
        number = int(self.trace.shape[event])
        if number not in self._dimensions:
            text = self.trace.text(number)
            self._dimensions[number] = () if text == "[]" else dimensions(text)
        return self._dimensions[number]

    def last_reader_pass(self, chunk: int) -> Pass:
        """Pass of the op that ran last on the thread that freed a chunk; "other" if unknown or not
        freed."""
        return "other" if self.outlives(chunk) else self.running(self.death[chunk]).pass_name

    def running(self, event: int) -> OpFact:
        """Facts of the op that last began on the thread of an event."""
        row = self.reader[event]
        name = None if row < 0 else self.names.executed[int(self.trace.ops.name[row])]
        return self.names.fact(name)

    def requester(self, chunk: int) -> OpFact:
        """Facts of the op that the event of a new chunk names."""
        return self.names.fact(self.op_name(chunk))

    def tensor_at_end(self, chunk: int) -> TensorFact | None:
        """The tensor that Python holds in a chunk that outlives the window."""
        return self._tensors_at_end.get(self.address[chunk]) if self.outlives(chunk) else None

    def layer_owner(self, layer: str | None, category: Category) -> ChunkOwner:
        owner = self._owners.get((layer, category))
        if owner is None:
            trainable = None if layer is None else self.facts.trainable.get(layer)
            owner = self._owners[layer, category] = ChunkOwner(layer, category, trainable)
        return owner
