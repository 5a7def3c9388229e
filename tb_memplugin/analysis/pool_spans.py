"""The pool over the steps of a run in spans of successive steps. Pure."""

import dataclasses

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.facts import device_phase
from tb_memplugin.analysis.overview import Overview, overview
from tb_memplugin.analysis.pool_steps import POOL_SOURCES, UNKNOWN, PoolSource, PoolSteps, pool_steps
from tb_memplugin.model import MISSING, Integers, Run

MAX_ROWS = 1 << 24
"""Limit of the overview's rows; larger than any run, so that spans cover all steps."""


@dataclasses.dataclass(frozen=True)
class PoolSpan:
    """Successive steps with the same pool; steps with an unknown pool in between are skipped.

    Attributes:
        first_step, last_step: First and last step, inclusive.
        known_steps: Number of steps with a known pool.
        source: ``measured`` at step end, or ``traced`` at the peak.
        pool_bytes: The pool.
        least_free_bytes, most_free_bytes: Range of the free bytes.
        least_largest_free_bytes: Minimum of the largest free chunk; None if unknown.
        most_fragmentation: Maximum fragmentation; None if unknown.
    """

    first_step: int
    last_step: int
    known_steps: int
    source: PoolSource
    pool_bytes: int
    least_free_bytes: int
    most_free_bytes: int
    least_largest_free_bytes: int | None
    most_fragmentation: float | None


@dataclasses.dataclass(frozen=True)
class PoolHistory:
    """The pool of a device over the steps of its `device_phase`, in spans, and sentences on its growth."""

    spans: tuple[PoolSpan, ...]
    sentences: tuple[str, ...]


def pool_history(run: Run, device: str) -> PoolHistory:
    """The pool of a device over all steps of its `device_phase`."""
    view = overview(run, device, device_phase(run, device), None, None, limit=MAX_ROWS)
    pool = pool_steps(run, device, view)
    return PoolHistory(tuple(pool_spans(view, pool)), pool.sentences)


def pool_spans(view: Overview, pool: PoolSteps) -> list[PoolSpan]:
    """The rows with a known pool, in spans of equal session, source and pool."""
    known = np.flatnonzero(pool.source != UNKNOWN)
    key = np.stack([pool.session[known], pool.source[known], pool.pool_bytes[known]], axis=1)
    cuts = np.flatnonzero((key[1:] != key[:-1]).any(axis=1)) + 1
    free = pool.free_bytes()
    return [_span(view, pool, free, rows) for rows in np.split(known, cuts) if len(rows)]


def _span(view: Overview, pool: PoolSteps, free: Integers, rows: npt.NDArray[np.intp]) -> PoolSpan:
    largest, ratio = pool.largest_free_bytes[rows], pool.fragmentation[rows]
    largest, ratio = largest[largest != MISSING], ratio[~np.isnan(ratio)]
    return PoolSpan(
        first_step=int(view.step[rows[0]]),
        last_step=int(view.step[rows[-1]]),
        known_steps=len(rows),
        source=POOL_SOURCES[int(pool.source[rows[0]])],
        pool_bytes=int(pool.pool_bytes[rows[0]]),
        least_free_bytes=int(free[rows].min()),
        most_free_bytes=int(free[rows].max()),
        least_largest_free_bytes=int(largest.min()) if len(largest) else None,
        most_fragmentation=float(ratio.max()) if len(ratio) else None,
    )
