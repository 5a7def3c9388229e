"""Gives each chunk of a window its layer and category, by its maker, its use and its lifetime.

A chunk that a compiled module allocates has the owners of the buffers in it. Its size is measured,
its contents are the compiler's buffer assignment."""

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from tb_memplugin.attribution.chunks import Booleans, peak_event
from tb_memplugin.attribution.execution import EagerExecution, GraphExecution, Marks
from tb_memplugin.attribution.older_chunks import OlderChunks, VariableChunks, variable_owner
from tb_memplugin.attribution.window import OpNames, Owner, Window
from tb_memplugin.schema import (
    GRADIENTS,
    AllocationTrace,
    Buffer,
    BufferAllocation,
    Category,
    Integers,
    Mode,
    Module,
    OpFact,
    TraceFacts,
    VariableFact,
)

Part: TypeAlias = tuple[str | None, Category, int]
"""Layer, category and bytes of a part of an allocation of a compiled module."""
Parts: TypeAlias = list[tuple[Owner, int, int]]
"""(owner, allocated, requested) of the parts of a chunk."""


class Schedule(NamedTuple):
    """Which passes a module's schedule has.

    Attributes:
        forward_end: Position with the fewest instructions of another pass on its wrong side, as the
            compiler recomputes forward results in the backward pass and fuses ops of both; -1
            without a forward pass.
        passes: The last positions of the forward and the backward pass, and the first one of an
            update, if any.
        inside_op: Whether the module is the inside of an op, e.g. a grouped convolution of Keras on
            the CPU, and no step; unknown buffers in its temporary allocations are workspace."""

    forward_end: int
    passes: tuple[int, int, int | None] | None
    inside_op: bool


