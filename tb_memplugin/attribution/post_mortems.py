"""A failed allocation: the owners of the chunks at the failure, the verdict, and the post-mortem.

Training steps repeat: the same ops request the same sizes in the same order. A chunk of an untraced
step, known by address and size only, therefore has the owner of the chunk at the same place, or of
the same size, at the same point of a traced step."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tb_memplugin.allocator import free_sizes, pool_at, rounded_bytes, unreserved_bytes, verdict
from tb_memplugin.attribution.ledger import ledger_of
from tb_memplugin.attribution.maps import StepChunks
from tb_memplugin.attribution.module_sizes import ModuleChunk, ModuleContents
from tb_memplugin.attribution.window import layerless
from tb_memplugin.schema import (
    IN_USE,
    OF_PASSES,
    OWNER_SOURCES,
    ChunkOwner,
    FailedDuring,
    Integers,
    Layer,
    LedgerRow,
    MemoryMap,
    Oom,
    OomStatus,
    OwnerSource,
    Phase,
    TensorFact,
    TensorGroup,
    TraceFacts,
    VariableFact,
    Verdict,
    dimensions,
    example_bytes,
    format_bytes,
    is_pinned,
    rows_of,
)

# by how much a module's chunk may differ from its expected size, as a share of that
MODULE_TOLERANCE = 0.05
_WITH_THE_BATCH = (*OF_PASSES, "inputs")  # categories of chunks whose sizes grow with the batch
MAX_EXTRA_SHARE = 0.25
"""Share of the chunks of a size that a traced step need not have had; these stay without an owner.
At 0, `test_few_extra_chunks_of_a_size_stay_without_owner` fails."""


def unmoved(facts: TraceFacts, memory_map: MemoryMap) -> TraceFacts:
    """Facts of an earlier step without the variables and tensors that have moved since: the map has
    no chunk of their size at their address."""
    rows = memory_map.state == IN_USE
    here = set(rows_of(memory_map.address[rows], memory_map.requested_bytes[rows]))
    variables = (one for one in facts.variables if (one.end_address, one.requested_bytes) in here)
    tensors = (one for one in facts.tensors if (one.address, one.requested_bytes) in here)
    return dataclasses.replace(facts, variables=tuple(variables), tensors=tuple(tensors))


@dataclasses.dataclass(frozen=True)
class OomEvent:
    """A failed allocation; fields as in `Oom`.

    Attributes:
        uncertain_bytes: By how much the actual request may be larger or smaller than
            `requested_bytes`.
        compiled: Whether a compiled module made the request, for all its layers at once.
        library: The library that found no memory outside of TensorFlow's pool; None if TensorFlow
            requested it.
        in_use_bytes, capacity_bytes: The allocator's figures, for a failure without its chunks."""

    identifier: str
    status: OomStatus
    device: str
    wall_time: float
    step: int | None = None
    phase: Phase | None = None
    requested_bytes: int | None = None
    op: str | None = None
    layer: str | None = None
    shape: str | None = None
    line: str | None = None
    uncertain_bytes: int = 0
    compiled: bool = False
    library: str | None = None
    request_ledger: tuple[LedgerRow, ...] = ()
    request_tensors: tuple[TensorGroup, ...] = ()
    largest_tensors: tuple[TensorGroup, ...] = ()
    in_use_bytes: int | None = None
    capacity_bytes: int | None = None
    notes: tuple[str, ...] = ()
    during: FailedDuring | None = None


