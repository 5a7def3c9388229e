"""Gives chunks of which only addresses and sizes are known the owners that traced steps taught. Pure.

A training step repeats: the same operations ask for the same sizes in the same order. A chunk of a later, untraced
moment is therefore known by what lay there at the same point of a traced step.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from tb_memplugin.analysis.batch import result_bytes
from tb_memplugin.analysis.bfc import rounded_bytes
from tb_memplugin.analysis.seen_step import NOBODY, Point, SeenStep, there_before
from tb_memplugin.model import (
    IN_USE,
    OWNER_SOURCES,
    AllocatorMap,
    ChunkOwner,
    Integers,
    Layer,
    LedgerRow,
    OwnerSource,
    Phase,
)
from tb_memplugin.trace import TensorFact, VariableFact

_WITH_THE_BATCH = ("activations", "activation_gradients", "workspace", "inputs")
"""Categories of chunks that grow with the batch."""
MORE_CHUNKS = 0.25
"""Share of the chunks of a size that may be more than a traced step ever had; these have no owner then."""


class OwnerJoin:
    """Gives the chunks of a map their owners, the surest knowledge first.

    Args:
        taken: The map.
    """

    def __init__(self, taken: AllocatorMap) -> None:
        self._map = taken
        self._owners: dict[ChunkOwner, int] = {owner: number for number, owner in enumerate(taken.owners)}
        self._owner = taken.owner.copy()
        self._source = taken.source.copy()
        self._by_address = {int(taken.address[row]): row for row in np.flatnonzero(taken.state == IN_USE).tolist()}

    def result(self) -> AllocatorMap:
        """The map with what was learned."""
        return dataclasses.replace(self._map, owner=self._owner, source=self._source, owners=tuple(self._owners))

    def _open_rows(self) -> list[int]:
        return [row for row in self._by_address.values() if self._owner[row] < 0]

    def _give(self, row: int, owner: ChunkOwner, source: OwnerSource) -> None:
        if self._owner[row] < 0 and owner.category != "unattributed":
            self._owner[row] = self._owners.setdefault(owner, len(self._owners))
            self._source[row] = OWNER_SOURCES.index(source)

    def variables(self, variables: Iterable[VariableFact]) -> None:
        """Variables whose values lie in the chunks (at their `end_address`)."""
        for fact in variables:
            row = self._by_address.get(fact.end_address if fact.end_address is not None else -1)
            if row is not None and rounded_bytes(fact.requested_bytes) <= int(self._map.bytes[row]):
                self._give(row, ChunkOwner(fact.layer, fact.role, fact.trainable), "variable")

    def tensors(self, tensors: Iterable[TensorFact]) -> None:
        """Tensors that Python holds."""
        for fact in tensors:
            row = self._by_address.get(fact.address)
            if row is not None and rounded_bytes(fact.requested_bytes) <= int(self._map.bytes[row]):
                self._give(row, ChunkOwner(None, fact.category, None), "held_tensor")

    def same_place(self, seen: Sequence[SeenStep], phase: Phase | None, op: str | None, requested: int | None) -> None:
        """Chunks that lay at the same address with the same size at the same point of a traced step.

        Of a step of another phase, only what stays from step to step.
        """
        for step in seen:
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
                found = owners.get((address, int(self._map.requested_bytes[row])), set())
                if len(found) == 1:
                    self._give(row, step.owners[found.pop()], "earlier_step")

    def batch_scale(
        self, seen: Sequence[SeenStep], phase: Phase | None, op: str | None, requested: int | None, batch: int | None
    ) -> float:
        """How many times as large as in the traced step the batch is.

        The op's own request tells it; where that does not depend on the batch, the factor that best explains the sizes
        of what is left and makes a whole number of the traced batch, if it explains most of what is left or the batch
        itself is there. Of several that explain as much, one for which the batch is there, then the one that explains
        more different sizes, the request among them.
        """
        step = next((step for step in seen if step.phase == phase), None)
        if step is None:
            return 1.0
        said = {point.scale for point in step.points(op, requested)}
        if len(said) == 1 and said != {1.0}:
            return said.pop()
        made = [
            (int(step.requested[row]), step.owners[int(step.owner[row])].category)
            for row in np.flatnonzero((step.birth >= 0) & (step.requested > 0)).tolist()
        ]
        sizes = {size for size, category in made if category in _WITH_THE_BATCH}
        of_batch = max((size for size, category in made if category == "inputs"), default=0)
        there = self._map.state == IN_USE
        in_use, present = int(self._map.bytes[there].sum()), set(self._map.requested_bytes[there].tolist())
        left: Counter[int] = Counter()
        for row in self._open_rows():
            left[int(self._map.requested_bytes[row])] += int(self._map.bytes[row])
        candidates = {size / other for size, _ in left.most_common(5) if size > 0 for other in sizes}
        candidates = said if len(said) > 1 else candidates
        candidates = {scale for scale in candidates if scale * of_batch <= in_use}
        examples = batch or 1  # of a batch that is not known, only multiples are told
        candidates = {scale for scale in candidates if abs(examples * scale - round(examples * scale)) < 1e-6}
        explained = {scale: sum(left[size] for size in left if size / scale in sizes) for scale in {1.0, *candidates}}
        different = {*left, requested or 0}
        kinds = {scale: sum(size / scale in sizes for size in different) for scale in explained}
        best = max(sorted(explained), key=lambda scale: (explained[scale], scale * of_batch in present, kinds[scale]))
        most = 2 * explained[best] > sum(left.values()) or (batch is not None and best * of_batch in left)
        most = most or best in said  # by the op itself
        return best if most and explained[best] > explained[1.0] else 1.0

    def same_size(
        self, seen: Sequence[SeenStep], phase: Phase | None, op: str | None, requested: int | None, scale: float
    ) -> None:
        """Chunks of a size that, at that point of a traced step of the phase or in all of it, had one owner only.

        Where as many chunks of the size are left as the point had, their owners are given out: which chunk is whose is
        then open, but not how much is whose. What depends on the batch is `scale` times as large as it was.
        """
        steps = [step for step in seen if step.phase == phase]
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
        """Without a backward pass: chunks as large as the results of layers for the batch are such results."""
        if phase not in ("validation", "predict") or batch_size is None:
            return
        owners: dict[int, set[ChunkOwner]] = {}
        for layer in layers:
            size = result_bytes(layer, batch_size)
            if size is not None:
                owner = ChunkOwner(layer.path, "workspace", layer.trainable)
                owners.setdefault(size, set()).add(owner)
        for row in self._open_rows():
            found = owners.get(int(self._map.requested_bytes[row]))
            if found:
                self._give(row, _common(found), "size")

    def _by_size(self, step: SeenStep, point: Point) -> None:
        """Gives the open chunks of each size the owners that chunks of the size had at the point, or in all the step.

        Operations that run side by side may be a little earlier or later than they were: the nearest instant at which
        there were as many chunks of the size is taken for the point, or, where there never were, at which most were.
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
            known = self._known_owners(size)
            count = len(open_rows) + len(known)
            there = _nearest(step, rows, point.event, count) if point.event >= 0 else _whenever(step, rows, count)
            left = _without([step.owners[number] for number in step.owner[there].tolist()], known)
            more = len(open_rows) - len(left)
            if 0 <= more <= (len(open_rows) * MORE_CHUNKS if point.event >= 0 else 0):
                for row, owner in zip(open_rows, left, strict=False):
                    self._give(row, owner, "size")
                continue
            if point.event >= 0:
                rows = there_before(step, rows, point.event)
            shared = _common(step.owners[number] for number in set(step.owner[rows].tolist()))
            for row in open_rows:
                self._give(row, shared, "size")

    def _known_owners(self, size: int) -> list[ChunkOwner]:
        """Owners of the chunks of a size that are known."""
        owners = list(self._owners)
        rows = [row for row in self._by_address.values() if self._map.requested_bytes[row] == size]
        return [owners[int(self._owner[row])] for row in rows if self._owner[row] >= 0]


