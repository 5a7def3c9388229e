"""The pool at every step, in spans of successive steps, and its growth with the reason; and a
device's memory as one bar. Pure.

The pool is measured at step end, or else from the step's trace at the peak, or unknown. Of the bar,
the driver reports the device's memory and the use of all processes and of this one; the allocator
reports its limit, its pool and the bytes in use; the ledger divides the latter by category."""

import dataclasses
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from tb_memplugin.analysis.composition import fragmentation, overview
from tb_memplugin.analysis.facts import device_phase
from tb_memplugin.schema import (
    MISSING,
    PHASES,
    Category,
    Floats,
    Integers,
    Phase,
    Run,
    Snapshot,
    format_bytes,
    group_sums,
    measured_pools,
    optional_values,
)

MAX_SENTENCES = 30
MAX_GROWTHS = 1000  # changes of the pool that are kept: the last ones


@dataclasses.dataclass(frozen=True)
class PoolGrowth:
    """A change of the pool between two steps at which it is known, and the rise of the session's
    highest peak, if that is known; without `after_step` the first pool of a session."""

    after_step: int | None
    by_step: int
    bytes: int
    pool_bytes: int
    peak_rise_bytes: int | None

    def sentence(self) -> str:
        if self.after_step is None:
            return f"The pool was {format_bytes(self.pool_bytes)} at step {self.by_step}."
        same = self.after_step == self.by_step
        when = (
            f"At step {self.by_step}"
            if same
            else f"Between step {self.after_step} and step {self.by_step}"
        )
        way, rise, why = "grew" if self.bytes >= 0 else "shrank", self.peak_rise_bytes, ""
        if self.bytes < 0:
            why = ": the allocator returned free regions to the device"
        elif rise is not None and rise > 0:
            why = f": the highest peak rose by {format_bytes(rise)}"
        elif rise is not None:
            why = (
                ": no free chunk was large enough for a request, although the highest peak did "
                "not rise"
            )
        return (
            f"{when} the pool {way} by {format_bytes(abs(self.bytes))} to "
            f"{format_bytes(self.pool_bytes)}{why}."
        )


def _session_numbers(run: Run, wall_time: Floats) -> Integers:
    return np.searchsorted(np.sort(run.session_starts), wall_time, side="right").astype(np.int64)


def _growths(run: Run, device: str) -> tuple[tuple[PoolGrowth, ...], tuple[str, ...]]:
    """Every change of a device's pool within a session, in all phases and in order of time; and
    sentences on them."""
    # Step, wall time, peak and pool of traced steps, and then of samples: at equal times the peak
    # precedes the step's end. The pool of a step is measured, or else from its trace.
    samples, figures = run.samples, run.samples.of(device)
    snapshots = [one for one in run.snapshots if one.device == device and one.pool is not None]
    measured = measured_pools(figures)
    # Of a million samples, tuples of all steps would take 150 MB.
    both = measured & np.isin(samples.step, [one.step for one in snapshots])
    steps = set(zip(samples.step[both].tolist(), samples.phase[both].tolist(), strict=True))
    traced = [
        (one.step, one.wall_time, one.in_use_bytes, one.pool_bytes)
        for one in snapshots
        if (one.step, PHASES.index(one.phase)) not in steps
    ]
    sizes = figures.peak_bytes, np.where(measured, figures.pool_bytes, MISSING)
    of_samples = np.stack([samples.step, samples.wall_time, *sizes], axis=1)
    is_known = (figures.peak_bytes != MISSING) | measured
    of_samples = of_samples[~np.isnan(samples.wall_time) & is_known]
    moments = np.concatenate([np.asarray(traced, np.float64).reshape(-1, 4), of_samples])
    moments = moments[np.argsort(moments[:, 1], kind="stable")]
    session = _session_numbers(run, moments[:, 1])
    found: list[PoolGrowth] = []
    sentences: list[str] = []
    for index in np.unique(session[moments[:, 3] != MISSING]).tolist():
        step, _, peak, pool = moments[session == index].astype(np.int64).T
        known = pool != MISSING
        highest = np.maximum.accumulate(np.maximum(peak, 0))[known]  # peak of the session so far
        step, pool = step[known], pool[known]
        changes, rises = np.diff(pool, prepend=0), np.diff(highest, prepend=0)
        growths = [
            PoolGrowth(
                after_step=int(step[at - 1]) if at else None,
                by_step=int(step[at]),
                bytes=int(changes[at]),
                pool_bytes=int(pool[at]),
                peak_rise_bytes=int(rises[at]) if highest[at] else None,
            )
            for at in np.flatnonzero(changes)[-MAX_GROWTHS:].tolist()
        ]
        found += growths
        sentences += [growth.sentence() for growth in growths]
        if growths and growths[-1].by_step < step[-1]:
            sentences.append(
                f"From step {growths[-1].by_step} to step {step[-1]} the known pool sizes are the "
                "same."
            )
    left_out = len(sentences) - MAX_SENTENCES
    if left_out > 0:
        sentences = [f"{left_out} earlier changes are not shown.", *sentences[left_out:]]
    return tuple(found[-MAX_GROWTHS:]), tuple(sentences)