class OwnerMatching:
    """Gives the chunks of the map of a failure their owners, by the program and by earlier steps
    (`history`); call the most certain sources first, as no owner is replaced."""

    def __init__(
        self, memory_map: MemoryMap, history: Sequence[StepChunks], event: OomEvent
    ) -> None:
        self._map, self._history, self._event = memory_map, history, event
        self._owners = {owner: number for number, owner in enumerate(memory_map.owners)}
        self._owner, self._source = memory_map.owner.copy(), memory_map.source.copy()
        self._requested: list[int] = memory_map.requested_bytes.tolist()
        rows = np.flatnonzero(memory_map.state == IN_USE)
        self._by_address = dict(rows_of(memory_map.address[rows], rows))

    def result(self) -> MemoryMap:
        return dataclasses.replace(
            self._map, owner=self._owner, source=self._source, owners=tuple(self._owners)
        )

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
            self._at(fact.address, fact.requested_bytes, layerless(fact.category), "held_tensor")

    def _at(
        self, address: int | None, requested: int, owner: ChunkOwner, source: OwnerSource
    ) -> None:
        row = None if address is None else self._by_address.get(address)
        if row is not None and rounded_bytes(requested) <= self._map.bytes[row]:
            self._give(row, owner, source)

    def same_place(self) -> None:
        """Match chunks with the same address and size at the point of a traced step at which the op
        requests memory. From a step of another phase, only chunks that outlive the step count."""
        for step in self._history:
            same_phase = step.phase == self._event.phase
            point = step.point(self._event.op, self._event.requested_bytes) if same_phase else None
            if point is not None:
                rows = step.live(point.event)
            elif same_phase:
                rows = np.arange(len(step.address))
            else:
                rows = np.flatnonzero(step.death == step.events)
            owners: dict[tuple[int, int], set[int]] = {}
            columns = (step.address[rows], step.requested[rows], step.owner[rows])
            for address, requested, owner in rows_of(*columns):
                owners.setdefault((address, requested), set()).add(owner)
            for address, row in self._by_address.items():
                candidates = owners.get((address, self._requested[row]), set())
                if len(candidates) == 1:
                    self._give(row, step.owners[candidates.pop()], "earlier_step")

    def same_size(self, scale: float) -> None:
        """Match chunks with all chunks of their size at the same point of a traced step, or in all
        of the step.

        If the numbers of chunks agree, each gets one of the owners: which chunk has which owner is
        then arbitrary, but the owners' bytes are right. Otherwise all get what the owners have in
        common. `scale` is the batch as a multiple of the traced one."""
        steps = [step for step in self._history if step.phase == self._event.phase]
        # not all of the workspace grows with the batch
        factors = dict.fromkeys((scale, 1.0))
        for step in steps:
            point = step.point(self._event.op, self._event.requested_bytes, scale)
            if point is not None:
                for factor in factors:
                    self._by_size(step, point.event, factor)
        for step in steps:
            for factor in factors:
                self._by_size(step, None, factor)

    def results(self, layers: Iterable[Layer], batch_size: int | None) -> None:
        """Match layers' outputs by size in validation and prediction, where there is no backward
        pass."""
        if self._event.phase not in ("validation", "predict") or batch_size is None:
            return
        owners: dict[int, set[ChunkOwner]] = {}
        for layer in layers:
            each = example_bytes(layer) if _is_open(layer) else None
            if each is not None:
                owner = ChunkOwner(layer.path, "workspace", layer.trainable)
                owners.setdefault(batch_size * each, set()).add(owner)
        for row in self._open_rows():
            candidates = owners.get(self._requested[row])
            if candidates:
                self._give(row, _common(candidates), "size")

    def _by_size(self, step: StepChunks, event: int | None, scale: float) -> None:
        """Match the open chunks of each size with those at an event, or in all of the step if that
        is None. Ops that run in parallel may run a little earlier or later than in the traced step,
        so the nearest instant with as many chunks of the size stands for the event, or the one
        whose number comes closest."""
        grows = np.asarray([owner.category in _WITH_THE_BATCH for owner in step.owners], bool)
        factor = np.where(grows[step.owner], scale, 1.0)
        sizes = np.round(step.requested * factor).astype(np.int64)
        by_size: dict[int, list[int]] = {}
        for row in self._open_rows():
            by_size.setdefault(self._requested[row], []).append(row)
        for size, open_rows in by_size.items():
            rows = np.flatnonzero(sizes == size)
            if not len(rows):
                continue
            owners = list(self._owners)
            known = [
                owners[self._owner[row]]
                for row in self._by_address.values()
                if self._requested[row] == size and self._owner[row] >= 0
            ]
            count, most_extra = len(open_rows) + len(known), 0.0
            if event is None:
                live = _whenever(step, rows, count)
            else:
                live = _nearest(step, rows, event, count)
                rows = step.live(event, rows)
                most_extra = len(open_rows) * MAX_EXTRA_SHARE
            left = _without([step.owners[number] for number in step.owner[live].tolist()], known)
            shared = _common(step.owners[number] for number in set(step.owner[rows].tolist()))
            if not 0 <= len(open_rows) - len(left) <= most_extra:
                left = [shared] * len(open_rows)
            for row, owner in zip(open_rows, left, strict=False):
                self._give(row, owner, "size")


