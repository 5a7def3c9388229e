"""Chunks that compiled modules allocate: which planned allocation each one is, and the owners of its buffers."""

from tb_memplugin.attribution.graph import GraphExecution
from tb_memplugin.attribution.variables import VariableChunks
from tb_memplugin.attribution.window import Owner, Window
from tb_memplugin.attribution.xla import BufferAssignments
from tb_memplugin.model import Category
from tb_memplugin.model.trace import BufferAllocation, Module


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
        plans = (self.plan(chunk) for chunk in range(len(self._window.chunks)))
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
