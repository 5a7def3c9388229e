"""Answers over steps: the four answers of a device, the series of the views, the layers."""

import numpy as np

from tb_memplugin.analysis import (
    POOL_SOURCES,
    LayerChange,
    answers,
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
from tb_memplugin.schema import (
    MISSING,
    Integers,
    Phase,
    Run,
    extreme_rows,
    ledger_totals,
    record_of,
    some,
    values_of,
)
from tb_memplugin.server import answers as of
from tb_memplugin.server.lookup import FoundDevice, Lookup, workers_with
from tb_memplugin.server.messages import Columns, Stretch
from tb_memplugin.storage import RunTags

MAX_ANSWER_VALUES = 2 << 20
"""Most values of an answer on activations, rows × layers: of many layers, fewer rows are shown."""
_ANSWER_BYTES, _CHANGE_BYTES, _PATH_BYTES = 16 << 10, 2000, 8
"""Estimated bytes in memory of the four answers, of a change, and of a layer in it, whose path the
table has."""


def four_answers(lookup: Lookup, run: str, device: str | None, phase: Phase) -> of.AnswersAnswer:
    def compute() -> tuple[of.AnswersAnswer, int]:
        of_device = _run_of(lookup, tags, device)
        layer = None if device is None else largest_layer(of_device, device, phase)
        found = answers(of_device, device, phase)
        return of.AnswersAnswer(run, device, phase, found, layer), _ANSWER_BYTES

    tags = lookup.tags_with(run, device)
    return lookup.reader.cache.computed(("answers", run, device, phase), tags.version, compute)


def _run_of(lookup: Lookup, tags: RunTags, device: str | None) -> Run:
    """The run with the worker of a device, as `answers` needs it."""
    names = []
    for own in workers_with(tags, device):
        loaded = lookup.reader.load(lookup.source, own)
        of_worker = device_names(loaded.run)
        if device is None or device in of_worker:
            return lookup.with_all_ooms(loaded, tags.name)
        names.extend(of_worker)
    raise NotFoundError(f"run {tags.name} has no device {device!r:.200}; available: {some(names)}")


def composition(lookup: Lookup, run: str, stretch: Stretch) -> Columns:
    """The composition of memory over steps."""
    found = lookup.find_device(run, stretch.device, stretch.session)
    loaded, of_worker, own_name = found
    view = overview(of_worker, own_name, stretch.phase, *stretch.limits)
    first_steps = first_described(view.snapshots, of_worker.layer_tables)
    head = of.OverviewHead(
        run,
        stretch.device,
        stretch.phase,
        view.total_rows,
        groups=[of.Group(*group) for group in view.groups],
        snapshots=[
            record_of(
                of.SnapshotRef,
                one,
                first_step=first_step,
                earlier_slots_bytes=former_bytes(one)[0],
            )
            for one, first_step in zip(view.snapshots, first_steps, strict=True)
        ],
        changes=_changes(lookup, found, stretch),
        epochs=epochs(of_worker),
        validations=validation_passes(of_worker, own_name),
        failures=[
            record_of(of.Failure, oom, oom=at)
            for at, oom in enumerate(lookup.with_all_ooms(loaded, run).ooms)
            if oom.step is not None and (oom.device, oom.phase) == (stretch.device, stretch.phase)
        ],
        sessions=[
            record_of(of.SessionStart, one)
            for one in loaded.sessions
            if one.session in of_worker.sessions
        ],
    )
    columns = {
        **values_of(view.rows, "step", "epoch", "wall_time"),
        **values_of(view.figures, "in_use_bytes", "peak_bytes", "capacity_bytes"),
        "host_resident_bytes": view.rows.host_resident_bytes,
        **vars(view.figures),
        "snapshot": np.where(view.snapshot < 0, MISSING, view.snapshot),
        "traced": view.traced.astype(np.int64),
        **_numbered("group", view.composition),
    }
    return Columns(head, columns)


def _changes(lookup: Lookup, found: FoundDevice, stretch: Stretch) -> list[LayerChange]:
    """The changes in the run of one worker. They come from every step, so each zoom into the same
    run has them."""

    def compute() -> tuple[list[LayerChange], int]:
        changes = layer_changes(found.run, found.own_name, stretch.phase)
        paths = sum(len(one.became_trainable) + len(one.became_frozen) for one in changes)
        return changes, _CHANGE_BYTES * (1 + len(changes)) + _PATH_BYTES * paths

    key = ("changes", found.run.name, stretch.device, stretch.phase, stretch.session)
    return lookup.reader.cache.computed(key, found.loaded.version, compute)


def _numbered(name: str, values: Integers) -> dict[str, Integers]:
    """The columns of a matrix, shape [rows, columns], by their numbers."""
    return {f"{name}/{at}": column for at, column in enumerate(values.T)}


def pool(lookup: Lookup, run: str, stretch: Stretch) -> Columns:
    found = lookup.find_device(run, stretch.device, stretch.session)
    steps = pool_steps(found.run, found.own_name, stretch.phase, *stretch.limits)
    head = record_of(of.PoolHead, stretch, steps, run=run, sources=POOL_SOURCES)
    return Columns(head, steps.columns._asdict())


def host_memory(lookup: Lookup, run: str, stretch: Stretch) -> Columns:
    of_worker = lookup.find_device(run, stretch.device, stretch.session).run
    total, columns = host_steps(of_worker, stretch.phase, *stretch.limits)
    head = of.HostMemoryHead(
        run, stretch.device, stretch.phase, of_worker.workers[0], total, host_summary(of_worker)
    )
    return Columns(head, columns)


def totals(
    lookup: Lookup,
    run: str,
    device: str,
    phase: Phase,
    layer: str | None = None,
    session: str | None = None,
) -> Columns:
    """Sums of each ledger, or of the rows of a layer."""
    found = lookup.find_device(run, device, session)
    snapshots = snapshots_of(found.run, found.own_name, phase)
    sums = ledger_totals(snapshots, layer)
    groups = [of.Group(*group) for group in sums.groups]
    columns = {
        "step": np.asarray([one.step for one in snapshots], np.int64),
        "wall_time": np.asarray([one.wall_time for one in snapshots], np.float64),
        "in_use_bytes": np.asarray([one.in_use_bytes for one in snapshots], np.int64),
        **_numbered("group", sums.bytes),
    }
    return Columns(of.LedgerTotalsHead(run, device, phase, layer, groups), columns)


def layers(lookup: Lookup, run: str, device: str | None, step: int | None) -> of.LayersAnswer:
    """The table of a device's worker, or of the first worker that has any."""
    found = lookup.run(run) if device is None else lookup.find_device(run, device)
    table = table_at(found.run.layer_tables, step)
    if table is None:
        raise NotFoundError(
            f"run {run} has no layer table: it was recorded without a model, or the table was lost"
        )
    return record_of(of.LayersAnswer, table, run=run)


def activations(
    lookup: Lookup, run: str, steps: tuple[int | None, int | None], points: int
) -> Columns:
    first_step, last_step = steps
    recorded = lookup.reader.activation_rows(lookup.source, lookup.tags(run))
    end = np.iinfo(np.int64).max if last_step is None else last_step
    inside = np.flatnonzero((recorded.step >= (first_step or 0)) & (recorded.step <= end))
    limit = min(2 * points, max(1, MAX_ANSWER_VALUES // max(1, len(recorded.layers))))
    shown = recorded.take(inside[extreme_rows([recorded.totals[inside]], limit)])
    columns = {**values_of(shown, "step", "wall_time"), **_numbered("layer", shown.bytes)}
    return Columns(of.ActivationsHead(run, len(inside), shown.layers), columns)