def _nearest(step: StepChunks, rows: Integers, event: int, count: int) -> Integers:
    """Those of the rows that were live at the instant nearest to an event with `count` of them, or
    closest to that."""
    instants = np.append(_instants(step, rows), event)
    order = np.lexsort(
        (instants, abs(instants - event), abs(_counts(step, rows, instants) - count))
    )
    return step.live(int(instants[order[0]]), rows)


def _whenever(step: StepChunks, rows: Integers, count: int) -> Integers:
    """Those of the rows that were live whenever `count` of them were, if they had the same owners
    each time."""
    live: Integers = np.empty(0, np.int64)
    instants = _instants(step, rows)
    for instant in instants[_counts(step, rows, instants) == count].tolist():
        now = step.live(instant, rows)
        if len(live) and sorted(step.owner[live].tolist()) != sorted(step.owner[now].tolist()):
            return np.empty(0, np.int64)
        live = now
    return live


def _instants(step: StepChunks, rows: Integers) -> Integers:
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
    """The owner, or else the category, that all the owners share; unattributed if they share
    neither."""
    distinct = set(owners)
    if len(distinct) == 1:
        return distinct.pop()
    categories = {owner.category for owner in distinct}
    return layerless(categories.pop() if len(categories) == 1 else "unattributed")


def observed_batch(
    history: Sequence[StepChunks], event: OomEvent, layer: Layer | None, traced_batch: int | None
) -> int | None:
    """Examples in the batch of a failed step that was not recorded: the traced batch if the failed
    op requested as much in a traced training step, or else the leading dimension of the failed
    tensor, if that has the shape of its layer's output and is no gradient of its weights."""
    steps = [step for step in history if step.phase == event.phase == "train"]
    points = [point for step in steps for point in step.points(event.op, event.requested_bytes)]
    if traced_batch is not None and any(point.scale == 1.0 for point in points):
        return traced_batch
    sizes = dimensions(event.shape) or ()
    shape = () if layer is None or not _is_open(layer) else layer.output_shape or ()
    if layer is None or not shape or sizes[1:] != shape[1:]:
        return None
    # with a bias and without
    weights = (layer.parameters, layer.parameters - shape[-1])
    return None if math.prod(sizes) in weights else sizes[0]


def _is_open(layer: Layer) -> bool:
    """Whether the leading dimension of the layer's output is open and not the only one."""
    shape = layer.output_shape
    return shape is not None and len(shape) > 1 and shape[0] == -1


def with_module(event: OomEvent, module: ModuleChunk | None, batch: int | None) -> OomEvent:
    """The failure of a compiled module's request with what that holds, as the chunk of a traced
    step did."""
    if module is None or not (batch and event.requested_bytes):
        return event
    ledger, tensors, of_batch = module.contents(batch, event.requested_bytes)
    event = dataclasses.replace(event, request_ledger=ledger, request_tensors=tensors)
    note = (
        f"What the request holds is an estimate from the compiled step with batch size {of_batch}."
    )
    return dataclasses.replace(event, notes=(*event.notes, note)) if of_batch else event


def running_module(memory_map: MemoryMap, module: ModuleChunk, batch: int | None) -> ModuleContents:
    """What a module holds that may be running; with another batch size, its chunk has no owner and
    about its size."""
    expected = module.contents(batch)
    size = sum(row.bytes for row in expected.ledger)
    is_other = (memory_map.state == IN_USE) & (memory_map.owner < 0)
    others = memory_map.requested_bytes[is_other].tolist()
    nearest = min(others, key=lambda other: abs(other - size), default=0)
    is_near = expected.of_batch and abs(nearest - size) <= MODULE_TOLERANCE * size
    return module.contents(batch, nearest) if is_near else expected


_PINNED = (
    "The request is for pinned host memory: RAM for transfers to GPUs, not memory of a GPU. Do not "
    "put the whole data set into one tensor: read it in batches from files or a generator "
    "(tf.data), or give the job more RAM."
)
_OF_ALLOCATOR = {"in_use_bytes", "capacity_bytes"}  # which a memory map says as well
_SAME = (OomEvent.__annotations__.keys() & Oom.__annotations__.keys()) - _OF_ALLOCATOR


