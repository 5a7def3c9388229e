"""What traced steps taught about the owners of chunks, for chunks of which only addresses and sizes are known. Pure.

A training step repeats: the same operations ask for the same sizes in the same order. A chunk of a later, untraced
moment is therefore known by what lay there at the same point of a traced step.
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tb_memplugin.analysis.bfc import rounded_bytes
from tb_memplugin.analysis.categories import Classifier
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
from tb_memplugin.trace import AllocationTrace, TensorFact, VariableFact

_NONE = ChunkOwner(None, "unattributed", None)
DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "uint8": 1, "bool": 1}
_WITH_THE_BATCH = ("activations", "activation_gradients", "workspace", "inputs")
"""Categories of chunks that grow with the batch."""


@dataclasses.dataclass(frozen=True)
class Point:
    """A point of a traced step at which an op asked for memory.

    Attributes:
        event: Number of the event.
        scale: What was asked for later at this point, as a multiple of what was asked for then: the batch has grown.
    """

    event: int
    scale: float


@dataclasses.dataclass(frozen=True)
class SeenStep:
    """The chunks of one traced step and whose they were; columns of equal length.

    Attributes:
        step, phase: Which step.
        address, requested, allocated: Of the chunks.
        birth, death: Numbers of the events; -1 for what was there before, the number of events for what stayed.
        owner: Index into `owners`.
        events: Events of the trace.
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
    events: int
    ops: Mapping[str, tuple[int, ...]]

    def points(self, op: str | None, requested: int | None) -> list[Point]:
        """The points of the step at which the op asked for that many bytes, or, of another batch size, for others."""
        if op is None:
            return []
        births = self.ops.get(op) or next((found for name, found in self.ops.items() if name.endswith("/" + op)), ())
        sizes = {int(self.birth[row]): int(self.requested[row]) for row in np.flatnonzero(self.birth >= 0).tolist()}
        exact = [Point(birth, 1.0) for birth in births if requested in (None, sizes[birth])]
        return exact or [Point(birth, (requested or 0) / sizes[birth]) for birth in births]

    def point(self, op: str | None, requested: int | None, scale: float | None = None) -> Point | None:
        """The first of `points`, of those with that scale if there are any."""
        points = self.points(op, requested)
        scaled = [point for point in points if point.scale == scale]
        return min(scaled or points, key=lambda point: point.event, default=None)

    def live(self, instant: int) -> Integers:
        """Rows of the chunks that were there just before an event."""
        return _there(self, np.arange(len(self.address)), instant)


def seen_step(trace: AllocationTrace, classifier: Classifier, step: int, phase: Phase) -> SeenStep:
    """What a trace teaches, with the classifier of its chunks."""
    found = classifier.chunks
    owners: dict[ChunkOwner, int] = {}
    column: list[int] = []
    for chunk in range(len(found)):
        owner = chunk_owner(classifier, chunk, max(0, int(found.birth[chunk])))
        column.append(owners.setdefault(owner, len(owners)))
    old = classifier.standing()
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
        events=len(trace),
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
            size = _result_bytes(layer, batch_size)
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
        there were as many chunks of the size is taken for the point.
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
            if len(left) == len(open_rows):
                for row, owner in zip(open_rows, left, strict=True):
                    self._give(row, owner, "size")
                continue
            if point.event >= 0:
                rows = _there(step, rows, point.event)
            shared = _common(step.owners[number] for number in set(step.owner[rows].tolist()))
            for row in open_rows:
                self._give(row, shared, "size")

    def _known_owners(self, size: int) -> list[ChunkOwner]:
        """Owners of the chunks of a size that are known."""
        owners = list(self._owners)
        rows = [row for row in self._by_address.values() if self._map.requested_bytes[row] == size]
        return [owners[int(self._owner[row])] for row in rows if self._owner[row] >= 0]


def _nearest(step: SeenStep, rows: Integers, event: int, count: int) -> Integers:
    """Those of the rows that were there at the instant nearest to an event at which so many of them were."""
    instants = sorted({event, *(step.birth[rows] + 1).tolist(), *(step.death[rows] + 1).tolist()})
    for instant in sorted(instants, key=lambda at: abs(at - event)):
        there = _there(step, rows, instant)
        if len(there) == count:
            return there
    return np.empty(0, np.int64)


def _whenever(step: SeenStep, rows: Integers, count: int) -> Integers:
    """Those of the rows that were there whenever so many of them were, if they had the same owners each time."""
    found: Integers = np.empty(0, np.int64)
    for instant in sorted({*(step.birth[rows] + 1).tolist(), *(step.death[rows] + 1).tolist()}):
        there = _there(step, rows, instant)
        if len(there) != count:
            continue
        if len(found) and sorted(step.owner[found].tolist()) != sorted(step.owner[there].tolist()):
            return np.empty(0, np.int64)
        found = there
    return found


def _there(step: SeenStep, rows: Integers, instant: int) -> Integers:
    """Those of the rows that were there just before an event."""
    there: Integers = rows[(step.birth[rows] < instant) & (step.death[rows] >= instant)]
    return there


def _without(owners: list[ChunkOwner], known: Iterable[ChunkOwner]) -> list[ChunkOwner]:
    left = list(owners)
    for owner in known:
        if owner in left:
            left.remove(owner)
    return left


def _result_bytes(layer: Layer, batch_size: int) -> int | None:
    """Bytes of the layer's results for a batch; None where its shape leaves more open than that."""
    shape, size = layer.output_shape, DTYPE_BYTES.get(layer.output_dtype or "")
    if shape is None or size is None or len(shape) < 2 or shape[0] != -1 or min(shape[1:]) < 1:
        return None
    return batch_size * math.prod(shape[1:]) * size


def observed_batch(
    seen: Sequence[SeenStep],
    phase: Phase | None,
    op: str | None,
    requested: int | None,
    shape: str | None,
    layer: Layer | None,
    traced_batch: int | None,
    scale: float,
) -> int | None:
    """Examples in the batch of a step that failed, None if nothing says so.

    The traced batch, scaled; of a step that failed elsewhere than a traced one has been, the first dimension of a
    tensor that has the shape of its layer's results.
    """
    known = any(step.phase == phase == "train" and step.point(op, requested) is not None for step in seen)
    if known and traced_batch is not None:
        batch = traced_batch * scale
        return round(batch) if abs(batch - round(batch)) < 1e-6 else None
    return batch_of(shape, layer)


def batch_of(shape: str | None, layer: Layer | None) -> int | None:
    """Examples that a tensor of the layer is made of: its first dimension, if it has the shape of the layer's results.

    None also where it may be a gradient of the layer's weights.
    """
    numbers = [int(size) for size in re.findall(r"\d+", (shape or "").partition("]")[0])]
    expected = layer.output_shape if layer is not None else None
    if layer is None or expected is None or len(numbers) < 2 or expected[0] != -1 or tuple(numbers[1:]) != expected[1:]:
        return None
    is_weight = math.prod(numbers) in (layer.parameters, layer.parameters - numbers[-1])
    return None if is_weight else numbers[0]


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
