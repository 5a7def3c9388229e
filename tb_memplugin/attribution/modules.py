"""The inside of compiled modules: layers and categories of the buffers in their allocations, which
are the compiler's buffer assignment."""

import bisect
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from tb_memplugin.attribution.names import UNKNOWN_OP, OpNames, buffers_of
from tb_memplugin.schema import Buffer, BufferAllocation, Category, Module, OpFact

MAX_PEAKS = 256
"""Most positions of a module whose bytes are compared for its peak, those with most buffers."""


class Schedule(NamedTuple):
    """Which passes a module's schedule has.

    Attributes:
        forward_end: Position with the fewest instructions of another pass on its wrong side, as the
            compiler recomputes forward results in the backward pass and fuses ops of both; -1
            without a forward pass.
        passes: The last positions of the forward and the backward pass, and the first one of an
            update, if any.
        inside_op: Whether the module is the inside of an op, e.g. a grouped convolution of Keras on
            the CPU, and no step; unknown buffers in its temporary allocations are workspace."""

    forward_end: int
    passes: tuple[int, int, int | None] | None
    inside_op: bool


class CompiledModule:
    """A module's buffer assignment with what is known of its ops; `largest_weight` of each layer,
    in bytes, bounds the sizes of gradients."""

    def __init__(
        self, module: Module, names: OpNames, largest_weight: Mapping[str | None, int]
    ) -> None:
        self.module, self._names, self._largest_weight = module, names, largest_weight

    def _fact(self, ops: Iterable[str]) -> OpFact:
        facts = map(self._names.fact, ops)
        return next((fact for fact in facts if fact is not UNKNOWN_OP), UNKNOWN_OP)

    def _fact_of(self, buffer: Buffer) -> OpFact:
        """Facts of a buffer's op; of one that only borrows names, those of the first in a layer."""
        if not buffer.named:
            facts = map(self._names.fact, buffer.ops)
            in_layer = next((fact for fact in facts if fact.layer is not None), None)
            if in_layer is not None:
                return in_layer
        return self._fact(buffer.ops)

    def line(self, buffer: Buffer) -> str | None:
        return buffer.line or (self._fact(buffer.ops[:1]).line if buffer.named else None)

    @cached_property
    def levels(self) -> tuple[list[int], list[int]]:
        """The positions of the schedule at which live bytes change, in order, and the live bytes
        from each on."""
        changes: Counter[int] = Counter()
        for buffer in buffers_of(self.module):
            changes[buffer.start] += buffer.bytes
            changes[buffer.end + 1] -= buffer.bytes
        positions = sorted(changes)
        return positions, list(itertools.accumulate(changes[position] for position in positions))

    @cached_property
    def peak(self) -> int:
        """The position with most live bytes. Buffers of a loop share memory with those that it is
        given, so the sums of `levels` bound the bytes from above."""
        positions, live = self.levels
        most = peak = 0
        highest = sorted(zip(live, positions, strict=True), key=lambda one: (-one[0], one[1]))
        for bound, position in highest[:MAX_PEAKS]:
            if bound <= most:
                break
            parts = (without_overlaps(one.buffers, position) for one in self.module.allocations)
            total = sum(buffer.bytes for buffers in parts for buffer in buffers)
            if total > most:
                most, peak = total, position
        return peak

    @cached_property
    def schedule(self) -> Schedule:
        layers: set[str | None] = set()
        # by pass and `gradient_free`
        starts: dict[tuple[str, bool], set[int]] = defaultdict(set)
        for buffer in buffers_of(self.module):
            fact = self._fact(buffer.ops)
            if fact is UNKNOWN_OP:
                continue
            layers.add(fact.layer)
            computed = buffer.named and not buffer.of_argument and not buffer.constant
            if fact.layer is not None and computed:
                starts[fact.pass_name, fact.gradient_free].add(buffer.start)
        end = _fewest_misplaced(starts["forward", False], starts["backward", False])
        backward, update = (
            [start for start in starts[name, False] | starts[name, True] if start > end]
            for name in ("backward", "update")
        )
        passes = (end, max(backward), min(update, default=None)) if end >= 0 and backward else None
        return Schedule(end, passes, len(layers) <= 1)

    def role(self, buffer: Buffer) -> tuple[str | None, Category]:
        """Layer and category of a buffer."""
        fact, end = self._fact_of(buffer), self.schedule.forward_end
        if fact is UNKNOWN_OP:
            return None, "unattributed"
        if buffer.of_argument or (buffer.constant and fact.pass_name == "forward"):
            return fact.layer, "workspace"
        readers = [self._names.fact(name) for name in buffer.readers]
        read_in = {reader.pass_name for reader in readers}
        is_early = buffer.start <= end
        in_passes = fact.pass_name in ("forward", "backward")
        if in_passes and not is_early and read_in == {"update"}:
            return self._gradient(readers[0].layer or fact.layer, buffer)
        # What is made before the forward pass ends may bear the name of a gradient op that was
        # fused into its own.
        if in_passes and is_early and buffer.end > end and not fact.is_gradient:
            return fact.layer, "activations"
        if fact.pass_name == "update" and fact.layer is None:
            of_arguments = {self._names.fact(name).layer for name in buffer.arguments} - {None}
            return (*of_arguments, None)[0] if len(of_arguments) == 1 else None, "workspace"
        if fact.pass_name != "backward" or (is_early and "forward" in read_in):
            return fact.layer, "workspace"
        if fact.is_gradient and not fact.gradient_free:
            # A buffer that the op itself reads again, or that only borrows its name, is an
            # intermediate result.
            if buffer.named and buffer.ops[0] not in buffer.readers:
                return self._gradient(fact.gradient_of, buffer)
            return fact.gradient_of, "workspace"
        if fact.saved_for_backward:
            return fact.layer, "activations"
        return fact.layer, "workspace" if fact.gradient_free else "activation_gradients"

    def _gradient(self, layer: str | None, buffer: Buffer) -> tuple[str | None, Category]:
        """A weight's gradient; workspace if the buffer is larger than the largest weight in a
        padded layout."""
        largest = self._largest_weight.get(layer, buffer.bytes)
        return layer, "workspace" if buffer.bytes > 2 * largest else "weight_gradients"


