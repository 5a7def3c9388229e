"""How the size of a compiled module's allocation follows from the batch size: by the shapes of the
buffers in it.

XLA places buffers that are not live at the same time at the same addresses, so an allocation is
about as large as the bytes that are live at once. For another batch size, these are those of the
moment of the module's schedule at which most are live then."""

import itertools
import math
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from tb_memplugin.attribution.chunks import PLANNED
from tb_memplugin.attribution.modules import Plan, without_overlaps
from tb_memplugin.attribution.tensors import Tensor, largest_tensors, with_batch
from tb_memplugin.attribution.window import Window, layerless
from tb_memplugin.schema import (
    Buffer,
    Category,
    ChunkOwner,
    LedgerRow,
    ModuleMoment,
    OpFact,
    TensorGroup,
    TraceFacts,
    live_sums,
)

SMALL_BYTES = 1024
"""Buffers up to this size count as independent of the batch."""
RATIOS = np.geomspace(1 / 64, 1024, 161)
"""Batch sizes as multiples of the recorded one, at which the moment with most live bytes is looked
for."""
Powers: TypeAlias = tuple[int | None, ...]
"""The power of the batch size in each dimension of an output, None where it is unknown."""
WITH_THE_BATCH: tuple[Category, ...] = ("activations", "activation_gradients", "inputs")


def total_power(powers: Powers) -> int | None:
    """The power of all dimensions together; None if that of one is unknown."""
    return None if None in powers else sum(power or 0 for power in powers)


def power_of_output(
    shape: tuple[int, ...], powers: Powers, element: int, size: int, batch: int, more: bool
) -> int | None:
    """The power of the batch size in an output of exactly this size, in the unit of which an
    element takes `element`; None if it takes another or that is ambiguous. With `more`, its open
    dimensions may hold the batch several times."""
    opened = [power for length, power in zip(shape, powers, strict=True) if length == -1]
    each = element * math.prod(length for length in shape if length != -1)
    total = total_power(powers)
    if not each or size % each or total is None:
        return None
    count, examples = size // each, batch ** sum(power or 0 for power in opened)
    is_whole = count % examples == 0 if opened and more else count == examples
    return total if is_whole else None


def outputs(fact: OpFact) -> list[tuple[tuple[int, ...] | None, Powers]]:
    """Shape and powers of each output of an op. Without known powers, an open first dimension holds
    the batch."""
    found: list[tuple[tuple[int, ...] | None, Powers]] = []
    all_powers = fact.batch_powers or itertools.repeat(None)
    for shape, known in zip(fact.output_shapes, all_powers, strict=False):
        opened = (0 if size != -1 else None if axis else 1 for axis, size in enumerate(shape or ()))
        found.append((shape, tuple(opened) if known is None else known))
    return found


class ModuleSizes:
    """The moments of compiled modules at which most bytes are live, for a recorded batch size
    `batch`."""

    def __init__(self, window: Window, batch: int) -> None:
        self._names, self._batch = window.names, batch
        self._weights = {math.prod(one.shape) for one in window.facts.variables}
        self._shapes = {tuple(sorted(one.shape)) for one in window.facts.variables}
        # no dimension is known to be open, as of JAX's modules: those of the buffers must do
        self._is_closed = window.trace.allocator == PLANNED
        self._of_batch, self._fixed = self._dimensions(window.facts)
        self._varies: dict[int, bool] = {}  # by identity of the buffer
        self.has_squares = False  # whether a buffer grows with the square of the batch

    def moments(self, plans: Mapping[int, Plan]) -> tuple[ModuleMoment, ...]:
        """The moments of allocations by the numbers of their chunks. None if a buffer grows with
        the square of the batch, as each example's similarity to each other one does."""
        found = []
        for chunk, plan in plans.items():
            for placed in self.placed(plan):
                total = sum(one.bytes for one in placed)
                growing = sum(one.bytes for one in placed if self._varies[id(one)])
                found.append(ModuleMoment(chunk, total - growing, growing))
        return () if self.has_squares else tuple(found)

    def placed(self, plan: Plan) -> Iterator[list[Buffer]]:
        """The buffers that are live when most bytes are, for one of the `RATIOS`; of overlapping
        ones, the largest."""
        buffers = plan.allocation.buffers
        if not buffers:
            return
        for one in buffers:
            if id(one) not in self._varies:
                grows = one.bytes > SMALL_BYTES and self._is_of_batch(one, plan.module.role(one)[1])
                self._varies[id(one)] = grows
        varies = np.asarray([self._varies[id(one)] for one in buffers])
        sizes, starts, ends = np.asarray([(one.bytes, one.start, one.end) for one in buffers]).T
        positions = np.unique(starts)
        first, last = np.searchsorted(positions, starts), np.searchsorted(positions, ends + 1)
        fixed, growing = (
            live_sums(first, last, own, len(positions)) for own in (sizes * ~varies, sizes * varies)
        )
        for at in np.unique(np.argmax(fixed + np.outer(RATIOS, growing), axis=1)).tolist():
            yield without_overlaps(buffers, int(positions[at]))

    def growing_axis(self, buffer: Buffer) -> int | None:
        """The dimension of one of the `placed` buffers that holds the batch; None if it does not
        grow."""
        if not self._varies[id(buffer)]:
            return None
        sizes = () if buffer.shape is None else buffer.shape.shape
        known = [axis for axis, size in enumerate(sizes) if self._has_dimension((size,))]
        whole = [axis for axis, size in enumerate(sizes) if size % self._batch == 0]
        return [*known, *whole, 0][0]

    def _is_of_batch(self, buffer: Buffer, category: Category) -> bool:
        if category == "weight_gradients":
            return False
        sizes = () if buffer.shape is None else buffer.shape.shape
        if len(sizes) < 2:
            # A vector of bytes is a kernel's scratch space.
            is_scratch = buffer.shape is None or buffer.shape.dtype == "uint8"
            return is_scratch or self._has_dimension(sizes)
        count = math.prod(sizes)
        if count % self._batch:
            return False
        known = {self._power(fact, count) for fact in map(self._names.fact, buffer.ops)} - {None}
        if known:
            self.has_squares = self.has_squares or max(power or 0 for power in known) > 1
            return known != {0}
        is_made = category in WITH_THE_BATCH
        if self._is_closed:
            is_weight = tuple(sorted(sizes)) in self._shapes
            joined = not self._of_batch.isdisjoint(sizes) and (is_made or not is_weight)
            return joined or self._has_dimension(sizes)
        return count not in self._weights and (self._has_dimension(sizes) or is_made)

    def _has_dimension(self, sizes: tuple[int, ...]) -> bool:
        free = (size for size in sizes if size not in self._fixed)
        if self._is_closed:
            return any(size % self._batch == 0 for size in free)
        return not self._of_batch.isdisjoint(free)

    def _power(self, fact: OpFact, count: int) -> int | None:
        """The power of the batch in the output of an op that has so many elements; None without
        one."""
        found = (
            power_of_output(
                shape, powers, 1, count, self._batch, (-1, 0) in zip(shape, powers, strict=True)
            )
            for shape, powers in outputs(fact)
            if shape is not None
        )
        return next((power for power in found if power is not None), None)

    def _dimensions(self, facts: TraceFacts) -> tuple[frozenset[int], frozenset[int]]:
        """Sizes of dimensions that hold the batch, alone or joined with those behind it, and of all
        others."""
        of_batch = {self._batch}
        if self._is_closed:  # sequences of the batch, which matrix products join
            shapes = (one.shape for one in facts.tensors if len(one.shape) in (2, 3))
            of_batch.update(math.prod(one[:2]) for one in shapes if one[0] == self._batch)
        fixed = {size for variable in facts.variables for size in variable.shape}
        every = (fact for graph in facts.graphs for fact in graph.ops.values())
        for shape, powers in (one for fact in every for one in outputs(fact)):
            known = shape or ()
            fixed.update(size for size, power in zip(known, powers, strict=True) if power == 0)
            for axis, power in enumerate(powers):
                behind = known[axis + 1 :] if power == 1 else ()
                closed = itertools.takewhile(lambda size: size > 0, behind)
                of_batch.update(itertools.accumulate(closed, operator.mul, initial=self._batch))
        return frozenset(of_batch), frozenset(fixed)


