"""Matches the chunks of a memory map, known by address and size only, with those of earlier traced steps. Pure.

Training steps repeat: the same ops request the same sizes in the same order. A chunk in an untraced step therefore has
the owner of the chunk at the same place, or of the same size, at the same point of a traced step.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from tb_memplugin.allocator import rounded_bytes
from tb_memplugin.attribution.owners import UNATTRIBUTED, Point, StepChunks
from tb_memplugin.schema import (
    IN_USE,
    OWNER_SOURCES,
    ChunkOwner,
    Integers,
    Layer,
    MemoryMap,
    OwnerSource,
    Phase,
    TensorFact,
    VariableFact,
    dimensions,
    example_bytes,
)

_WITH_THE_BATCH = ("activations", "activation_gradients", "workspace", "inputs")
"""Categories of chunks whose sizes grow with the batch."""
MAX_EXTRA_SHARE = 0.25
"""Share of the chunks of a size that a traced step need not have had; these stay without an owner. At 0,
`test_few_extra_chunks_of_a_size_stay_without_owner` fails."""


class OwnerMatching:
    """Gives the chunks of a map their owners; call the most certain sources first, as no owner is replaced."""

    def __init__(self, memory_map: MemoryMap) -> None:
        self._map = memory_map
        self._owners: dict[ChunkOwner, int] = {owner: number for number, owner in enumerate(memory_map.owners)}
        self._owner = memory_map.owner.copy()
        self._source = memory_map.source.copy()
        self._by_address = {
            int(memory_map.address[row]): row for row in np.flatnonzero(memory_map.state == IN_USE).tolist()
        }

    def result(self) -> MemoryMap:
        return dataclasses.replace(self._map, owner=self._owner, source=self._source, owners=tuple(self._owners))

    def _open_rows(self) -> list[int]:
        return [row for row in self._by_address.values() if self._owner[row] < 0]

    def _give(self, row: int, owner: ChunkOwner, source: OwnerSource) -> None:
        if self._owner[row] < 0 and owner.category != "unattributed":
            self._owner[row] = self._owners.setdefault(owner, len(self._owners))
            self._source[row] = OWNER_SOURCES.index(source)

    def variables(self, variables: Iterable[VariableFact]) -> None:
        """Match variables by the address of their values (`end_address`)."""
        for fact in variables:
            owner = ChunkOwner(fact.layer, fact.role, fact.trainable)
            self._at(fact.end_address, fact.requested_bytes, owner, "variable")

    def tensors(self, tensors: Iterable[TensorFact]) -> None:
        for fact in tensors:
            self._at(fact.address, fact.requested_bytes, ChunkOwner(None, fact.category, None), "held_tensor")

    def _at(self, address: int | None, requested: int, owner: ChunkOwner, source: OwnerSource) -> None:
        """Match the chunk at an address, if it is large enough."""
        row = None if address is None else self._by_address.get(address)
        if row is not None and rounded_bytes(requested) <= int(self._map.bytes[row]):
            self._give(row, owner, source)

    def same_place(
        self, history: Sequence[StepChunks], phase: Phase | None, op: str | None, requested: int | None
    ) -> None:
        """Match chunks with the same address and size at the same point of a traced step.

        From a step of another phase, only chunks that outlive the step count. `op` requests memory at the map's
        instant.
        """
        for step in history:
            point = step.point(op, requested) if step.phase == phase else None
            if point is not None:
                rows = step.live(point.event)
            elif step.phase == phase:
                rows = np.arange(len(step.address))
            else:
                rows = np.flatnonzero(step.death == step.events)
            owners: dict[tuple[int, int], set[int]] = {}
            for row in rows.tolist():
                key = (int(step.address[row]), int(step.requested[row]))
                owners.setdefault(key, set()).add(int(step.owner[row]))
            for address, row in self._by_address.items():
                candidates = owners.get((address, int(self._map.requested_bytes[row])), set())
                if len(candidates) == 1:
                    self._give(row, step.owners[candidates.pop()], "earlier_step")

    def same_size(
        self, history: Sequence[StepChunks], phase: Phase | None, op: str | None, requested: int | None, scale: float
    ) -> None:
        """Match chunks with all chunks of their size at the same point of a traced step, or in all of the step.

        If the numbers of chunks agree, each gets one of the owners: which chunk has which owner is then arbitrary, but
        the owners' bytes are right. Otherwise all get what the owners have in common. `scale` is the batch as a
        multiple of the traced batch.
        """
        steps = [step for step in history if step.phase == phase]
        for step in steps:
            point = step.point(op, requested, scale)
            if point is None:
                continue
            for factor in dict.fromkeys((scale, 1.0)):  # not all of the workspace grows with the batch
                self._by_size(step, Point(point.event, factor))
        for step in steps:
            for factor in dict.fromkeys((scale, 1.0)):
                self._by_size(step, Point(-1, factor))

    def results(self, layers: Iterable[Layer], batch_size: int | None, phase: Phase | None) -> None:
        """Match layers' outputs by size in validation and prediction, where there is no backward pass."""
        if phase not in ("validation", "predict") or batch_size is None:
            return
        owners: dict[int, set[ChunkOwner]] = {}
        for layer in layers:
            each = example_bytes(layer) if _is_open(layer) else None
            if each is not None:
                owner = ChunkOwner(layer.path, "workspace", layer.trainable)
                owners.setdefault(batch_size * each, set()).add(owner)
        for row in self._open_rows():
            candidates = owners.get(int(self._map.requested_bytes[row]))
            if candidates:
                self._give(row, _common(candidates), "size")

    def _by_size(self, step: StepChunks, point: Point) -> None:
        """Match the open chunks of each size with those at the point, or in all of the step if `point.event` is -1.

        Ops that run in parallel may run a little earlier or later than in the traced step, so the nearest instant with
        as many chunks of the size stands for the point, or the one whose number comes closest.
        """
        sizes = step.requested.copy()
        if point.scale != 1.0:
            grows = np.asarray([owner.category in _WITH_THE_BATCH for owner in step.owners], bool)[step.owner]
            sizes[grows] = np.round(sizes[grows] * point.scale).astype(np.int64)
        by_size: dict[int, list[int]] = {}
        for row in self._open_rows():
            by_size.setdefault(int(self._map.requested_bytes[row]), []).append(row)
        for size, open_rows in by_size.items():
            rows = np.flatnonzero(sizes == size)
            if not len(rows):
                continue
            owners = list(self._owners)
            of_size = [row for row in self._by_address.values() if self._map.requested_bytes[row] == size]
            known = [owners[self._owner[row]] for row in of_size if self._owner[row] >= 0]
            count = len(open_rows) + len(known)
            live = _nearest(step, rows, point.event, count) if point.event >= 0 else _whenever(step, rows, count)
            left = _without([step.owners[number] for number in step.owner[live].tolist()], known)
            extra = len(open_rows) - len(left)
            if 0 <= extra <= (len(open_rows) * MAX_EXTRA_SHARE if point.event >= 0 else 0):
                for row, owner in zip(open_rows, left, strict=False):
                    self._give(row, owner, "size")
                continue
            if point.event >= 0:
                rows = step.live(point.event, rows)
            shared = _common(step.owners[number] for number in set(step.owner[rows].tolist()))
            for row in open_rows:
                self._give(row, shared, "size")


