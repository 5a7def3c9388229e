"""One traced step: the owner of each byte at its peak (the ledger), and its other results.

The rows of a ledger sum to the allocator's figure exactly: bytes without an owner are a row of
their own."""

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from tb_memplugin.allocator import TraceReplay, pool_at
from tb_memplugin.attribution.chunks import peak_event
from tb_memplugin.attribution.maps import (
    UNATTRIBUTED,
    Ages,
    StepChunks,
    owned_at,
    owned_map,
    step_chunks,
)
from tb_memplugin.attribution.module_sizes import ModuleChunk, ModuleContents, Plan, contents_of
from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.attribution.requests import planned_requests, step_requests, until_failure
from tb_memplugin.attribution.tensors import Shapes, largest_tensors, tensors_at, tensors_inside
from tb_memplugin.attribution.timelines import timeline
from tb_memplugin.attribution.window import Owner
from tb_memplugin.schema import (
    IN_USE,
    MADE_DENSE,
    AllocationTrace,
    Category,
    ChunkOwner,
    HeldTensorGroup,
    LedgerRow,
    MemoryMap,
    Phase,
    Replay,
    SavedRow,
    Snapshot,
    StepRequests,
    TensorFact,
    TensorGroup,
    Timeline,
    TraceFacts,
    common_path,
    rounding_total,
    split_rounding,
)

MIN_BYTES = 1024
"""Smallest variable of no model and smallest dense gradient with a group of tensors."""

_Key: TypeAlias = tuple[str, tuple[int, ...], str, str | None]
"""Category, shape, dtype and holder."""


