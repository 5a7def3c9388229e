"""Handlers of the routes on single steps: breakdowns, memory maps, timelines, failed allocations, division of device
memory."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.allocator import map_summary
from tb_memplugin.analysis import device_memory
from tb_memplugin.errors import NotFoundError
from tb_memplugin.export import describe_oom, describe_snapshot
from tb_memplugin.schema import (
    MISSING,
    OWNER_SOURCES,
    MemoryMap,
    Phase,
    Timeline,
    as_json,
    column_names,
    some,
    values_of,
)
from tb_memplugin.server.messages import ANY_DEVICE, ANY_STEP, DEVICE, PHASE, PLACE, RUN, STEP, Columns, MapPlace, route
from tb_memplugin.server.workers import Lookup, at_step
from tb_memplugin.storage.files import Source
from tb_memplugin.storage.read import BASIC, MAPS, TIMELINES

_STATES = ("free", "in_use", "unknown")
_TIMELINE_INDICES = ("op", "address", "shape", "line")
"""Columns in which -1 is unknown."""


class Steps(Lookup):
    """Handlers of the routes on single steps."""

    def snapshots(self, source: Source, run: str, device: str | None) -> dict[str, Any]:
        loaded = self._reader.run(source, run) if device is None else self.find_device(source, run, device).loaded
        return {
            "run": run,
            "snapshots": [
                describe_snapshot(snapshot, ledger=False)
                for snapshot in loaded.run.snapshots
                if device in (None, snapshot.device)
            ],
        }

    def snapshot(self, source: Source, run: str, device: str, step: int, phase: Phase) -> dict[str, Any]:
        """Of several snapshots of a step, that of the highest peak."""
        loaded = self.find_device(source, run, device).loaded
        missing = f"no snapshot of step {step} in phase {phase} on {device}"
        snapshots = at_step(loaded.run.snapshots, device, step, phase, missing)
        return {"run": run, **describe_snapshot(max(snapshots, key=lambda snapshot: snapshot.in_use_bytes))}

    def maps(self, source: Source, run: str, device: str | None) -> dict[str, Any]:
        loaded = self._reader.run(source, run, {*BASIC, MAPS})
        chosen = [memory_map for memory_map in loaded.run.maps if device in (None, memory_map.device)]
        return {
            "run": run,
            "maps": [{**_map_facts(memory_map), "regions": memory_map.region_bytes.tolist()} for memory_map in chosen],
        }

    def map(self, source: Source, run: str, place: MapPlace) -> Columns:
        memory_map = self._map(source, run, place)
        regions = memory_map.region_address.tolist(), memory_map.region_bytes.tolist()
        fields = {
            "run": run,
            **_map_facts(memory_map),
            "states": list(_STATES),
            "sources": list(OWNER_SOURCES),
            "owners": as_json(memory_map.owners),
            "regions": [{"address": address, "bytes": size} for address, size in zip(*regions, strict=True)],
            "summary": map_summary(memory_map),
        }
        columns: dict[str, npt.NDArray[Any]] = values_of(memory_map, *column_names(MemoryMap, "chunks"))
        columns["owner"] = np.where(memory_map.owner < 0, MISSING, memory_map.owner)
        return Columns(fields, columns)

    def timelines(self, source: Source, run: str, device: str | None) -> dict[str, Any]:
        loaded = self._reader.run(source, run, {*BASIC, TIMELINES})
        chosen = [one for one in loaded.run.timelines if device in (None, one.device)]
        return {"run": run, "timelines": [_timeline_facts(one) for one in chosen]}

    def timeline(self, source: Source, run: str, device: str, step: int, phase: Phase) -> Columns:
        """Of several timelines of a step, that of the highest peak."""
        timelines = self._reader.run(source, run, {*BASIC, TIMELINES}).run.timelines
        missing = f"no timeline of step {step} in phase {phase} on {device!r:.200}"
        timeline = max(at_step(timelines, device, step, phase, missing), key=lambda timeline: timeline.in_use_bytes)
        fields = {
            "run": run,
            **_timeline_facts(timeline),
            "owners": as_json(timeline.owners),
            "ops": list(timeline.ops),
            "shapes": [{"shape": list(one.shape), "dtype": one.dtype} for one in timeline.shapes],
            "lines": list(timeline.lines),
            "bands": as_json(timeline.bands),
            "compiled": as_json(timeline.compiled),
            "time_ns": timeline.time_ns.tolist(),
            "event": timeline.event.tolist(),
        }
        columns: dict[str, npt.NDArray[Any]] = values_of(timeline, *column_names(Timeline, "allocations"))
        indices = {name: getattr(timeline, name) for name in _TIMELINE_INDICES}
        return Columns(fields, columns | {name: np.where(of < 0, MISSING, of) for name, of in indices.items()})

    def oom(self, source: Source, run: str) -> dict[str, Any]:
        return {"run": run, "ooms": [describe_oom(oom) for oom in self._reader.run(source, run).run.ooms]}

    def device_memory(self, source: Source, run: str, device: str, step: int | None) -> dict[str, Any]:
        loaded = self._reader.run(source, run)
        division = device_memory(loaded.run, device, step)
        if division is None:
            names = sorted({snapshot.device for snapshot in loaded.run.snapshots})
            raise NotFoundError(f"run {run} has no snapshot of device {device!r:.200}; available: {some(names)}")
        facts = ("step", "phase", "at_failure", "in_use_bytes", "pool_bytes", "capacity_bytes")
        described = as_json(division, without={"snapshot"})
        return {"run": run, "device": device, **values_of(division.snapshot, *facts), **described}

    def _map(self, source: Source, run: str, place: MapPlace) -> MemoryMap:
        if place.oom is not None:
            ooms = self._reader.run(source, run).run.ooms
            memory_map = ooms[place.oom].map if place.oom < len(ooms) else None
            if memory_map is None:
                what = f"memory map of failed allocation {place.oom}"
                raise NotFoundError(f"run {run} has no {what}; it has {len(ooms)} of them")
            return memory_map
        maps = self._reader.run(source, run, {*BASIC, MAPS}).run.maps
        missing = f"no memory map of step {place.step} in phase {place.phase} on {place.device!r:.200}"
        return at_step(maps, place.device, place.step, place.phase, missing)[-1]


def _map_facts(memory_map: MemoryMap) -> dict[str, Any]:
    sizes = values_of(memory_map, "in_use_bytes", "pool_bytes", "capacity_bytes", "complete", "not_available")
    return {**values_of(memory_map, "step", "phase", "device", "wall_time"), "chunks": len(memory_map), **sizes}


def _timeline_facts(timeline: Timeline) -> dict[str, Any]:
    names = ("step", "phase", "device", "wall_time", "mode", "in_use_bytes", "peak", "events", "duration_ns")
    counts = {"allocations": len(timeline), "moments": len(timeline.time_ns)}
    return {**values_of(timeline, *names, "not_available"), **counts}


STEP_ROUTES = {
    "snapshots": route("SnapshotsAnswer", Steps.snapshots, RUN, ANY_DEVICE),
    "snapshot": route("Snapshot", Steps.snapshot, RUN, DEVICE, STEP, PHASE),
    "timelines": route("TimelinesAnswer", Steps.timelines, RUN, ANY_DEVICE),
    "timeline": route("TimelineHead", Steps.timeline, RUN, DEVICE, STEP, PHASE),
    "maps": route("MapsAnswer", Steps.maps, RUN, ANY_DEVICE),
    "map": route("MapHead", Steps.map, RUN, PLACE),
    "oom": route("OomsAnswer", Steps.oom, RUN),
    "device_memory": route("DeviceMemory", Steps.device_memory, RUN, DEVICE, ANY_STEP),
}
