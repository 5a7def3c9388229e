"""Owners of chunks that were allocated in the window, by the op that made them and their lifetimes. Pure."""

from tb_memplugin.attribution.graph import GraphExecution
from tb_memplugin.attribution.older_chunks import OlderChunks
from tb_memplugin.attribution.saved import SavedForBackward
from tb_memplugin.attribution.window import Owner, Window
from tb_memplugin.model import Category
from tb_memplugin.model.trace import OpFact


class NewChunks:
    """Owners of the step's own chunks, except those of variables and of compiled modules."""

    def __init__(self, window: Window, execution: GraphExecution, saved: SavedForBackward, older: OlderChunks) -> None:
        self._window, self._execution, self._saved, self._older = window, execution, saved, older
        self._calling_threads = set(window.trace.calls.thread.tolist())

    def owner(self, chunk: int) -> Owner:
        """The owner of a chunk."""
        window, birth = self._window, self._window.birth[chunk]
        if window.is_input[birth]:
            return Owner(None, "inputs", None)
        fact, tensor = self._execution.maker(chunk), window.tensor_at_end(chunk)
        is_saved = fact is not None and fact.pass_name == "forward" and self._saved.is_saved(fact, chunk)
        if tensor is not None and not is_saved:
            return Owner(None, tensor.category, None)
        if fact is None:
            return Owner(None, self._category_without_op(chunk), None)
        if window.trace.text(int(window.trace.region[birth])) == "temp" or not self._execution.requested_by_op(chunk):
            return window.layer_owner(fact.layer, "workspace")
        if fact.is_gradient and not fact.relayout:
            return window.layer_owner(fact.gradient_of, "weight_gradients")
        return window.layer_owner(fact.layer, self._category(fact, chunk))

    def _category_without_op(self, chunk: int) -> Category:
        """Category of a chunk that no known op made."""
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
        """Category of an op's result that is not a variable's gradient."""
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
