"""Forward results that are saved for the backward pass."""

import numpy as np

from tb_memplugin.attribution.graph import GraphExecution
from tb_memplugin.attribution.variables import VariableChunks
from tb_memplugin.attribution.window import Window
from tb_memplugin.model import Integers
from tb_memplugin.model.tensors import dimensions, matches
from tb_memplugin.model.trace import OpFact


class SavedForBackward:
    """The chunks of one window that an op of the backward pass reads."""

    def __init__(self, window: Window, execution: GraphExecution, variables: VariableChunks) -> None:
        self._window, self._execution, self._variables = window, execution, variables
        self._chunks: Integers | None = None
        self._read_by_backward: dict[str, bool] = {}

    def at(self, time_ps: int) -> Integers:
        """The chunks of saved forward results and inputs that are in use at a time."""
        if self._chunks is None:
            saved = [chunk for chunk in range(len(self._window.chunks)) if self._is_saved_chunk(chunk)]
            self._chunks = np.asarray(saved, dtype=np.int64)
        event = int(np.searchsorted(self._window.trace.time_ps, time_ps, side="right")) - 1
        saved_chunks, chunks = self._chunks, self._window.chunks
        return saved_chunks[(chunks.birth[saved_chunks] <= event) & (chunks.death[saved_chunks] > event)]

    def _is_saved_chunk(self, chunk: int) -> bool:
        window, fact = self._window, self._execution.maker(chunk)
        if fact is not None and (fact.relayout or fact.early):
            return self._execution.lives_at_forward_end(chunk)
        if fact is not None:
            return fact.pass_name == "forward" and self.is_saved(fact, chunk)
        return window.address[chunk] not in self._variables.at_start and self._execution.freed_by_backward(chunk)

    def is_saved(self, fact: OpFact, chunk: int) -> bool:
        """Whether the result of a forward op with these facts is saved for the backward pass."""
        window = self._window
        if fact.unread_outputs and self._is_unread_output(fact, chunk):
            return False
        if not window.outlives(chunk):
            times, ends = window.trace.time_ps, self._execution.forward_ends
            ends = ends[ends >= times[window.birth[chunk]]]
            if len(ends) and times[window.death[chunk]] < ends[0]:
                return False
            if self._execution.freed_by_backward(chunk):
                return True
        return self._execution.kept_by_tape(chunk) or self._is_read_by_backward(window.op_name(chunk), fact)

    def _is_unread_output(self, fact: OpFact, chunk: int) -> bool:
        """Whether the chunk has the shape of an output that no backward op reads, and of no other output."""
        trace, birth = self._window.trace, self._window.birth[chunk]
        sizes = None if birth < 0 else dimensions(trace.text(int(trace.shape[birth])))
        if sizes is None:
            return False
        fits = [index for index, shape in enumerate(fact.output_shapes) if shape is None or matches(shape, sizes)]
        return bool(fits) and set(fits) <= set(fact.unread_outputs)

    def _is_read_by_backward(self, name: str | None, fact: OpFact) -> bool:
        """Whether a backward op reads an op's result, or that of an op that reuses its buffer."""
        if fact.saved_for_backward:
            return True
        if name is None:
            return False
        if name not in self._read_by_backward:
            self._read_by_backward[name] = False  # ends a cycle of ops
            names = self._window.names
            for following in names.following(name):
                if following in self._window.allocating:
                    continue
                next_fact = names.fact(following)
                if next_fact is not None and self._is_read_by_backward(following, next_fact):
                    self._read_by_backward[name] = True
                    break
        return self._read_by_backward[name]
