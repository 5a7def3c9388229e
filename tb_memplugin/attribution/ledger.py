"""The ledger: bytes in use by owner, at a step's peak or in a memory map.

The rows of a ledger sum to the allocator's figure exactly: bytes without an owner are a row of
their own."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.attribution.saved import SavedChunks
from tb_memplugin.attribution.window import layerless
from tb_memplugin.schema import (
    IN_USE,
    ChunkOwner,
    LedgerRow,
    MemoryMap,
    SavedRow,
    split_rounding,
)


def ledger_at(
    classifier: Classifier, event: int, in_use: int, *, only_old: bool
) -> tuple[tuple[LedgerRow, ...], int]:
    """The ledger just after an event (-1: before the first), and by how much its owners have more
    than the bytes in use: then all bytes are unattributed. `only_old` limits the owners to chunks
    in use throughout the window."""
    window, live = classifier.window, classifier.chunks.live(event)
    if only_old:
        live = [one for one in live if window.birth[one] < 0 and window.outlives(one)]
    sums: dict[ChunkOwner, list[int]] = defaultdict(lambda: [0, 0])
    for chunk in live:
        for owner, allocated, requested in classifier.owners(chunk, event):
            own = sums[owner]
            own[0] += allocated
            own[1] += allocated - requested
    return _closed([_row(owner, *own) for owner, own in sums.items()], in_use)


def ledger_of(memory_map: MemoryMap, module: Sequence[LedgerRow] = ()) -> tuple[LedgerRow, ...]:
    """The ledger of a map; sums to the map's `in_use_bytes`. Empty if these are unknown. A chunk of
    no layer that is as large as a running compiled module's holds what that does."""
    rows: list[LedgerRow] = []
    inside = sum(row.bytes for row in module)
    for row in np.flatnonzero(memory_map.state == IN_USE).tolist():
        number = int(memory_map.owner[row])
        owner = memory_map.owners[number] if number >= 0 else layerless("unattributed")
        size, requested = int(memory_map.bytes[row]), int(memory_map.requested_bytes[row])
        if owner.layer is None and requested == inside > 0:
            rows += module
            owner, size, requested = layerless("workspace"), size - inside, 0
        rows.append(_row(owner, size, None if requested < 0 else size - requested))
    if memory_map.in_use_bytes is None:
        return ()
    ledger, excess = _closed(rows, memory_map.in_use_bytes)
    return () if excess else ledger


def _row(owner: ChunkOwner, size: int, rounding: int | None) -> LedgerRow:
    return LedgerRow(owner.layer, owner.category, owner.trainable, size, rounding)


def _closed(rows: Sequence[LedgerRow], in_use: int) -> tuple[tuple[LedgerRow, ...], int]:
    """The rows and one of unattributed bytes, which sum to the bytes in use; and by how much the
    rows have more."""
    left = in_use - sum(row.bytes for row in rows)
    if left < 0:
        return _closed((), in_use)[0], -left
    return split_rounding((*rows, _row(layerless("unattributed"), left, None))), 0


def saved_rows(classifier: Classifier, saved: SavedChunks) -> tuple[SavedRow, ...]:
    """Rows at the end of the forward pass that saves most, if the window has several."""
    requested = classifier.chunks.requested
    passes = map(saved.at, classifier.execution.forward_ends)
    most = max(passes, key=lambda chunks: int(requested[chunks].sum()), default=requested[:0])
    rows: dict[str | None, int] = defaultdict(int)
    for chunk in most.tolist():
        rows[classifier.execution.maker(chunk).layer] += int(requested[chunk])
    planned = [plan.saved() for plan in classifier.plans.values()]
    for layer, size in max(planned, key=lambda parts: sum(size for _, size in parts), default=[]):
        rows[layer] += size
    ordered = sorted(rows.items(), key=lambda row: (-row[1], row[0] or ""))
    return tuple(SavedRow(layer, size) for layer, size in ordered)