def _nearest(step: StepChunks, rows: Integers, event: int, count: int) -> Integers:
    """Those of the rows that were live at the instant nearest to an event with `count` of them, or closest to that."""
    instants = np.append(_instants(step, rows), event)
    order = np.lexsort((instants, abs(instants - event), abs(_counts(step, rows, instants) - count)))
    return step.live(int(instants[order[0]]), rows)


def _whenever(step: StepChunks, rows: Integers, count: int) -> Integers:
    """Those of the rows that were live whenever `count` of them were, if they had the same owners each time."""
    live: Integers = np.empty(0, np.int64)
    instants = _instants(step, rows)
    for instant in instants[_counts(step, rows, instants) == count].tolist():
        now = step.live(instant, rows)
        if len(live) and sorted(step.owner[live].tolist()) != sorted(step.owner[now].tolist()):
            return np.empty(0, np.int64)
        live = now
    return live


def _instants(step: StepChunks, rows: Integers) -> Integers:
    """The instants just after any of the rows was allocated or freed, in order."""
    return np.unique(np.append(step.birth[rows] + 1, step.death[rows] + 1))


def _counts(step: StepChunks, rows: Integers, instants: Integers) -> Integers:
    births, deaths = np.sort(step.birth[rows]), np.sort(step.death[rows])
    counts: Integers = np.searchsorted(births, instants) - np.searchsorted(deaths, instants)
    return counts


def _without(owners: list[ChunkOwner], known: Iterable[ChunkOwner]) -> list[ChunkOwner]:
    left = list(owners)
    for owner in known:
        if owner in left:
            left.remove(owner)
    return left


def _common(owners: Iterable[ChunkOwner]) -> ChunkOwner:
    """The owner, or else the category, that all the owners share; unattributed if they share neither."""
    distinct = set(owners)
    if len(distinct) == 1:
        return next(iter(distinct))
    categories = {owner.category for owner in distinct}
    return ChunkOwner(None, categories.pop(), None) if len(categories) == 1 else UNATTRIBUTED


# --- the batch --------------------------------------------------------------------------------------------------------


def observed_batch(
    history: Sequence[StepChunks],
    phase: Phase | None,
    op: str | None,
    requested: int | None,
    shape: str | None,
    layer: Layer | None,
    traced_batch: int | None,
) -> int | None:
    """Examples in the batch of a failed step that was not recorded, None if unknown.

    This is the traced batch if the failed op requested as much in a traced training step. Otherwise it is the leading
    dimension of the failed tensor, if that has the shape of its layer's output.
    """
    same = any(
        point.scale == 1.0 for step in history if step.phase == phase == "train" for point in step.points(op, requested)
    )
    return traced_batch if same and traced_batch is not None else batch_of(shape, layer)


def batch_of(shape: str | None, layer: Layer | None) -> int | None:
    """Leading dimension of a tensor in the shape of the layer's output; None for others, and if it may be a gradient of
    the layer's weights."""
    sizes = dimensions(shape) or ()
    if layer is None or layer.output_shape is None or not _is_open(layer) or sizes[1:] != layer.output_shape[1:]:
        return None
    weights = (layer.parameters, layer.parameters - layer.output_shape[-1])  # with a bias and without
    return None if math.prod(sizes) in weights else sizes[0]


def _is_open(layer: Layer) -> bool:
    """Whether the leading dimension of the layer's output is open and not the only one."""
    shape = layer.output_shape
    return shape is not None and len(shape) > 1 and shape[0] == -1
