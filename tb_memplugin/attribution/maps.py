"""The chunks of one traced step, with their lifetimes and owners, and memory maps with these
owners."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from tb_memplugin.attribution.names import op_name
from tb_memplugin.attribution.owners import Classifier, Parts
from tb_memplugin.attribution.tensors import Shapes, ShapesBySize, shapes_by_size
from tb_memplugin.attribution.window import layerless
from tb_memplugin.schema import (
    GRADIENTS,
    MISSING,
    OWNER_SOURCES,
    AllocationTrace,
    Category,
    ChunkOwner,
    Integers,
    MemoryMap,
    Phase,
    rows_of,
)

Known = TypeVar("Known")

_TRACE, _VARIABLE = OWNER_SOURCES.index("trace"), OWNER_SOURCES.index("variable")


class Point(NamedTuple):
    """An event at which an op requested memory; `scale` is a later request of the op as a multiple
    of that one."""

    event: int
    scale: float


@dataclasses.dataclass(frozen=True)
class StepChunks:
    """The chunks of one traced step and their owners; columns of equal length.

    Attributes:
        birth, death: Numbers of the events; -1 for older chunks, the number of events for chunks
            that outlive the step.
        owner: Index into `owners`.
        ops: Op name to the births of its chunks.
        started: Op name to the number of events before it, for ops that ran without a request.
        shapes: The shapes of the chunks."""

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
    shapes: ShapesBySize = dataclasses.field(default_factory=dict)

    def points(self, op: str | None, requested: int | None) -> list[Point]:
        """The points at which the op requested that many bytes, or, if there are none, any number
        of bytes."""
        births = _of_op(self.ops, op) or ()
        sizes = dict(rows_of(self.birth, self.requested))
        exact = [Point(birth, 1.0) for birth in births if requested in (None, sizes[birth])]
        return exact or [Point(birth, (requested or 0) / sizes[birth]) for birth in births]

    def point(
        self, op: str | None, requested: int | None, scale: float | None = None
    ) -> Point | None:
        """The first of `points`, preferably with that scale; without points, the moment at which
        the op ran."""
        points = self.points(op, requested)
        started = None if points else _of_op(self.started, op)
        if started is not None:
            return Point(started, 1.0 if scale is None else scale)
        scaled = [point for point in points if point.scale == scale]
        return min(scaled or points, key=lambda point: point.event, default=None)

    def live(self, instant: int, rows: Integers | None = None) -> Integers:
        live = (self.birth < instant) & (self.death >= instant)
        return np.flatnonzero(live) if rows is None else rows[live[rows]]


def step_chunks(classifier: Classifier, shapes: Shapes, step: int, phase: Phase) -> StepChunks:
    window, trace = classifier.window, classifier.window.trace
    chunks, owners = window.chunks, dict[ChunkOwner, int]()
    found = [_main_owner(classifier.spans(chunk)[0][2]) for chunk in range(len(chunks))]
    ops: dict[str, list[int]] = {}
    for birth in chunks.birth[chunks.birth >= 0].tolist():
        name = trace.text(window.op[birth])
        if name is not None:
            ops.setdefault(name, []).append(birth)
    return StepChunks(
        step=step,
        phase=phase,
        address=chunks.address,
        allocated=chunks.allocated,
        requested=chunks.requested,
        birth=chunks.birth,
        death=chunks.death,
        owner=np.asarray([owners.setdefault(owner, len(owners)) for owner in found], np.int64),
        owners=tuple(owners),
        events=len(trace),
        ops={name: tuple(births) for name, births in ops.items()},
        started={name: event for name, event in _started(trace).items() if name not in ops},
        shapes=shapes_by_size(
            zip(found, map(shapes.of, range(len(chunks))), window.requested, strict=True)
        ),
    )


def owned_at(step: StepChunks, classifier: Classifier, event: int) -> StepChunks:
    """The step with the owners of its chunks just after an event: a variable's new chunk has
    another owner before the old value is freed than afterwards."""
    owners = {owner: number for number, owner in enumerate(step.owners)}
    column = step.owner.copy()
    for chunk in step.live(event + 1).tolist():
        owner = _main_owner(classifier.owners(chunk, event))
        column[chunk] = owners.setdefault(owner, len(owners))
    return dataclasses.replace(step, owner=column, owners=tuple(owners))


def _main_owner(parts: Parts) -> ChunkOwner:
    """The owner of a chunk; for a compiled module's chunk, which has many, only the main
    category."""
    if len(parts) == 1:
        return parts[0][0]
    sums: Counter[Category] = Counter()
    for owner, size, _ in parts:
        sums[owner.category] += size
    return layerless(max(sums, key=lambda category: sums[category], default="unattributed"))


def _started(trace: AllocationTrace) -> dict[str, int]:
    order = np.argsort(trace.ops.start_ps, kind="stable")[::-1]
    events = np.searchsorted(trace.time_ps, trace.ops.start_ps[order])
    first = dict(rows_of(trace.ops.name[order], events))
    return {op_name(trace.strings[name]): event for name, event in first.items()}


def _of_op(known: Mapping[str, Known], op: str | None) -> Known | None:
    """The entry of an op, which may lack the scopes around it."""
    if op is None or op in known:
        return None if op is None else known[op]
    return next((entry for name, entry in known.items() if name.endswith("/" + op)), None)


def without_gradients(step: StepChunks) -> StepChunks:
    """The step without chunks of gradients, which do not exist in the forward pass."""
    is_gradient = [owner.category in GRADIENTS for owner in step.owners]
    kept = ~np.asarray(is_gradient, bool)[step.owner]
    columns = {
        name: column[kept] for name, column in vars(step).items() if isinstance(column, np.ndarray)
    }
    left = set(columns["birth"].tolist())
    ops = {
        name: tuple(birth for birth in births if birth in left)
        for name, births in step.ops.items()
        if not left.isdisjoint(births)
    }
    return dataclasses.replace(step, **columns, ops=ops)


# --- memory maps ----------------------------------------------------------------------------------


Ages = Mapping[tuple[int, int], int]
"""(address, bytes) of a chunk to the step of its first snapshot."""


def ages_after(known: Ages, step: StepChunks) -> Ages:
    rows = np.flatnonzero(step.death == step.events)
    return {
        (address, size): known.get((address, size), step.step) if birth < 0 else step.step
        for address, size, birth in rows_of(
            step.address[rows], step.allocated[rows], step.birth[rows]
        )
    }


def owned_map(memory_map: MemoryMap, step: StepChunks, event: int, ages: Ages) -> MemoryMap:
    """The map just after an event of the step (-1: before the first) with owners; `ages` are those
    of older chunks."""
    owner, source = memory_map.owner.copy(), memory_map.source.copy()
    since = memory_map.since.copy()
    rows = {address: row for row, address in enumerate(memory_map.address.tolist())}
    for chunk in step.live(event + 1).tolist():
        row = rows.get(int(step.address[chunk]))
        if row is None:
            continue
        is_new = bool(step.birth[chunk] >= 0)
        key = (int(step.address[chunk]), int(step.allocated[chunk]))
        since[row] = step.step if is_new else ages.get(key, MISSING)
        if step.owners[int(step.owner[chunk])].category != "unattributed":
            owner[row] = int(step.owner[chunk])
            source[row] = _TRACE if is_new else _VARIABLE
    return dataclasses.replace(
        memory_map,
        step=step.step,
        phase=step.phase,
        owner=owner,
        source=source,
        since=since,
        owners=step.owners,
    )
