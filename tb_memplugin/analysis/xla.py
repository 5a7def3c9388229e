"""The inside of compiled modules: which layers' buffers the blocks hold that XLA asks the allocator for.

The block's size is measured; what is in it is the compiler's plan, at the instant of the plan at which most is in use.
"""

import bisect
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from tb_memplugin.analysis.op_names import OpNames
from tb_memplugin.model import Category
from tb_memplugin.trace import Buffer, Module, OpFact, PlannedAllocation, VariableFact


class Part(NamedTuple):
    """Bytes of a block that have one owner."""

    layer: str | None
    category: Category
    bytes: int


class Plans:
    """The plans of the compiled modules of one trace.

    Args:
        modules: The modules.
        names: Of the ops that their instructions stand for.
        variables: Whose gradients cannot be much larger than they are.
    """

    def __init__(self, modules: Iterable[Module], names: OpNames, variables: Iterable[VariableFact]) -> None:
        self._names = names
        self._largest_weight: dict[str | None, int] = {}
        for variable in variables:
            if variable.role == "weights":
                most = max(variable.requested_bytes, self._largest_weight.get(variable.layer, 0))
                self._largest_weight[variable.layer] = most
        self._facts: dict[tuple[str, ...], OpFact | None] = {}
        self._allocations: dict[int, tuple[Module, PlannedAllocation]] = {}
        for module in modules:
            for allocation in module.allocations:
                self._allocations.setdefault(allocation.bytes, (module, allocation))
        self._forward_ends: dict[str, int] = {}

    def planned(self, requested: int, function: str | None) -> tuple[Module, PlannedAllocation] | None:
        """The allocation that a block of this size is, None if no module asks for one of this size."""
        found = self._allocations.get(requested)
        if found is None or (function is not None and found[0].function not in function):
            return None
        return found

    def parts(self, module: Module, allocation: PlannedAllocation) -> list[Part]:
        """What a block holds at the plan's own peak; what the plan leaves empty then is workspace of no layer."""
        peak = peak_position(module)
        end = self.forward_end(module)
        parts = [Part(*self.role(buffer, end), size) for buffer, size in packed(allocation.buffers, peak)]
        rest = allocation.bytes - sum(part.bytes for part in parts)
        return [*parts, Part(None, "workspace", rest)] if rest else parts

    def held(self, module: Module, allocation: PlannedAllocation) -> list[Part]:
        """What of a block waits for the backward pass at the end of the forward pass, by the plan."""
        end = self.forward_end(module)
        parts = [Part(*self.role(buffer, end), size) for buffer, size in packed(allocation.buffers, end)]
        return [part for part in parts if part.category == "activations"]

    def fact(self, ops: tuple[str, ...]) -> OpFact | None:
        """What is known of the best of several names."""
        if ops not in self._facts:
            found = (self._names.fact(name) for name in ops)
            self._facts[ops] = next((fact for fact in found if fact is not None), None)
        return self._facts[ops]

    def forward_end(self, module: Module) -> int:
        """Position in the schedule at which the forward pass ends; -1 in a module without one.

        The compiler makes some forward results again in the backward pass, and fuses what the backward pass needs into
        forward instructions: the end is where fewest of the layers' instructions are on the wrong side of it.
        """
        if module.name not in self._forward_ends:
            starts: dict[str, set[int]] = {"forward": set(), "backward": set()}
            for allocation in module.allocations:
                for buffer in allocation.buffers:
                    fact = self.fact(buffer.ops) if buffer.named and not buffer.of_argument else None
                    if fact is not None and fact.layer is not None and fact.phase in starts and not buffer.constant:
                        starts[fact.phase].add(buffer.start)
            self._forward_ends[module.name] = _least_wrong(starts["forward"], starts["backward"])
        return self._forward_ends[module.name]

    def role(self, buffer: Buffer, forward_end: int) -> tuple[str | None, Category]:
        """Layer and category of a buffer, by where in the schedule its forward pass ends."""
        fact = self.fact(buffer.ops)
        if fact is None:
            return None, "unattributed"
        if buffer.of_argument or (buffer.constant and fact.phase == "forward"):
            return fact.layer, "workspace"
        update = self._updated(buffer)
        if update is not None and fact.phase in ("forward", "backward") and buffer.start > forward_end:
            return self._gradient(update.layer, buffer)
        if fact.phase == "forward" or self._read_by_forward(buffer, forward_end):
            if buffer.start <= forward_end:
                return fact.layer, "activations" if buffer.end > forward_end else "workspace"
            return fact.layer, "workspace"
        if fact.phase == "backward":
            if fact.is_gradient:
                # What the same op reads again, or what only borrows its name, is on the way to the result.
                final = buffer.named and buffer.ops[0] not in buffer.readers
                return self._gradient(fact.gradient_of, buffer) if final else (fact.gradient_of, "workspace")
            return fact.layer, "activations" if fact.awaited else "activation_gradients"
        return fact.layer, "workspace"

    def _gradient(self, layer: str | None, buffer: Buffer) -> tuple[str | None, Category]:
        """A layer's gradient, which has its weight's size, if need be in a padded layout; else what it is made from."""
        most = self._largest_weight.get(layer)
        return layer, "workspace" if most is not None and buffer.bytes > 2 * most else "weight_gradients"

    def _read_by_forward(self, buffer: Buffer, forward_end: int) -> bool:
        """Whether a forward op reads a buffer that was made in the forward pass: it is a result of that, then, although
        it may have the name of a gradient op that was fused into it."""
        if buffer.start > forward_end:
            return False
        facts = [self.fact((name,)) for name in buffer.readers]
        return any(fact is not None and fact.phase == "forward" for fact in facts)

    def _updated(self, buffer: Buffer) -> OpFact | None:
        """The optimizer's op, if only the optimizer reads the buffer."""
        facts = [self.fact((name,)) for name in buffer.readers]
        if not facts or not all(fact is not None and fact.phase == "update" for fact in facts):
            return None
        return facts[0]