def _nearest(step: SeenStep, rows: Integers, event: int, count: int) -> Integers:
    """Those of the rows that were there at the instant nearest to an event at which so many of them were, or most."""
    instants = np.append(_instants(step, rows), event)
    order = np.lexsort((instants, abs(instants - event), abs(_counts(step, rows, instants) - count)))
    return there_before(step, rows, int(instants[order[0]]))


def _whenever(step: SeenStep, rows: Integers, count: int) -> Integers:
    """Those of the rows that were there whenever so many of them were, if they had the same owners each time."""
    found: Integers = np.empty(0, np.int64)
    instants = _instants(step, rows)
    for instant in instants[_counts(step, rows, instants) == count].tolist():
        there = there_before(step, rows, instant)
        if len(found) and sorted(step.owner[found].tolist()) != sorted(step.owner[there].tolist()):
            return np.empty(0, np.int64)
        found = there
    return found


def _instants(step: SeenStep, rows: Integers) -> Integers:
    """When any of the rows had just come or gone, in order."""
    return np.unique(np.append(step.birth[rows] + 1, step.death[rows] + 1))


def _counts(step: SeenStep, rows: Integers, instants: Integers) -> Integers:
    """How many of the rows were there just before each of the instants."""
    come, gone = np.sort(step.birth[rows]), np.sort(step.death[rows])
    counts: Integers = np.searchsorted(come, instants) - np.searchsorted(gone, instants)
    return counts


def _without(owners: list[ChunkOwner], known: Iterable[ChunkOwner]) -> list[ChunkOwner]:
    left = list(owners)
    for owner in known:
        if owner in left:
            left.remove(owner)
    return left


def _common(owners: Iterable[ChunkOwner]) -> ChunkOwner:
    """What all the owners share: one of them, or their kind of use, or nothing."""
    distinct = set(owners)
    if len(distinct) == 1:
        return next(iter(distinct))
    categories = {owner.category for owner in distinct}
    return ChunkOwner(None, categories.pop(), None) if len(categories) == 1 else NOBODY


def ledger_of(taken: AllocatorMap) -> tuple[LedgerRow, ...]:
    """Who holds what is in use; sums to the map's `in_use_bytes`. Empty if these are not known."""
    if taken.in_use_bytes is None:
        return ()
    sums: dict[ChunkOwner, list[int | None]] = {}
    for row in np.flatnonzero(taken.state == IN_USE).tolist():
        owner = taken.owners[int(taken.owner[row])] if taken.owner[row] >= 0 else NOBODY
        size, asked = int(taken.bytes[row]), int(taken.requested_bytes[row])
        entry = sums.setdefault(owner, [0, 0])
        entry[0] = (entry[0] or 0) + size
        entry[1] = None if entry[1] is None or asked < 0 else entry[1] + size - asked
    rest = taken.in_use_bytes - sum(entry[0] or 0 for entry in sums.values())
    if rest < 0:
        return ()
    if rest:
        entry = sums.setdefault(NOBODY, [0, None])
        entry[0], entry[1] = (entry[0] or 0) + rest, None
    rows = (
        LedgerRow(owner.layer, owner.category, owner.trainable, entry[0] or 0, entry[1])
        for owner, entry in sums.items()
    )
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.category, row.layer or "")))
