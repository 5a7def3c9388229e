"""How the size of a compiled module's allocation follows from the batch size: by the shapes of the
buffers in it.

XLA places buffers that are not live at the same time at the same addresses, so an allocation is
about as large as the bytes that are live at once. For another batch size, these are those of the
moment of the module's schedule at which most are live then."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from tb_memplugin.attribution.owners import Classifier, without_overlaps
from tb_memplugin.attribution.tensors import Tensor, largest_tensors, with_batch
from tb_memplugin.attribution.window import Owner
from tb_memplugin.schema import (
    Buffer,
    BufferAllocation,
    Category,
    LedgerRow,
    Module,
    ModuleMoment,
    OpFact,
    TensorGroup,
    TraceFacts,
)

SMALL_BYTES = 1024
"""Buffers up to this size count as independent of the batch."""
RATIOS = np.geomspace(1 / 64, 1024, 161)
"""Batch sizes as multiples of the recorded one, at which the moment with most live bytes is looked
for."""
Plan: TypeAlias = tuple[Module, BufferAllocation]
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
    each, total = (
        element * math.prod(length for length in shape if length != -1),
        total_power(powers),
    )
    if not each or size % each or total is None:
        return None
    count, examples = size // each, batch ** sum(power or 0 for power in opened)
    return total if (count % examples == 0 if opened and more else count == examples) else None


def outputs(fact: OpFact) -> list[tuple[tuple[int, ...] | None, Powers]]:
    """Shape and powers of each output of an op. Without known powers, an open first dimension holds
    the batch."""
    found: list[tuple[tuple[int, ...] | None, Powers]] = []
    for index, shape in enumerate(fact.output_shapes):
        powers = fact.batch_powers[index] if index < len(fact.batch_powers) else None
        if powers is None:
            powers = tuple(
                0 if size != -1 else 1 if not axis else None
                for axis, size in enumerate(shape or ())
            )
        found.append((shape, powers))
    return found


class ModuleSizes:
    """The moments of compiled modules at which most bytes are live, for a recorded batch size
    `batch`."""

    def __init__(self, classifier: Classifier, batch: int) -> None:
        self._classifier, self._batch = classifier, batch
        self._weights = {math.prod(one.shape) for one in classifier.window.facts.variables}
        self._of_batch, self._fixed = self._dimensions(classifier.window.facts)
        self._varies: dict[int, bool] = {}  # by identity of the buffer
        self.has_squares = False  # whether a buffer grows with the square of the batch

    def moments(self) -> tuple[ModuleMoment, ...]:
        """None if a buffer grows with the square of the batch, as each example's similarity to each
        other one does."""
        chunks = np.flatnonzero(self._classifier.chunks.birth >= 0).tolist()
        return self.moments_of(
            (chunk, plan) for chunk in chunks if (plan := self._classifier.plan(chunk)) is not None
        )

    def moments_of(self, planned: Iterable[tuple[int, Plan]]) -> tuple[ModuleMoment, ...]:
        """The same of allocations with the numbers of their chunks."""
        found = []
        for chunk, placed in (
            (chunk, placed) for chunk, plan in planned for placed in self.placed(*plan)
        ):
            growing = sum(one.bytes for one in placed if self._varies[id(one)])
            found.append(ModuleMoment(chunk, sum(one.bytes for one in placed) - growing, growing))
        return () if self.has_squares else tuple(found)

    def placed(self, module: Module, allocation: BufferAllocation) -> Iterator[list[Buffer]]:
        """The buffers that are live when most bytes are, for one of the `RATIOS`; of overlapping
        ones, the largest."""
        buffers = allocation.buffers
        if not buffers:
            return
        forward_end = self._classifier.plans.schedule(module).forward_end
        sizes = np.asarray([one.bytes for one in buffers], np.int64)
        varies = np.asarray([self._grows(one, forward_end) for one in buffers], bool)
        starts, ends = (
            np.asarray([getattr(one, name) for one in buffers]) for name in ("start", "end")
        )
        positions = np.unique(starts)
        live = []
        for own in (sizes * ~varies, sizes * varies):
            changes = np.zeros(len(positions) + 1, np.int64)
            np.add.at(changes, np.searchsorted(positions, starts), own)
            np.add.at(changes, np.searchsorted(positions, ends + 1), -own)
            live.append(np.cumsum(changes)[:-1])
        for at in np.unique(np.argmax(live[0] + np.outer(RATIOS, live[1]), axis=1)).tolist():
            yield without_overlaps(buffers, int(positions[at]))

    def growing_axis(self, buffer: Buffer) -> int | None:
        """The dimension of one of the `placed` buffers that holds the batch; None if it does not
        grow."""
        if not self._varies[id(buffer)]:
            return None
        sizes = () if buffer.shape is None else buffer.shape.shape
        known = (axis for axis, size in enumerate(sizes) if self._has_dimension((size,)))
        return next(
            known, next((axis for axis, size in enumerate(sizes) if size % self._batch == 0), 0)
        )

    def _grows(self, buffer: Buffer, forward_end: int) -> bool:
        if id(buffer) not in self._varies:
            self._varies[id(buffer)] = buffer.bytes > SMALL_BYTES and self._is_of_batch(
                buffer, forward_end
            )
        return self._varies[id(buffer)]

    def _is_of_batch(self, buffer: Buffer, forward_end: int) -> bool:
        category = self._classifier.plans.role(buffer, forward_end)[1]
        if category == "weight_gradients":
            return False
        if buffer.shape is None or len(buffer.shape.shape) < 2:
            # A vector of bytes is a kernel's scratch space.
            return (
                buffer.shape is None
                or buffer.shape.dtype == "uint8"
                or self._has_dimension(buffer.shape.shape)
            )
        count = math.prod(buffer.shape.shape)
        if count % self._batch:
            return False
        known = {
            self._power(fact, count)
            for fact in map(self._classifier.window.names.fact, buffer.ops)
            if fact
        }
        known -= {None}
        if known:
            self.has_squares = self.has_squares or max(power or 0 for power in known) > 1
            return known != {0}
        if count in self._weights:
            return False
        return self._has_dimension(buffer.shape.shape) or category in WITH_THE_BATCH

    def _has_dimension(self, sizes: tuple[int, ...]) -> bool:
        return any(size in self._of_batch and size not in self._fixed for size in sizes)

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
        of_batch, fixed = (
            {self._batch},
            {size for variable in facts.variables for size in variable.shape},
        )
        for graph in facts.graphs:
            for fact in graph.ops.values():
                for shape, powers in outputs(fact):
                    for axis, (size, power) in enumerate(zip(shape or (), powers, strict=True)):
                        if power == 0 and size > 0:
                            fixed.add(size)
                        joined = self._batch
                        for behind in (shape or ())[axis + 1 :] if power == 1 else ():
                            if behind <= 0:
                                break
                            joined *= behind
                            of_batch.add(joined)
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
    tensors, sums = list(tensors), defaultdict[Owner, int](int)
    share = min(1.0, requested / _total(tensors))
    for owner, _, size in tensors:
        sums[Owner(owner.layer, owner.category, owner.trainable)] += int(size * share)
    sums[Owner(None, "workspace", None)] += requested - sum(sums.values())
    rows = (
        LedgerRow(*owner, size, 0)
        for owner, size in sorted(sums.items(), key=lambda one: -one[1])
        if size
    )
    return ModuleContents(tuple(rows), largest_tensors(tensors), of_batch)


class ModuleChunk:
    """What a compiled module's chunk holds for other batch sizes than the recorded one, `batch`."""

    def __init__(
        self, classifier: Classifier, plan: Plan, recorded: ModuleContents, batch: int
    ) -> None:
        self.recorded, self.batch, self._bytes = recorded, batch, plan[1].bytes
        sizes, end = ModuleSizes(classifier, batch), classifier.plans.schedule(plan[0]).forward_end
        placed, owner, role = (
            list(sizes.placed(*plan)),
            classifier.window.layer_owner,
            classifier.plans.role,
        )
        moments = [
            [(owner(*role(one, end)), one, sizes.growing_axis(one)) for one in live]
            for live in placed
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
        return contents_of(
            tensors, requested or round(_total(tensors) * self._bytes / _total(before)), self.batch
        )

    def _fullest(self, scale: float) -> list[Tensor]:
        return max(([_scaled(*one, scale) for one in live] for live in self._moments), key=_total)


def _total(tensors: Iterable[Tensor]) -> int:
    return max(1, sum(size for *_, size in tensors))


def _scaled(owner: Owner, buffer: Buffer, axis: int | None, scale: float) -> Tensor:
    shape, size = buffer.shape, buffer.bytes if axis is None else round(buffer.bytes * scale)
    return (
        owner,
        shape if shape is None or axis is None else with_batch(shape, scale, size, axis),
        size,
    )
