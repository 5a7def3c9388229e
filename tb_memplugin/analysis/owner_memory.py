"""What traced steps taught about the owners of chunks, for chunks of which only addresses and sizes are known. Pure.

A training step repeats: the same operations ask for the same sizes in the same order. A chunk of a later, untraced
moment is therefore known by what lay there at the same point of a traced step.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tb_memplugin.analysis.bfc import rounded_bytes
from tb_memplugin.analysis.categories import Classifier
from tb_memplugin.analysis.lifetimes import chunks
from tb_memplugin.analysis.window_start import standing
from tb_memplugin.model import IN_USE, OWNER_SOURCES, AllocatorMap, ChunkOwner, Integers, LedgerRow, OwnerSource, Phase
from tb_memplugin.trace import AllocationTrace, TensorFact, TraceFacts, VariableFact

_NONE = ChunkOwner(None, "unattributed", None)


@dataclasses.dataclass(frozen=True)
class SeenStep:
    """The chunks of one traced step and whose they were; columns of equal length.

    Attributes:
        step, phase: Which step.
        address, requested, allocated: Of the chunks.
        birth, death: Numbers of the events; -1 for what was there before, the number of events for what stayed.
        owner: Index into `owners`.
        ops: Op name to the births of its chunks.
    """

    step: int
    phase: Phase
    address: Integers
    allocated: Integers
    requested: Integers
    birth: Integers
    death: Integers
    owner: Integers
    owners: tuple[ChunkOwner, ...]
    ops: Mapping[str, tuple[int, ...]]

    def instant(self, op: str | None, requested: int | None) -> int | None:
        """The event before which the op asked for that many bytes, None if it did not."""
        if op is None:
            return None
        births = self.ops.get(op) or next((found for name, found in self.ops.items() if name.endswith("/" + op)), ())
        sizes = {int(self.birth[row]): int(self.requested[row]) for row in np.flatnonzero(self.birth >= 0).tolist()}
        exact = [birth for birth in births if requested in (None, sizes.get(birth))]
        # Of another batch size, the same op is still the same point of the step.
        return min(exact or births, default=None)

    def live(self, instant: int) -> Integers:
        """Rows of the chunks that were there just before an event."""
        return np.flatnonzero((self.birth < instant) & (self.death >= instant))


def seen_step(trace: AllocationTrace, facts: TraceFacts, step: int, phase: Phase) -> SeenStep:
    """What a trace teaches."""
    found = chunks(trace)
    classifier = Classifier(trace, facts, found)
    owners: dict[ChunkOwner, int] = {}
    column: list[int] = []
    for chunk in range(len(found)):
        owner = chunk_owner(classifier, chunk, max(0, int(found.birth[chunk])))
        column.append(owners.setdefault(owner, len(owners)))
    old = standing(trace, facts, found)
    for item in old:
        owner = ChunkOwner(item.layer, item.category, item.trainable)
        column.append(owners.setdefault(owner, len(owners)))
    ops: dict[str, list[int]] = {}
    for birth in found.birth[found.birth >= 0].tolist():
        name = trace.text(int(trace.op[birth]))
        if name is not None:
            ops.setdefault(name, []).append(birth)
    count = len(old)
    return SeenStep(
        step=step,
        phase=phase,
        address=np.append(found.address, np.asarray([item.address for item in old], np.int64)),
        allocated=np.append(found.allocated, np.asarray([item.allocated for item in old], np.int64)),
        requested=np.append(found.requested, np.asarray([item.requested for item in old], np.int64)),
        birth=np.append(found.birth, np.full(count, -1)),
        death=np.append(found.death, np.full(count, len(trace))),
        owner=np.asarray(column, np.int64),
        owners=tuple(owners),
        ops={name: tuple(births) for name, births in ops.items()},
    )


def chunk_owner(classifier: Classifier, chunk: int, instant: int) -> ChunkOwner:
    """The owner of a chunk; of a compiled module's block, whose bytes are many layers', the kind that most are."""
    parts = classifier.owners(chunk, instant)
    if len(parts) == 1:
        return ChunkOwner(*parts[0][0])
    sums: Counter[str] = Counter()
    for owner, size, _ in parts:
        sums[owner.category] += size
    most = max(parts, key=lambda part: sums[part[0].category], default=None)
    return _NONE if most is None else ChunkOwner(None, most[0].category, None)


# --- joining ---------------------------------------------------------------------------------------------------------


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
        self._since = taken.since.copy()
        self._by_address = {int(taken.address[row]): row for row in np.flatnonzero(taken.state == IN_USE).tolist()}

    def result(self) -> AllocatorMap:
        """The map with what was learned."""
        return dataclasses.replace(
            self._map, owner=self._owner, source=self._source, since=self._since, owners=tuple(self._owners)
        )

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

    def same_place(self, seen: Sequence[SeenStep], op: str | None, requested: int | None) -> None:
        """Chunks that lay at the same address with the same size at the same point of a traced step."""
        for step in seen:
            instant = step.instant(op, requested)
            rows = range(len(step.address)) if instant is None else step.live(instant).tolist()
            owners: dict[tuple[int, int], set[int]] = {}
            for row in rows:
                key = (int(step.address[row]), int(step.requested[row]))
                owners.setdefault(key, set()).add(int(step.owner[row]))
            for address, row in self._by_address.items():
                found = owners.get((address, int(self._map.requested_bytes[row])), set())
                if len(found) == 1 and self._owner[row] < 0:
                    self._give(row, step.owners[found.pop()], "earlier_step")
                    self._since[row] = step.step if step.birth[_first(step, address)] < 0 else self._since[row]

    def same_size(self, seen: Sequence[SeenStep], op: str | None, requested: int | None) -> None:
        """Chunks of a size that, at that point of a traced step or in all of it, was that of one owner only.

        Where as many chunks of the size are left as the point had, their owners are given out: which chunk is whose is
        then open, but not how much is whose.
        """
        for step in seen:
            instant = step.instant(op, requested)
            rows = list(range(len(step.address))) if instant is None else step.live(instant).tolist()
            self._by_size(step, rows, point=instant is not None)
        for step in seen:
            self._by_size(step, list(range(len(step.address))), point=False)

    def _by_size(self, step: SeenStep, rows: Sequence[int], point: bool) -> None:
        owners: dict[int, list[int]] = {}
        for row in rows:
            owners.setdefault(int(step.requested[row]), []).append(int(step.owner[row]))
        for row in self._by_address.values():  # what is known already is not there to be given again
            left = owners.get(int(self._map.requested_bytes[row]))
            if point and left and self._owner[row] >= 0:
                known = tuple(self._owners)[int(self._owner[row])]
                match = next((number for number in left if step.owners[number] == known), None)
                if match is not None:
                    left.remove(match)
        by_size: dict[int, list[int]] = {}
        for row in self._open_rows():
            by_size.setdefault(int(self._map.requested_bytes[row]), []).append(row)
        for size, open_rows in by_size.items():
            left = owners.get(size, [])
            different = {step.owners[number] for number in left}
            if point and len(left) == len(open_rows):
                for row, number in zip(open_rows, left, strict=True):
                    self._give(row, step.owners[number], "size")
            elif different:
                for row in open_rows:
                    self._give(row, _common(different), "size")


def _first(step: SeenStep, address: int) -> int:
    return int(np.flatnonzero(step.address == address)[0])


def _common(owners: Iterable[ChunkOwner]) -> ChunkOwner:
    """What all the owners share: one of them, or their kind of use, or nothing."""
    distinct = set(owners)
    if len(distinct) == 1:
        return next(iter(distinct))
    categories = {owner.category for owner in distinct}
    return ChunkOwner(None, categories.pop(), None) if len(categories) == 1 else _NONE


def ledger_of(taken: AllocatorMap) -> tuple[LedgerRow, ...]:
    """Who holds what is in use; sums to the map's `in_use_bytes`. Empty if these are not known."""
    if taken.in_use_bytes is None:
        return ()
    sums: dict[ChunkOwner, list[int | None]] = {}
    for row in np.flatnonzero(taken.state == IN_USE).tolist():
        owner = taken.owners[int(taken.owner[row])] if taken.owner[row] >= 0 else _NONE
        size, asked = int(taken.bytes[row]), int(taken.requested_bytes[row])
        entry = sums.setdefault(owner, [0, 0])
        entry[0] = (entry[0] or 0) + size
        entry[1] = None if entry[1] is None or asked < 0 else entry[1] + size - asked
    rest = taken.in_use_bytes - sum(entry[0] or 0 for entry in sums.values())
    if rest < 0:
        return ()
    if rest:
        entry = sums.setdefault(_NONE, [0, None])
        entry[0], entry[1] = (entry[0] or 0) + rest, None
    rows = (
        LedgerRow(owner.layer, owner.category, owner.trainable, entry[0] or 0, entry[1])
        for owner, entry in sums.items()
    )
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.category, row.layer or "")))
