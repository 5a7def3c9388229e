"""The ledger of one traced step: whose each byte is at the step's peak, and what is held for the backward pass.

The measured total is the truth: what cannot be given to an owner is a row of its own, so the rows sum to the
allocator's figure exactly.
"""

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from tb_memplugin.analysis.categories import Classifier, Owner
from tb_memplugin.analysis.lifetimes import Chunks, chunks
from tb_memplugin.analysis.pool import Pool, proven_pool
from tb_memplugin.analysis.window_start import Standing
from tb_memplugin.model import HeldRow, LedgerRow, Mode, Phase, Snapshot
from tb_memplugin.trace import AllocationTrace, TraceFacts


def attribute(
    trace: AllocationTrace,
    facts: TraceFacts,
    *,
    step: int,
    phase: Phase,
    wall_time: float,
    capacity_bytes: int | None,
    grows: bool | None = None,
    classifier: Classifier | None = None,
) -> Snapshot:
    """The snapshot of a traced step.

    Where the trace does not close, only the bytes in use are known, and what lay in them before the window.

    Args:
        trace: The allocator's events.
        facts: What was known of the program.
        step, phase, wall_time, capacity_bytes: As in the snapshot.
        grows: Whether the allocator takes memory from the device as it needs it, None if that is not known.
        classifier: The one of this trace and these facts, if it has been made already.
    """
    classifier = Classifier(trace, facts, chunks(trace)) if classifier is None else classifier
    found = classifier.chunks
    peak = peak_event(trace)
    in_use = trace.start_in_use if peak < 0 else int(trace.in_use[peak])
    notes = list(facts.notes)
    faults = trace.missed + found.strays
    if faults:
        notes.append(
            "What the step allocated is not available by layer, because the trace misses events: "
            f"in {faults} places it contradicts itself."
        )
    amounts = _amounts(found, classifier, classifier.standing(), None if faults else peak)
    ledger = _ledger(_closed(amounts, in_use, notes))
    pool = proven_pool(trace, peak, grows)
    notes.extend(_pool_notes(pool))
    mode = _mode(trace, facts, _compiled_share(found, classifier, peak), notes)
    return Snapshot(
        step=step,
        phase=phase,
        device=trace.device,
        wall_time=wall_time,
        mode=mode,
        in_use_bytes=in_use,
        pool_bytes=pool.bytes,
        largest_free_bytes=pool.largest_free_bytes,
        capacity_bytes=_capacity(trace) if capacity_bytes is None else capacity_bytes,
        fragmentation=_fragmentation(trace, peak),
        rounding_bytes=sum(row.rounding_bytes or 0 for row in ledger),
        ledger=ledger,
        held_for_backward=() if faults else _held(found, classifier),
        not_available=tuple(notes),
    )


def _closed(
    amounts: dict[Owner, tuple[int, int | None]], in_use: int, notes: list[str]
) -> dict[Owner, tuple[int, int | None]]:
    """The amounts with what they leave of the bytes in use; that alone, and a note, if they are more than these."""
    explained = sum(allocated for allocated, _ in amounts.values())
    if explained > in_use:
        notes.append(
            "The owners are not available, because what is known of them is "
            f"{explained - in_use} bytes more than was in use."
        )
        amounts, explained = {}, 0
    if explained < in_use:
        _add(amounts, Owner(None, "unattributed", None), in_use - explained, None)
    return amounts


def _mode(trace: AllocationTrace, facts: TraceFacts, share: tuple[int, int], notes: list[str]) -> Mode:
    """How the step ran, by the share of its bytes that compiled modules hold; that there are such is noted."""
    compiled, live = share
    if compiled:
        notes.append(
            "Measured sizes inside compiled modules are not available, because XLA allocates their "
            f"{compiled} bytes as blocks: what is in these is the compiler's plan for its own peak."
        )
    if compiled and 2 * compiled > live:
        return "xla"
    return facts.mode if facts.mode != "eager" or len(trace.layers) else "graph"