class BufferAssignments:
    """The buffer assignments of the compiled modules of one trace; variables bound the sizes of
    gradients."""

    def __init__(
        self, modules: Iterable[Module], names: OpNames, variables: Iterable[VariableFact]
    ) -> None:
        self._names = names
        self._largest_weight: dict[str | None, int] = {}
        for variable in variables:
            if variable.role == "weights":
                most = max(variable.requested_bytes, self._largest_weight.get(variable.layer, 0))
                self._largest_weight[variable.layer] = most
        self._facts: dict[tuple[str, ...], OpFact | None] = {}
        self._allocations: dict[int, list[tuple[Module, BufferAllocation]]] = {}
        for module in modules:
            for allocation in module.allocations:
                self._allocations.setdefault(allocation.bytes, []).append((module, allocation))
        # By identity: modules of one function for other shapes have the same name.
        self._schedules: dict[int, Schedule] = {}

    def planned(
        self, requested: int, function: str | None
    ) -> tuple[Module, BufferAllocation] | None:
        """The module and its allocation of a size; None if no module of the function requests that
        size. A profile also has modules that ran earlier in the process, some of which request the
        same sizes."""
        planned = self._allocations.get(requested, ())
        return next(
            (one for one in planned if function is None or one[0].function in function), None
        )

    def nearest(self, requested: int, uncertain: int) -> tuple[Module, BufferAllocation] | None:
        """The module and its allocation of the only size within the uncertainty of a request that
        is not exact."""
        sizes = [size for size in self._allocations if abs(size - requested) <= uncertain]
        return self._allocations[sizes[0]][0] if len(sizes) == 1 else None

    def parts(self, module: Module, allocation: BufferAllocation) -> list[Part]:
        """An allocation's contents at the module's peak; bytes not used then are workspace of no
        layer."""
        parts = [
            (layer, category, buffer.bytes)
            for layer, category, buffer in self.tensors(module, allocation)
        ]
        unused = allocation.bytes - sum(size for *_, size in parts)
        return [*parts, (None, "workspace", unused)] if unused else parts

    def saved(self, module: Module, allocation: BufferAllocation) -> list[Part]:
        """The parts of an allocation that are saved for the backward pass when the forward pass
        ends."""
        end = self.schedule(module).forward_end
        parts = (
            (*self.role(buffer, end), buffer.bytes)
            for buffer in without_overlaps(allocation.buffers, end)
        )
        return [part for part in parts if part[1] == "activations"]

    def tensors(
        self, module: Module, allocation: BufferAllocation
    ) -> Iterable[tuple[str | None, Category, Buffer]]:
        """Layer, category and buffer of an allocation's contents at the module's peak."""
        schedule = self.schedule(module)
        for buffer in without_overlaps(allocation.buffers, peak_position(module)):
            layer, category = self.role(buffer, schedule.forward_end)
            inside = category == "unattributed" and schedule.inside_op and not allocation.output
            yield layer, "workspace" if inside else category, buffer

    def buffer_fact(self, ops: tuple[str, ...]) -> OpFact | None:
        if ops not in self._facts:
            facts = (self._names.fact(name) for name in ops)
            self._facts[ops] = next((fact for fact in facts if fact is not None), None)
        return self._facts[ops]

    def line(self, buffer: Buffer) -> str | None:
        fact = self.buffer_fact(buffer.ops[:1]) if buffer.named else None
        return None if fact is None else fact.line

    def schedule(self, module: Module) -> "Schedule":
        if id(module) not in self._schedules:
            layers: set[str | None] = set()
            # by pass and `gradient_free`
            starts: dict[tuple[str, bool], set[int]] = defaultdict(set)
            for buffer in _buffers(module):
                fact = self.buffer_fact(buffer.ops)
                if fact is not None:
                    layers.add(fact.layer)
                    if (
                        fact.layer is not None
                        and buffer.named
                        and not buffer.of_argument
                        and not buffer.constant
                    ):
                        starts[fact.pass_name, fact.gradient_free].add(buffer.start)
            end = _fewest_misplaced(starts["forward", False], starts["backward", False])
            backward = [
                start
                for start in starts["backward", False] | starts["backward", True]
                if start > end
            ]
            update = (
                start for start in starts["update", False] | starts["update", True] if start > end
            )
            passes = (
                (end, max(backward), min(update, default=None)) if end >= 0 and backward else None
            )
            self._schedules[id(module)] = Schedule(end, passes, len(layers) <= 1)
        return self._schedules[id(module)]

    def role(self, buffer: Buffer, forward_end: int) -> tuple[str | None, Category]:
        """Layer and category of a buffer, given the position at which the forward pass ends."""
        fact = self.buffer_fact(buffer.ops)
        if fact is None:
            return None, "unattributed"
        if buffer.of_argument or (buffer.constant and fact.pass_name == "forward"):
            return fact.layer, "workspace"
        readers = [self.buffer_fact((name,)) for name in buffer.readers]
        read_in = {None if reader is None else reader.pass_name for reader in readers}
        is_early = buffer.start <= forward_end
        if (
            read_in == {"update"}
            and readers[0]
            and fact.pass_name in ("forward", "backward")
            and not is_early
        ):
            return self._gradient(readers[0].layer, buffer)
        # What is made before the forward pass ends may bear the name of a gradient op that was
        # fused into its own.
        if (
            is_early
            and buffer.end > forward_end
            and fact.pass_name in ("forward", "backward")
            and not fact.is_gradient
        ):
            return fact.layer, "activations"
        if fact.pass_name == "forward" or (is_early and "forward" in read_in):
            return fact.layer, "workspace"
        if fact.pass_name == "backward" and fact.gradient_free:
            return fact.layer, "activations" if fact.saved_for_backward else "workspace"
        if fact.pass_name == "backward":
            if fact.is_gradient:
                # A buffer that the op itself reads again, or that only borrows its name, is an
                # intermediate result.
                final = buffer.named and buffer.ops[0] not in buffer.readers
                return (
                    self._gradient(fact.gradient_of, buffer)
                    if final
                    else (fact.gradient_of, "workspace")
                )
            return fact.layer, "activations" if fact.saved_for_backward else "activation_gradients"
        return fact.layer, "workspace"

    def _gradient(self, layer: str | None, buffer: Buffer) -> tuple[str | None, Category]:
        """A weight's gradient; workspace if the buffer is larger than the largest weight in a
        padded layout."""
        largest = self._largest_weight.get(layer)
        return (
            layer,
            "workspace"
            if largest is not None and buffer.bytes > 2 * largest
            else "weight_gradients",
        )