class ModuleContents(NamedTuple):
    """What a compiled module's request holds: by owner, summing to its size; its largest tensors;
    and the batch size that these were scaled from, if any."""

    ledger: tuple[LedgerRow, ...] = ()
    tensors: tuple[TensorGroup, ...] = ()
    of_batch: int | None = None


def contents_of(
    tensors: Iterable[Tensor], requested: int, of_batch: int | None = None
) -> ModuleContents:
    """The contents of a request: what the tensors do not take is workspace; if they take more, all
    take less."""
    tensors, sums = list(tensors), defaultdict[ChunkOwner, int](int)
    share = min(1.0, requested / _total(tensors))
    for owner, _, size in tensors:
        sums[owner] += int(size * share)
    sums[layerless("workspace")] += requested - sum(sums.values())
    rows = [
        LedgerRow(owner.layer, owner.category, owner.trainable, size, 0)
        for owner, size in sums.items()
        if size
    ]
    rows.sort(key=lambda row: -row.bytes)
    return ModuleContents(tuple(rows), largest_tensors(tensors), of_batch)


class ModuleChunk:
    """What a compiled module's chunk holds for other batch sizes than the recorded one, `batch`."""

    def __init__(self, window: Window, plan: Plan, recorded: ModuleContents, batch: int) -> None:
        self.recorded, self.batch, self._bytes = recorded, batch, plan.allocation.bytes
        sizes = ModuleSizes(window, batch)
        moments = [
            [
                (window.layer_owner(*plan.module.role(one)), one, sizes.growing_axis(one))
                for one in live
            ]
            for live in sizes.placed(plan)
        ]
        self._moments = [] if sizes.has_squares else moments

    def contents(self, batch: int | None, requested: int | None = None) -> ModuleContents:
        """The contents at the moment with most bytes, for a batch size, None if that is unknown,
        and as many requested bytes, by default the expected ones. Empty if that does not follow
        from the batch."""
        if batch in (None, self.batch) and requested in (None, self._bytes):
            return self.recorded
        if not self._moments:
            return ModuleContents()
        before, tensors = map(self._fullest, (1.0, (batch or self.batch) / self.batch))
        # The compiler's placement leaves as large a share unused with other batch sizes.
        expected = round(_total(tensors) * self._bytes / _total(before))
        return contents_of(tensors, requested or expected, self.batch)

    def _fullest(self, scale: float) -> list[Tensor]:
        return max(([_scaled(*one, scale) for one in live] for live in self._moments), key=_total)


def _total(tensors: Iterable[Tensor]) -> int:
    return max(1, sum(size for *_, size in tensors))


def _scaled(owner: ChunkOwner, buffer: Buffer, axis: int | None, scale: float) -> Tensor:
    shape, size = buffer.shape, buffer.bytes
    if axis is not None:
        size = round(size * scale)
        shape = None if shape is None else with_batch(shape, scale, size, axis)
    return owner, shape, size