def _pool_notes(pool: Pool) -> Iterator[str]:
    """Sentences on what is not known of the pool."""
    if pool.bytes is None:
        yield "The size of the pool is not available, because the trace does not say it and does not prove it."
    if pool.largest_free_bytes is None:
        yield (
            "The largest free block is not available, because it follows from the pool's size and a fragmentation "
            "of six digits, which leave several sizes."
        )
    elif pool.uncertain:
        yield (
            f"The largest free block is known to ± {pool.uncertain} bytes only, because the allocator states "
            "fragmentation with six digits."
        )


def _compiled_share(found: Chunks, classifier: Classifier, peak: int) -> tuple[int, int]:
    """Bytes of compiled modules' blocks at the peak, and of everything that was allocated in the window."""
    live = [chunk for chunk in found.live(peak).tolist() if found.birth[chunk] >= 0]
    blocks = [chunk for chunk in live if classifier.plan(chunk) is not None]
    return int(found.allocated[blocks].sum()), int(found.allocated[live].sum())


def _capacity(trace: AllocationTrace) -> int:
    """The allocator's limit: what is in use and what is available."""
    return int(trace.in_use[0] + trace.available[0])


def _fragmentation(trace: AllocationTrace, peak: int) -> float | None:
    """The allocator's own figure at the peak; None before the first event and where the allocator does not say."""
    value = float(trace.fragmentation[peak]) if peak >= 0 else math.nan
    return None if math.isnan(value) else min(1.0, max(0.0, value))


def peak_event(trace: AllocationTrace) -> int:
    """Number of the event after which most bytes are in use, -1 if that was before the first."""
    peak = int(np.argmax(trace.in_use))
    return peak if int(trace.in_use[peak]) > trace.start_in_use else -1


def _amounts(
    found: Chunks, classifier: Classifier, old: tuple[Standing, ...], peak: int | None
) -> dict[Owner, tuple[int, int | None]]:
    """Owner to (allocated, rounding) at the peak; where the peak is None, of what was there before the window only."""
    totals: dict[Owner, tuple[int, int | None]] = {}
    live = [] if peak is None else found.live(peak).tolist()
    for chunk in live:
        for owner, allocated, requested in classifier.owners(chunk, peak or 0):
            _add(totals, owner, allocated, allocated - requested)
    for item in old:
        owner = Owner(item.layer, item.category, item.trainable)
        _add(totals, owner, item.allocated, item.allocated - item.requested)
    return totals


def _add(totals: dict[Owner, tuple[int, int | None]], owner: Owner, allocated: int, rounding: int | None) -> None:
    """Adds to an owner's bytes; rounding that is not known of a part is not known of the whole."""
    bytes_before, rounding_before = totals.get(owner, (0, 0))
    both = None if rounding is None or rounding_before is None else rounding_before + rounding
    totals[owner] = (bytes_before + allocated, both)


def _ledger(amounts: dict[Owner, tuple[int, int | None]]) -> tuple[LedgerRow, ...]:
    rows = [
        LedgerRow(owner.layer, owner.category, owner.trainable, allocated, rounding)
        for owner, (allocated, rounding) in amounts.items()
        if allocated
    ]
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.category, row.layer or "")))


def _held(found: Chunks, classifier: Classifier) -> tuple[HeldRow, ...]:
    """Rows at the end of that forward pass of the window at which most is held."""
    ends = classifier.forward_ends().tolist()
    end = max(ends, key=classifier.held_bytes, default=None)
    rows: dict[str | None, int] = defaultdict(int)
    for chunk in [] if end is None else classifier.held_at(end).tolist():
        rows[classifier.maker(chunk)] += int(found.requested[chunk])
    blocks = classifier.held_in_modules()
    for layer, size in max(blocks, key=lambda block: sum(size for _, size in block), default=[]):
        rows[layer] += size
    return tuple(HeldRow(layer, size) for layer, size in sorted(rows.items(), key=lambda row: (-row[1], row[0] or "")))
