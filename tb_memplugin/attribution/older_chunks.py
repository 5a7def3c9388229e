"""Chunks of variables and constants, and the owners of chunks that were allocated before the
window."""

import bisect
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from tb_memplugin.allocator import rounded_bytes
from tb_memplugin.attribution.chunks import INPUT_THREAD
from tb_memplugin.attribution.execution import GraphExecution
from tb_memplugin.attribution.window import Window, layerless
from tb_memplugin.schema import ChunkOwner, ConstantFact, TensorFact, VariableFact

MIN_BATCH_BYTES = 4096
"""Smallest request that counts as a batch because of its size alone: small sizes are too common."""
RARE_BYTES = 64 << 10
"""Chunks of this size and more that nobody else owns are constants of their size, also if there are
more of them."""


def variable_owner(variable: VariableFact) -> ChunkOwner:
    return ChunkOwner(variable.layer, variable.role, variable.trainable)


class VariableChunks:
    """The variables' chunks before the window (`at_start`, by address) and after it: which ones
    hold values, and from when on."""

    def __init__(self, window: Window, execution: GraphExecution) -> None:
        self._window, self._execution = window, execution
        # Variables may share a buffer: the first one owns it.
        variables = window.facts.variables[::-1]
        self.at_start = {fact.start_address: fact for fact in variables}
        self._at_end: dict[int | None, list[VariableFact]] = defaultdict(list)
        for fact in window.facts.variables:
            self._at_end[fact.end_address].append(fact)
        self._by_name: dict[str | None, VariableFact] = {fact.name: fact for fact in variables}
        self._sizes = {fact.requested_bytes for fact in variables}
        columns = zip(window.address, window.birth, window.death, strict=True)
        self._freed = {address: death for address, birth, death in columns if birth < 0}
        # Chunk with a variable's value to the one with its value before, and to the one with its
        # last value, as with several steps in one execution.
        self._previous: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._link_values()

    def _link_values(self) -> None:
        """The op that makes a variable's last value made the earlier ones as well. Each lives until
        the next one is there: a temporary of the same op and size is freed before that."""
        window, births = self._window, self._window.chunks.birth
        lasting = window.chunks.live(window.events - 1)
        held = [one for one in lasting if births[one] >= 0 and self._held_at_end(one)]
        ops = {window.op[window.birth[one]] for one in held} - {-1}
        of_ops = np.isin(window.trace.op[births[births >= 0]], list(ops))
        alike: dict[tuple[int, int], list[int]] = defaultdict(list)
        for chunk in np.flatnonzero(of_ops).tolist():
            alike[window.op[window.birth[chunk]], window.requested[chunk]].append(chunk)
        for chunks in alike.values():
            if not self._held_at_end(chunks[-1]):
                continue
            for before, after in zip(chunks[-2::-1], chunks[:0:-1], strict=True):
                if not window.birth[after] < window.death[before] < window.death[after]:
                    break
                self._previous[after], self._last[before] = before, chunks[-1]

    def stored_in(self, chunk: int) -> list[VariableFact]:
        """The variables that store their new value in a chunk allocated in the window; the first
        one owns it in the end. An average that overwrites a weight shares its chunk, but not the
        chunks of its values before."""
        last = self._last.get(chunk)
        stored = self._held_at_end(chunk) if last is None else self._held_at_end(last)[-1:]
        return stored or self._assigned(chunk)

    def owned(self, chunk: int) -> list[tuple[VariableFact, int, int]]:
        """(variable, begin, end): when each variable owns a chunk allocated in the window, the
        first one where several do."""
        stored, death = self.stored_in(chunk), self._window.death[chunk]
        if not stored:
            return []
        owned = [(one, self._owned_from(one, chunk), death) for one in stored]
        return self._overwritten.get(chunk, []) + owned

    def _assigned(self, chunk: int) -> list[VariableFact]:
        """The variable to which the op that made a chunk assigns, if the chunk has its size."""
        if self._window.requested[chunk] not in self._sizes:
            return []
        variable = self._by_name.get(self._execution.maker(chunk).assigns)
        is_value = variable and variable.requested_bytes == self._window.requested[chunk]
        return [variable] if variable and is_value else []

    def _held_at_end(self, chunk: int) -> list[VariableFact]:
        """The variables whose value is in a chunk when the window closes."""
        window = self._window
        held = self._at_end.get(window.address[chunk], []) if window.outlives(chunk) else []
        fits = (rounded_bytes(one.requested_bytes) <= window.allocated[chunk] for one in held)
        return held if all(fits) else []

    @cached_property
    def _values(self) -> dict[str, list[int]]:
        """Variable to the chunks of the values that an op assigned to it in the window."""
        values = defaultdict[str, list[int]](list)
        for chunk, requested in enumerate(self._window.requested):
            for variable in self._assigned(chunk) if requested in self._sizes else ():
                values[variable.name].append(chunk)
        return values

    @cached_property
    def _overwritten(self) -> dict[int, list[tuple[VariableFact, int, int]]]:
        """Chunk of an average's earlier value to (weight, begin, end): the average overwrites the
        weight, which has no chunk of its own until the next step assigns to it."""
        window, found = self._window, defaultdict[int, list[tuple[VariableFact, int, int]]](list)
        averages = defaultdict[Any, list[int]](list)
        for chunk, last in self._last.items():
            one = self._held_at_end(last)[-1]  # an average comes after the weights
            averages[one.role, one.layer, one.requested_bytes].append(chunk)
        for one in window.facts.variables if averages else ():
            chunks = averages.get(("optimizer_state", one.layer, one.requested_bytes))
            if chunks is None or one.role != "weights":
                continue
            own = [(window.birth[value], window.death[value]) for value in self._values[one.name]]
            own = sorted([(-1, self._freed.get(one.start_address or 0, -1)), *own])
            births = [*(birth for birth, _ in own[1:]), window.events]
            for (_, freed), born in zip(own, births, strict=True):
                for chunk in chunks:
                    end = min(window.death[chunk], born)
                    if window.birth[chunk] < freed < end:
                        found[chunk].append((one, freed, end))
        return found

    def _owned_from(self, variable: VariableFact, chunk: int) -> int:
        """The event from which the variable owns its new chunk, which is only being filled before:
        the one that frees the chunk with its value before, -1 if that is unknown."""
        window, before = self._window, self._previous.get(chunk)
        if before is not None:
            return window.death[before]
        freed = -1
        if variable.start_address is not None:
            freed = self._freed.get(variable.start_address, window.events)
        deaths = (window.death[one] for one in self._values[variable.name])
        return max([freed, *(one for one in deaths if one < window.death[chunk])])


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
        batch = window.facts.batch
        self._batch_bytes = batch.tensor_bytes(batch.size) if batch.size else frozenset[int]()
        allocated = {
            size
            for size, birth in zip(window.requested, window.birth, strict=True)
            if birth >= 0 and window.is_input[birth]
        }
        self.input_sizes = allocated | window.facts.earlier.input_sizes | set(self._given_sizes())
        self.constants = dict(self._find_constants())

    def owner(self, chunk: int) -> ChunkOwner:
        window, earlier = self._window, self._window.facts.earlier
        address, requested = window.address[chunk], window.requested[chunk]
        variable, tensor = self._variables.at_start.get(address), self._tensors.get(address)
        if variable is not None:
            return variable_owner(variable)
        if tensor is not None:
            return layerless(tensor.category)
        constant = self.constant_owner(chunk)
        if constant is not None:
            return constant
        known, sizes = earlier.chunks.get(address), (window.allocated[chunk], requested)
        is_same = known is not None and (known.allocated, known.requested) == sizes
        if known and is_same and (known.category == "inputs" or not self.is_batch(requested)):
            return layerless(known.category)
        if requested == earlier.handle_bytes:
            return layerless("other_state")
        tensor = self._tensor_inside(address, window.allocated[chunk])
        if tensor is not None:
            return layerless(tensor.category)
        is_input = self._was_given(chunk) or requested in self.input_sizes
        return layerless("inputs" if is_input else "unattributed")

    def constant_owner(self, chunk: int) -> ChunkOwner | None:
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
            if len(chunks) != len(facts):
                facts = [_common(facts)] * len(chunks)
            yield from zip(chunks, facts, strict=True)

    def _unowned(self) -> Iterator[int]:
        """Chunks that may hold constants: no variable, tensor or op is known to own them, and they
        outlive the window."""
        window, known = self._window, self._window.facts.earlier.chunks
        inputs = {address for address, chunk in known.items() if chunk.category == "inputs"}
        owned = {*self._variables.at_start, *self._tensors, *inputs}
        for chunk in window.chunks.live(window.events - 1):
            birth = window.birth[chunk]
            if birth < 0:
                is_owned = window.address[chunk] in owned
            else:
                has_op = window.op[birth] >= 0 or window.is_input[birth]
                is_owned = has_op or window.tensor_at_end(chunk) is not None
            if not is_owned:
                yield chunk

    def _tensor_inside(self, address: int, allocated: int) -> TensorFact | None:
        """A tensor that is a slice of a chunk and begins inside it, such as a replica's part of a
        batch."""
        place = bisect.bisect_right(self._sorted_addresses, address)
        inside = self._sorted_addresses[place : place + 1]
        return self._tensors[inside[0]] if inside and inside[0] < address + allocated else None

    def is_batch(self, requested: int) -> bool:
        return requested >= MIN_BATCH_BYTES and requested in self.input_sizes

    def _given_sizes(self) -> Iterator[int]:
        """Sizes of batches among older chunks: those that were copied to the device unseen, which
        the step was given and freed, and those that Python fed to the program. In a custom loop,
        tf.data makes the next batches between the steps."""
        window = self._window
        for chunk in window.chunks.live(-1):
            address, requested = window.address[chunk], window.requested[chunk]
            if requested < MIN_BATCH_BYTES:
                continue
            tensor = self._tensors.get(address)
            is_unknown = tensor is None and address not in self._variables.at_start
            if is_unknown and self._was_given(chunk):
                yield requested
            tensor = tensor or self._tensor_inside(address, window.allocated[chunk])
            if tensor is not None and tensor.category == "inputs":
                yield requested

    def _was_given(self, chunk: int) -> bool:
        """Whether a step freed an older chunk that is as large as the batch, that its layers read
        last, or that the input pipeline freed."""
        window = self._window
        if window.outlives(chunk):
            return False
        if window.requested[chunk] in self._batch_bytes:
            return True
        thread = window.trace.threads[int(window.trace.thread[window.death[chunk]])]
        return window.last_reader_pass(chunk) in ("forward", "backward") or thread.startswith(
            INPUT_THREAD
        )


def _common(constants: list[ConstantFact]) -> ConstantFact:
    """What the constants, which are of one size, have in common."""
    first = constants[0]
    shared: dict[str, Any] = {
        name: getattr(first, name)
        for name in ("layer", "function", "line", "of_input", "shape")
        if len({getattr(one, name) for one in constants}) == 1
    }
    shape = shared.pop("shape", (first.requested_bytes,))
    dtype = first.dtype if shape == first.shape else "bytes"
    return ConstantFact(first.requested_bytes, shape, dtype, **shared)
