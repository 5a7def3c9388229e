"""Gives each chunk of a trace its layer and category, by its maker, its use and its lifetime.

Chunks that compiled modules allocate get the owners of the buffers in the planned allocation that each one is.
"""

from tb_memplugin.attribution.owners.execution import EagerExecution, EagerSpans, GraphExecution
from tb_memplugin.attribution.owners.new_chunks import NewChunks, SavedForBackward
from tb_memplugin.attribution.owners.older_chunks import OlderChunks, VariableChunks, variable_owner
from tb_memplugin.attribution.trace import BufferAssignments, Owner, Window
from tb_memplugin.schema import GRADIENTS, AllocationTrace, BufferAllocation, Category, Module, OpFact, TraceFacts

Parts = list[tuple[Owner, int, int]]
"""(owner, allocated, requested) of the parts of a chunk."""


class Classifier:
    """Owners of the chunks of one trace.

    Attributes:
        events: Number of the trace's events.
        window: The trace as the rules read it.
        spans, execution: What made the chunks, and the passes.
        saved: The chunks that the backward pass reads.
        older: Owners of older chunks, and constants.
        plans: Buffer assignments of the compiled modules.
    """

    def __init__(self, trace: AllocationTrace, facts: TraceFacts) -> None:
        self.window = window = Window(trace, facts)
        self.spans = EagerSpans(trace)
        self.execution = EagerExecution(window, self.spans) if self.spans else GraphExecution(window)
        self._variables = VariableChunks(window, self.execution)
        self.saved = SavedForBackward(window, self.execution, self._variables)
        self.plans = BufferAssignments(trace.modules, window.names, facts.variables)
        self.older = OlderChunks(window, self._variables)
        self._new = NewChunks(window, self.execution, self.saved, self.older)
        self.events, self.chunks = window.events, window.chunks

    def owners(self, chunk: int, instant: int) -> Parts:
        """The owners of a chunk at an instant (number of an event): several for a compiled module's chunk."""
        window, plan = self.window, self.plan(chunk)
        if plan is not None:
            parts = self._planned_owners(chunk, *plan)
        else:
            parts = [(self._owner(chunk, instant), window.allocated[chunk], window.requested[chunk])]
        if not (window.facts.before_backward and window.outlives(chunk)):
            return parts
        # What the unfinished forward pass holds is no gradient.
        return [
            (owner._replace(category="workspace") if owner.category in GRADIENTS else owner, allocated, requested)
            for owner, allocated, requested in parts
        ]

    def owner_spans(self, chunk: int) -> list[tuple[int, int, Parts]]:
        """(event that begins it, event that ends it, `owners` between them) over a chunk's life.

        A variable's new chunk has two spans: the variable owns it once the old chunk is freed.
        """
        birth, death = self.window.birth[chunk], self.window.death[chunk]
        variable = self._variables.stored_in(chunk) if birth >= 0 and self.plan(chunk) is None else None
        turn = birth
        if variable is not None and self._variables.old_value_lives(variable, chunk, birth):
            freed = self._variables.old_value_freed(variable, chunk)
            turn = death if freed is None else min(freed, death)
        spans = [(begin, end) for begin, end in ((birth, turn), (turn, death)) if begin < end]
        return [(begin, end, self.owners(chunk, begin)) for begin, end in spans]

    def _owner(self, chunk: int, instant: int) -> Owner:
        if self.window.birth[chunk] < 0:
            return self.older.owner(chunk)
        variable = self._variables.stored_in(chunk)
        if variable is not None and not self._variables.old_value_lives(variable, chunk, instant):
            return variable_owner(variable)
        owner = self._new.owner(chunk)
        if variable is not None and owner.category == "other_state":  # computed outside an optimizer
            return self.window.layer_owner(variable.layer, "workspace")
        return owner

    def line(self, chunk: int) -> str | None:
        """The Python line that made a chunk; None if unknown. Of a compiled module's chunk, that of its result."""
        plan = self.plan(chunk)
        fact = self.execution.maker(chunk) if plan is None else self.plans.result_fact(plan[1])
        return None if fact is None else fact.line

    def requester(self, chunk: int) -> OpFact | None:
        """Facts of the op that a chunk's event names; None if it names none or the op is unknown."""
        name = self.window.op_name(chunk)
        return None if name is None else self.window.names.fact(name)

    # --- compiled modules ---

    def plan(self, chunk: int) -> tuple[Module, BufferAllocation] | None:
        """The planned allocation of a compiled module that a chunk is; None for other chunks."""
        window, birth = self.window, self.window.birth[chunk]
        if birth < 0 or not window.trace.modules or window.is_input[birth] or self.requester(chunk) is not None:
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
            owner = result if result is not None and category == "unattributed" else window.layer_owner(layer, category)
            parts.append((owner, size, size))
        return [*parts, (Owner(None, "workspace", None), rounding, 0)] if rounding > 0 else parts

    def _result_category(self, chunk: int) -> Category:
        """Category of a module's result without a known layer, by the pass that read it last.

        Example: the result of a grouped convolution on the CPU, which Keras compiles inside a step in graph mode.
        """
        reader = self.window.last_reader_pass(chunk)
        if reader == "update":
            return "weight_gradients"
        if reader == "backward":
            return "activations" if self.execution.lives_at_forward_end(chunk) else "activation_gradients"
        return "workspace" if reader == "forward" else "unattributed"
