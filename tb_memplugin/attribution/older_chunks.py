"""Chunks of variables and constants, and the owners of chunks that were allocated before the
window."""

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from tb_memplugin.allocator import rounded_bytes
from tb_memplugin.attribution.chunks import INPUT_THREAD
from tb_memplugin.attribution.window import Owner, Window
from tb_memplugin.schema import ConstantFact, TensorFact, VariableFact

MIN_BATCH_BYTES = 4096
"""Smallest request that counts as a batch because of its size alone: small sizes are too common."""
RARE_BYTES = 64 << 10
"""Chunks of this size and more that nobody else owns are constants of their size, also if there are
more of them."""


def variable_owner(variable: VariableFact) -> Owner:
    return Owner(variable.layer, variable.role, variable.trainable)


class VariableChunks:
    """The variables' chunks before the window (`at_start`, by address) and after it: which ones
    hold values, and from when on."""

    def __init__(self, window: Window, assigned_by_maker: Callable[[int], str | None]) -> None:
        self._window, self._assigned_by_maker = window, assigned_by_maker
        # Variables may share a buffer: the first one owns it.
        variables = window.facts.variables[::-1]
        self.at_start = {
            fact.start_address: fact for fact in variables if fact.start_address is not None
        }
        self._at_end = {
            fact.end_address: fact for fact in variables if fact.end_address is not None
        }
        self._by_name = {fact.name: fact for fact in variables}
        columns = zip(window.address, window.birth, window.death, strict=True)
        self._freed = {address: death for address, birth, death in columns if birth < 0}

    def stored_in(self, chunk: int) -> VariableFact | None:
        """The variable that stores its new value in a chunk allocated in the window."""
        last = chunk
        while last in self._next:
            last = self._next[last]
        return self._held_at_end(last) or self._by_name.get(self._assigned_by_maker(chunk) or "")

    def _held_at_end(self, chunk: int) -> VariableFact | None:
        """The variable whose value is in a chunk when the window closes."""
        window = self._window
        variable = self._at_end.get(window.address[chunk]) if window.outlives(chunk) else None
        fits = (
            variable is not None
            and rounded_bytes(variable.requested_bytes) <= window.allocated[chunk]
        )
        return variable if fits else None

    @cached_property
    def _next(self) -> dict[int, int]:
        """Chunk with a variable's value to the chunk with its next value, as with several steps in
        one execution.

        The op that makes a variable's last value made the earlier ones as well. Each lives until
        the next one is there: a temporary of the same op and size is freed before that."""
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
        """Number of the event that frees the variable's chunk before this one; None if it is not
        freed, or unknown."""
        before = self._previous.get(chunk)
        if before is not None:
            return self._window.death[before]
        return None if variable.start_address is None else self._freed.get(variable.start_address)

    def old_value_lives(self, variable: VariableFact, chunk: int, instant: int) -> bool:
        """Whether the chunk before this one is still in use: this one is then only being filled."""
        freed = self.old_value_freed(variable, chunk)
        known = variable.start_address is not None or chunk in self._previous
        return known and (freed is None or freed > instant)


