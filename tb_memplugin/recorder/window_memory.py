"""What earlier windows taught about one device's address space, for the ledgers of later ones."""

import dataclasses

import numpy as np

from tb_memplugin.analysis.distinct import distinct
from tb_memplugin.analysis.window_start import learned
from tb_memplugin.trace import AllocationTrace, Earlier, KnownRemainders, TraceFacts

MAX_ADDRESSES = 500_000
"""Addresses that are remembered, those seen last."""


class WindowMemory:
    """Remembers chunks and addresses of one device from window to window."""

    def __init__(self) -> None:
        self._earlier = Earlier()

    def add_to(self, facts: TraceFacts) -> TraceFacts:
        """The facts of a window, with what earlier ones taught."""
        before: dict[int, int] = {}
        after: dict[int, int] = {}
        since, window = self._earlier.since, facts.window
        for variable in facts.variables:
            start, end = variable.start_address, variable.end_address
            if start is not None:
                before[start] = since.get(start, window)
            if end is not None:
                after[end] = before[end] if end == start else window + 1
        for tensor in facts.tensors:
            before[tensor.address] = after[tensor.address] = since.get(tensor.address, window)
        taught = dataclasses.replace(self._earlier, since=before)
        self._earlier = dataclasses.replace(self._earlier, since=after)
        return dataclasses.replace(facts, earlier=taught)

    def remember(
        self, trace: AllocationTrace, window: int, remainders: tuple[KnownRemainders, ...] | None = None
    ) -> None:
        """Notes what the window's trace saw and, where it was worked out, what it proved of remainders."""
        known = self._earlier
        addresses = distinct(known.addresses, trace.address)
        last_seen = np.full(len(addresses), window)
        last_seen[np.searchsorted(addresses, known.addresses)] = known.last_seen
        last_seen[np.searchsorted(addresses, trace.address)] = window
        kept = np.sort(np.argsort(-last_seen, kind="stable")[:MAX_ADDRESSES])
        self._earlier = dataclasses.replace(
            known,
            chunks=learned(known.chunks, trace),
            addresses=addresses[kept],
            last_seen=last_seen[kept],
            remainders=known.remainders if remainders is None else remainders,
        )
