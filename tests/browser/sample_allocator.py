"""Allocator maps, a death, a restart and a growth for the page's tests; the figures are those of
`sample_runs`."""

import dataclasses
import pathlib

import numpy as np
import sample_runs
from sample_runs import MIB, Plan

from tb_memplugin.attribution import OomEvent, post_mortem
from tb_memplugin.schema import FREE, IN_USE, MISSING, ChunkOwner, MemoryMap, Oom, take_rows
from tb_memplugin.storage.write import RunWriter

BASE = 0x7F00_0000_0000
LARGEST_CHUNK = 4 * MIB
NO_MAP_STEP = 200
"""The traced step whose trace holds no map."""
MANY_CHUNKS = 50_000
DEATH_STEP = 150
FREED = -1
"""In place of the requested bytes of a free chunk, while a map is made."""


def pieces(size: int, largest: int) -> list[int]:
    """Sizes of the chunks of something so large."""
    whole, rest = divmod(size, largest)
    return [largest] * whole + ([rest] if rest else [])


def map_of(plan: Plan, step: int, *, largest_chunk: int = LARGEST_CHUNK) -> MemoryMap:
    """Two regions whose chunks hold the ledger's rows, with holes between them; sums to the
    snapshot's figures."""
    snapshot = sample_runs.snapshot_at(plan, step)
    assert snapshot.pool_bytes is not None and snapshot.largest_free_bytes is not None
    largest = snapshot.largest_free_bytes // 256 * 256
    rest = snapshot.pool_bytes - snapshot.in_use_bytes - largest
    owned = sample_runs.allocated_at(plan, step)
    used = []
    for index, row in enumerate(owned):
        known = row.category != "unattributed"
        parts = [
            (size, index if known else -1, size if known else MISSING)
            for size in pieces(row.bytes, largest_chunk)
        ]
        last, owner, requested = parts[-1]
        used += [*parts[:-1], (last, owner, requested - (row.rounding_bytes or 0))]
    hole = rest // (len(used) // 2 + 1) // 256 * 256
    chunks = []
    for place, one in enumerate(used):
        chunks.append(one)
        if place % 4 >= 2 and rest > hole > 0:
            chunks.append((hole, -1, FREED))
            rest -= hole
    # What is left of the holes lies behind the largest block, chunks between them.
    middle = len(chunks) // 2
    chunks += [(rest, -1, FREED)] if rest else []
    chunks.insert(middle, (largest, -1, FREED))
    owners = tuple(ChunkOwner(row.layer, row.category, row.trainable) for row in owned)
    size, owner, requests = np.array(chunks, np.int64).T
    state = np.where(requests == FREED, FREE, IN_USE)
    region = (np.arange(len(size)) > middle).astype(np.int64)
    address = BASE + np.concatenate([[0], np.cumsum(size)[:-1]]) + (region << 33)
    ends = [int(size[region == each].sum()) for each in (0, 1)]
    seen = (state == IN_USE) & (owner >= 0)
    lasting = np.array([each.category in ("weights", "optimizer_state") for each in owners])
    stays = np.where(owner >= 0, lasting[np.maximum(owner, 0)], False)
    return MemoryMap(
        step=step,
        phase="train",
        device=plan.device,
        wall_time=sample_runs.wall_time(plan, step),
        address=address,
        bytes=size,
        requested_bytes=np.where(requests == FREED, MISSING, requests),
        state=state,
        owner=owner,
        source=np.where(seen, np.where(stays, 1, 3), 0),
        since=np.where(seen, np.where(stays, plan.traced[0], step), MISSING),
        region=region,
        owners=owners,
        region_address=np.array([address[0], address[middle + 1]]),
        region_bytes=np.array(ends),
        in_use_bytes=int(size[state == IN_USE].sum()),
        pool_bytes=int(size.sum()),
        capacity_bytes=plan.capacity_bytes,
        complete=True,
        not_available=(),
    )