def _least_wrong(forward: set[int], backward: set[int]) -> int:
    """The position up to which most forward and after which most backward instructions are; -1 without forward ones."""
    if not forward or not backward:
        return max(forward, default=-1)
    wrong = len(forward)
    least, best = wrong, -1
    for position in sorted(forward | backward):
        wrong += (position in backward) - (position in forward)
        if wrong < least:
            least, best = wrong, position
    return best


def levels(module: Module) -> tuple[list[int], list[int]]:
    """(positions, bytes live from each one on): the positions of the schedule at which something changes, in order."""
    changes: dict[int, int] = {}
    for buffer in (buffer for allocation in module.allocations for buffer in allocation.buffers):
        changes[buffer.start] = changes.get(buffer.start, 0) + buffer.bytes
        changes[buffer.end + 1] = changes.get(buffer.end + 1, 0) - buffer.bytes
    positions = sorted(changes)
    return positions, list(itertools.accumulate(changes[position] for position in positions))


def peak_position(module: Module) -> int:
    """The first position of the schedule at which most bytes are live."""
    positions, live = levels(module)
    most = max(live, default=0)
    return positions[live.index(most)] if most > 0 else 0


def packed(buffers: Iterable[Buffer], position: int) -> list[tuple[Buffer, int]]:
    """Buffers live at a position with the bytes that are theirs; of several in one place, the largest."""
    live = [buffer for buffer in buffers if buffer.start <= position <= buffer.end]
    taken: list[tuple[int, int]] = []  # apart from each other, in order
    found = []
    for buffer in sorted(live, key=lambda buffer: -buffer.bytes):
        first, last = buffer.offset, buffer.offset + buffer.bytes
        place = bisect.bisect_right(taken, (first, last))
        before_ends = place == 0 or taken[place - 1][1] <= first
        if before_ends and (place == len(taken) or last <= taken[place][0]):
            taken.insert(place, (first, last))
            found.append((buffer, buffer.bytes))
    return found
