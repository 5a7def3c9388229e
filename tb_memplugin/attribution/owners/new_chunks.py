"""Owners of chunks that were allocated in the window, by the op that made them and their lifetimes. Pure."""

from functools import cached_property

import numpy as np

from tb_memplugin.attribution.owners.execution import GraphExecution
from tb_memplugin.attribution.owners.older_chunks import OlderChunks, VariableChunks
from tb_memplugin.attribution.trace import Owner, Window
from tb_memplugin.schema import Category, Integers, OpFact, matches


class SavedForBackward:
    def __init__(self, window: Window, execution: GraphExecution, variables: VariableChunks) -> None:
        self._window, self._execution, self._variables = window, execution, variables
        self._read_by_backward: dict[str, bool] = {}

    @cached_property
    def _chunks(self) -> Integers:
        permanent = (self._window.chunks.birth < 0) & (self._window.chunks.death == self._window.events)
        saved = [chunk for chunk in np.flatnonzero(~permanent).tolist() if self._is_saved_chunk(chunk)]
        return np.asarray(saved, dtype=np.int64)

    @cached_property
    def _ends(self) -> tuple[Integers, Integers]:
        """Birth and death of each saved chunk; of those that one `read_late` pass reads, of all of them."""
        births, deaths = self._window.chunks.birth[self._chunks], self._window.chunks.death[self._chunks]
        facts = [self._execution.maker(chunk) for chunk in self._chunks.tolist()]
        late = np.asarray([-1 if fact is None or fact.read_late is None else fact.read_late for fact in facts])
        for number in set(late.tolist()) - {-1}:
            rows = np.flatnonzero(late == number)
            rows = rows[np.argsort(births[rows], kind="stable")]
            # An execution ends where all that it saved is freed.
            begins = np.flatnonzero(births[rows][1:] > np.maximum.accumulate(deaths[rows])[:-1]) + 1
            for execution in np.split(rows, begins):
                births[execution], deaths[execution] = births[execution].min(), deaths[execution].max()
        return births, deaths

    def at(self, time_ps: int) -> Integers:
        """The chunks of saved forward results and inputs that are in use at a time."""
        chunks = self._window.chunks
        return self._spanning(chunks.birth[self._chunks], chunks.death[self._chunks], time_ps)

    def for_pass_at(self, time_ps: int) -> Integers:
        """`at`, with all of a backward pass that differentiates another one: that need not be in use at once."""
        return self._spanning(*self._ends, time_ps)

    def _spanning(self, births: Integers, deaths: Integers, time_ps: int) -> Integers:
        event = int(np.searchsorted(self._window.trace.time_ps, time_ps, side="right")) - 1
        return self._chunks[(births <= event) & (deaths > event)]

    def _is_saved_chunk(self, chunk: int) -> bool:
        window, fact = self._window, self._execution.maker(chunk)
        if fact is not None and (fact.relayout or fact.early):
            return self._execution.lives_at_forward_end(chunk)
        if fact is not None:
            return fact.pass_name == "forward" and self.is_saved(fact, chunk)
        return window.address[chunk] not in self._variables.at_start and self._execution.freed_by_backward(chunk)

    def is_saved(self, fact: OpFact, chunk: int) -> bool:
        window = self._window
        if fact.unread_outputs and self._is_unread_output(fact, chunk):
            return False
        if fact.read_late is not None and not window.is_temporary(chunk):
            return True  # its last reader may be an op of the forward pass
        if not window.outlives(chunk):
            end = self._execution.next_forward_end(window.birth[chunk])
            if end is not None and window.time[window.death[chunk]] < end:
                return False
            if self._execution.freed_by_backward(chunk):
                return True
        return self._execution.kept_by_tape(chunk) or self._is_read_by_backward(window.op_name(chunk), fact)

    def _is_unread_output(self, fact: OpFact, chunk: int) -> bool:
        """Whether the chunk has the shape of an output that no backward op reads, and of no other output."""
        birth = self._window.birth[chunk]
        sizes = None if birth < 0 else self._window.dimensions(birth)
        if not sizes:
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


