"""The ledger of one traced step: the owner of each byte at the step's peak, and the bytes saved for the backward pass.

The rows sum to the allocator's figure exactly: bytes without an owner are a row of their own.
"""

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from tb_memplugin.allocator import TraceReplay, pool_at
from tb_memplugin.attribution.owners import UNATTRIBUTED, Classifier
from tb_memplugin.attribution.results.tensors import tensor_groups
from tb_memplugin.attribution.trace import Owner
from tb_memplugin.schema import (
    IN_USE,
    AllocationTrace,
    LedgerRow,
    MemoryMap,
    Mode,
    Phase,
    Replay,
    SavedRow,
    Snapshot,
    TraceFacts,
    rounding_total,
    split_rounding,
)


def attribute(
    trace: AllocationTrace,
    facts: TraceFacts,
    *,
    step: int,
    phase: Phase,
    wall_time: float,
    capacity_bytes: int | None,
    classifier: Classifier | None = None,
    replay: TraceReplay | None = None,
) -> Snapshot:
    """The snapshot of a traced step.

    If the trace contradicts itself, only the bytes in use and the owners of older chunks are known.

    Args:
        classifier: The classifier of this trace with these facts; made if None.
        replay: The replay of this trace up to its peak; without it, the pool is unknown.
    """
    classifier = Classifier(trace, facts) if classifier is None else classifier
    chunks = classifier.chunks
    peak = peak_event(trace)
    in_use = trace.start_in_use if peak < 0 else int(trace.in_use[peak])
    notes = list(facts.notes)
    faults = trace.missed + chunks.unmatched_frees
    if faults:
        notes.append(
            "The layers of what the step allocated are unknown: the trace misses events and contradicts itself in "
            f"{faults} places."
        )
    ledger = split_rounding(_closed(_rows(classifier, peak, only_old=bool(faults)), in_use, notes))
    mode, compiled = step_mode(classifier)
    notes.extend(_notes(compiled, None if replay is None else replay.check))
    pool = None if replay is None else pool_at(replay.map)
    fragmentation = None if pool is None else pool.fragmentation
    return Snapshot(
        step=step,
        phase=phase,
        device=trace.device,
        wall_time=wall_time,
        mode=mode,
        in_use_bytes=in_use,
        pool_bytes=None if pool is None else pool.pool_bytes,
        largest_free_bytes=None if pool is None else pool.largest_free_bytes,
        capacity_bytes=_capacity(trace) if capacity_bytes is None else capacity_bytes,
        fragmentation=_fragmentation(trace, peak) if fragmentation is None else fragmentation,
        rounding_bytes=rounding_total(ledger),
        ledger=ledger,
        saved_for_backward=() if faults else _saved_rows(classifier),
        not_available=tuple(notes),
        replay=None if replay is None else replay.check,
        held_tensors=() if faults else tensor_groups(classifier, peak),
    )


def _notes(compiled: int, check: Replay | None) -> Iterator[str]:
    """Sentences on the bytes of compiled modules' chunks, and on what the replay did not reproduce."""
    if compiled:
        yield (
            f"Sizes inside compiled modules are not measured: XLA allocates their {compiled} bytes at once, and the "
            "breakdown of these is the compiler's plan at its own peak."
        )
    if check is not None and check.chunks < check.of_chunks:
        yield (
            f"The replay reproduces {check.chunks} of {check.of_chunks} chunks at the step's end: the trace misses "
            "events."
        )
    if check is not None and check.addresses < check.of_addresses:
        yield (
            f"The replay reproduces {check.addresses} of {check.of_addresses} addresses: this TensorFlow's allocator "
            "may follow other rules."
        )


def _rows(classifier: Classifier, peak: int, *, only_old: bool) -> list[LedgerRow]:
    """Allocated bytes by owner at the peak; `only_old` limits them to chunks in use throughout the window."""
    chunks = classifier.chunks
    permanent = (chunks.birth == -1) & (chunks.death == classifier.events)
    live = np.flatnonzero(permanent) if only_old else chunks.live(peak)
    sums: dict[Owner, tuple[int, int]] = {}
    for chunk in live.tolist():
        for owner, allocated, requested in classifier.owners(chunk, max(peak, 0)):
            size, rounding = sums.get(owner, (0, 0))
            sums[owner] = (size + allocated, rounding + allocated - requested)
    return [LedgerRow(*owner, size, rounding) for owner, (size, rounding) in sums.items()]


