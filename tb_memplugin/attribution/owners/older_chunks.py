"""Owners of chunks that were allocated before the window."""

import bisect
from collections.abc import Iterator

import numpy as np

from tb_memplugin.attribution.owners.constants import ConstantChunks
from tb_memplugin.attribution.owners.variables import VariableChunks, variable_owner
from tb_memplugin.attribution.trace.inputs import INPUT_THREAD
from tb_memplugin.attribution.trace.window import Owner, Window
from tb_memplugin.model.trace import TensorFact

MIN_BATCH_BYTES = 4096
"""Smallest request that counts as a batch because of its size alone: small sizes are too common."""


class OlderChunks:
    """Older chunks by address, by an earlier window, or by the size of a batch.

    Attributes:
        input_sizes: Requested bytes of what the input pipeline allocated, and of batches that the step was given.
        constants: The chunks of constants.
    """

    def __init__(self, window: Window, variables: VariableChunks) -> None:
        self._window, self._variables = window, variables
        self._tensors = {fact.address: fact for fact in window.facts.tensors}
        self._sorted_addresses = sorted(self._tensors)
        allocated = {
            window.requested[chunk]
            for chunk in np.flatnonzero(window.chunks.birth >= 0).tolist()
            if window.is_input[window.birth[chunk]]
        }
        self.input_sizes = allocated | window.facts.earlier.input_sizes | self._given_sizes() | self._fed_sizes()
        self.constants = ConstantChunks(window, self._unowned(), self.input_sizes)

    def owner(self, chunk: int) -> Owner:
        """The owner of a chunk that was allocated before the window."""
        window, earlier = self._window, self._window.facts.earlier
        address, requested = window.address[chunk], window.requested[chunk]
        variable, tensor = self._variables.at_start.get(address), self._tensors.get(address)
        if variable is not None:
            return variable_owner(variable)
        if tensor is not None:
            return Owner(None, tensor.category, None)
        constant = self.constants.owner(chunk)
        if constant is not None:
            return constant
        known = earlier.chunks.get(address)
        is_known = known is not None and (known.allocated, known.requested) == (window.allocated[chunk], requested)
        if known is not None and is_known and (known.category == "inputs" or not self.is_batch(requested)):
            return Owner(None, known.category, None)
        if requested == earlier.handle_bytes:
            return Owner(None, "other_state", None)
        tensor = self._tensor_inside(address, window.allocated[chunk])
        if tensor is not None:
            return Owner(None, tensor.category, None)
        if self._was_given(chunk) or requested in self.input_sizes:
            return Owner(None, "inputs", None)
        return Owner(None, "unattributed", None)

    def _unowned(self) -> Iterator[int]:
        """Chunks that may hold constants: no variable, tensor or op is known to own them, and they outlive the window.

        Those of the window's own that ops made are results.
        """
        window, known = self._window, self._window.facts.earlier.chunks
        inputs = {address for address, chunk in known.items() if chunk.category == "inputs"}
        owned = {*self._variables.at_start, *self._tensors, *inputs}
        for chunk in np.flatnonzero(window.chunks.death == window.events).tolist():
            birth = window.birth[chunk]
            if birth < 0:
                if window.address[chunk] not in owned:
                    yield chunk
            elif window.op[birth] < 0 and window.tensor_at_end(chunk) is None and not window.is_input[birth]:
                yield chunk

    def _tensor_inside(self, address: int, allocated: int) -> TensorFact | None:
        """A tensor that is a slice of a chunk and begins inside it, such as a replica's part of a batch."""
        place = bisect.bisect_right(self._sorted_addresses, address)
        if place == len(self._sorted_addresses) or self._sorted_addresses[place] >= address + allocated:
            return None
        return self._tensors[self._sorted_addresses[place]]

    def is_batch(self, requested: int) -> bool:
        """Whether a request has the size of a batch."""
        return requested >= MIN_BATCH_BYTES and requested in self.input_sizes

    def _given_sizes(self) -> set[int]:
        """Sizes of chunks that the step was given and freed: batches that were copied to the device unseen."""
        window = self._window
        return {
            window.requested[chunk]
            for chunk, birth in enumerate(window.birth)
            if birth < 0
            and window.requested[chunk] >= MIN_BATCH_BYTES
            and window.address[chunk] not in self._variables.at_start
            and window.address[chunk] not in self._tensors
            and self._was_given(chunk)
        }

    def _fed_sizes(self) -> set[int]:
        """Sizes of older chunks that Python fed to the program: in a custom loop, tf.data makes the batches that follow
        between the steps."""
        window, sizes = self._window, set()
        for chunk in np.flatnonzero(window.chunks.birth < 0).tolist():
            address = window.address[chunk]
            tensor = self._tensors.get(address) or self._tensor_inside(address, window.allocated[chunk])
            if window.requested[chunk] >= MIN_BATCH_BYTES and tensor is not None and tensor.category == "inputs":
                sizes.add(window.requested[chunk])
        return sizes

    def _was_given(self, chunk: int) -> bool:
        """Whether the step's layers read an older chunk last, or the input pipeline freed it."""
        window = self._window
        if window.outlives(chunk):
            return False
        thread = window.trace.threads[int(window.trace.thread[window.death[chunk]])]
        return window.last_reader_pass(chunk) in ("forward", "backward") or thread.startswith(INPUT_THREAD)