PoolSource: TypeAlias = Literal["unknown", "traced", "measured", "failed"]
POOL_SOURCES: tuple[PoolSource, ...] = get_args(PoolSource)
"""Traced means at the step's peak, measured at its end, failed at its failed allocation."""
UNKNOWN, TRACED, MEASURED, FAILED = range(4)


class PoolColumns(NamedTuple):
    """The pool at the rows of an `overview`. ``pool_source`` is an index into `POOL_SOURCES` and
    says when the three after it were so; ``peak_bytes`` of traced steps are those of the ledger,
    and ``rounding_bytes`` are known there."""

    step: Integers
    wall_time: Floats
    session: Integers
    in_use_bytes: Integers
    peak_bytes: Integers
    capacity_bytes: Integers
    pool_source: Integers
    pool_bytes: Integers
    largest_free_bytes: Integers
    fragmentation: Floats  # NaN if unknown
    rounding_bytes: Integers


class PoolSteps(NamedTuple):
    """The pool at the rows of an `overview`, and its changes between steps at which it is known, by
    session."""

    total_rows: int
    columns: PoolColumns
    growths: tuple[PoolGrowth, ...]
    sentences: tuple[str, ...]


def pool_steps(
    run: Run,
    device: str,
    phase: Phase,
    first_step: int | None,
    last_step: int | None,
    limit: int | None,
) -> PoolSteps:
    view = overview(run, device, phase, first_step, last_step, limit)
    figures = view.figures
    measured = measured_pools(figures)
    peak = figures.peak_bytes.copy()
    pool, largest = (
        np.where(measured, one, MISSING) for one in (figures.pool_bytes, figures.largest_free_bytes)
    )
    ratio = fragmentation(figures)
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
    times = view.rows.step, view.rows.wall_time, _session_numbers(run, view.rows.wall_time)
    sizes = figures.in_use_bytes, peak, figures.capacity_bytes
    columns = PoolColumns(*times, *sizes, source, pool, largest, ratio, rounding)
    return PoolSteps(view.total_rows, columns, *_growths(run, device))


@dataclasses.dataclass(frozen=True)
class PoolSpan:
    """Successive steps with the same pool; steps between them may have an unknown one."""

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
    """The pool of a device over the steps of its `device_phase`, in spans, and sentences on its
    growth."""

    spans: tuple[PoolSpan, ...]
    sentences: tuple[str, ...]


def pool_history(run: Run, device: str) -> PoolHistory:
    """The rows with a known pool, in spans of equal session, source and pool. Free bytes are the
    pool minus the bytes allocated at the same time: at step end in measured rows, at the peak in
    others."""
    pool = pool_steps(run, device, device_phase(run, device), None, None, limit=None)
    is_known = pool.columns.pool_source != UNKNOWN
    at = PoolColumns(*(column[is_known] for column in pool.columns))
    free = at.pool_bytes - np.where(at.pool_source == MEASURED, at.in_use_bytes, at.peak_bytes)
    key = np.stack([at.session, at.pool_source, at.pool_bytes], axis=1)
    cuts = np.flatnonzero((key[1:] != key[:-1]).any(axis=1)) + 1
    spans = []
    for rows in np.split(np.arange(len(key)), cuts) if len(key) else ():
        largest, ratio = at.largest_free_bytes[rows], at.fragmentation[rows]
        largest, ratio = largest[largest != MISSING], ratio[~np.isnan(ratio)]
        span = PoolSpan(
            first_step=int(at.step[rows[0]]),
            last_step=int(at.step[rows[-1]]),
            known_steps=len(rows),
            source=POOL_SOURCES[int(at.pool_source[rows[0]])],
            pool_bytes=int(at.pool_bytes[rows[0]]),
            least_free_bytes=int(free[rows].min()),
            most_free_bytes=int(free[rows].max()),
            least_largest_free_bytes=int(largest.min()) if len(largest) else None,
            most_fragmentation=float(ratio.max()) if len(ratio) else None,
        )
        spans.append(span)
    return PoolHistory(tuple(spans), pool.sentences)