class AttributedStep:
    """A traced step and what is known of it; results are computed when they are asked for. If the
    trace contradicts itself, only the bytes in use and the owners of older chunks are known.

    Args:
        trace: One device's events, of a whole step; with the maps around it, the pool is known as
            well.
        facts: What the recorder knows of the program.
        capacity_bytes: The allocator's limit; None to take it from the events."""

    def __init__(
        self,
        trace: AllocationTrace,
        facts: TraceFacts,
        *,
        step: int,
        phase: Phase,
        wall_time: float,
        capacity_bytes: int | None = None,
    ) -> None:
        self.trace, self.facts = trace, facts
        self._step, self._phase, self._wall_time, self._capacity = (
            step,
            phase,
            wall_time,
            capacity_bytes,
        )
        self._classifier = Classifier(trace, facts)
        self._peak = peak_event(trace)

    @property
    def input_sizes(self) -> set[int]:
        """Requested bytes of what the input pipeline allocated, and of batches that the step was
        given."""
        return self._classifier.older.input_sizes

    @cached_property
    def chunks(self) -> StepChunks | None:
        """The chunks with their owners; None if the trace misses events."""
        return (
            None
            if self.trace.missed
            else step_chunks(self._classifier, self._shapes, self._step, self._phase)
        )

    @cached_property
    def _shapes(self) -> Shapes:
        return Shapes(self._classifier)

    def largest_tensors(self, event: int) -> tuple[TensorGroup, ...]:
        """The largest tensors just after an event (-1: when the step began)."""
        return largest_tensors(tensors_at(self._classifier, self._shapes, event))

    @cached_property
    def _replay(self) -> TraceReplay | None:
        return None if self.trace.start_map is None else TraceReplay(self.trace, self._peak)

    def map(self, ages: Ages, event: int | None = None) -> MemoryMap | None:
        """The memory map just after an event, by default the peak, with owners; None without maps
        around the step. `ages` are those of the chunks from before the step."""
        event = self._peak if event is None else event
        replay = self._replay if event == self._peak else TraceReplay(self.trace, event)
        if replay is None or self.chunks is None:
            return None
        return owned_map(replay.map, owned_at(self.chunks, self._classifier, event), event, ages)

    def requests(self, *, first: bool, batch_size: int | None) -> StepRequests | None:
        """See `StepRequests`; None if the trace misses events, has no maps around it, or is too
        long."""
        if self.chunks is None:
            return None
        about = (self._wall_time, first, batch_size, self._capacity)
        return step_requests(self._classifier, self.chunks, *about)

    def failed_requests(
        self, batch_size: int | None, requested: int, uncertain: int, compiled: bool
    ) -> StepRequests | None:
        """As `requests`, of a step that ends as a request of about so many bytes fails: `planned`
        if a compiled module made it, else up to that one; None if they are unknown."""
        until = self.requests(first=False, batch_size=batch_size)
        if until is None or not compiled:
            return None if until is None else until_failure(until, requested)
        plan = self._classifier.plans.nearest(requested, uncertain)
        return (
            planned_requests(self._classifier, until, plan[0], batch_size)
            if plan and batch_size
            else None
        )

    def module_contents(self, requested: int | None = None, uncertain: int = 0) -> ModuleContents:
        """What is in the chunk that a compiled module requests, at the moment with most bytes in
        it: of a request of about so many bytes, by default of the largest that the step allocated.
        Empty if no module makes it."""
        plan = (
            self._largest_plan
            if requested is None
            else self._classifier.plans.nearest(requested, uncertain)
        )
        return (
            contents_of(tensors_inside(self._classifier, *plan), plan[1].bytes)
            if plan
            else ModuleContents()
        )

    @cached_property
    def _largest_plan(self) -> Plan | None:
        plans = filter(None, map(self._classifier.plan, range(len(self._classifier.chunks))))
        return max(plans, key=lambda plan: plan[1].bytes, default=None)

    def module_chunk(self, batch_size: int | None) -> ModuleChunk | None:
        """The largest chunk that a compiled module allocated; None without one, or if the batch is
        unknown."""
        plan = self._largest_plan
        return (
            ModuleChunk(self._classifier, plan, self.module_contents(), batch_size)
            if plan and batch_size
            else None
        )

    def timeline(self) -> Timeline | None:
        """The timeline; None if the trace contradicts itself or is too long."""
        return timeline(self._classifier, self._shapes, self.snapshot)

    @cached_property
    def snapshot(self) -> Snapshot:
        classifier, trace, peak, replay = self._classifier, self.trace, self._peak, self._replay
        in_use = trace.start_in_use if peak < 0 else int(trace.in_use[peak])
        notes = list(self.facts.notes)
        faults = trace.missed + classifier.chunks.unmatched_frees
        if faults:
            notes.append(
                "The layers of what the step allocated are unknown: the trace misses events and "
                f"contradicts itself in {faults} places."
            )
        ledger = split_rounding(
            _closed(_rows(classifier, peak, only_old=bool(faults)), in_use, notes)
        )
        mode, compiled = classifier.mode
        limit = int(trace.in_use[0] + trace.available[0]) if len(trace) else None
        notes.extend(_notes(compiled, None if replay is None else replay.check))
        pool = None if replay is None else pool_at(replay.map)
        fragmentation = None if pool is None else pool.fragmentation
        return Snapshot(
            step=self._step,
            phase=self._phase,
            device=trace.device,
            wall_time=self._wall_time,
            mode=mode,
            in_use_bytes=in_use,
            pool_bytes=None if pool is None else pool.pool_bytes,
            largest_free_bytes=None if pool is None else pool.largest_free_bytes,
            capacity_bytes=limit if self._capacity is None else self._capacity,
            fragmentation=_fragmentation(trace, peak) if fragmentation is None else fragmentation,
            rounding_bytes=rounding_total(ledger),
            ledger=ledger,
            saved_for_backward=() if faults else _saved_rows(classifier),
            not_available=tuple(notes),
            replay=None if replay is None else replay.check,
            held_tensors=() if faults else tensor_groups(classifier, peak),
            largest_tensors=() if faults else self.largest_tensors(peak),
        )


def _notes(compiled: int, check: Replay | None) -> Iterator[str]:
    if compiled:
        yield (
            f"Sizes inside compiled modules are not measured: XLA allocates their {compiled} "
            "bytes at once, and the breakdown of these is the compiler's plan at its own peak."
        )
    if check is not None and check.chunks < check.of_chunks:
        yield (
            f"The replay reproduces {check.chunks} of {check.of_chunks} chunks at the step's "
            "end: the trace misses events."
        )
    if check is not None and check.addresses < check.of_addresses:
        yield (
            f"The replay reproduces {check.addresses} of {check.of_addresses} addresses: this "
            "TensorFlow's allocator may follow other rules."
        )