def _fewest_misplaced(forward: set[int], backward: set[int]) -> int:
    """The position with the fewest forward instructions after it and backward ones before; -1
    without forward ones."""
    if not forward or not backward:
        return max(forward, default=-1)
    misplaced = len(forward)
    fewest, best = misplaced, -1
    for position in sorted(forward | backward):
        misplaced += (position in backward) - (position in forward)
        if misplaced < fewest:
            fewest, best = misplaced, position
    return best


def _buffers(module: Module) -> Iterable[Buffer]:
    return (buffer for allocation in module.allocations for buffer in allocation.buffers)


def levels(module: Module) -> tuple[list[int], list[int]]:
    """The positions of the schedule at which live bytes change, in order, and the live bytes from
    each on."""
    changes: dict[int, int] = {}
    for buffer in _buffers(module):
        changes[buffer.start] = changes.get(buffer.start, 0) + buffer.bytes
        changes[buffer.end + 1] = changes.get(buffer.end + 1, 0) - buffer.bytes
    positions = sorted(changes)
    return positions, list(itertools.accumulate(changes[position] for position in positions))


def peak_position(module: Module) -> int:
    positions, live = levels(module)
    peak = max(live, default=0)
    return positions[live.index(peak)] if peak > 0 else 0


def without_overlaps(buffers: Iterable[Buffer], position: int) -> list[Buffer]:
    """Buffers live at a position; of buffers that overlap, the largest."""
    live = [buffer for buffer in buffers if buffer.start <= position <= buffer.end]
    occupied: list[tuple[int, int]] = []  # disjoint, in order
    chosen = []
    for buffer in sorted(live, key=lambda buffer: -buffer.bytes):
        first, last = buffer.offset, buffer.offset + buffer.bytes
        place = bisect.bisect_right(occupied, (first, last))
        before_ends = place == 0 or occupied[place - 1][1] <= first
        if before_ends and (place == len(occupied) or last <= occupied[place][0]):
            occupied.insert(place, (first, last))
            chosen.append(buffer)
    return chosen


