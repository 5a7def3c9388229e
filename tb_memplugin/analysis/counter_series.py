"""The values of a run's counters over a span of steps. Pure."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from tb_memplugin.model import MISSING, CounterKind, Counters, Integers, Run

_PARTS = 3


@dataclasses.dataclass(frozen=True)
class CounterGrowth:
    """The change of one counter over a span of steps.

    Attributes:
        kind, name: As in `Counters`.
        added: Growth of the count.
        added_bytes: Growth of the bytes; None if they are unknown.
        bytes: At the end; None if unknown.
        steady: Whether the count grew in each third of the span by at least half as much as on average.
        detail: The last one.
        steps: Steps at whose end it grew; None if fewer rises are recorded than half of `added`.
    """

    kind: CounterKind
    name: str | None
    added: int
    added_bytes: int | None
    bytes: int | None
    steady: bool
    detail: str | None
    steps: Integers | None


def counters_of(run: Run, device: str) -> tuple[Counters | None, str]:
    """The counters of the last session that recorded a device, and the device's name in them."""
    worker, _, own = device.rpartition("/")
    found = [counters for counters in run.counters if counters.worker == worker]
    return (found[-1] if found else None), own


def counters_of_worker(run: Run, worker: str) -> Counters | None:
    """The counters of the last session of a worker; `run` is the run of all workers, or of this one."""
    of_run = len(run.workers) == 1
    found = [counters for counters in run.counters if of_run or counters.worker == worker]
    return found[-1] if found else None


def counter_growths(counters: Counters, first_step: int, last_step: int) -> Iterator[CounterGrowth]:
    """The change of every counter from the end of `first_step` to that of `last_step`."""
    rows: dict[tuple[CounterKind, str | None], list[int]] = {}
    for at, key in enumerate(zip(counters.kind, counters.name, strict=True)):
        rows.setdefault(key, []).append(at)
    edges = np.linspace(first_step, last_step, _PARTS + 1)
    for (kind, name), of_key in rows.items():
        order = np.asarray(of_key)[np.argsort(counters.step[of_key], kind="stable")]
        steps = counters.step[order]
        places = np.searchsorted(steps, edges, side="right") - 1
        counts = np.where(places >= 0, counters.count[order][places], 0)
        sizes = np.where(places >= 0, counters.bytes[order][places], 0)
        known = not (sizes == MISSING).any()
        parts, added = np.diff(counts), int(counts[-1] - counts[0])
        rises = order[np.flatnonzero(np.diff(counters.count[order], prepend=0) > 0)]
        rises = rises[(counters.step[rises] > first_step) & (counters.step[rises] <= last_step)]
        upto = [counters.detail[at] for at in order[: int(places[-1]) + 1].tolist()]
        yield CounterGrowth(
            kind=kind,
            name=name,
            added=added,
            added_bytes=int(sizes[-1] - sizes[0]) if known else None,
            bytes=int(sizes[-1]) if sizes[-1] != MISSING else None,
            steady=bool(added > 0 and (2 * _PARTS * parts >= added).all()),
            detail=next((text for text in reversed(upto) if text is not None), None),
            steps=counters.step[rises] if 2 * len(rises) >= added else None,
        )