def _rows(classifier: Classifier, peak: int, *, only_old: bool) -> list[LedgerRow]:
    """Allocated bytes by owner at the peak; `only_old` limits them to chunks in use throughout the
    window."""
    chunks = classifier.chunks
    permanent = (chunks.birth == -1) & (chunks.death == classifier.window.events)
    live = np.flatnonzero(permanent) if only_old else chunks.live(peak)
    sums: dict[Owner, tuple[int, int]] = {}
    for chunk in live.tolist():
        for owner, allocated, requested in classifier.owners(chunk, max(peak, 0)):
            size, rounding = sums.get(owner, (0, 0))
            sums[owner] = (size + allocated, rounding + allocated - requested)
    return [LedgerRow(*owner, size, rounding) for owner, (size, rounding) in sums.items()]


def _closed(rows: list[LedgerRow], in_use: int, notes: list[str]) -> list[LedgerRow]:
    """The rows and one of unattributed bytes, which sum to the bytes in use. If the rows have more
    than that, all bytes are unattributed, and a note says so."""
    left = in_use - sum(row.bytes for row in rows)
    if left < 0:
        notes.append(
            f"The owners are unknown: variables and tensors known to Python have {-left} bytes "
            "more than are in use."
        )
        rows, left = [], in_use
    return [*rows, LedgerRow(None, "unattributed", None, left, None)]


def ledger_of(memory_map: MemoryMap, module: Sequence[LedgerRow] = ()) -> tuple[LedgerRow, ...]:
    """The ledger of a map; sums to the map's `in_use_bytes`. Empty if these are unknown. A chunk of
    no layer that is as large as a running compiled module's holds what that does."""
    if memory_map.in_use_bytes is None:
        return ()
    rows: list[LedgerRow] = []
    inside = sum(row.bytes for row in module)
    for row in np.flatnonzero(memory_map.state == IN_USE).tolist():
        owner = (
            memory_map.owners[int(memory_map.owner[row])]
            if memory_map.owner[row] >= 0
            else UNATTRIBUTED
        )
        size, requested = int(memory_map.bytes[row]), int(memory_map.requested_bytes[row])
        if owner.layer is None and requested == inside > 0:
            rows += module
            owner, size, requested = ChunkOwner(None, "workspace", None), size - inside, 0
        rounding = None if requested < 0 else size - requested
        rows.append(LedgerRow(owner.layer, owner.category, owner.trainable, size, rounding))
    missing = memory_map.in_use_bytes - sum(row.bytes for row in rows)
    return (
        ()
        if missing < 0
        else split_rounding((*rows, LedgerRow(None, "unattributed", None, missing, None)))
    )


def _fragmentation(trace: AllocationTrace, peak: int) -> float | None:
    value = float(trace.fragmentation[peak]) if peak >= 0 else math.nan
    return None if math.isnan(value) else min(1.0, max(0.0, value))


def _saved_rows(classifier: Classifier) -> tuple[SavedRow, ...]:
    """Rows at the end of the forward pass that saves most, if the window has several."""
    chunks, plans = classifier.chunks, classifier.plans
    passes = map(classifier.saved_for_pass_at, classifier.execution.forward_ends)
    rows: dict[str | None, int] = defaultdict(int)
    for chunk in max(
        passes, key=lambda saved: int(chunks.requested[saved].sum()), default=chunks.birth[:0]
    ).tolist():
        fact = classifier.execution.maker(chunk)
        rows[None if fact is None else fact.layer] += int(chunks.requested[chunk])
    planned = (
        [classifier.plan(chunk) for chunk in range(len(chunks))]
        if classifier.window.trace.modules
        else []
    )
    modules = [plans.saved(*plan) for plan in planned if plan is not None]
    for layer, _, size in max(
        modules, key=lambda parts: sum(size for *_, size in parts), default=[]
    ):
        rows[layer] += size
    return tuple(
        SavedRow(layer, size)
        for layer, size in sorted(rows.items(), key=lambda row: (-row[1], row[0] or ""))
    )


# --- tensors that something else keeps
# --------------------------------------------------------------------------------