def post_mortem(
    event: OomEvent,
    memory_map: MemoryMap | None,
    batch_size: int | None = None,
    needed_bytes: int | None = None,
    module: ModuleContents | None = None,
) -> Oom:
    """The post-mortem of a failed allocation, given the chunks at the failure with known owners.
    `needed_bytes` are what the step needs at least at once, even if free memory is in one piece;
    `module` is what the chunk of a compiled module holds that may have run."""
    pool = None if memory_map is None else pool_at(memory_map)
    stated = event if memory_map is None else memory_map
    in_use, capacity = stated.in_use_bytes, stated.capacity_bytes
    free = None if in_use is None or capacity is None else max(0, capacity - in_use)
    notes, ledger = list(event.notes), tuple[LedgerRow, ...]()
    cause: Verdict | None = None
    reason = ""
    if event.library is not None:
        held = "" if pool is None else f", which holds {format_bytes(pool.pool_bytes)}"
        reason = (
            f"{event.library} found no memory for itself outside of TensorFlow's pool{held}. Leave "
            "it some: tf.config.experimental.set_memory_growth, or a memory_limit for the pool. "
            "Another process may hold the memory as well."
        )
    elif pool is None and free is not None:
        cause, reason = _verdict_by_limit(event, free)
    elif memory_map is not None:
        cause, reason = _verdict(memory_map, event)
    if cause == "fragmentation" and needed_bytes and capacity and needed_bytes > capacity:
        cause = "capacity"
        needed = f"the step needs {format_bytes(needed_bytes)} of {format_bytes(capacity)}"
        reason += f" Even with free memory in one piece, {needed}."
    if memory_map is not None:
        notes += memory_map.not_available
        ledger = ledger_of(memory_map, module.ledger if module else ())
    notes += _unknown_of_request(event)
    if is_pinned(event.device):
        notes.append(_PINNED)
    if memory_map is not None and module and ledger != ledger_of(memory_map):
        scaled = f", scaled from batch size {module.of_batch}" if module.of_batch else ""
        notes.append(
            "What the running compiled module holds is inferred: its buffers at its own peak"
            f"{scaled}."
        )
    is_complete = memory_map is not None and memory_map.complete
    return Oom(
        **{name: getattr(event, name) for name in _SAME},
        free_bytes=free if pool is None else pool.free_bytes,
        # Chunks may be missing from an incomplete map.
        largest_free_bytes=pool.largest_free_bytes if pool and is_complete else None,
        in_use_bytes=in_use,
        pool_bytes=None if memory_map is None else memory_map.pool_bytes,
        capacity_bytes=capacity,
        verdict=cause,
        reason=reason,
        ledger=ledger,
        map=memory_map,
        not_available=tuple(dict.fromkeys(notes)),
        batch_size=batch_size,
    )


def _unknown_of_request(event: OomEvent) -> Iterator[str]:
    if event.compiled and not event.request_ledger:
        yield (
            "The request's layer is unknown: a compiled module requests the memory of all its "
            "layers in one piece."
        )
    if event.uncertain_bytes:
        yield (
            "The exact size of the request is unknown: TensorFlow's message rounds it, by at most "
            f"{format_bytes(event.uncertain_bytes)}."
        )
    if event.requested_bytes is None and event.library is None:
        yield f"{_UNREPORTED}."


_UNREPORTED = "TensorFlow did not report the size of the request"


def _verdict_by_limit(event: OomEvent, free: int) -> tuple[Verdict | None, str]:
    requested = event.requested_bytes
    if requested is None:
        return None, (f"{_UNREPORTED}. {format_bytes(free)} were free.")
    figures = f"{format_bytes(requested)} requested; {format_bytes(free)} free."
    if requested - event.uncertain_bytes > free:
        return "capacity", figures
    return None, f"The free chunks are unknown. {figures}"


def _verdict(memory_map: MemoryMap, event: OomEvent) -> tuple[Verdict | None, str]:
    requested, uncertain = event.requested_bytes, event.uncertain_bytes
    if requested is not None:
        cause, reason = verdict(memory_map, requested)
        least, most = (
            verdict(memory_map, requested - uncertain),
            verdict(memory_map, requested + uncertain),
        )
        if least[0] == most[0]:
            return cause, reason
        return None, f"The size of the request is not known exactly enough. {reason}"
    sizes = free_sizes(memory_map)
    largest, total = int(sizes.max(initial=0)), int(sizes.sum())
    if memory_map.complete and largest == total and not unreserved_bytes(memory_map):
        return "capacity", (
            f"{_UNREPORTED}. It was more than the {format_bytes(largest)} free, which are a single "
            "chunk."
        )
    return None, (
        f"{_UNREPORTED}. It was more than {format_bytes(largest)}, the largest free chunk; "
        f"{format_bytes(total)} were free in all."
    )