def _full(plan: Plan) -> Plan:
    """The plan on a device whose capacity is the pool of the failed step."""
    return dataclasses.replace(
        plan, capacity_bytes=sample_runs.snapshot_at(plan, DEATH_STEP).pool_bytes or 0
    )


def death_of(plan: Plan, verdict: str) -> Oom:
    """A step that asks for more than the largest block, or more than all that is free, of a pool at
    its limit."""
    taken = map_of(_full(plan), DEATH_STEP)
    free = taken.bytes[taken.state == FREE]
    asked = int(free.max()) + 2 * MIB if verdict == "fragmentation" else int(free.sum()) + 40 * MIB
    when = sample_runs.wall_time(plan, DEATH_STEP)
    layer = "vgg/block1_conv2"
    death = OomEvent(
        "1",
        "failed",
        plan.device,
        when,
        DEATH_STEP,
        "train",
        asked,
        f"{layer}/Relu",
        layer,
        "[32,64,64,64] float",
    )
    return post_mortem(death, taken)


def write_death(directory: pathlib.Path, plan: Plan, verdict: str, *, chunks: bool = True) -> None:
    """A run that was traced once and died, with the chunks of that moment or without."""
    samples = sample_runs.samples_of(_full(plan))
    writer = RunWriter(directory, producer="recorder", versions={})
    writer.layer_table(sample_runs.table_at(plan, 0))
    writer.samples(take_rows(samples, np.flatnonzero(samples.step < DEATH_STEP).tolist()))
    writer.traced(sample_runs.snapshot_at(_full(plan), plan.traced[0]))
    died = death_of(plan, verdict)
    writer.oom(died if chunks else dataclasses.replace(died, map=None))
    writer.close()


def write_restarted(directory: pathlib.Path, plan: Plan) -> None:
    """Two attempts: the second one begins anew at step 60 and needs less."""
    samples = sample_runs.samples_of(plan)
    for attempt, rows in enumerate((samples.step < 100, samples.step >= 60)):
        writer = RunWriter(directory, producer="recorder", versions={})
        writer.layer_table(dataclasses.replace(sample_runs.table_at(plan, 0), step=60 * attempt))
        chosen = take_rows(samples, np.flatnonzero(rows).tolist())
        for device in chosen.devices.values():
            device.peak_bytes[:] -= attempt * MIB
        later = attempt * 3600.0
        writer.samples(dataclasses.replace(chosen, wall_time=chosen.wall_time + later))
        taken = sample_runs.snapshot_at(plan, (3, 80)[attempt])
        writer.traced(dataclasses.replace(taken, wall_time=taken.wall_time + later))
        writer.close()


def write_growing(directory: pathlib.Path, plan: Plan) -> None:
    """What is left in use grows by 64 KiB every step from step 40 on."""
    samples = sample_runs.samples_of(plan)
    for device in samples.devices.values():
        device.in_use_bytes[:] += np.maximum(samples.step - 40, 0) * (MIB // 16)
    writer = RunWriter(directory, producer="recorder", versions={})
    writer.layer_table(sample_runs.table_at(plan, 0))
    writer.samples(samples)
    writer.close()


def write_many_chunks(directory: pathlib.Path, plan: Plan) -> None:
    """One traced step whose map has some 50,000 chunks."""
    step = plan.traced[0]
    in_use = sample_runs.snapshot_at(plan, step).in_use_bytes
    writer = RunWriter(directory, producer="recorder", versions={})
    writer.layer_table(sample_runs.table_at(plan, 0))
    samples = sample_runs.samples_of(plan)
    writer.samples(take_rows(samples, list(range(20))))
    writer.traced(sample_runs.snapshot_at(plan, step))
    writer.traced(map_of(plan, step, largest_chunk=in_use // (MANY_CHUNKS * 3 // 4) // 256 * 256))
    writer.close()
