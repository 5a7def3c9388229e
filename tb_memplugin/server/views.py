"""Handlers of the routes on recorded data: the answers, what each view draws over steps, layers;
breakdowns, memory maps, timelines, failed allocations and the division of device memory at single
steps."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.allocator import map_summary
from tb_memplugin.analysis import (
    POOL_SOURCES,
    describe_answers,
    describe_host,
    device_memory,
    device_names,
    epochs,
    first_described,
    former_bytes,
    host_steps,
    host_summary,
    largest_layer,
    layer_changes,
    overview,
    pool_steps,
    snapshots_of,
    table_at,
    validation_passes,
)
from tb_memplugin.errors import NotFoundError
from tb_memplugin.export import describe_oom, describe_snapshot
from tb_memplugin.schema import (
    MISSING,
    OWNER_SOURCES,
    DeviceSamples,
    Group,
    MemoryMap,
    Phase,
    Run,
    Timeline,
    as_json,
    column_names,
    extreme_rows,
    ledger_totals,
    some,
    values_of,
)
from tb_memplugin.server.messages import Columns, MapPlace, Stretch
from tb_memplugin.server.workers import Lookup, at_step, workers_with
from tb_memplugin.storage import BASIC, MAPS, TIMELINES, LoadedRun, RunTags
from tb_memplugin.storage.files import Source

MAX_ANSWER_VALUES = 2 << 20
"""Most values of an answer on activations, rows × layers: of many layers, fewer rows are shown."""
_ANSWER_BYTES, _CHANGE_BYTES, _PATH_BYTES = 16 << 10, 2000, 8
"""Estimated bytes in memory of the four answers, of a change, and of a layer in it, whose path the
table has."""
_STATES = ("free", "in_use", "unknown")
_TIMELINE_INDICES = ("op", "address", "shape", "line")  # columns in which -1 is unknown


class Views(Lookup):
    """Handlers of these routes, in the order of the list below."""

    def answers(self, source: Source, run: str, device: str | None, phase: Phase) -> dict[str, Any]:
        def compute() -> tuple[dict[str, Any], int]:
            of_device = self._run_of(source, tags, device)
            layer = None if device is None else largest_layer(of_device, device, phase)
            described = {
                "answers": describe_answers(of_device, device, phase),
                "largest_layer": as_json(layer),
            }
            return {"run": run, "device": device, "phase": phase, **described}, _ANSWER_BYTES

        tags = self.tags_with(source, run, device)
        return self._reader.cache.computed(("answers", run, device, phase), tags.version, compute)

    def _run_of(self, source: Source, tags: RunTags, device: str | None) -> Run:
        """The run with the worker of a device, as `describe_answers` needs it."""
        names = []
        for own in workers_with(tags, device):
            loaded = self._reader.load(source, own)
            of_worker = device_names(loaded.run)
            if device is None or device in of_worker:
                return self.with_all_ooms(source, loaded, tags.name)
            names.extend(of_worker)
        raise NotFoundError(
            f"run {tags.name} has no device {device!r:.200}; available: {some(names)}"
        )

    def overview(self, source: Source, run: str, stretch: Stretch) -> Columns:
        found = self.find_device(source, run, stretch.device, stretch.session)
        loaded, of_worker, own_name = found.loaded, found.run, found.own_name
        ooms = self.with_all_ooms(source, loaded, run).ooms
        view = overview(of_worker, own_name, stretch.phase, *stretch.limits)
        first_steps = first_described(view.snapshots, of_worker.layer_tables)
        fields = {
            **_place(run, stretch),
            "total_rows": view.total_rows,
            "groups": _groups(view.groups),
            "snapshots": [
                values_of(one, "step", "phase", "mode", "batch_size", "at_failure")
                | {"first_step": first_step, "earlier_slots_bytes": former_bytes(one)[0]}
                for one, first_step in zip(view.snapshots, first_steps, strict=True)
            ],
            "changes": self._changes_of(loaded, of_worker, own_name, stretch),
            "epochs": as_json(epochs(of_worker)),
            "validations": as_json(validation_passes(of_worker, own_name)),
            "failures": [
                {"oom": at, **values_of(oom, "step", "reason", "requested_bytes", "in_use_bytes")}
                for at, oom in enumerate(ooms)
                if oom.step is not None
                and (oom.device, oom.phase) == (stretch.device, stretch.phase)
            ],
            "sessions": [
                values_of(one, "session", "first_step")
                for one in loaded.sessions
                if one.session in of_worker.sessions
            ],
        }
        columns: dict[str, npt.NDArray[Any]] = dict(
            values_of(view.rows, "step", "epoch", "wall_time")
        )
        columns |= values_of(view.figures, "in_use_bytes", "peak_bytes", "capacity_bytes")
        columns["host_resident_bytes"] = view.rows.host_resident_bytes
        for field in dataclasses.fields(DeviceSamples):
            columns.setdefault(field.name, getattr(view.figures, field.name))
        columns["snapshot"] = np.where(view.snapshot < 0, MISSING, view.snapshot)
        columns["traced"] = view.traced.astype(np.int64)
        columns.update((f"group/{at}", view.composition[:, at]) for at in range(len(view.groups)))
        return Columns(fields, columns)

    def pool(self, source: Source, run: str, stretch: Stretch) -> Columns:
        found = self.find_device(source, run, stretch.device, stretch.session)
        pool = pool_steps(found.run, found.own_name, stretch.phase, *stretch.limits)
        fields = {
            **_place(run, stretch),
            "total_rows": pool.total_rows,
            "sources": list(POOL_SOURCES),
            "growths": as_json(pool.growths),
            "sentences": list(pool.sentences),
        }
        return Columns(fields, pool.columns._asdict())

    def host_memory(self, source: Source, run: str, stretch: Stretch) -> Columns:
        of_worker = self.find_device(source, run, stretch.device, stretch.session).run
        summary = host_summary(of_worker)
        total, columns = host_steps(of_worker, stretch.phase, *stretch.limits)
        fields = {
            **_place(run, stretch),
            "worker": of_worker.workers[0],
            "total_rows": total,
            "summary": None if summary is None else describe_host(summary),
        }
        return Columns(fields, columns)

    def ledger_totals(
        self,
        source: Source,
        run: str,
        device: str,
        phase: Phase,
        layer: str | None = None,
        session: str | None = None,
    ) -> Columns:
        found = self.find_device(source, run, device, session)
        snapshots = snapshots_of(found.run, found.own_name, phase)
        totals = ledger_totals(snapshots, layer)
        columns: dict[str, npt.NDArray[Any]] = {
            name: np.asarray([getattr(snapshot, name) for snapshot in snapshots], dtype)
            for name, dtype in (
                ("step", np.int64),
                ("wall_time", np.float64),
                ("in_use_bytes", np.int64),
            )
        }
        columns.update((f"group/{at}", totals.bytes[:, at]) for at in range(len(totals.groups)))
        fields = {
            "run": run,
            "device": device,
            "phase": phase,
            "layer": layer,
            "groups": _groups(totals.groups),
        }
        return Columns(fields, columns)

    def layers(
        self, source: Source, run: str, device: str | None, step: int | None
    ) -> dict[str, Any]:
        """The table of a device's worker, or of the first worker that has any."""
        found = (
            self._reader.run(source, run)
            if device is None
            else self.find_device(source, run, device)
        )
        table = table_at(found.run.layer_tables, step)
        if table is None:
            raise NotFoundError(
                f"run {run} has no layer table: it was recorded without a model, or the table "
                "was lost"
            )
        return {
            "run": run,
            **values_of(
                table, "step", "reason", "optimizer", "other_optimizer_bytes", "other_state_bytes"
            ),
            "layers": as_json(table.layers),
        }

    def activations(
        self, source: Source, run: str, steps: tuple[int | None, int | None], points: int
    ) -> Columns:
        first_step, last_step = steps
        recorded = self._reader.activation_rows(source, self._reader.tags(source, run))
        end = np.iinfo(np.int64).max if last_step is None else last_step
        inside = np.flatnonzero((recorded.step >= (first_step or 0)) & (recorded.step <= end))
        limit = min(2 * points, max(1, MAX_ANSWER_VALUES // max(1, len(recorded.layers))))
        shown = recorded.take(
            inside[extreme_rows([recorded.totals[inside]], limit=limit)] if len(inside) else inside
        )
        columns: dict[str, npt.NDArray[Any]] = {"step": shown.step, "wall_time": shown.wall_time}
        columns.update((f"layer/{at}", shown.bytes[:, at]) for at in range(len(shown.layers)))
        return Columns(
            {"run": run, "total_rows": len(inside), "layers": list(shown.layers)}, columns
        )

    def _changes_of(
        self, loaded: LoadedRun, run: Run, own_name: str, stretch: Stretch
    ) -> list[dict[str, Any]]:
        """The changes in the run of one worker. They come from every step, so each zoom into the
        same run has them."""

        def compute() -> tuple[list[dict[str, Any]], int]:
            changes = layer_changes(run, own_name, stretch.phase)
            described = [
                as_json(change, without={"totals"}) | as_json(change.totals) for change in changes
            ]
            paths = sum(
                len(change["became_trainable"]) + len(change["became_frozen"])
                for change in described
            )
            return described, _CHANGE_BYTES * (1 + len(described)) + _PATH_BYTES * paths

        key = ("changes", loaded.run.name, stretch.device, stretch.phase, stretch.session)
        return self._reader.cache.computed(key, loaded.version, compute)

    def snapshots(self, source: Source, run: str, device: str | None) -> dict[str, Any]:
        loaded = (
            self._reader.run(source, run)
            if device is None
            else self.find_device(source, run, device).loaded
        )
        chosen = [one for one in loaded.run.snapshots if device in (None, one.device)]
        return {"run": run, "snapshots": [describe_snapshot(one, ledger=False) for one in chosen]}

    def snapshot(
        self, source: Source, run: str, device: str, step: int, phase: Phase
    ) -> dict[str, Any]:
        """Of several snapshots of a step, that of the highest peak."""
        loaded = self.find_device(source, run, device).loaded
        missing = f"no snapshot of step {step} in phase {phase} on {device}"
        snapshots = at_step(loaded.run.snapshots, device, step, phase, missing)
        return {
            "run": run,
            **describe_snapshot(max(snapshots, key=lambda snapshot: snapshot.in_use_bytes)),
        }

    def maps(self, source: Source, run: str, device: str | None) -> dict[str, Any]:
        loaded = self._reader.run(source, run, {*BASIC, MAPS})
        chosen = [one for one in loaded.run.maps if device in (None, one.device)]
        return {
            "run": run,
            "maps": [{**_map_facts(one), "regions": one.region_bytes.tolist()} for one in chosen],
        }

    def map(self, source: Source, run: str, place: MapPlace) -> Columns:
        if place.oom is None:
            maps = self._reader.run(source, run, {*BASIC, MAPS}).run.maps
            missing = (
                f"no memory map of step {place.step} in phase {place.phase} on "
                f"{place.device!r:.200}"
            )
            memory_map = at_step(maps, place.device, place.step, place.phase, missing)[-1]
        else:
            ooms = self._reader.run(source, run).run.ooms
            found = ooms[place.oom].map if place.oom < len(ooms) else None
            if found is None:
                what = f"memory map of failed allocation {place.oom}"
                raise NotFoundError(f"run {run} has no {what}; it has {len(ooms)} of them")
            memory_map = found
        regions = memory_map.region_address.tolist(), memory_map.region_bytes.tolist()
        fields = {
            "run": run,
            **_map_facts(memory_map),
            "states": list(_STATES),
            "sources": list(OWNER_SOURCES),
            "owners": as_json(memory_map.owners),
            "regions": [
                {"address": address, "bytes": size} for address, size in zip(*regions, strict=True)
            ],
            "summary": map_summary(memory_map),
        }
        columns: dict[str, npt.NDArray[Any]] = values_of(
            memory_map, *column_names(MemoryMap, "chunks")
        )
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
        timeline = max(
            at_step(timelines, device, step, phase, missing),
            key=lambda timeline: timeline.in_use_bytes,
        )
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
        columns: dict[str, npt.NDArray[Any]] = values_of(
            timeline, *column_names(Timeline, "allocations")
        )
        indices = {name: getattr(timeline, name) for name in _TIMELINE_INDICES}
        return Columns(
            fields, columns | {name: np.where(of < 0, MISSING, of) for name, of in indices.items()}
        )

    def oom(self, source: Source, run: str) -> dict[str, Any]:
        return {
            "run": run,
            "ooms": [describe_oom(oom) for oom in self._reader.run(source, run).run.ooms],
        }

    def device_memory(
        self, source: Source, run: str, device: str, step: int | None
    ) -> dict[str, Any]:
        loaded = self._reader.run(source, run)
        division = device_memory(loaded.run, device, step)
        if division is None:
            names = sorted({snapshot.device for snapshot in loaded.run.snapshots})
            raise NotFoundError(
                f"run {run} has no snapshot of device {device!r:.200}; available: {some(names)}"
            )
        state = "step", "phase", "at_failure", "in_use_bytes", "pool_bytes", "capacity_bytes"
        facts = values_of(division.snapshot, *state)
        return {"run": run, "device": device, **facts, **as_json(division, without={"snapshot"})}


def _place(run: str, stretch: Stretch) -> dict[str, Any]:
    return {"run": run, "device": stretch.device, "phase": stretch.phase}


def _groups(groups: Iterable[Group]) -> list[dict[str, Any]]:
    return [{"category": category, "trainable": trainable} for category, trainable in groups]


def _map_facts(memory_map: MemoryMap) -> dict[str, Any]:
    sizes = values_of(
        memory_map, "in_use_bytes", "pool_bytes", "capacity_bytes", "complete", "not_available"
    )
    return {
        **values_of(memory_map, "step", "phase", "device", "wall_time"),
        "chunks": len(memory_map),
        **sizes,
    }


def _timeline_facts(timeline: Timeline) -> dict[str, Any]:
    names = (
        "step",
        "phase",
        "device",
        "wall_time",
        "mode",
        "in_use_bytes",
        "peak",
        "events",
        "duration_ns",
    )
    counts = {"allocations": len(timeline), "moments": len(timeline.time_ns)}
    return {**values_of(timeline, *names, "not_available"), **counts}
