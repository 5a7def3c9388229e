"""The pool at every step, and in spans of successive steps. Pure.

It is measured at step end, or else from the step's trace at the peak, or unknown.
"""

import dataclasses
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.pool.pool_growth import (
    MAX_GROWTHS,
    PoolGrowth,
    pool_growths,
    pool_points,
    pool_sentences,
    sessions_of,
    shortened,
)
from tb_memplugin.analysis.steps.facts import device_phase
from tb_memplugin.analysis.steps.overview import Overview, overview
from tb_memplugin.analysis.steps.step_rows import fragmentation
from tb_memplugin.model import MISSING, Floats, Integers, Run
from tb_memplugin.model.samples import measured_pools

PoolSource: TypeAlias = Literal["unknown", "traced", "measured", "failed"]
POOL_SOURCES: tuple[PoolSource, ...] = get_args(PoolSource)
"""Source of a step's pool: unknown; from the step's trace, at its peak; measured at step end; measured at
its failed allocation."""
UNKNOWN, TRACED, MEASURED, FAILED = range(4)

MAX_ROWS = 1 << 24
"""Limit of the overview's rows; larger than any run, so that spans cover all steps."""


@dataclasses.dataclass(frozen=True)
class PoolSteps:
    """The pool at the rows of an overview; arrays have one value per row, int64 with `MISSING` unless noted.

    Free bytes are the pool minus the bytes allocated at the same time: `in_use_bytes` of measured rows, `peak_bytes` of
    traced rows.

    Attributes:
        session: Index of the row's session.
        in_use_bytes: Allocated at step end.
        peak_bytes: Allocated at the peak; at traced steps the bytes of the ledger.
        source: Index into `POOL_SOURCES`.
        pool_bytes, largest_free_bytes, fragmentation (float64, NaN): At the time given by `source`.
        rounding_bytes: At the peak of traced steps.
        growths: Changes of the pool between steps at which it is known, by session.
        sentences: The changes as text.
    """

    session: Integers
    in_use_bytes: Integers
    peak_bytes: Integers
    source: Integers
    pool_bytes: Integers
    largest_free_bytes: Integers
    fragmentation: Floats
    rounding_bytes: Integers
    growths: tuple[PoolGrowth, ...]
    sentences: tuple[str, ...]

    def free_bytes(self) -> Integers:
        """Free bytes of the pool."""
        allocated = np.where(self.source == MEASURED, self.in_use_bytes, self.peak_bytes)
        free: Integers = np.where(self.source == UNKNOWN, MISSING, self.pool_bytes - allocated)
        return free


def pool_steps(run: Run, device: str, view: Overview) -> PoolSteps:
    """The pool at the rows of the overview of a device of the run."""
    measured = measured_pools(view.figures)
    peak = view.figures.peak_bytes.copy()
    pool = np.where(measured, view.figures.pool_bytes, MISSING)
    largest = np.where(measured, view.figures.largest_free_bytes, MISSING)
    ratio = fragmentation(view.figures)
    rounding = np.full(len(peak), MISSING)
    source = np.where(measured, MEASURED, UNKNOWN)
    for row in np.flatnonzero(view.traced).tolist():
        snapshot = view.snapshots[int(view.snapshot[row])]
        peak[row] = snapshot.in_use_bytes
        rounding[row] = MISSING if snapshot.rounding_bytes is None else snapshot.rounding_bytes
        at_peak = snapshot.pool
        if (measured[row] and not snapshot.at_failure) or at_peak is None:
            continue
        source[row] = FAILED if snapshot.at_failure else TRACED
        pool[row] = at_peak.pool_bytes
        largest[row] = MISSING if at_peak.largest_free_bytes is None else at_peak.largest_free_bytes
        ratio[row] = np.nan if snapshot.fragmentation is None else snapshot.fragmentation
    growths: list[PoolGrowth] = []
    sentences: list[str] = []
    for points in pool_points(run, device):
        changes = pool_growths(points)
        growths += changes
        sentences += pool_sentences(points, changes)
    return PoolSteps(
        session=sessions_of(run, view.wall_time),
        in_use_bytes=view.figures.in_use_bytes,
        peak_bytes=peak,
        source=source,
        pool_bytes=pool,
        largest_free_bytes=largest,
        fragmentation=ratio,
        rounding_bytes=rounding,
        growths=tuple(growths[-MAX_GROWTHS:]),
        sentences=tuple(shortened(sentences)),
    )


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
