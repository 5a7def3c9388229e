"""A device's memory as one bar, from the driver, the allocator and a ledger. Pure.

The driver reports the device's memory and the use of all processes and of this one; the allocator reports its limit,
its pool and the bytes in use; the ledger divides the latter by category.
"""

import dataclasses
from typing import Literal, TypeAlias

import numpy as np

from tb_memplugin.schema import MISSING, Category, Run, Snapshot, group_sums, optional_values

_PoolPart: TypeAlias = Literal["in_use", "free_largest", "free_other", "pool_free"]
_OutsidePart: TypeAlias = Literal["process_other", "others", "unreserved", "headroom", "device_free"]
Part: TypeAlias = _PoolPart | _OutsidePart


@dataclasses.dataclass(frozen=True)
class MemorySegment:
    """A part of the bar.

    Attributes:
        part: ``in_use`` (by category); ``free_largest`` and ``free_other`` of the pool, or ``pool_free`` if the largest
            free chunk is unknown; ``process_other``: this process outside the pool (context, libraries, other
            allocators); ``others``: other processes, and ``process_other`` if the driver does not report processes;
            ``device_free``. Without a driver, ``unreserved`` is the capacity outside the pool; if the pool is unknown,
            ``headroom`` is the capacity that is not in use.
        category, trainable: Of ``in_use``, else None.
    """

    part: Part
    category: Category | None
    trainable: bool | None
    bytes: int


@dataclasses.dataclass(frozen=True)
class DeviceMemory:
    """The bar at one traced step, or at a failure.

    Attributes:
        snapshot: The snapshot with the ledger.
        total_bytes: The device's memory, or without a driver the allocator's limit.
        driver_process_bytes, driver_used_bytes, driver_total_bytes: Reported by the driver, else None.
        segments: Parts that sum to `total_bytes`, those in use in stack order; empty if the total is unknown.
        notes: Sentences on unknown or contradictory values.
    """

    snapshot: Snapshot
    total_bytes: int | None
    driver_process_bytes: int | None
    driver_used_bytes: int | None
    driver_total_bytes: int | None
    segments: tuple[MemorySegment, ...]
    notes: tuple[str, ...]


def device_memory(run: Run, device: str, step: int | None = None) -> DeviceMemory | None:
    """The bar at the last snapshot up to a step (default: the last of all), else at the first; None without any.

    A failure has the bar of its own step alone.
    """
    snapshots = [snapshot for snapshot in run.snapshots if snapshot.device == device]
    if not snapshots:
        return None
    own = [one for one in snapshots if not one.at_failure or step in (None, one.step)]
    snapshots = own or snapshots
    earlier = [snapshot for snapshot in snapshots if step is None or snapshot.step <= step]
    snapshot = earlier[-1] if earlier else snapshots[0]
    process, used, total = _driver(run, device, snapshot.step)
    notes: list[str] = []
    segments = _pool_segments(snapshot, notes)
    pool = sum(segment.bytes for segment in segments)
    if total is not None and used is not None:
        segments += _outside_pool(pool, process, used, total, notes)
        length: int | None = total
    else:
        length = snapshot.capacity_bytes
        notes.append("Memory of other processes is unknown: no driver reported this device.")
        if length is not None and length >= pool:
            remaining: Part = "headroom" if snapshot.pool_bytes is None else "unreserved"
            segments.append(MemorySegment(remaining, None, None, length - pool))
    if length is None or sum(segment.bytes for segment in segments) != length:
        notes.append("Division of device memory unknown: its parts were measured at different times and do not fit.")
        segments = []
    kept = tuple(segment for segment in segments if segment.bytes)
    return DeviceMemory(snapshot, length, process, used, total, kept, tuple(notes))


def _driver(run: Run, device: str, step: int) -> list[int | None]:
    """The process's and the used bytes and the total of the driver's last report up to a step, else of its first."""
    figures = run.samples.devices.get(device)
    if figures is None:
        return [None] * 3
    columns = np.stack([figures.driver_process_bytes, figures.driver_used_bytes, figures.driver_total_bytes])
    known = np.flatnonzero((columns[1:] != MISSING).all(axis=0))
    if not len(known):
        return [None] * 3
    before = known[run.samples.step[known] <= step]
    return optional_values(columns[:, before[-1] if len(before) else known[0]])


def _pool_segments(snapshot: Snapshot, notes: list[str]) -> list[MemorySegment]:
    segments = [MemorySegment("in_use", *group, size) for group, size in group_sums(snapshot.ledger).items()]
    pool = snapshot.pool
    free: dict[Part, int] = {}
    if snapshot.pool_bytes is None:
        notes.append("The free part of the pool is unknown: the pool's size was not recorded.")
    elif pool is not None and pool.largest_free_bytes is not None:
        largest = pool.largest_free_bytes
        free = {"free_largest": largest, "free_other": pool.free_bytes - largest}
    elif pool is not None:
        free = {"pool_free": pool.free_bytes}
    return segments + [MemorySegment(part, None, None, size) for part, size in free.items()]


def _outside_pool(pool: int, process: int | None, used: int, total: int, notes: list[str]) -> list[MemorySegment]:
    if process is not None and process >= pool and used >= process:
        mine, others = process - pool, used - process
    else:
        mine, others = 0, max(0, used - pool)
        unknown = "This process's memory outside the pool is unknown: the driver "
        if process is None:
            notes.append(f"{unknown}does not report processes.")
        else:
            notes.append(f"{unknown}reported less than the pool, at another time.")
    sizes: dict[Part, int] = {
        "process_other": mine,
        "others": others,
        "device_free": max(0, total - pool - mine - others),
    }
    return [MemorySegment(part, None, None, size) for part, size in sizes.items()]
