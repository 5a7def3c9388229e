"""Handlers of the routes on the steps of a run: the answers, what each view draws over steps, and layers."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis import (
    POOL_SOURCES,
    describe_answers,
    describe_host,
    device_names,
    epochs,
    first_described,
    host_steps,
    host_summary,
    layer_changes,
    overview,
    pool_steps,
    snapshots_of,
    table_at,
    validation_passes,
)
from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import (
    MISSING,
    DeviceSamples,
    Group,
    Phase,
    Run,
    as_json,
    extreme_rows,
    ledger_totals,
    some,
    values_of,
)
from tb_memplugin.server.messages import (
    ANY_DEVICE,
    ANY_STEP,
    DEVICE,
    LAYER,
    PHASE,
    POINTS,
    RUN,
    SESSION,
    STEPS,
    STRETCH,
    Columns,
    Stretch,
    route,
)
from tb_memplugin.server.workers import Lookup, workers_with
from tb_memplugin.storage import LoadedRun, RunTags
from tb_memplugin.storage.files import Source

MAX_ANSWER_VALUES = 2 << 20
"""Most values of an answer on activations, rows × layers: of many layers, fewer rows are shown."""
_ANSWER_BYTES, _CHANGE_BYTES, _PATH_BYTES = 16 << 10, 2000, 8
"""Estimated bytes in memory of the four answers, of a change, and of a layer in it, whose path the table has."""


class Series(Lookup):
    """Handlers of the routes on a range of steps."""

    def answers(self, source: Source, run: str, device: str | None, phase: Phase) -> dict[str, Any]:
        def compute() -> tuple[dict[str, Any], int]:
            described = describe_answers(self._run_of(source, tags, device), device, phase)
            return {"run": run, "device": device, "phase": phase, "answers": described}, _ANSWER_BYTES

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
        raise NotFoundError(f"run {tags.name} has no device {device!r:.200}; available: {some(names)}")

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
                {**values_of(one, "step", "phase", "mode", "batch_size", "at_failure"), "first_step": first_step}
                for one, first_step in zip(view.snapshots, first_steps, strict=True)
            ],
            "changes": self._changes_of(loaded, of_worker, own_name, stretch),
            "epochs": as_json(epochs(of_worker)),
            "validations": as_json(validation_passes(of_worker, own_name)),
            "failures": [
                {"oom": at, "step": oom.step, "reason": oom.reason}
                for at, oom in enumerate(ooms)
                if oom.step is not None and (oom.device, oom.phase) == (stretch.device, stretch.phase)
            ],
            "sessions": [
                values_of(one, "session", "first_step") for one in loaded.sessions if one.session in of_worker.sessions
            ],
        }
        columns: dict[str, npt.NDArray[Any]] = dict(values_of(view.rows, "step", "epoch", "wall_time"))
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
        self, source: Source, run: str, device: str, phase: Phase, layer: str | None = None, session: str | None = None
    ) -> Columns:
        found = self.find_device(source, run, device, session)
        snapshots = snapshots_of(found.run, found.own_name, phase)
        totals = ledger_totals(snapshots, layer)
        columns: dict[str, npt.NDArray[Any]] = {
            name: np.asarray([getattr(snapshot, name) for snapshot in snapshots], dtype)
            for name, dtype in (("step", np.int64), ("wall_time", np.float64), ("in_use_bytes", np.int64))
        }
        columns.update((f"group/{at}", totals.bytes[:, at]) for at in range(len(totals.groups)))
        fields = {"run": run, "device": device, "phase": phase, "layer": layer, "groups": _groups(totals.groups)}
        return Columns(fields, columns)

    def layers(self, source: Source, run: str, device: str | None, step: int | None) -> dict[str, Any]:
        """The table of a device's worker, or of the first worker that has any."""
        found = self._reader.run(source, run) if device is None else self.find_device(source, run, device)
        table = table_at(found.run.layer_tables, step)
        if table is None:
            raise NotFoundError(f"run {run} has no layer table: it was recorded without a model, or the table was lost")
        return {
            "run": run,
            **values_of(table, "step", "reason", "optimizer", "other_optimizer_bytes", "other_state_bytes"),
            "layers": as_json(table.layers),
        }

    def activations(self, source: Source, run: str, steps: tuple[int | None, int | None], points: int) -> Columns:
        first_step, last_step = steps
        recorded = self._reader.activation_rows(source, run)
        end = np.iinfo(np.int64).max if last_step is None else last_step
        inside = np.flatnonzero((recorded.step >= (first_step or 0)) & (recorded.step <= end))
        rows = inside
        if len(inside):
            limit = min(2 * points, max(1, MAX_ANSWER_VALUES // max(1, len(recorded.layers))))
            rows = inside[extreme_rows([recorded.totals[inside]], limit=limit)]
        shown = recorded.take(rows)
        columns: dict[str, npt.NDArray[Any]] = {"step": shown.step, "wall_time": shown.wall_time}
        columns.update((f"layer/{at}", shown.bytes[:, at]) for at in range(len(shown.layers)))
        return Columns({"run": run, "total_rows": len(inside), "layers": list(shown.layers)}, columns)

    def _changes_of(self, loaded: LoadedRun, run: Run, own_name: str, stretch: Stretch) -> list[dict[str, Any]]:
        """The changes in the run of one worker. They come from every step, so each zoom into the same run has them."""

        def compute() -> tuple[list[dict[str, Any]], int]:
            changes = layer_changes(run, own_name, stretch.phase)
            described = [as_json(change, without={"totals"}) | as_json(change.totals) for change in changes]
            paths = sum(len(change["became_trainable"]) + len(change["became_frozen"]) for change in described)
            return described, _CHANGE_BYTES * (1 + len(described)) + _PATH_BYTES * paths

        key = ("changes", loaded.run.name, stretch.device, stretch.phase, stretch.session)
        return self._reader.cache.computed(key, loaded.version, compute)


def _place(run: str, stretch: Stretch) -> dict[str, Any]:
    return {"run": run, "device": stretch.device, "phase": stretch.phase}


def _groups(groups: Iterable[Group]) -> list[dict[str, Any]]:
    return [{"category": category, "trainable": trainable} for category, trainable in groups]


SERIES_ROUTES = {
    "answers": route("AnswersAnswer", Series.answers, RUN, ANY_DEVICE, PHASE),
    "overview": route("OverviewHead", Series.overview, RUN, STRETCH),
    "pool": route("PoolHead", Series.pool, RUN, STRETCH),
    "host_memory": route("HostMemoryHead", Series.host_memory, RUN, STRETCH),
    "ledger_totals": route("LedgerTotalsHead", Series.ledger_totals, RUN, DEVICE, PHASE, LAYER, SESSION),
    "layers": route("LayersAnswer", Series.layers, RUN, ANY_DEVICE, ANY_STEP),
    "activations": route("ActivationsHead", Series.activations, RUN, STEPS, POINTS),
}
