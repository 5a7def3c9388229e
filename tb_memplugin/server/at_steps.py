"""Answers on single steps: breakdowns, memory maps, timelines, failed allocations, and the division
of device memory."""

import numpy as np
import numpy.typing as npt

from tb_memplugin.allocator import map_summary
from tb_memplugin.analysis import device_memory, request_contents
from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import (
    MISSING,
    OWNER_SOURCES,
    MemoryMap,
    Phase,
    Timeline,
    column_names,
    record_of,
    some,
    values_of,
)
from tb_memplugin.server import answers as of
from tb_memplugin.server.lookup import Lookup, at_step
from tb_memplugin.server.messages import Columns, MapPlace
from tb_memplugin.storage import MAPS, TIMELINES

_STATES = ("free", "in_use", "unknown")
_TIMELINE_INDICES = ("op", "address", "shape", "line")  # columns in which -1 is unknown


def snapshots(lookup: Lookup, run: str, device: str | None) -> of.SnapshotsAnswer:
    found = lookup.run(run) if device is None else lookup.find_device(run, device).loaded
    chosen = [one for one in found.run.snapshots if device in (None, one.device)]
    return of.SnapshotsAnswer(run, [record_of(of.SnapshotSummary, one) for one in chosen])


def snapshot(lookup: Lookup, run: str, device: str, step: int, phase: Phase) -> of.Snapshot:
    """Of several snapshots of a step, that of the highest peak."""
    recorded = lookup.find_device(run, device).loaded.run.snapshots
    missing = f"no snapshot of step {step} in phase {phase} on {device}"
    found = at_step(recorded, device, step, phase, missing)
    return record_of(of.Snapshot, max(found, key=lambda one: one.in_use_bytes), run=run)


def maps(lookup: Lookup, run: str, device: str | None) -> of.MapsAnswer:
    chosen = [one for one in lookup.run(run, MAPS).run.maps if device in (None, one.device)]
    listed = [
        record_of(of.MapRef, one, chunks=len(one), regions=one.region_bytes.tolist())
        for one in chosen
    ]
    return of.MapsAnswer(run, listed)


def memory_map(lookup: Lookup, run: str, place: MapPlace) -> Columns:
    found = _map_at(lookup, run, place)
    regions = zip(found.region_address.tolist(), found.region_bytes.tolist(), strict=True)
    head = record_of(
        of.MapHead,
        found,
        run=run,
        chunks=len(found),
        states=_STATES,
        sources=OWNER_SOURCES,
        regions=[of.Region(*region) for region in regions],
        summary=map_summary(found),
    )
    columns = values_of(found, *column_names(MemoryMap, "chunks"))
    return Columns(head, columns | {"owner": _known(found.owner)})


def _map_at(lookup: Lookup, run: str, place: MapPlace) -> MemoryMap:
    if place.oom is None:
        missing = f"no memory map of step {place.step} in phase {place.phase}"
        missing += f" on {place.device!r:.200}"
        recorded = lookup.run(run, MAPS).run.maps
        return at_step(recorded, place.device, place.step, place.phase, missing)[-1]
    ooms = lookup.run(run).run.ooms
    found = ooms[place.oom].map if place.oom < len(ooms) else None
    if found is None:
        what = f"memory map of failed allocation {place.oom}"
        raise NotFoundError(f"run {run} has no {what}; it has {len(ooms)} of them")
    return found


def _known(index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A column of indices with `MISSING` for unknown ones."""
    return np.where(index < 0, MISSING, index)


def timelines(lookup: Lookup, run: str, device: str | None) -> of.TimelinesAnswer:
    chosen = [
        one for one in lookup.run(run, TIMELINES).run.timelines if device in (None, one.device)
    ]
    listed = [record_of(of.TimelineRef, one, **_counts(one)) for one in chosen]
    return of.TimelinesAnswer(run, listed)


def timeline(lookup: Lookup, run: str, device: str, step: int, phase: Phase) -> Columns:
    """Of several timelines of a step, that of the highest peak."""
    recorded = lookup.run(run, TIMELINES).run.timelines
    missing = f"no timeline of step {step} in phase {phase} on {device!r:.200}"
    found = at_step(recorded, device, step, phase, missing)
    highest = max(found, key=lambda one: one.in_use_bytes)
    columns = values_of(highest, *column_names(Timeline, "allocations"))
    columns |= {name: _known(columns[name]) for name in _TIMELINE_INDICES}
    return Columns(record_of(of.TimelineHead, highest, run=run, **_counts(highest)), columns)


def _counts(found: Timeline) -> dict[str, int]:
    return {"allocations": len(found), "moments": len(found.time_ns)}


def oom(lookup: Lookup, run: str) -> of.OomsAnswer:
    ooms = [
        record_of(
            of.Oom,
            one,
            chunks=None if one.map is None else len(one.map),
            request=request_contents(one),
        )
        for one in lookup.run(run).run.ooms
    ]
    return of.OomsAnswer(run, ooms)


def division(lookup: Lookup, run: str, device: str, step: int | None) -> of.DeviceMemory:
    """The division of a device's memory."""
    recorded = lookup.run(run).run
    found = device_memory(recorded, device, step)
    if found is None:
        names = sorted({snapshot.device for snapshot in recorded.snapshots})
        raise NotFoundError(
            f"run {run} has no snapshot of device {device!r:.200}; available: {some(names)}"
        )
    return record_of(of.DeviceMemory, found, found.snapshot, run=run)