def _closed(rows: list[LedgerRow], in_use: int, notes: list[str]) -> list[LedgerRow]:
    """The rows and one of unattributed bytes, which sum to the bytes in use.

    If the rows have more than that, all bytes are unattributed, and a note says so.
    """
    left = in_use - sum(row.bytes for row in rows)
    if left < 0:
        notes.append(
            f"The owners are unknown: variables and tensors known to Python have {-left} bytes more than are in use."
        )
        rows, left = [], in_use
    return [*rows, LedgerRow(None, "unattributed", None, left, None)]


def ledger_of(memory_map: MemoryMap) -> tuple[LedgerRow, ...]:
    """The ledger of a map; sums to the map's `in_use_bytes`. Empty if these are unknown."""
    if memory_map.in_use_bytes is None:
        return ()
    rows = []
    for row in np.flatnonzero(memory_map.state == IN_USE).tolist():
        owner = memory_map.owners[int(memory_map.owner[row])] if memory_map.owner[row] >= 0 else UNATTRIBUTED
        size, requested = int(memory_map.bytes[row]), int(memory_map.requested_bytes[row])
        rounding = None if requested < 0 else size - requested
        rows.append(LedgerRow(owner.layer, owner.category, owner.trainable, size, rounding))
    missing = memory_map.in_use_bytes - sum(row.bytes for row in rows)
    return () if missing < 0 else split_rounding((*rows, LedgerRow(None, "unattributed", None, missing, None)))


def step_mode(classifier: Classifier) -> tuple[Mode, int]:
    """How a step ran, and the bytes of compiled modules' chunks at its peak.

    Most of the bytes at the peak decide: Keras compiles single ops, such as grouped convolutions, in graph mode too.
    """
    chunks, trace, mode = classifier.chunks, classifier.window.trace, classifier.window.facts.mode
    live = [chunk for chunk in chunks.live(peak_event(trace)).tolist() if chunks.birth[chunk] >= 0]
    compiled = int(chunks.allocated[[chunk for chunk in live if classifier.plan(chunk) is not None]].sum())
    if 2 * compiled > int(chunks.allocated[live].sum()):
        return "xla", compiled
    return mode if mode != "eager" or len(trace.layers) else "graph", compiled


def _capacity(trace: AllocationTrace) -> int | None:
    """The allocator's limit: bytes in use plus bytes available; None without events."""
    return int(trace.in_use[0] + trace.available[0]) if len(trace) else None


def _fragmentation(trace: AllocationTrace, peak: int) -> float | None:
    """The allocator's own figure at the peak; None before the first event and if the event lacks it."""
    value = float(trace.fragmentation[peak]) if peak >= 0 else math.nan
    return None if math.isnan(value) else min(1.0, max(0.0, value))


def peak_event(trace: AllocationTrace) -> int:
    """Number of the event after which most bytes are in use, -1 if that is before the first."""
    peak = int(np.argmax(trace.in_use)) if len(trace) else -1
    return peak if peak >= 0 and int(trace.in_use[peak]) > trace.start_in_use else -1


def _saved_rows(classifier: Classifier) -> tuple[SavedRow, ...]:
    """Rows at the end of the forward pass that saves most, if the window has several."""
    chunks, plans = classifier.chunks, classifier.plans
    passes = map(classifier.saved.for_pass_at, classifier.execution.forward_ends)
    rows: dict[str | None, int] = defaultdict(int)
    for chunk in max(passes, key=lambda saved: int(chunks.requested[saved].sum()), default=chunks.birth[:0]).tolist():
        fact = classifier.execution.maker(chunk)
        rows[None if fact is None else fact.layer] += int(chunks.requested[chunk])
    planned = [classifier.plan(chunk) for chunk in range(len(chunks))] if classifier.window.trace.modules else []
    modules = [plans.saved(*plan) for plan in planned if plan is not None]
    for part in max(modules, key=lambda parts: sum(part.bytes for part in parts), default=[]):
        rows[part.layer] += part.bytes
    return tuple(SavedRow(layer, size) for layer, size in sorted(rows.items(), key=lambda row: (-row[1], row[0] or "")))