def tensor_groups(classifier: Classifier, peak: int) -> tuple[HeldTensorGroup, ...]:
    """Groups of the tensors that the ledger counts at an event (-1: the start of the window), the
    largest first."""
    chunks, facts = classifier.chunks, classifier.window.facts
    live = chunks.live(peak).tolist()
    before = {int(chunks.address[chunk]): chunk for chunk in live if chunks.birth[chunk] < 0}
    since = {int(chunks.address[chunk]): chunk for chunk in live if chunks.birth[chunk] >= 0}

    def categories(chunk: int | None) -> set[str]:
        found = [] if chunk is None else classifier.owners(chunk, max(peak, 0))
        return {owner.category for owner, _, _ in found}

    held = [  # held tensors, data sets and captured constants
        tensor
        for tensors, chunk_at in ((facts.tensors, before), (facts.tensors_at_end, since))
        for tensor in tensors
        if tensor.category == "held_tensors" or tensor.held_by is not None
        if tensor.category in categories(chunk_at.get(tensor.address))
    ]
    others = [*_constants(live, classifier), *_dense_gradients(live, classifier, categories)]
    for fact in facts.variables:
        if not fact.of_model and fact.requested_bytes >= MIN_BYTES:
            chunk = before.get(fact.start_address or 0, since.get(fact.end_address or 0))
            if "other_state" in categories(chunk):
                place = (
                    fact.requested_bytes,
                    f"variable `{fact.name.partition('#')[0].partition(':')[0]}`",
                )
                others.append(
                    HeldTensorGroup(fact.shape, fact.dtype, 1, *place, category="other_state")
                )
    groups = [*_grouped(held, _lines(facts.tensors_at_end, classifier))]
    groups += [
        dataclasses.replace(one, count=count, bytes=count * one.bytes)
        for one, count in Counter(others).items()
    ]
    return tuple(
        sorted(
            groups, key=lambda group: (-group.bytes, group.shape, group.dtype, group.held_by or "")
        )
    )


def _constants(live: Iterable[int], classifier: Classifier) -> Iterator[HeldTensorGroup]:
    for fact in filter(None, map(classifier.older.constants.get, live)):
        category: Category = "inputs" if fact.of_input else "other_state"
        of = "" if fact.function is None else f" of function `{fact.function}`"
        holder = f"constant{of}" if fact.layer is None else f"constant in layer {fact.layer}"
        yield HeldTensorGroup(
            fact.shape, fact.dtype, 1, fact.requested_bytes, holder, fact.line, category=category
        )


def _dense_gradients(
    live: Iterable[int], classifier: Classifier, categories: Callable[[int], set[str]]
) -> Iterator[HeldTensorGroup]:
    for chunk in live:
        fact, size = classifier.execution.maker(chunk), int(classifier.chunks.requested[chunk])
        if (
            fact is None
            or not fact.made_dense
            or size < MIN_BYTES
            or "weight_gradients" not in categories(chunk)
        ):
            continue
        shape = (fact.output_shapes[0] if fact.output_shapes else None) or ()
        holder = f"sparse gradient of layer {fact.gradient_of}{MADE_DENSE}"
        known = (() if -1 in shape else shape, next(iter(fact.output_dtypes), ""))
        yield HeldTensorGroup(*known, 1, size, holder, fact.line, category="weight_gradients")


def _grouped(
    tensors: Iterable[TensorFact], lines: Mapping[_Key, str | None]
) -> Iterator[HeldTensorGroup]:
    by_key: dict[_Key, list[TensorFact]] = {}
    for tensor in tensors:
        by_key.setdefault(_key(tensor), []).append(tensor)
    for key, own in by_key.items():
        first = own[0]
        size = sum(tensor.requested_bytes for tensor in own)
        path = common_path(
            [tensor.retaining_path for tensor in own if tensor.retaining_path is not None]
        )
        yield HeldTensorGroup(
            first.shape,
            first.dtype,
            len(own),
            size,
            first.held_by,
            lines.get(key),
            path,
            category=first.category,
        )


def _lines(tensors: Iterable[TensorFact], classifier: Classifier) -> dict[_Key, str | None]:
    """Key of tensors made in the window to the line that made most of them."""
    chunks = classifier.chunks
    kept = np.flatnonzero((chunks.birth >= 0) & (chunks.death == classifier.window.events))
    chunk_at = dict(zip(chunks.address[kept].tolist(), kept.tolist(), strict=True))
    lines: dict[_Key, Counter[str | None]] = {}
    for tensor in tensors:
        if tensor.address in chunk_at:
            line = classifier.line(chunk_at[tensor.address])
            lines.setdefault(_key(tensor), Counter())[line] += 1
    return {key: counts.most_common(1)[0][0] for key, counts in lines.items()}


def _key(tensor: TensorFact) -> _Key:
    return tensor.category, tensor.shape, tensor.dtype, tensor.held_by
