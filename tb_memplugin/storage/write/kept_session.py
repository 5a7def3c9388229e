"""What a session's writer keeps of its records, in bounded memory, to summarize them at any time."""

import dataclasses
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

MAX_ROWS = 1024
"""Most rows of samples that are kept, enough for the trend of eight rows a bucket."""
MAX_FAILURES = 1000
"""Most records of failed allocations that are kept."""

_NO_ACTIVATIONS = LayerActivations(np.empty(0, np.int64), np.empty(0), (), np.empty((0, 0), np.int64))
Summarize: TypeAlias = Callable[[Run], WorkerSummary | None]


class KeptSession:
    """Not thread-safe: the writer of the session owns it."""

    def __init__(self) -> None:
        self._samples = NO_SAMPLES
        self._highest: dict[tuple[str, Phase], Snapshot] = {}
        self._traced: Counter[str] = Counter()
        self._ooms: list[Oom] = []

    def add_samples(self, samples: Samples) -> None:
        """Add samples in the order of recording; if there are too many, every other one goes."""
        self._samples = join_rows([self._samples, samples])
        if len(self._samples) > MAX_ROWS:
            keep = np.arange(len(self._samples)) % 2 == 0
            keep[[-1, *_quoted_rows(self._samples)]] = True
            self._samples = take_rows(self._samples, keep)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        self._traced[snapshot.device] += 1
        key, small = (snapshot.device, snapshot.phase), dataclasses.replace(snapshot, ledger=_by_group(snapshot.ledger))
        none: dict[str, Any] = {name: () for name in LISTS if name != "ledger"}
        small = dataclasses.replace(small, not_available=(), **none)
        self._highest[key] = max(self._highest.get(key, small), small, key=lambda one: (one.in_use_bytes, -one.step))

    def add_oom(self, oom: Oom) -> None:
        if len(self._ooms) < MAX_FAILURES:
            self._ooms.append(dataclasses.replace(oom, ledger=_by_group(oom.ledger), map=None, not_available=()))

    def summary(self, info: SessionInfo, summarize: Summarize) -> WorkerSummary | None:
        """The summary of what was added so far; None if none can be made."""
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
        made = summarize(run)
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


def _by_group(ledger: Sequence[LedgerRow]) -> tuple[LedgerRow, ...]:
    return tuple(LedgerRow(None, *group, size, None) for group, size in group_sums(ledger).items())


def _quoted_rows(samples: Samples) -> Iterator[int]:
    """The rows of each device's highest peaks in each phase, also with a measured pool, and of its last figures."""
    for phase in set(samples.phase.tolist()):
        of_phase = samples.phase == phase
        for figures in samples.devices.values():
            peaks = np.where(of_phase, np.maximum(figures.peak_bytes, figures.in_use_bytes), MISSING)
            in_last_step = of_phase & (samples.step == samples.step[of_phase][-1])
            for rows in (of_phase, measured_pools(figures), in_last_step):
                yield int(np.where(rows, peaks, MISSING).argmax())
            for column in (figures.in_use_bytes, figures.pool_bytes, figures.capacity_bytes):
                yield int((np.arange(len(column)) * (of_phase & (column != MISSING))).argmax())
