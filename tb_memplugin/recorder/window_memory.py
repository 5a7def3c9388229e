"""What earlier windows taught about one device's address space, for the ledgers of later ones."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from tb_memplugin.analysis.distinct import distinct
from tb_memplugin.analysis.window_start import learned
from tb_memplugin.model import Integers
from tb_memplugin.trace import AllocationTrace, KnownChunk, KnownRemainders, TraceFacts

MAX_ADDRESSES = 500_000
"""Addresses that are remembered, those seen last."""


@dataclasses.dataclass(frozen=True)
class _Learned:
    """Fields as in `TraceFacts`."""

    chunks: Mapping[int, KnownChunk] = dataclasses.field(default_factory=dict)
    addresses: Integers = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    last_seen: Integers = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))


class WindowMemory:
    """Remembers chunks and addresses of one device from window to window."""

    def __init__(self) -> None:
        self._learned = _Learned()
        self._since: Mapping[int, int] = {}
        self._remainders: tuple[KnownRemainders, ...] = ()

    def add_to(self, facts: TraceFacts) -> TraceFacts:
        """The facts of a window, with what earlier ones taught."""
        window = facts.window
        before, after = {}, {}
        for variable in facts.variables:
            start, end = variable.start_address, variable.end_address
            if start is not None:
                before[start] = self._since.get(start, window)
            if end is not None:
                after[end] = before[end] if end == start else window + 1
        for tensor in facts.tensors:
            before[tensor.address] = after[tensor.address] = self._since.get(tensor.address, window)
        self._since = after
        known = self._learned
        return dataclasses.replace(
            facts,
            since=before,
            remainders=self._remainders,
            chunks=known.chunks,
            addresses=known.addresses,
            last_seen=known.last_seen,
        )

    def remember(
        self, trace: AllocationTrace, window: int, remainders: tuple[KnownRemainders, ...] | None = None
    ) -> None:
        """Notes what the window's trace saw and, where it was worked out, what it proved of remainders."""
        self._remainders = self._remainders if remainders is None else remainders
        known = self._learned
        addresses = distinct(known.addresses, trace.address)
        last_seen = np.full(len(addresses), window)
        last_seen[np.searchsorted(addresses, known.addresses)] = known.last_seen
        last_seen[np.searchsorted(addresses, trace.address)] = window
        kept = np.sort(np.argsort(-last_seen, kind="stable")[:MAX_ADDRESSES])
        self._learned = _Learned(learned(known.chunks, trace), addresses[kept], last_seen[kept])
