"""Chunks of variables: which ones hold values, and from when on."""

from functools import cached_property

import numpy as np

from tb_memplugin.allocator.rules import rounded_bytes
from tb_memplugin.attribution.owners.graph import GraphExecution
from tb_memplugin.attribution.trace.window import Owner, Window
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
        # Variables may share a buffer: the first one owns it.
        variables = window.facts.variables[::-1]
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
        fact = self._execution.maker(chunk)
        while chunk in self._next:
            chunk = self._next[chunk]
        variable = self._held_at_end(chunk)
        if variable is not None:
            return variable
        return self._by_name.get(fact.assigns) if fact is not None and fact.assigns is not None else None

    def _held_at_end(self, chunk: int) -> VariableFact | None:
        """The variable whose value is in a chunk when the window closes."""
        window = self._window
        variable = self._at_end.get(window.address[chunk]) if window.outlives(chunk) else None
        fits = variable is not None and rounded_bytes(variable.requested_bytes) <= window.allocated[chunk]
        return variable if fits else None

    @cached_property
    def _next(self) -> dict[int, int]:
        """Chunk with a variable's value to the chunk with its next value, as with several steps in one execution.

        The op that makes a variable's last value made the earlier ones as well. Each lives until the next one is
        there: a temporary of the same op and size is freed before that.
        """
        window, chunks = self._window, self._window.chunks
        made = np.flatnonzero(chunks.birth >= 0)
        made = made[window.trace.op[chunks.birth[made]] >= 0]
        op, requested = window.trace.op[chunks.birth[made]], chunks.requested[made]
        order = np.lexsort((chunks.birth[made], requested, op))
        changes = np.flatnonzero((np.diff(op[order]) != 0) | (np.diff(requested[order]) != 0)) + 1
        bounds = np.concatenate([[0], changes, [len(order)]])
        several = np.flatnonzero(np.diff(bounds) > 1)
        following: dict[int, int] = {}
        for begin, end in zip(bounds[several].tolist(), bounds[several + 1].tolist(), strict=True):
            ordered = made[order[begin:end]].tolist()
            if self._held_at_end(ordered[-1]) is None:
                continue
            for before, after in zip(ordered[-2::-1], ordered[:0:-1], strict=True):
                if not window.birth[after] < window.death[before] < window.death[after]:
                    break
                following[before] = after
        return following

    @cached_property
    def _previous(self) -> dict[int, int]:
        return {after: before for before, after in self._next.items()}

    def old_value_freed(self, variable: VariableFact, chunk: int) -> int | None:
        """Number of the event that frees the variable's chunk before this one; None if it is not freed, or unknown."""
        before = self._previous.get(chunk)
        if before is not None:
            return self._window.death[before]
        return None if variable.start_address is None else self._freed.get(variable.start_address)

    def old_value_lives(self, variable: VariableFact, chunk: int, instant: int) -> bool:
        """Whether the chunk before this one is still in use: this one is then only being filled."""
        freed = self.old_value_freed(variable, chunk)
        known = variable.start_address is not None or chunk in self._previous
        return known and (freed is None or freed > instant)