class OlderChunks:
    """Owners of older chunks by address, by an earlier window, or by the size of a batch.

    Attributes:
        input_sizes: Requested bytes of what the input pipeline allocated, and of batches that the
            step was given.
        constants: Chunk to the constant of a function that it holds."""

    def __init__(self, window: Window, variables: VariableChunks) -> None:
        self._window, self._variables = window, variables
        self._tensors = {fact.address: fact for fact in window.facts.tensors}
        self._sorted_addresses = sorted(self._tensors)
        allocated = {
            window.requested[chunk]
            for chunk in np.flatnonzero(window.chunks.birth >= 0).tolist()
            if window.is_input[window.birth[chunk]]
        }
        self.input_sizes = allocated | window.facts.earlier.input_sizes | set(self._given_sizes())
        self.constants = dict(self._find_constants())

    def owner(self, chunk: int) -> Owner:
        window, earlier = self._window, self._window.facts.earlier
        address, requested = window.address[chunk], window.requested[chunk]
        variable, tensor = self._variables.at_start.get(address), self._tensors.get(address)
        if variable is not None:
            return variable_owner(variable)
        if tensor is not None:
            return Owner(None, tensor.category, None)
        constant = self.constant_owner(chunk)
        if constant is not None:
            return constant
        known = earlier.chunks.get(address)
        is_known = known is not None and (known.allocated, known.requested) == (
            window.allocated[chunk],
            requested,
        )
        if (
            known is not None
            and is_known
            and (known.category == "inputs" or not self.is_batch(requested))
        ):
            return Owner(None, known.category, None)
        if requested == earlier.handle_bytes:
            return Owner(None, "other_state", None)
        tensor = self._tensor_inside(address, window.allocated[chunk])
        if tensor is not None:
            return Owner(None, tensor.category, None)
        if self._was_given(chunk) or requested in self.input_sizes:
            return Owner(None, "inputs", None)
        return Owner(None, "unattributed", None)

    def constant_owner(self, chunk: int) -> Owner | None:
        fact = self.constants.get(chunk)
        if fact is None:
            return None
        return self._window.layer_owner(fact.layer, "inputs" if fact.of_input else "other_state")

    def _find_constants(self) -> Iterator[tuple[int, ConstantFact]]:
        """(chunk, constant): the trace names no op for such a chunk, so its size identifies it
        among those without another owner."""
        constants: dict[int, list[ConstantFact]] = defaultdict(list)
        for fact in self._window.facts.constants:
            constants[fact.requested_bytes].append(fact)
        by_size: dict[int, list[int]] = defaultdict(list)
        for chunk in self._unowned():
            by_size[self._window.requested[chunk]].append(chunk)
        for size, facts in constants.items():
            chunks = by_size[size]
            if len(chunks) > len(facts) and size in self.input_sizes:
                continue  # a batch may have that size as well
            # Each variant of a function has its own; of small chunks, some may belong to something
            # else.
            chunks = chunks if size >= RARE_BYTES else chunks[: len(facts)]
            yield from zip(
                chunks,
                facts if len(chunks) == len(facts) else [_common(facts)] * len(chunks),
                strict=True,
            )

    def _unowned(self) -> Iterator[int]:
        """Chunks that may hold constants: no variable, tensor or op is known to own them, and they
        outlive the window."""
        window, known = self._window, self._window.facts.earlier.chunks
        inputs = {address for address, chunk in known.items() if chunk.category == "inputs"}
        owned = {*self._variables.at_start, *self._tensors, *inputs}
        for chunk in np.flatnonzero(window.chunks.death == window.events).tolist():
            birth = window.birth[chunk]
            if birth < 0:
                if window.address[chunk] not in owned:
                    yield chunk
            elif (
                window.op[birth] < 0
                and window.tensor_at_end(chunk) is None
                and not window.is_input[birth]
            ):
                yield chunk

    def _tensor_inside(self, address: int, allocated: int) -> TensorFact | None:
        """A tensor that is a slice of a chunk and begins inside it, such as a replica's part of a
        batch."""
        place = bisect.bisect_right(self._sorted_addresses, address)
        if (
            place == len(self._sorted_addresses)
            or self._sorted_addresses[place] >= address + allocated
        ):
            return None
        return self._tensors[self._sorted_addresses[place]]

    def is_batch(self, requested: int) -> bool:
        return requested >= MIN_BATCH_BYTES and requested in self.input_sizes

    def _given_sizes(self) -> Iterator[int]:
        """Sizes of batches among older chunks: those that were copied to the device unseen, which
        the step was given and freed, and those that Python fed to the program. In a custom loop,
        tf.data makes the next batches between the steps."""
        window = self._window
        for chunk in np.flatnonzero(window.chunks.birth < 0).tolist():
            address, requested = window.address[chunk], window.requested[chunk]
            if requested < MIN_BATCH_BYTES:
                continue
            tensor = self._tensors.get(address)
            if (
                tensor is None
                and address not in self._variables.at_start
                and self._was_given(chunk)
            ):
                yield requested
            tensor = tensor or self._tensor_inside(address, window.allocated[chunk])
            if tensor is not None and tensor.category == "inputs":
                yield requested

    def _was_given(self, chunk: int) -> bool:
        """Whether the step's layers read an older chunk last, or the input pipeline freed it."""
        window = self._window
        if window.outlives(chunk):
            return False
        thread = window.trace.threads[int(window.trace.thread[window.death[chunk]])]
        return window.last_reader_pass(chunk) in ("forward", "backward") or thread.startswith(
            INPUT_THREAD
        )


def _common(constants: list[ConstantFact]) -> ConstantFact:
    first, *others = constants
    shared = {
        field: getattr(first, field)
        for field in ("layer", "function", "line", "of_input")
        if all(getattr(other, field) == getattr(first, field) for other in others)
    }
    shape = (
        first.shape
        if all(other.shape == first.shape for other in others)
        else (first.requested_bytes,)
    )
    return ConstantFact(
        first.requested_bytes, shape, first.dtype if shape == first.shape else "bytes", **shared
    )
