"""What is kept of a session's records, in bounded memory, to summarize them at any time."""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.schema import (
    LISTS,
    MISSING,
    NO_SAMPLES,
    LayerActivations,
    LedgerRow,
    Oom,
    Phase,
    Run,
    Samples,
    SessionInfo,
    Snapshot,
    WorkerSummary,
    group_sums,
    join_rows,
    measured_pools,
    settled_ooms,
    take_rows,
    with_failed_steps,
)

ROLLUP_SECONDS = 30.0
ROLLUP_SHARE = 0.01
"""A roll-up is due if the last one is older than this and than this share of the session's time so
far, sooner in the first minute."""
MAX_ROWS = 1024
"""Most rows of samples that are kept, enough for the trend of eight rows a bucket."""
MAX_FAILURES = 1000
"""Most records of failed allocations that are kept."""

_NO_ACTIVATIONS = LayerActivations(
    np.empty(0, np.int64), np.empty(0), (), np.empty((0, 0), np.int64)
)
Summarize: TypeAlias = Callable[[Run], WorkerSummary | None]


class RollUps:
    """Summarizes a session again and again; without `summarize` it keeps nothing.

    Attributes:
        has_news: Whether anything was added since the last summary."""

    def __init__(self, summarize: Summarize | None) -> None:
        self.has_news = False
        self._summarize = summarize
        self._began = self._last = time.monotonic()
        self._samples = NO_SAMPLES
        self._highest: dict[tuple[str, Phase], Snapshot] = {}
        self._traced: Counter[str] = Counter()
        self._ooms: list[Oom] = []

    def add(self, record: Samples | Snapshot | Oom) -> None:
        """Add samples in the order of recording, what `small` gives of a snapshot, or a failed
        allocation."""
        if self._summarize is None:
            return
        self.has_news = True
        if isinstance(record, Samples):
            self._add_samples(record)
        elif isinstance(record, Snapshot):
            self._traced[record.device] += 1
            key = record.device, record.phase
            both = self._highest.get(key, record), record
            self._highest[key] = max(both, key=lambda one: (one.in_use_bytes, -one.step))
        elif len(self._ooms) < MAX_FAILURES:
            ledger = _by_group(record.ledger)
            self._ooms.append(
                dataclasses.replace(
                    record, ledger=ledger, map=None, requests=None, not_available=()
                )
            )

    def _add_samples(self, samples: Samples) -> None:
        """If there are too many, every other one goes."""
        self._samples = join_rows([self._samples, samples])
        if len(self._samples) > MAX_ROWS:
            keep = np.arange(len(self._samples)) % 2 == 0
            keep[[-1, *_quoted_rows(self._samples)]] = True
            self._samples = take_rows(self._samples, keep)

    def is_due(self) -> bool:
        now = time.monotonic()
        elapsed = now - self._began
        return now - self._last >= max(min(ROLLUP_SECONDS, elapsed / 2), ROLLUP_SHARE * elapsed)

    def summary(self, info: SessionInfo) -> WorkerSummary | None:
        """The summary of what was added so far; None without news, or if none can be made."""
        if not self.has_news or self._summarize is None:
            return None
        self.has_news, self._last = False, time.monotonic()
        ooms = settled_ooms(self._ooms)
        run = Run(
            name="",
            sessions=(info.session,),
            workers=("",),
            layer_tables=(),
            samples=self._samples,
            activations=_NO_ACTIVATIONS,
            snapshots=with_failed_steps(tuple(self._highest.values()), ooms),
            notes=(),
            damage=(),
            ooms=ooms,
            session_starts=(info.started,),
            ended=info.ended is not None if info.producer == "recorder" else None,
        )
        made = self._summarize(run)
        if made is None:
            return None
        devices = (
            dataclasses.replace(
                one,
                snapshots=self._traced[one.name],
                traced=tuple(sorted(one.traced, key=lambda traced: -traced.peak_bytes)[:1]),
            )
            for one in made.devices
        )
        return dataclasses.replace(made, devices=tuple(devices))


def small(snapshot: Snapshot) -> Snapshot:
    """What a roll-up needs of a snapshot."""
    none: dict[str, Any] = {name: () for name in LISTS if name != "ledger"}
    return dataclasses.replace(
        snapshot, ledger=_by_group(snapshot.ledger), not_available=(), **none
    )


def _by_group(ledger: Sequence[LedgerRow]) -> tuple[LedgerRow, ...]:
    return tuple(LedgerRow(None, *group, size, None) for group, size in group_sums(ledger).items())


def _quoted_rows(samples: Samples) -> Iterator[int]:
    """The rows of each device's highest peaks in each phase, also with a measured pool, and of its
    last figures."""
    for phase in set(samples.phase.tolist()):
        of_phase = samples.phase == phase
        for figures in samples.devices.values():
            peaks = np.where(
                of_phase, np.maximum(figures.peak_bytes, figures.in_use_bytes), MISSING
            )
            in_last_step = of_phase & (samples.step == samples.step[of_phase][-1])
            for rows in (of_phase, measured_pools(figures), in_last_step):
                yield int(np.where(rows, peaks, MISSING).argmax())
            for column in (figures.in_use_bytes, figures.pool_bytes, figures.capacity_bytes):
                yield int((np.arange(len(column)) * (of_phase & (column != MISSING))).argmax())
