"""The rules that give a chunk its layer and category: by who made it, what it is for, and how long it lives."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tb_memplugin.analysis.bfc import rounded_bytes
from tb_memplugin.analysis.eager import EagerSpans
from tb_memplugin.analysis.lifetimes import INPUT_THREAD, Chunks, input_events, readers
from tb_memplugin.analysis.op_names import OpNames
from tb_memplugin.analysis.window_start import Standing, WindowStart, window_start
from tb_memplugin.analysis.xla import Plans
from tb_memplugin.model import Category, Integers
from tb_memplugin.trace import AllocationTrace, Module, OpFact, Pass, PlannedAllocation, TraceFacts, VariableFact


class Owner(NamedTuple):
    """Whose bytes are, and what for."""

    layer: str | None
    category: Category
    trainable: bool | None


class LayerRun(NamedTuple):
    """One execution of an op of a layer, or one of its allocations; `name` is an index, times are in picoseconds."""

    phase: Pass
    name: int
    begin_ps: int
    end_ps: int


class Classifier:
    """Owners of the chunks of one trace, and of what no event of it speaks of.

    Attributes:
        chunks: The trace's chunks.
        plans: Those of the compiled modules.
    """

    def __init__(self, trace: AllocationTrace, facts: TraceFacts, found: Chunks) -> None:
        self.chunks = found
        self._trace, self._facts = trace, facts
        self._address: list[int] = found.address.tolist()
        self._allocated: list[int] = found.allocated.tolist()
        self._requested: list[int] = found.requested.tolist()
        self._birth: list[int] = found.birth.tolist()
        self._death: list[int] = found.death.tolist()
        self._op: list[int] = trace.op.tolist()
        self._old_deaths = {
            address: death
            for address, birth, death in zip(self._address, self._birth, self._death, strict=True)
            if birth < 0
        }
        self._start: WindowStart | None = None
        self._held: Integers | None = None
        self._names = OpNames(trace, facts)
        self._reader: list[int] = readers(trace).tolist()
        self._is_input: list[bool] = input_events(trace).tolist()
        self._allocating = {
            trace.strings[index]
            for index in set(trace.op[(trace.kind == 1) & (trace.region != -1)].tolist())
            if index >= 0
        }
        self._variables_at_start = {
            fact.start_address: fact for fact in facts.variables if fact.start_address is not None
        }
        self._variables_at_end = {fact.end_address: fact for fact in facts.variables if fact.end_address is not None}
        self._variables = {fact.name: fact for fact in facts.variables}
        self._tensors = {fact.address: fact for fact in facts.tensors}
        self._spans = EagerSpans(trace)
        self._ends = self._spans.backward_starts() if self._spans else self._forward_ends()
        self._eager_gradients = self._find_eager_gradients()
        self.plans = Plans(trace.modules, self._names, facts.variables)
        self._waits: dict[str, bool] = {}
        self._input_sizes = {
            int(found.requested[chunk])
            for chunk in np.flatnonzero(found.birth >= 0).tolist()
            if self._is_input[found.birth[chunk]]
        }

    def _find_eager_gradients(self) -> dict[int, OpFact]:
        """Chunks that hold the gradients of variables when an eager backward pass returns them."""
        found: dict[int, OpFact] = {}
        for start, end in self._spans.backward():
            first, last = (int(event) for event in np.searchsorted(self._trace.time_ps, (start, end)))
            live = set(self.chunks.live(last - 1).tolist())
            by_address = {self._address[chunk]: chunk for chunk in live if self._birth[chunk] >= first}
            for address, size, layer in self._facts.gradients:
                chunk = by_address.get(address)
                if chunk is not None and self._requested[chunk] == size:
                    found[chunk] = OpFact(layer, "backward", is_gradient=True, gradient_of=layer)
        return found

    def _variable_owner(self, variable: VariableFact) -> Owner:
        return Owner(variable.layer, variable.role, variable.trainable)

    def start(self) -> WindowStart:
        """What stood before the window and stands after it."""
        if self._start is None:
            self._start = window_start(self._trace, self._facts, self.chunks, self._batches())
        return self._start

    def _batches(self) -> Integers:
        """The window's chunks of batches: those that it makes, and those that it is given and frees."""
        return np.flatnonzero(
            [
                self._is_input[birth] if birth >= 0 else self._owner(chunk, -1)[0].category == "inputs"
                for chunk, birth in enumerate(self._birth)
            ]
        )

    def standing(self) -> tuple[Standing, ...]:
        """The chunks of `start`."""
        return self.start().rows

    # --- chunks ---

    def owners(self, chunk: int, instant: int) -> list[tuple[Owner, int, int]]:
        """(owner, allocated, requested) of a chunk at an instant (number of an event).

        Several for a compiled module's block.
        """
        allocated, requested = self._allocated[chunk], self._requested[chunk]
        plan = self.plan(chunk)
        if plan is None:
            owner, requested = self._owner(chunk, instant)
            return [(owner, allocated, requested)]
        parts = [(self.owned(part.layer, part.category), part.bytes, part.bytes) for part in self.plans.parts(*plan)]
        if allocated > requested:
            parts.append((Owner(None, "workspace", None), allocated - requested, 0))
        return parts

    def owner_spans(self, chunk: int) -> list[tuple[int, int, list[tuple[Owner, int, int]]]]:
        """(event that begins it, event that ends it, `owners` between them) over a chunk's life.

        Two where a chunk is a variable's only from the moment on at which the variable's old one is gone.
        """
        birth, death = self._birth[chunk], self._death[chunk]
        variable = self._became(chunk) if birth >= 0 and self.plan(chunk) is None else None
        turn = birth
        if variable is not None and variable.start_address is not None:
            gone = self._old_deaths.get(variable.start_address, death)
            turn = min(max(gone, birth), death)
        spans = [(begin, end) for begin, end in ((birth, turn), (turn, death)) if begin < end]
        return [(begin, end, self.owners(chunk, begin)) for begin, end in spans]

    def plan(self, chunk: int) -> tuple[Module, PlannedAllocation] | None:
        """The planned allocation of a compiled module that a chunk is; None for others."""
        birth = self._birth[chunk]
        if birth < 0 or not self._trace.modules or self._is_input[birth]:
            return None
        name = self._trace.text(self._op[birth])
        if name is not None and self._names.fact(name) is not None:
            return None
        plan = self.plans.planned(self._requested[chunk], name)
        variable = self._became(chunk) if plan is not None and plan[1].output else None
        return None if variable is not None else plan

    def _owner(self, chunk: int, instant: int) -> tuple[Owner, int]:
        birth = self._birth[chunk]
        requested = self._requested[chunk]
        if birth < 0:
            return self._old_owner(chunk, requested)
        variable = self._became(chunk)
        if variable is not None and not self._old_storage_lives(variable, instant):
            return self._variable_owner(variable), requested
        return self._new_owner(chunk, birth), requested

    def _old_owner(self, chunk: int, requested: int) -> tuple[Owner, int]:
        address = self._address[chunk]
        variable = self._variables_at_start.get(address)
        if variable is not None:
            return self._variable_owner(variable), requested
        tensor = self._tensors.get(address)
        if tensor is not None:
            return Owner(None, tensor.category, None), requested
        death = self._death[chunk]
        known = self._facts.earlier.chunks.get(address)
        if known is not None and known.allocated == self._allocated[chunk]:
            return Owner(None, known.category, None), requested
        thread = self._trace.threads[int(self._trace.thread[death])]
        # What lay there before the step, and is nobody's, and is read by its layers, is what the step was given.
        given = self._last_read_in(death) in ("forward", "backward")
        if given or thread.startswith(INPUT_THREAD) or requested in self._input_sizes:
            return Owner(None, "inputs", None), requested
        return Owner(None, "unattributed", None), requested

    def _last_read_in(self, death: int) -> Pass | None:
        """The pass of a chunk's last reader, the op that ran last on the thread that freed it; None if not known."""
        reader = self._reader[death]
        fact = None if reader < 0 else self._names.fact(self._names.executed[int(self._trace.ops.name[reader])])
        return None if fact is None else fact.phase

    def _became(self, chunk: int) -> VariableFact | None:
        """The variable whose value lies in a chunk that was allocated in the window."""
        if self._death[chunk] == len(self._trace):
            variable = self._variables_at_end.get(self._address[chunk])
            if variable is not None and rounded_bytes(variable.requested_bytes) <= self._allocated[chunk]:
                return variable
        fact = self._fact(chunk)
        return self._variables.get(fact.assigns) if fact is not None and fact.assigns is not None else None

    def _old_storage_lives(self, variable: VariableFact, instant: int) -> bool:
        """Whether the variable's chunk from before the window is still there: then a new one is only being filled."""
        if variable.start_address is None:
            return False
        death = self._old_deaths.get(variable.start_address)
        return death is None or death > instant

    def _new_owner(self, chunk: int, birth: int) -> Owner:
        if self._is_input[birth]:
            return Owner(None, "inputs", None)
        fact = self._fact(chunk)
        if fact is None:
            return Owner(None, "other_state" if self._outlives(chunk) else "unattributed", None)
        if self._trace.text(int(self._trace.region[birth])) == "temp" or not self._asked_by_op(birth):
            return self.owned(fact.layer, "workspace")
        return self.owned(*self._role(fact, chunk))

    def _asked_by_op(self, birth: int) -> bool:
        """Whether an op of the program asked for a chunk; else what helps one did (sums over replicas)."""
        name = self._trace.text(self._op[birth])
        return name is not None and (bool(self._spans) or self._names.fact(name) is not None)

    def _role(self, fact: OpFact, chunk: int) -> tuple[str | None, Category]:
        if fact.relayout:
            return fact.layer, self._relayout_category(fact, chunk)
        if fact.is_gradient:
            return fact.gradient_of, "weight_gradients"
        if fact.phase == "forward":
            return fact.layer, "activations" if self._is_held(fact, chunk) else "workspace"
        if fact.phase == "backward":
            return fact.layer, "activations" if fact.awaited else "activation_gradients"
        return fact.layer, "other_state" if fact.phase == "other" and self._outlives(chunk) else "workspace"

    def _relayout_category(self, fact: OpFact, chunk: int) -> Category:
        """Of a copy in another layout: whether it is one of forward data that waits, or of a gradient."""
        if self._spans_forward_end(chunk):
            return "activations"
        return "activation_gradients" if fact.phase == "backward" and not fact.awaited else "workspace"

    def _spans_forward_end(self, chunk: int) -> bool:
        """Whether a chunk that the window saw being allocated and freed was there when a forward pass ended."""
        death = self._death[chunk]
        if death == len(self._trace):
            return False
        ends, times = self._ends, self._trace.time_ps
        return bool(((ends >= times[self._birth[chunk]]) & (ends < times[death])).any())

    def owned(self, layer: str | None, category: Category) -> Owner:
        """The owner of what a layer made."""
        return Owner(layer, category, None if layer is None else self._facts.trainable.get(layer))

    def _outlives(self, chunk: int) -> bool:
        return self._death[chunk] == len(self._trace)

    def _fact(self, chunk: int) -> OpFact | None:
        """What is known of the op that made a chunk.

        Of a chunk that no op asked for by its name, of the op that was running on the thread.
        """
        birth = self._birth[chunk]
        if birth < 0:
            return None
        if self._spans:
            fact = self._spans.fact(int(self._trace.thread[birth]), int(self._trace.time_ps[birth]))
            if fact is not None:
                return self._eager_gradients.get(chunk, fact)
        name = self._trace.text(self._op[birth])
        fact = None if name is None else self._names.fact(name)
        return self._fact_of_running(birth) if fact is None else fact

    def _fact_of_running(self, birth: int) -> OpFact | None:
        running = self._reader[birth]
        if running < 0 or self._trace.ops.end_ps[running] < self._trace.time_ps[birth]:
            return None
        return self._names.fact(self._names.executed[int(self._trace.ops.name[running])])

    # --- the forward pass and what waits for the backward pass ---

    def maker(self, chunk: int) -> str | None:
        """Layer that made a chunk."""
        fact = self._fact(chunk)
        return None if fact is None else fact.layer

    def held_in_modules(self) -> list[list[tuple[str | None, int]]]:
        """For each compiled module's block, (layer, bytes) of what waits in it for the backward pass."""
        plans = (self.plan(chunk) for chunk in range(len(self.chunks)))
        return [[(part.layer, part.bytes) for part in self.plans.held(*plan)] for plan in plans if plan is not None]

    def held_chunks(self) -> Integers:
        """Results of the forward pass, and inputs, that an op of the backward pass reads."""
        return np.asarray(
            [chunk for chunk in range(len(self.chunks)) if self._waits_for_backward(chunk)], dtype=np.int64
        )

    def held_at(self, time_ps: int) -> Integers:
        """Of `held_chunks`, those that are there at a time."""
        if self._held is None:
            self._held = self.held_chunks()
        event = int(np.searchsorted(self._trace.time_ps, time_ps, side="right")) - 1
        held, found = self._held, self.chunks
        return held[(found.birth[held] <= event) & (found.death[held] > event)]

    def held_bytes(self, time_ps: int) -> int:
        """Requested bytes of what is held for the backward pass at a time."""
        return int(self.chunks.requested[self.held_at(time_ps)].sum())

    def _waits_for_backward(self, chunk: int) -> bool:
        fact = self._fact(chunk)
        if fact is not None and fact.relayout:
            return self._spans_forward_end(chunk)
        if fact is not None:
            return fact.phase == "forward" and self._is_held(fact, chunk)
        death = self._death[chunk]
        address = self._address[chunk]
        return death < len(self._trace) and address not in self._variables_at_start and self._freed_by_backward(death)

    def _is_held(self, fact: OpFact, chunk: int) -> bool:
        death = self._death[chunk]
        if death < len(self._trace):
            ends = self._ends[self._ends >= self._trace.time_ps[self._birth[chunk]]]
            if len(ends) and self._trace.time_ps[death] < ends[0]:
                return False
            if self._freed_by_backward(death):
                return True
        return self._awaited(self._trace.text(self._op[self._birth[chunk]]), fact)

    def _freed_by_backward(self, death: int) -> bool:
        """Whether a chunk's last reader is of the backward pass."""
        if self._spans:
            time = int(self._trace.time_ps[death])
            return any(start <= time <= end for start, end in self._spans.backward())
        return self._last_read_in(death) == "backward"

    def _awaited(self, name: str | None, fact: OpFact) -> bool:
        """Whether a backward op reads the result of an op, or that of an op that went on in its buffer (it allocated
        none of its own).
        """
        if fact.awaited:
            return True
        if name is None:
            return False
        if name not in self._waits:
            self._waits[name] = False
            for following in self._names.following(name):
                if following in self._allocating:
                    continue
                next_fact = self._names.fact(following)
                if next_fact is not None and self._awaited(following, next_fact):
                    self._waits[name] = True
                    break
        return self._waits[name]

    def forward_ends(self) -> Integers:
        """Times at which a forward pass ended.

        The end of the last execution of a layer's forward op that allocates, before backward ops run.
        """
        return self._ends

    def _forward_ends(self) -> Integers:
        return _ends(self.layer_runs())

    def layer_runs(self) -> list[LayerRun]:
        """What ran for layers, in order; on an accelerator, whose executions the host does not see, what allocated."""
        ops, trace = self._trace.ops, self._trace
        executed = {index: self._layer_phase(name) for index, name in self._names.executed.items()}
        phases = {index: phase for index, phase in executed.items() if phase is not None}
        if any(phase != "update" for phase in phases.values()):
            rows = np.flatnonzero(np.isin(ops.name, list(phases)))
            rows = rows[np.argsort(ops.start_ps[rows], kind="stable")]
            columns = (ops.name[rows].tolist(), ops.start_ps[rows].tolist(), ops.end_ps[rows].tolist())
            return [LayerRun(phases[name], name, begin, end) for name, begin, end in zip(*columns, strict=True)]
        allocated = {index: self._layer_phase(trace.strings[index]) for index in set(self._op) if index >= 0}
        born = np.flatnonzero((trace.kind == 1) & (trace.op >= 0))
        times = zip(trace.op[born].tolist(), trace.time_ps[born].tolist(), strict=True)
        runs = ((allocated[name], name, time) for name, time in times)
        return [LayerRun(phase, name, time, time) for phase, name, time in runs if phase is not None]

    def eager_spans(self, name: str) -> list[tuple[int, int]]:
        """(start, end) in picoseconds of the spans of eager mode that are called ``(backward)`` or ``(update)``."""
        return self._spans.named(name)

    def _layer_phase(self, name: str) -> Pass | None:
        """Pass of an op of a layer; None for others, and for what may run long before its pass."""
        fact = self._names.fact(name)
        if fact is None or fact.layer is None or fact.relayout or fact.phase == "other":
            return None
        return fact.phase if fact.phase == "update" or name in self._allocating else None


def _ends(runs: Iterable[LayerRun]) -> Integers:
    """Of runs in the order in which they begin: when each last forward one was done before backward ones.

    A forward op that no backward op waits for (a moving average's) may still run, or be suspended, while these do: then
    the forward pass ended when they began. The op's own end counts too: they need not have waited for the others.
    """
    times: list[int] = []
    last: int | None = None
    overlapped = False
    for run in runs:
        if run.phase == "forward":
            last, overlapped = run.end_ps if last is None else max(last, run.end_ps), False
        elif run.phase == "backward" and last is not None:
            if last <= run.begin_ps:
                times.append(last)
                last, overlapped = None, False
            elif not overlapped:
                times.append(run.begin_ps)
                overlapped = True
    return np.asarray(times, dtype=np.int64)