class NewChunks:
    """Owners of the step's own chunks, except those of variables and of compiled modules."""

    def __init__(self, window: Window, execution: GraphExecution, saved: SavedForBackward, older: OlderChunks) -> None:
        self._window, self._execution, self._saved, self._older = window, execution, saved, older
        self._calling_threads = set(window.trace.calls.thread.tolist())

    def owner(self, chunk: int) -> Owner:
        window, birth = self._window, self._window.birth[chunk]
        if window.is_input[birth]:
            return Owner(None, "inputs", None)
        fact, tensor = self._execution.maker(chunk), window.tensor_at_end(chunk)
        is_saved = fact is not None and fact.pass_name == "forward" and self._saved.is_saved(fact, chunk)
        is_gradient = fact is not None and fact.is_gradient and not fact.relayout and not is_saved
        if tensor is not None and not is_saved and not is_gradient:  # a loop may still refer to its last gradients
            return Owner(None, tensor.category, None)
        constant = self._older.constant_owner(chunk)
        if constant is not None:
            return constant
        if fact is None:
            return Owner(None, self._category_without_op(chunk), None)
        if window.is_temporary(chunk) or not self._execution.requested_by_op(chunk):
            return window.layer_owner(fact.layer, "workspace")
        if is_gradient:
            return window.layer_owner(fact.gradient_of, "weight_gradients")
        return window.layer_owner(fact.layer, self._category(fact, chunk))

    def _category_without_op(self, chunk: int) -> Category:
        if self._within_one_op(chunk):
            return "workspace"
        if not self._window.outlives(chunk):
            return "inputs" if self._made_from_host_data(chunk) else "unattributed"
        if self._older.is_batch(self._window.requested[chunk]):
            return "inputs"
        return "unattributed" if self._window.facts.interrupted else "other_state"

    def _made_from_host_data(self, chunk: int) -> bool:
        """Whether Python made a chunk between two ops: it converted an array, such as a batch that a step is given.

        Such a chunk has no op name, and no op runs on its thread, from which Python calls functions and eager ops.
        """
        window, trace = self._window, self._window.trace
        birth = window.birth[chunk]
        if window.op[birth] >= 0 or int(trace.thread[birth]) not in self._calling_threads:
            return False
        running = window.reader[birth]
        return running < 0 or bool(trace.ops.end_ps[running] < trace.time_ps[birth])

    def _within_one_op(self, chunk: int) -> bool:
        """Whether a chunk without an op name was freed on its thread before another op began there.

        Such a chunk is a temporary, e.g. of a compiled module that is missing from the profile.
        """
        window, birth = self._window, self._window.birth[chunk]
        if window.outlives(chunk) or window.op[birth] >= 0 or window.reader[birth] < 0:
            return False
        death, thread = window.death[chunk], window.trace.thread
        return bool(thread[birth] == thread[death] and window.reader[birth] == window.reader[death])

    def _category(self, fact: OpFact, chunk: int) -> Category:
        if fact.relayout:
            if self._execution.lives_at_forward_end(chunk):
                return "activations"
            of_gradient = fact.pass_name == "backward" and not fact.saved_for_backward
            return "activation_gradients" if of_gradient else "workspace"
        if fact.pass_name == "forward":
            return "activations" if self._saved.is_saved(fact, chunk) else "workspace"
        if fact.early:  # it ran in the forward pass if its result waits for the backward pass
            return "activations" if self._execution.lives_at_forward_end(chunk) else "workspace"
        if fact.pass_name == "backward":
            return "activations" if fact.saved_for_backward else "activation_gradients"
        return "other_state" if fact.pass_name == "other" and self._window.outlives(chunk) else "workspace"
