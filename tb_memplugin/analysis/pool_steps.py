"""What is known of the pool at every step: measured where traced, and in between what follows from that. Pure.

TensorFlow tells the pool at traced steps only; at every step it tells what is in use. A pool grows by regions and keeps
them (it gives them back only where an allocation would fail otherwise, and a CPU's never does). So between two traced
steps with the same pool, that was the pool; where the pool is at the allocator's limit, it stays there; elsewhere it
lies between what it was before, or what was in use since, and what it was later, or the limit.
"""

import dataclasses
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.bfc import ROUNDING
from tb_memplugin.analysis.overview import Overview, overview
from tb_memplugin.analysis.pool_growth import PoolGrowth, knows_pool, pool_growths, pool_sentences, pool_snapshots
from tb_memplugin.codec import MISSING
from tb_memplugin.model import Floats, Integers, Run, Snapshot

PoolSource: TypeAlias = Literal["none", "bounded", "inferred", "traced"]
POOL_SOURCES: tuple[PoolSource, ...] = get_args(PoolSource)
"""How the pool of a step is known: not at all; between two bounds; from the traced steps around it; measured."""
NONE, BOUNDED, INFERRED, TRACED = range(4)

_UNKNOWN = 1 << 62
"""In place of a limit that is not known."""
MAX_BANDS = 64
"""More bands than that are none: a pool that changes so often has no regions worth a picture."""
ABSENT, MAYBE, THERE = 0, 1, 2
"""Whether a band of the pool was there at a step."""


class Band(NamedTuple):
    """A part of the pool that came at once: a region, or what came between two traced steps in several of them.

    Attributes:
        bytes: Its size.
        region: Whether it is one region.
        growth: Index into the growths.
    """

    bytes: int
    region: bool
    growth: int


@dataclasses.dataclass(frozen=True)
class PoolSteps:
    """The pool at the rows of an overview; arrays have one value a row, int64 with `MISSING` unless said.

    Attributes:
        peak_bytes: In use at the step's peak; at traced steps the bytes of the ledger.
        low_bytes, high_bytes: The pool lies between them; equal where it is known.
        source: Index into `POOL_SOURCES`.
        largest_free_bytes, rounding_bytes, fragmentation (float64, NaN): Of traced steps, at the peak.
        growths: Every change of the pool between traced steps, session after session.
        bands: What the pool consists of, in the order it came.
        there: Shape [rows, bands]: `ABSENT`, `MAYBE` or `THERE`.
        sentences: How the pool grew.
    """

    peak_bytes: Integers
    low_bytes: Integers
    high_bytes: Integers
    source: Integers
    largest_free_bytes: Integers
    rounding_bytes: Integers
    fragmentation: Floats
    growths: tuple[PoolGrowth, ...]
    bands: tuple[Band, ...]
    there: npt.NDArray[np.int8]
    sentences: tuple[str, ...]


def pool_steps(run: Run, device: str, view: Overview) -> PoolSteps:
    """The pool at the rows of the overview of a device of the run."""
    starts = np.sort(np.asarray(run.session_starts, np.float64))
    peak = view.figures.peak_bytes.copy()
    every = {row: view.snapshots[int(view.snapshot[row])] for row in np.flatnonzero(view.traced).tolist()}
    traced = {row: taken for row, taken in every.items() if knows_pool(taken)}
    for row, taken in every.items():
        peak[row] = taken.in_use_bytes
    low, high = np.full(len(peak), MISSING), np.full(len(peak), MISSING)
    growths: list[PoolGrowth] = []
    bands: list[Band] = []
    columns: list[npt.NDArray[np.int8]] = []
    reached = _reached(run, device, starts)
    session = np.searchsorted(starts, view.wall_time, side="right")
    sessions = [(snapshots, pool_growths(snapshots)) for snapshots in pool_snapshots(run, device)]
    for snapshots, changed in sessions:
        own = int(np.searchsorted(starts, snapshots[0].wall_time, side="right"))
        rows = np.flatnonzero(session == own)
        times, limit = view.wall_time[rows], _limits(view.figures.capacity_bytes[rows])
        in_use = np.maximum(reached(own, times), np.maximum(peak[rows], 0))
        low[rows], high[rows] = _refined(changed, times, *_bounds(snapshots, times, in_use, limit))
        for band, there in _bands(changed, len(growths), times, low[rows], high[rows]):
            bands.append(band)
            columns.append(np.zeros(len(peak), np.int8))
            columns[-1][rows] = there
        growths += changed
    if len(bands) > MAX_BANDS:
        bands, columns = [], []
    source = np.where(low == MISSING, NONE, np.where(low == high, INFERRED, BOUNDED))
    at = np.asarray(list(traced), np.intp)
    for column in (low, high):
        column[at] = [taken.pool_bytes for taken in traced.values()]
    source[at] = TRACED
    return PoolSteps(
        peak_bytes=peak,
        low_bytes=low,
        high_bytes=high,
        source=source,
        largest_free_bytes=_column(len(peak), traced, "largest_free_bytes"),
        rounding_bytes=_column(len(peak), every, "rounding_bytes"),
        fragmentation=_fractions(len(peak), every),
        growths=tuple(growths),
        bands=tuple(bands),
        there=np.stack(columns, axis=1) if columns else np.empty((len(peak), 0), np.int8),
        sentences=tuple(pool_sentences(sessions)),
    )