_PoolPart: TypeAlias = Literal["in_use", "free_largest", "free_other", "pool_free"]
_OutsidePart: TypeAlias = Literal[
    "process_other", "others", "unreserved", "headroom", "device_free"
]
Part: TypeAlias = _PoolPart | _OutsidePart


@dataclasses.dataclass(frozen=True)
class MemorySegment:
    """A part of the bar, of ``in_use`` by category.

    ``pool_free`` stands for both free parts if the largest free chunk is unknown; ``process_other``
    is this process outside the pool (context, libraries, other allocators); ``others`` is
    other memory in use (of the driver or other processes), with ``process_other`` if the driver
    does not report processes. Without a driver,
    ``unreserved`` is the capacity outside the pool; if the pool is unknown, ``headroom`` is the
    capacity that is not in use."""

    part: Part
    category: Category | None
    trainable: bool | None
    bytes: int


@dataclasses.dataclass(frozen=True)
class DeviceMemory:
    """The bar at one traced step, or at a failure: parts that sum to the device's memory, or
    without a driver to the allocator's limit, those in use in stack order; none if the total is
    unknown."""

    snapshot: Snapshot
    total_bytes: int | None
    driver_process_bytes: int | None
    driver_used_bytes: int | None
    driver_total_bytes: int | None
    segments: tuple[MemorySegment, ...]
    notes: tuple[str, ...]


def device_memory(run: Run, device: str, step: int | None = None) -> DeviceMemory | None:
    """The bar at the last snapshot up to a step (default: the last of all), else at the first; None
    without any.

    A failure has the bar of its own step alone."""
    snapshots = [snapshot for snapshot in run.snapshots if snapshot.device == device]
    if not snapshots:
        return None
    own = [one for one in snapshots if not one.at_failure or step in (None, one.step)]
    snapshots = own or snapshots
    earlier = [one for one in snapshots if step is None or one.step <= step]
    snapshot = earlier[-1] if earlier else snapshots[0]
    process, used, total = _driver(run, device, snapshot.step)
    notes: list[str] = []
    in_use = group_sums(snapshot.ledger)
    parts = _free_parts(snapshot, notes)
    pool = sum(in_use.values()) + sum(parts.values())
    if total is not None and used is not None:
        parts |= _outside_pool(pool, process, used, total, notes)
        length: int | None = total
    else:
        length = snapshot.capacity_bytes
        notes.append("Memory of other processes is unknown: no driver reported this device.")
        if length is not None and length >= pool:
            parts["headroom" if snapshot.pool_bytes is None else "unreserved"] = length - pool
    segments = [MemorySegment("in_use", *group, size) for group, size in in_use.items()]
    segments += [MemorySegment(part, None, None, size) for part, size in parts.items()]
    if sum(segment.bytes for segment in segments) != length:
        notes.append(
            "Division of device memory unknown: its parts were measured at different times and do "
            "not fit."
        )
        segments = []
    kept = tuple(segment for segment in segments if segment.bytes)
    return DeviceMemory(snapshot, length, process, used, total, kept, tuple(notes))


def _driver(run: Run, device: str, step: int) -> list[int | None]:
    """Process's, used and total bytes of the driver's last report up to a step, else of its
    first."""
    figures = run.samples.of(device)
    columns = np.stack(
        [figures.driver_process_bytes, figures.driver_used_bytes, figures.driver_total_bytes]
    )
    known = np.flatnonzero((columns[1:] != MISSING).all(axis=0))
    before = known[run.samples.step[known] <= step]
    return (
        optional_values(columns[:, before[-1] if len(before) else known[0]])
        if len(known)
        else [None] * 3
    )


def _free_parts(snapshot: Snapshot, notes: list[str]) -> dict[Part, int]:
    """The free parts of the pool."""
    pool = snapshot.pool
    if snapshot.pool_bytes is None:
        notes.append("The free part of the pool is unknown: the pool's size was not recorded.")
    if pool is None:
        return {}
    largest, other = pool.largest_free_bytes, pool.other_free_bytes
    if largest is None or other is None:
        return {"pool_free": pool.free_bytes}
    return {"free_largest": largest, "free_other": other}


def _outside_pool(
    pool: int, process: int | None, used: int, total: int, notes: list[str]
) -> dict[Part, int]:
    mine, others = 0, max(0, used - pool)
    if process is not None and used >= process >= pool:
        mine, others = process - pool, used - process
    else:
        why = "reported less than the pool, at another time"
        why = "does not report processes" if process is None else why
        notes.append(f"This process's memory outside the pool is unknown: the driver {why}.")
    free = max(0, total - pool - mine - others)
    return {"process_other": mine, "others": others, "device_free": free}
