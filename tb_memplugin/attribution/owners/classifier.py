"""Gives each chunk of a trace its layer and category, by its maker, its use and its lifetime.

Chunks that compiled modules allocate get the owners of the buffers in the planned allocation that each one is.
"""

from tb_memplugin.attribution.owners.eager import EagerExecution, EagerSpans
from tb_memplugin.attribution.owners.graph import GraphExecution, LayerRun
from tb_memplugin.attribution.owners.new_chunks import NewChunks, SavedForBackward
from tb_memplugin.attribution.owners.older_chunks import OlderChunks
from tb_memplugin.attribution.owners.variables import VariableChunks, variable_owner
from tb_memplugin.attribution.trace.window import Owner, Window
from tb_memplugin.attribution.trace.xla import BufferAssignments
from tb_memplugin.model import GRADIENTS, Category, Integers
from tb_memplugin.model.trace import AllocationTrace, BufferAllocation, ConstantFact, Module, OpFact, TraceFacts


class CompiledChunks:
    """The compiled modules' chunks in one window.

    Attributes:
        plans: The modules' buffer assignments.
    """

    def __init__(self, window: Window, execution: GraphExecution, variables: VariableChunks) -> None:
        self._window, self._execution, self._variables = window, execution, variables
        self.plans = BufferAssignments(window.trace.modules, window.names, window.facts.variables)

    def plan(self, chunk: int) -> tuple[Module, BufferAllocation] | None:
        """The planned allocation of a compiled module that a chunk is; None for other chunks."""
        window, birth = self._window, self._window.birth[chunk]
        if birth < 0 or not window.trace.modules or window.is_input[birth]:
            return None
        name = window.op_name(chunk)
        if name is not None and window.names.fact(name) is not None:
            return None
        plan = self.plans.planned(window.requested[chunk], name)
        if plan is not None and plan[1].output and self._variables.stored_in(chunk) is not None:
            return None
        return plan

    def owners(self, chunk: int, module: Module, allocation: BufferAllocation) -> list[tuple[Owner, int, int]]:
        """(owner, allocated, requested) of the parts of a chunk that is a planned allocation."""
        window = self._window
        allocated, requested = window.allocated[chunk], window.requested[chunk]
        parts = [
            (window.layer_owner(part.layer, part.category), part.bytes, part.bytes)
            for part in self.plans.parts(module, allocation)
        ]
        if allocation.output:
            result = Owner(None, self._result_category(chunk), None)
            parts = [(result if owner.category == "unattributed" else owner, size, part) for owner, size, part in parts]
        if allocated > requested:
            parts.append((Owner(None, "workspace", None), allocated - requested, 0))
        return parts

    def saved(self) -> list[list[tuple[str | None, int]]]:
        """For each compiled module's chunk, (layer, bytes) of the buffers saved for the backward pass."""
        chunks = range(len(self._window.chunks)) if self._window.trace.modules else ()
        plans = map(self.plan, chunks)
        return [[(part.layer, part.bytes) for part in self.plans.saved(*plan)] for plan in plans if plan is not None]

    def _result_category(self, chunk: int) -> Category:
        """Category of a module's result without a known layer, by the pass that read it last.

        Example: the result of a grouped convolution on the CPU, which Keras compiles inside a step in graph mode.
        """
        reader = self._window.last_reader_pass(chunk)
        if reader == "update":
            return "weight_gradients"
        if reader == "backward":
            return "activations" if self._execution.lives_at_forward_end(chunk) else "activation_gradients"
        return "workspace" if reader == "forward" else "unattributed"