def _limits(capacity: Integers) -> Integers:
    """What a pool can be at most, `_UNKNOWN` where the allocator's limit is not known."""
    limits: Integers = np.where(capacity == MISSING, _UNKNOWN, capacity // ROUNDING * ROUNDING)
    return limits


def _bounds(snapshots: list[Snapshot], at: Floats, in_use: Integers, limit: Integers) -> tuple[Integers, Integers]:
    """Between what the pool lay at moments of a session, by the snapshots around them.

    Args:
        snapshots: Of the session, in order of time.
        at: Seconds since the epoch.
        in_use: The most that was in use up to then.
        limit: What a pool can be at most.
    """
    times = np.asarray([taken.wall_time for taken in snapshots])
    pools = np.asarray([taken.pool_bytes for taken in snapshots], np.int64)
    before = np.searchsorted(times, at, side="right") - 1
    after = np.searchsorted(times, at, side="left")
    earlier = np.where(before >= 0, pools[np.maximum(before, 0)], 0)
    is_last = after == len(pools)
    later = np.where(is_last, np.maximum(limit, earlier), pools[np.minimum(after, len(pools) - 1)])
    shrank = later < earlier
    low = np.where(shrank, later, np.maximum(earlier, in_use))
    high = np.where(shrank, earlier, later)
    # What contradicts itself is not told: the clock was set, or figures of another allocator came in.
    told = (high >= low) & (high >= 0)
    return np.where(told, low, MISSING), np.where(told & (high < _UNKNOWN), high, MISSING)


def _refined(growths: list[PoolGrowth], at: Floats, low: Integers, high: Integers) -> tuple[Integers, Integers]:
    """The bounds, where the regions of a growth are known: the pool has then had one of a few sizes in between."""
    for growth in growths:
        if growth.regions is None:
            continue
        rows = _during(growth, at) & (low != MISSING)
        sizes = growth.pool_bytes - growth.bytes + np.cumsum([0, *growth.regions])
        low[rows] = sizes[np.minimum(np.searchsorted(sizes, low[rows]), len(sizes) - 1)]
    return low, high


def _during(growth: PoolGrowth, at: Floats) -> npt.NDArray[np.bool_]:
    """Which moments lie between the two traced steps."""
    began = growth.after.wall_time if growth.after is not None else -np.inf
    during: npt.NDArray[np.bool_] = (at > began) & (at < growth.by.wall_time)
    return during


def _bands(
    growths: list[PoolGrowth], first: int, at: Floats, low: Integers, high: Integers
) -> list[tuple[Band, npt.NDArray[np.int8]]]:
    """What the pool of a session consisted of, and whether it was there at each moment.

    Args:
        growths: Of the session.
        first: Index of its first growth.
        at, low, high: Moments, and the bounds of the pool then.
    """
    most = np.where(high == MISSING, np.where(low == MISSING, MISSING, _UNKNOWN), high)
    found: list[tuple[Band, npt.NDArray[np.int8]]] = []
    begins = 0
    for number, growth in enumerate(growths):
        if growth.bytes < 0:
            # Which regions it gave back is not known: what is left is one band.
            for _, there in found[begins:]:
                there[_during(growth, at) & (there > ABSENT)] = MAYBE
                there[at >= growth.by.wall_time] = ABSENT
            begins = len(found)
        total = 0 if growth.bytes < 0 else growth.pool_bytes - growth.bytes
        for size in growth.regions or (growth.pool_bytes - total,):
            total += size
            there = np.where(low >= total, THERE, np.where(most >= total, MAYBE, ABSENT)).astype(np.int8)
            there[at < (growth.by.wall_time if growth.bytes < 0 else -np.inf)] = ABSENT
            found.append((Band(size, growth.regions is not None, first + number), there))
    return found


class _Reached(NamedTuple):
    """The most that was in use up to a moment, by session."""

    times: dict[int, Floats]
    peaks: dict[int, Integers]

    def __call__(self, session: int, at: Floats) -> Integers:
        """The most in use up to each of the moments."""
        if session not in self.times:
            return np.zeros(len(at), np.int64)
        place = np.searchsorted(self.times[session], at, side="right") - 1
        found: Integers = np.where(place >= 0, self.peaks[session][np.maximum(place, 0)], 0)
        return found


def _reached(run: Run, device: str, starts: Floats) -> _Reached:
    figures = run.samples.devices.get(device)
    found = _Reached({}, {})
    if figures is None:
        return found
    known = np.flatnonzero((figures.peak_bytes != MISSING) & ~np.isnan(run.samples.wall_time))
    order = known[np.argsort(run.samples.wall_time[known], kind="stable")]
    session = np.searchsorted(starts, run.samples.wall_time[order], side="right")
    for own in np.unique(session).tolist():
        rows = order[session == own]
        found.times[own] = run.samples.wall_time[rows]
        found.peaks[own] = np.maximum.accumulate(figures.peak_bytes[rows])
    return found


def _column(rows: int, traced: dict[int, Snapshot], name: str) -> Integers:
    column = np.full(rows, MISSING)
    for row, taken in traced.items():
        value = getattr(taken, name)
        column[row] = MISSING if value is None else value
    return column


def _fractions(rows: int, traced: dict[int, Snapshot]) -> Floats:
    column = np.full(rows, np.nan)
    for row, taken in traced.items():
        column[row] = np.nan if taken.fragmentation is None else taken.fragmentation
    return column


# --- spans -----------------------------------------------------------------------------------------------------------

MAX_ROWS = 1 << 24
"""Steps that are told one by one: all."""


@dataclasses.dataclass(frozen=True)
class PoolSpan:
    """Successive steps with the same knowledge of the pool.

    Attributes:
        first_step, last_step: Both belong to it.
        low_bytes, high_bytes: The pool lay between them; equal where it is known.
        source: How it is known; ``inferred`` if only some of the steps were traced.
        least_idle_bytes, most_idle_bytes: Not in use at the steps' peaks; None where the pool is not known.
    """

    first_step: int
    last_step: int
    low_bytes: int
    high_bytes: int | None
    source: PoolSource
    least_idle_bytes: int | None
    most_idle_bytes: int | None


@dataclasses.dataclass(frozen=True)
class PoolHistory:
    """The pool of a device over the training steps, in spans, and the sentences on how it grew."""

    spans: tuple[PoolSpan, ...]
    sentences: tuple[str, ...]


def pool_history(run: Run, device: str) -> PoolHistory:
    """What is known of the pool of a device over all training steps."""
    view = overview(run, device, "train", None, None, limit=MAX_ROWS)
    pool = pool_steps(run, device, view)
    return PoolHistory(tuple(pool_spans(view, pool)), pool.sentences)


def pool_spans(view: Overview, pool: PoolSteps) -> list[PoolSpan]:
    """The rows in spans; rows of which nothing is known are in none."""
    known = pool.source >= INFERRED
    key = np.stack([pool.source == NONE, known, np.where(known, pool.low_bytes, 0)], axis=1)
    cuts = np.flatnonzero((key[1:] != key[:-1]).any(axis=1)) + 1
    spans = []
    for rows in np.split(np.arange(len(pool.source)), cuts):
        if len(rows) and pool.source[rows[0]] != NONE:
            spans.append(_span(view, pool, rows, bool(known[rows[0]])))
    return spans


def _span(view: Overview, pool: PoolSteps, rows: npt.NDArray[np.intp], known: bool) -> PoolSpan:
    idle = pool.low_bytes[rows] - pool.peak_bytes[rows]
    idle = idle[pool.peak_bytes[rows] != MISSING]
    high = pool.high_bytes[rows]
    told = known and len(idle) > 0
    return PoolSpan(
        first_step=int(view.step[rows[0]]),
        last_step=int(view.step[rows[-1]]),
        low_bytes=int(pool.low_bytes[rows].min()),
        high_bytes=None if (high == MISSING).any() else int(high.max()),
        source=POOL_SOURCES[int(pool.source[rows].min())],
        least_idle_bytes=int(idle.min()) if told else None,
        most_idle_bytes=int(idle.max()) if told else None,
    )
