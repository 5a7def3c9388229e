"""Compiled modules: the layers and categories of the buffers in the allocations that XLA requests.

An allocation's size is measured. Its contents are the compiler's buffer assignment, by default at the assignment's own
peak.
"""

import bisect
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from tb_memplugin.attribution.trace.op_names import OpNames
from tb_memplugin.schema import Buffer, BufferAllocation, Category, Module, OpFact, VariableFact


class ContentPart(NamedTuple):
    layer: str | None
    category: Category
    bytes: int


class BufferAssignments:
    """The buffer assignments of the compiled modules of one trace; variables bound the sizes of gradients."""

    def __init__(self, modules: Iterable[Module], names: OpNames, variables: Iterable[VariableFact]) -> None:
        self._names = names
        self._largest_weight: dict[str | None, int] = {}
        for variable in variables:
            if variable.role == "weights":
                most = max(variable.requested_bytes, self._largest_weight.get(variable.layer, 0))
                self._largest_weight[variable.layer] = most
        self._facts: dict[tuple[str, ...], OpFact | None] = {}
        self._allocations: dict[int, list[tuple[Module, BufferAllocation]]] = {}
        for module in modules:
            for allocation in module.allocations:
                self._allocations.setdefault(allocation.bytes, []).append((module, allocation))
        # By identity: modules of one function for other shapes have the same name.
        self._forward_ends: dict[int, int] = {}
        self._one_layer: dict[int, bool] = {}

    def planned(self, requested: int, function: str | None) -> tuple[Module, BufferAllocation] | None:
        """The module and its allocation of a size; None if no module of the function requests that size.

        A profile also has modules that ran earlier in the process, some of which request the same sizes.
        """
        planned = self._allocations.get(requested, ())
        return next((one for one in planned if function is None or one[0].function in function), None)

    def parts(self, module: Module, allocation: BufferAllocation) -> list[ContentPart]:
        """An allocation's contents at the module's peak; bytes not used then are workspace of no layer."""
        peak, end = peak_position(module), self.forward_end(module)
        parts = self._parts_at(allocation, peak, end)
        if not allocation.output and self._of_one_layer(module):
            parts = [
                ContentPart(None, "workspace", part.bytes) if part.category == "unattributed" else part
                for part in parts
            ]
        unused = allocation.bytes - sum(part.bytes for part in parts)
        return [*parts, ContentPart(None, "workspace", unused)] if unused else parts

    def saved(self, module: Module, allocation: BufferAllocation) -> list[ContentPart]:
        """The parts of an allocation that are saved for the backward pass at the end of the forward pass."""
        end = self.forward_end(module)
        return [part for part in self._parts_at(allocation, end, end) if part.category == "activations"]

    def _parts_at(self, allocation: BufferAllocation, position: int, end: int) -> list[ContentPart]:
        live = without_overlaps(allocation.buffers, position)
        return [ContentPart(*self.role(buffer, end), buffer.bytes) for buffer in live]

    def _of_one_layer(self, module: Module) -> bool:
        """Whether a module runs ops of at most one layer.

        Such a module is not a step but the inside of an op, e.g. a grouped convolution of Keras on the CPU; unknown
        buffers in its temporary allocations are workspace.
        """
        if id(module) not in self._one_layer:
            buffers = (buffer for allocation in module.allocations for buffer in allocation.buffers)
            facts = (self.fact(buffer.ops) for buffer in buffers)
            self._one_layer[id(module)] = len({fact.layer for fact in facts if fact is not None}) <= 1
        return self._one_layer[id(module)]

    def fact(self, ops: tuple[str, ...]) -> OpFact | None:
        if ops not in self._facts:
            facts = (self._names.fact(name) for name in ops)
            self._facts[ops] = next((fact for fact in facts if fact is not None), None)
        return self._facts[ops]

    def result_fact(self, allocation: BufferAllocation) -> OpFact | None:
        """Facts of the op of the buffer that an allocation ends with, the largest of several."""
        last = max(allocation.buffers, key=lambda buffer: (buffer.end, buffer.bytes), default=None)
        return self.fact(last.ops[:1]) if last is not None and last.named else None

    def forward_end(self, module: Module) -> int:
        """Position in the schedule at which the forward pass ends; -1 in a module without one.

        The compiler recomputes some forward results in the backward pass and fuses backward ops into forward
        instructions. The end is therefore the position with the fewest instructions on the wrong side.
        """
        if id(module) not in self._forward_ends:
            starts: dict[str, set[int]] = {"forward": set(), "backward": set()}
            for allocation in module.allocations:
                for buffer in allocation.buffers:
                    fact = self.fact(buffer.ops) if buffer.named and not buffer.of_argument else None
                    counts = fact is not None and fact.layer is not None and not fact.early and not buffer.constant
                    if fact is not None and counts and fact.pass_name in starts:
                        starts[fact.pass_name].add(buffer.start)
            self._forward_ends[id(module)] = _fewest_misplaced(starts["forward"], starts["backward"])
        return self._forward_ends[id(module)]

    def role(self, buffer: Buffer, forward_end: int) -> tuple[str | None, Category]:
        """Layer and category of a buffer, given the position at which the forward pass ends."""
        fact = self.fact(buffer.ops)
        if fact is None:
            return None, "unattributed"
        if buffer.of_argument or (buffer.constant and fact.pass_name == "forward"):
            return fact.layer, "workspace"
        readers = [self.fact((name,)) for name in buffer.readers]
        read_in = {None if reader is None else reader.pass_name for reader in readers}
        is_early = buffer.start <= forward_end
        if read_in == {"update"} and readers[0] and fact.pass_name in ("forward", "backward") and not is_early:
            return self._gradient(readers[0].layer, buffer)
        # What a forward op reads may bear the name of a gradient op that was fused into the one that makes it.
        if fact.pass_name == "forward" or (is_early and "forward" in read_in):
            return fact.layer, "activations" if is_early and buffer.end > forward_end else "workspace"
        if fact.pass_name == "backward" and fact.early:
            return fact.layer, "activations" if fact.saved_for_backward else "workspace"
        if fact.pass_name == "backward":
            if fact.is_gradient:
                # A buffer that the op itself reads again, or that only borrows its name, is an intermediate result.
                final = buffer.named and buffer.ops[0] not in buffer.readers
                return self._gradient(fact.gradient_of, buffer) if final else (fact.gradient_of, "workspace")
            return fact.layer, "activations" if fact.saved_for_backward else "activation_gradients"
        return fact.layer, "workspace"

    def _gradient(self, layer: str | None, buffer: Buffer) -> tuple[str | None, Category]:
        """A weight's gradient; workspace if the buffer is larger than the largest weight in a padded layout."""
        largest = self._largest_weight.get(layer)
        return layer, "workspace" if largest is not None and buffer.bytes > 2 * largest else "weight_gradients"