class Plan(NamedTuple):
    """An allocation that a compiled module requests in one piece."""

    module: CompiledModule
    allocation: BufferAllocation

    def tensors(self) -> Iterator[tuple[str | None, Category, Buffer]]:
        """Layer, category and buffer of the contents at the module's peak."""
        module = self.module
        for buffer in without_overlaps(self.allocation.buffers, module.peak):
            layer, category = module.role(buffer)
            if category == "unattributed" and module.schedule.inside_op:
                category = "unattributed" if self.allocation.output else "workspace"
            yield layer, category, buffer

    def saved(self) -> list[tuple[str | None, int]]:
        """Layer and bytes of what is saved for the backward pass when the forward pass ends."""
        live = without_overlaps(self.allocation.buffers, self.module.schedule.forward_end)
        roles = [(self.module.role(buffer), buffer.bytes) for buffer in live]
        return [(layer, size) for (layer, category), size in roles if category == "activations"]


def plans_by_size(
    modules: Iterable[Module], names: OpNames, largest_weight: Mapping[str | None, int]
) -> dict[int, list[Plan]]:
    plans: dict[int, list[Plan]] = {}
    for module in modules:
        compiled = CompiledModule(module, names, largest_weight)
        for allocation in module.allocations:
            plans.setdefault(allocation.bytes, []).append(Plan(compiled, allocation))
    return plans


def _fewest_misplaced(forward: set[int], backward: set[int]) -> int:
    """The position with the fewest forward instructions after it and backward ones before; -1
    without forward ones."""
    if not forward or not backward:
        return max(forward, default=-1)
    misplaced = len(forward)
    fewest, best = misplaced, -1
    for position in sorted(forward | backward):
        misplaced += (position in backward) - (position in forward)
        if misplaced < fewest:
            fewest, best = misplaced, position
    return best


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
