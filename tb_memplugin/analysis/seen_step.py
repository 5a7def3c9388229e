"""What a traced step taught: its chunks, when they came and went, and whose they were. Pure."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from tb_memplugin.analysis.categories import Classifier
from tb_memplugin.analysis.op_names import op_name
from tb_memplugin.model import ChunkOwner, Integers, Phase
from tb_memplugin.trace import AllocationTrace

Known = TypeVar("Known")

NOBODY = ChunkOwner(None, "unattributed", None)


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
        started: Name of an op that ran and asked for nothing to the number of events before it: it went on in the
            buffer of one of its inputs.
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
    started: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def points(self, op: str | None, requested: int | None) -> list[Point]:
        """The points of the step at which the op asked for that many bytes, or, of another batch size, for others."""
        if op is None:
            return []
        births = _of_op(self.ops, op) or ()
        sizes = {int(self.birth[row]): int(self.requested[row]) for row in np.flatnonzero(self.birth >= 0).tolist()}
        exact = [Point(birth, 1.0) for birth in births if requested in (None, sizes[birth])]
        return exact or [Point(birth, (requested or 0) / sizes[birth]) for birth in births]

    def point(self, op: str | None, requested: int | None, scale: float | None = None) -> Point | None:
        """The first of `points`, of those with that scale if there are any; else the moment at which the op ran."""
        points = self.points(op, requested)
        started = None if points or op is None else _of_op(self.started, op)
        if started is not None:
            return Point(started, 1.0 if scale is None else scale)
        scaled = [point for point in points if point.scale == scale]
        return min(scaled or points, key=lambda point: point.event, default=None)

    def live(self, instant: int) -> Integers:
        """Rows of the chunks that were there just before an event."""
        return there_before(self, np.arange(len(self.address)), instant)


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
        started={name: event for name, event in _started(trace).items() if name not in ops},
    )


def _started(trace: AllocationTrace) -> dict[str, int]:
    """Op name to the number of events before its first execution."""
    order = np.argsort(trace.ops.start_ps, kind="stable")[::-1]
    events = np.searchsorted(trace.time_ps, trace.ops.start_ps[order])
    first = dict(zip(trace.ops.name[order].tolist(), events.tolist(), strict=True))
    return {op_name(trace.strings[name]): event for name, event in first.items()}


def _of_op(known: Mapping[str, Known], op: str) -> Known | None:
    """What is known of an op, whose name may lack the scopes round it."""
    if op in known:
        return known[op]
    return next((found for name, found in known.items() if name.endswith("/" + op)), None)


def chunk_owner(classifier: Classifier, chunk: int, instant: int) -> ChunkOwner:
    """The owner of a chunk; of a compiled module's block, whose bytes are many layers', the kind that most are."""
    parts = classifier.owners(chunk, instant)
    if len(parts) == 1:
        return ChunkOwner(*parts[0][0])
    sums: Counter[str] = Counter()
    for owner, size, _ in parts:
        sums[owner.category] += size
    most = max(parts, key=lambda part: sums[part[0].category], default=None)
    return NOBODY if most is None else ChunkOwner(None, most[0].category, None)


def there_before(step: SeenStep, rows: Integers, instant: int) -> Integers:
    """Those of the rows that were there just before an event."""
    there: Integers = rows[(step.birth[rows] < instant) & (step.death[rows] >= instant)]
    return there