def _fewest_misplaced(forward: set[int], backward: set[int]) -> int:
    """The position that leaves the fewest forward instructions after it and backward ones before; -1 without forward
    ones."""
    if not forward or not backward:
        return max(forward, default=-1)
    misplaced = len(forward)
    fewest, best = misplaced, -1
    for position in sorted(forward | backward):
        misplaced += (position in backward) - (position in forward)
        if misplaced < fewest:
            fewest, best = misplaced, position
    return best


def levels(module: Module) -> tuple[list[int], list[int]]:
    """The positions of the schedule at which live bytes change, in order, and the live bytes from each on."""
    changes: dict[int, int] = {}
    for buffer in (buffer for allocation in module.allocations for buffer in allocation.buffers):
        changes[buffer.start] = changes.get(buffer.start, 0) + buffer.bytes
        changes[buffer.end + 1] = changes.get(buffer.end + 1, 0) - buffer.bytes
    positions = sorted(changes)
    return positions, list(itertools.accumulate(changes[position] for position in positions))


def peak_position(module: Module) -> int:
    positions, live = levels(module)
    peak = max(live, default=0)
    return positions[live.index(peak)] if peak > 0 else 0


def without_overlaps(buffers: Iterable[Buffer], position: int) -> list[Buffer]:
    """Buffers live at a position; of buffers that overlap, the largest."""
    live = [buffer for buffer in buffers if buffer.start <= position <= buffer.end]
    occupied: list[tuple[int, int]] = []  # disjoint, in order
    chosen = []
    for buffer in sorted(live, key=lambda buffer: -buffer.bytes):
        first, last = buffer.offset, buffer.offset + buffer.bytes
        place = bisect.bisect_right(occupied, (first, last))
        before_ends = place == 0 or occupied[place - 1][1] <= first
        if before_ends and (place == len(occupied) or last <= occupied[place][0]):
            occupied.insert(place, (first, last))
            chosen.append(buffer)
    return chosen