class Classifier:
    """Owners of the chunks of one trace.

    Attributes:
        events: Number of the trace's events.
        chunks: The trace's chunks.
        input_sizes: Requested bytes of what the input pipeline allocated, and of batches that the step was given.
        plans: Buffer assignments of the compiled modules.
    """

    def __init__(self, trace: AllocationTrace, facts: TraceFacts) -> None:
        self._window = window = Window(trace, facts)
        self._spans = EagerSpans(trace)
        self._execution = EagerExecution(window, self._spans) if self._spans else GraphExecution(window)
        self._variables = VariableChunks(window, self._execution)
        self._saved = SavedForBackward(window, self._execution, self._variables)
        self._compiled = CompiledChunks(window, self._execution, self._variables)
        self._older = OlderChunks(window, self._variables)
        self._new = NewChunks(window, self._execution, self._saved, self._older)
        self.events, self.chunks = window.events, window.chunks
        self.input_sizes, self.plans = self._older.input_sizes, self._compiled.plans

    # --- owners ---

    def owners(self, chunk: int, instant: int) -> list[tuple[Owner, int, int]]:
        """(owner, allocated, requested) of a chunk at an instant (number of an event).

        A compiled module's chunk has several owners.
        """
        plan = self.plan(chunk)
        if plan is not None:
            parts = self._compiled.owners(chunk, *plan)
        else:
            parts = [(self._owner(chunk, instant), self._window.allocated[chunk], self._window.requested[chunk])]
        if not (self._window.facts.before_backward and self._window.outlives(chunk)):
            return parts
        # What the unfinished forward pass holds is no gradient.
        return [
            (owner._replace(category="workspace") if owner.category in GRADIENTS else owner, allocated, requested)
            for owner, allocated, requested in parts
        ]

    def owner_spans(self, chunk: int) -> list[tuple[int, int, list[tuple[Owner, int, int]]]]:
        """(event that begins it, event that ends it, `owners` between them) over a chunk's life.

        A variable's new chunk has two spans: the variable owns it once the old chunk is freed.
        """
        birth, death = self._window.birth[chunk], self._window.death[chunk]
        variable = self._variables.stored_in(chunk) if birth >= 0 and self.plan(chunk) is None else None
        turn = birth
        if variable is not None and self._variables.old_value_lives(variable, chunk, birth):
            freed = self._variables.old_value_freed(variable, chunk)
            turn = death if freed is None else min(freed, death)
        spans = [(begin, end) for begin, end in ((birth, turn), (turn, death)) if begin < end]
        return [(begin, end, self.owners(chunk, begin)) for begin, end in spans]

    def _owner(self, chunk: int, instant: int) -> Owner:
        if self._window.birth[chunk] < 0:
            return self._older.owner(chunk)
        variable = self._variables.stored_in(chunk)
        if variable is not None and not self._variables.old_value_lives(variable, chunk, instant):
            return variable_owner(variable)
        owner = self._new.owner(chunk)
        if variable is not None and owner.category == "other_state":  # computed outside an optimizer
            return self._window.layer_owner(variable.layer, "workspace")
        return owner

    def layer_owner(self, layer: str | None, category: Category) -> Owner:
        """The owner for a layer and a category."""
        return self._window.layer_owner(layer, category)

    def maker(self, chunk: int) -> str | None:
        """The layer that made a chunk."""
        fact = self._execution.maker(chunk)
        return None if fact is None else fact.layer

    def op_fact(self, chunk: int) -> OpFact | None:
        """Facts of the op that made a chunk; None if unknown."""
        return self._execution.maker(chunk)

    def line(self, chunk: int) -> str | None:
        """The Python line that made a chunk; None if unknown. Of a compiled module's chunk, that of its result."""
        plan = self.plan(chunk)
        fact = self.op_fact(chunk) if plan is None else self.plans.result_fact(plan[1])
        return None if fact is None else fact.line

    def constant(self, chunk: int) -> ConstantFact | None:
        """The constant of a function that a chunk holds, if it is one."""
        return self._older.constants.fact(chunk)

    def requester(self, chunk: int) -> OpFact | None:
        """Facts of the op that a chunk's event names; None if it names none or the op is unknown."""
        name = self._window.op_name(chunk)
        return None if name is None else self._window.names.fact(name)

    def plan(self, chunk: int) -> tuple[Module, BufferAllocation] | None:
        """The planned allocation of a compiled module that a chunk is; None for other chunks."""
        return self._compiled.plan(chunk)

    # --- saved for the backward pass ---

    def saved_at(self, time_ps: int) -> Integers:
        """Chunks of forward results and inputs in use at a time that an op of the backward pass reads."""
        return self._saved.at(time_ps)

    def saved_for_pass_at(self, time_ps: int) -> Integers:
        """`saved_at`, with everything that a backward pass over another one reads: that need not be in use at once."""
        return self._saved.for_pass_at(time_ps)

    def saved_bytes(self, time_ps: int) -> int:
        """Requested bytes of `saved_at`."""
        return int(self.chunks.requested[self.saved_at(time_ps)].sum())

    def saved_in_modules(self) -> list[list[tuple[str | None, int]]]:
        """For each compiled module's chunk, (layer, bytes) of the buffers saved for the backward pass."""
        return self._compiled.saved()

    # --- passes ---

    def forward_ends(self) -> Integers:
        """Times in picoseconds at which a forward pass ended."""
        return self._execution.forward_ends

    def layer_runs(self) -> list[LayerRun]:
        """Executions of layers' ops, in order; on an accelerator, their allocations."""
        return self._execution.layer_runs()

    def eager_spans(self, name: str) -> list[tuple[int, int]]:
        """(start, end) in picoseconds of the eager spans named ``(backward)`` or ``(update)``."""
        return self._spans.named(name)
