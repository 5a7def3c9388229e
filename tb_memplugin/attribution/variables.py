"""Chunks of variables: which ones hold values, and from when on."""

from tb_memplugin.allocator.rules import rounded_bytes
from tb_memplugin.attribution.graph import GraphExecution
from tb_memplugin.attribution.window import Owner, Window
from tb_memplugin.model.trace import VariableFact


def variable_owner(variable: VariableFact) -> Owner:
    """The owner of a variable's value."""
    return Owner(variable.layer, variable.role, variable.trainable)


class VariableChunks:
    """The variables' chunks before the window and after it.

    Attributes:
        at_start: Address to the variable that lay there when the window opened.
    """

    def __init__(self, window: Window, execution: GraphExecution) -> None:
        self._window, self._execution = window, execution
        variables = window.facts.variables
        self.at_start = {fact.start_address: fact for fact in variables if fact.start_address is not None}
        self._at_end = {fact.end_address: fact for fact in variables if fact.end_address is not None}
        self._by_name = {fact.name: fact for fact in variables}
        self._freed = {
            address: death
            for address, birth, death in zip(window.address, window.birth, window.death, strict=True)
            if birth < 0
        }

    def stored_in(self, chunk: int) -> VariableFact | None:
        """The variable that stores its new value in a chunk allocated in the window."""
        window = self._window
        if window.outlives(chunk):
            variable = self._at_end.get(window.address[chunk])
            if variable is not None and rounded_bytes(variable.requested_bytes) <= window.allocated[chunk]:
                return variable
        fact = self._execution.maker(chunk)
        return self._by_name.get(fact.assigns) if fact is not None and fact.assigns is not None else None

    def old_value_freed(self, variable: VariableFact) -> int | None:
        """Number of the event that frees the variable's chunk from before the window; None without such a chunk."""
        return None if variable.start_address is None else self._freed.get(variable.start_address)

    def old_value_lives(self, variable: VariableFact, instant: int) -> bool:
        """Whether the chunk from before the window is still in use: a new chunk is then only being filled."""
        freed = self.old_value_freed(variable)
        return variable.start_address is not None and (freed is None or freed > instant)