class Classifier:
    """Owners of the chunks of one trace: of new ones, of `older` ones and constants, and of
    compiled ones (`plans`)."""

    def __init__(self, trace: AllocationTrace, facts: TraceFacts) -> None:
        self.window = window = Window(trace, facts)
        self.chunks = window.chunks
        self.execution = EagerExecution(window) if len(trace.layers) else GraphExecution(window)
        self._variables = VariableChunks(window, self.execution.assigned_by_maker)
        self._read_by_backward: dict[str, bool] = {}
        self.plans = BufferAssignments(trace.modules, window.names, facts.variables)
        self.older = OlderChunks(window, self._variables)
        self._calling_threads = set(trace.calls.thread.tolist())
        self._owned: dict[tuple[int, int], Parts] = {}

    def owners(self, chunk: int, instant: int) -> Parts:
        """The owners of a chunk at an instant (number of an event): several for a compiled module's
        chunk."""
        if (chunk, instant) not in self._owned:
            self._owned[chunk, instant] = self._find_owners(chunk, instant)
        return self._owned[chunk, instant]

    def _find_owners(self, chunk: int, instant: int) -> Parts:
        window, plan = self.window, self.plan(chunk)
        if plan is not None:
            parts = self._planned_owners(chunk, *plan)
        else:
            parts = [
                (self._owner(chunk, instant), window.allocated[chunk], window.requested[chunk])
            ]
        if not (window.facts.before_backward and window.outlives(chunk)):
            return parts
        # What the unfinished forward pass holds is no gradient.
        return [
            (
                owner._replace(category="workspace") if owner.category in GRADIENTS else owner,
                allocated,
                requested,
            )
            for owner, allocated, requested in parts
        ]

    def owner_spans(self, chunk: int) -> list[tuple[int, int, Parts]]:
        """(event that begins it, event that ends it, `owners` between them) over a chunk's life: a
        variable's new chunk has two spans, as the variable owns it once the old chunk is freed."""
        birth, death = self.window.birth[chunk], self.window.death[chunk]
        variable = (
            self._variables.stored_in(chunk) if birth >= 0 and self.plan(chunk) is None else None
        )
        turn = birth
        if variable is not None and self._variables.old_value_lives(variable, chunk, birth):
            freed = self._variables.old_value_freed(variable, chunk)
            turn = death if freed is None else min(freed, death)
        spans = [(begin, end) for begin, end in ((birth, turn), (turn, death)) if begin < end]
        return [(begin, end, self.owners(chunk, begin)) for begin, end in spans]

    def line(self, chunk: int) -> str | None:
        """The Python line that made a chunk; of a compiled module's chunk, that of the buffer that
        it ends with."""
        plan = self.plan(chunk)
        if plan is not None:
            last = max(plan[1].buffers, key=lambda buffer: (buffer.end, buffer.bytes), default=None)
            return None if last is None else self.plans.line(last)
        fact = self.made_by(chunk)
        return None if fact is None else fact.line

    @cached_property
    def mode(self) -> tuple[Mode, int]:
        """How the step ran, and the bytes of compiled modules' chunks at its peak. Most of the
        bytes there decide: Keras compiles single ops, such as grouped convolutions, in graph mode
        too."""
        chunks, trace, mode = self.chunks, self.window.trace, self.window.facts.mode
        live = [
            chunk for chunk in chunks.live(peak_event(trace)).tolist() if chunks.birth[chunk] >= 0
        ]
        compiled = int(
            chunks.allocated[[chunk for chunk in live if self.plan(chunk) is not None]].sum()
        )
        if 2 * compiled > int(chunks.allocated[live].sum()):
            return "xla", compiled
        return mode if mode != "eager" or len(trace.layers) else "graph", compiled

    def made_by(self, chunk: int) -> OpFact | None:
        return self.execution.maker(chunk)

    def requester(self, chunk: int) -> OpFact | None:
        """Facts of the op that a chunk's event names."""
        name = self.window.op_name(chunk)
        return None if name is None else self.window.names.fact(name)

    def _owner(self, chunk: int, instant: int) -> Owner:
        if self.window.birth[chunk] < 0:
            return self.older.owner(chunk)
        variable = self._variables.stored_in(chunk)
        if variable is not None and not self._variables.old_value_lives(variable, chunk, instant):
            return variable_owner(variable)
        owner = self._new_owner(chunk)
        # computed outside an optimizer
        if variable is not None and owner.category == "other_state":
            return self.window.layer_owner(variable.layer, "workspace")
        return owner

    # --- chunks that the backward pass reads ---

    @cached_property
    def _saved(self) -> Integers:
        """The chunks of activations in use at a forward pass's end, and all of them in a window
        with `read_late` ops; without those of compiled modules."""
        chunks, late = self.window.chunks, False
        for graph in self.window.facts.graphs:
            for fact in graph.ops.values():
                late = late or fact.read_late is not None
        near = np.full(len(chunks), late)
        for end in self.execution.forward_ends:
            near |= self._in_use(chunks.birth, chunks.death, end)
        found = np.flatnonzero(near & (chunks.birth >= 0)).tolist()
        saved = [
            one
            for one in found
            if self.plan(one) is None and self._category_at_birth(one) == "activations"
        ]
        return np.asarray(saved, dtype=np.int64)

    def _category_at_birth(self, chunk: int) -> Category:
        return self.owners(chunk, self.window.birth[chunk])[0][0].category

    @cached_property
    def _saved_ends(self) -> tuple[Integers, Integers]:
        """Birth and death of each saved chunk; of those that one `read_late` pass reads, of all of
        them."""
        births, deaths = (
            self.window.chunks.birth[self._saved],
            self.window.chunks.death[self._saved],
        )
        facts = [self.execution.maker(chunk) for chunk in self._saved.tolist()]
        late = np.asarray(
            [-1 if fact is None or fact.read_late is None else fact.read_late for fact in facts]
        )
        for number in set(late.tolist()) - {-1}:
            rows = np.flatnonzero(late == number)
            rows = rows[np.argsort(births[rows], kind="stable")]
            # An execution ends where all that it saved is freed.
            begins = np.flatnonzero(births[rows][1:] > np.maximum.accumulate(deaths[rows])[:-1]) + 1
            for execution in np.split(rows, begins):
                births[execution], deaths[execution] = (
                    births[execution].min(),
                    deaths[execution].max(),
                )
        return births, deaths

    def marks(self) -> list[Marks]:
        return self.execution.marks(self._saved_bytes_at)

    def _saved_bytes_at(self, time_ps: int) -> int:
        chunks = self.window.chunks
        saved = self._saved[
            self._in_use(chunks.birth[self._saved], chunks.death[self._saved], time_ps)
        ]
        return int(chunks.requested[saved].sum())

    def saved_for_pass_at(self, time_ps: int) -> Integers:
        """The saved chunks in use at a time, and all of a backward pass over another one: that need
        not be in use at once."""
        return self._saved[self._in_use(*self._saved_ends, time_ps)]

    def _in_use(self, births: Integers, deaths: Integers, time_ps: int) -> Booleans:
        event = int(np.searchsorted(self.window.trace.time_ps, time_ps, side="right")) - 1
        return (births <= event) & (deaths > event)

    def _is_saved(self, fact: OpFact, chunk: int) -> bool:
        """Whether a chunk of a forward op is saved for the backward pass: it is still there when
        that has begun, as a backward op reads it or TensorFlow frees it late. What outlives the
        window counts if a backward op reads it."""
        if self.execution.waits_for_backward(chunk):
            return not self.execution.is_result(chunk) or self._is_read_by_backward(
                self.window.op_name(chunk), fact
            )
        if self.window.is_temporary(chunk):
            return False
        if fact.read_late is not None:
            return True  # its last reader may be an op of the forward pass
        kept = self.window.outlives(chunk) and self.execution.kept_by_tape(chunk)
        return kept or (
            self.window.outlives(chunk)
            and self._is_read_by_backward(self.window.op_name(chunk), fact)
        )

    def _is_read_by_backward(self, name: str | None, fact: OpFact) -> bool:
        """Whether a backward op reads an op's result, or that of an op that reuses its buffer."""
        if fact.saved_for_backward:
            return True
        if name is None:
            return False
        if name not in self._read_by_backward:
            self._read_by_backward[name] = False  # ends a cycle of ops
            names = self.window.names
            for following in names.following(name):
                if following in self.window.allocating:
                    continue
                next_fact = names.fact(following)
                if next_fact is not None and self._is_read_by_backward(following, next_fact):
                    self._read_by_backward[name] = True
                    break
        return self._read_by_backward[name]

    # --- chunks allocated in the window, except those of variables and of compiled modules ---

    def _new_owner(self, chunk: int) -> Owner:
        window = self.window
        if window.is_input[window.birth[chunk]]:
            return Owner(None, "inputs", None)
        fact, tensor = self.made_by(chunk), window.tensor_at_end(chunk)
        is_saved = fact is not None and fact.pass_name == "forward" and self._is_saved(fact, chunk)
        is_gradient = fact is not None and fact.is_gradient and not fact.relayout and not is_saved
        # a loop may still refer to its last gradients
        if tensor is not None and not is_saved and not is_gradient:
            return Owner(None, tensor.category, None)
        constant = self.older.constant_owner(chunk)
        if constant is not None:
            return constant
        if fact is None:
            return Owner(None, self._category_without_op(chunk), None)
        if not is_saved and (
            window.is_temporary(chunk) or not self.execution.requested_by_op(chunk)
        ):
            return window.layer_owner(fact.layer, "workspace")
        if is_gradient:
            return window.layer_owner(fact.gradient_of, "weight_gradients")
        return window.layer_owner(fact.layer, self._category(fact, chunk))

    def _category_without_op(self, chunk: int) -> Category:
        window, trace = self.window, self.window.trace
        birth, death = window.birth[chunk], window.death[chunk]
        unnamed, running, outlives = (
            window.op[birth] < 0,
            window.reader[birth],
            window.outlives(chunk),
        )
        # Freed on its thread before another op began there: e.g. of a compiled module that is
        # missing in the profile.
        same = (
            not outlives
            and running == window.reader[death]
            and bool(trace.thread[birth] == trace.thread[death])
        )
        if same and unnamed and running >= 0:
            return "workspace"
        if outlives:
            if self.older.is_batch(window.requested[chunk]):
                return "inputs"
            return "unattributed" if window.facts.interrupted else "other_state"
        # Made between two ops of a thread from which Python calls functions and eager ops: Python
        # converted an array, such as a batch that a step is given.
        idle = running < 0 or bool(trace.ops.end_ps[running] < trace.time_ps[birth])
        return (
            "inputs"
            if unnamed and idle and int(trace.thread[birth]) in self._calling_threads
            else "unattributed"
        )

    def _category(self, fact: OpFact, chunk: int) -> Category:
        if fact.relayout:
            if self.execution.waits_for_backward(chunk):
                return "activations"
            of_gradient = fact.pass_name == "backward" and not fact.saved_for_backward
            return "activation_gradients" if of_gradient else "workspace"
        if fact.pass_name == "forward":
            return "activations" if self._is_saved(fact, chunk) else "workspace"
        # it ran in the forward pass if its result waits for the backward pass
        if fact.gradient_free:
            return "activations" if self.execution.waits_for_backward(chunk) else "workspace"
        if fact.pass_name == "backward":
            return "activations" if fact.saved_for_backward else "activation_gradients"
        return (
            "other_state"
            if fact.pass_name == "other" and self.window.outlives(chunk)
            else "workspace"
        )

    # --- compiled modules ---

    def plan(self, chunk: int) -> tuple[Module, BufferAllocation] | None:
        """The planned allocation of a compiled module that a chunk is."""
        window, birth = self.window, self.window.birth[chunk]
        if (
            birth < 0
            or not window.trace.modules
            or window.is_input[birth]
            or self.requester(chunk) is not None
        ):
            return None
        plan = self.plans.planned(window.requested[chunk], window.op_name(chunk))
        if plan is not None and plan[1].output and self._variables.stored_in(chunk) is not None:
            return None
        return plan

    def _planned_owners(self, chunk: int, module: Module, allocation: BufferAllocation) -> Parts:
        window, rounding = self.window, self.window.allocated[chunk] - self.window.requested[chunk]
        result = Owner(None, self._result_category(chunk), None) if allocation.output else None
        parts = []
        for layer, category, size in self.plans.parts(module, allocation):
            owner = (
                result
                if result is not None and category == "unattributed"
                else window.layer_owner(layer, category)
            )
            parts.append((owner, size, size))
        return [*parts, (Owner(None, "workspace", None), rounding, 0)] if rounding > 0 else parts

    def _result_category(self, chunk: int) -> Category:
        """Category of a module's result without a known layer, e.g. a grouped convolution's on the
        CPU, by its last reader."""
        reader = self.window.last_reader_pass(chunk)
        if reader == "update":
            return "weight_gradients"
        if reader == "backward":
            return (
                "activations"
                if self.execution.waits_for_backward(chunk)
                else "activation_gradients"
            )
        return "workspace" if reader == "forward" else "unattributed"
