"""A run as text for the terminal. Pure."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from tb_memplugin.analysis.answers.questions import answers
from tb_memplugin.analysis.describe import EVERYTHING, Selection, describe_activations
from tb_memplugin.analysis.devices.device_table import describe_devices
from tb_memplugin.analysis.growth.host_memory import host_summaries
from tb_memplugin.analysis.pool import pool_history
from tb_memplugin.analysis.steps.changes import layer_totals, table_at
from tb_memplugin.analysis.steps.facts import DeviceFacts, device_facts, device_phase, main_phase, step_range
from tb_memplugin.commands.inspect.devices import device_lines
from tb_memplugin.commands.inspect.sections import answer_lines, demand_lines, host_lines, oom_lines, pool_lines
from tb_memplugin.model import HeldTensorGroup, Layer, LayerTable, Replay, Run, Snapshot, with_layers_of
from tb_memplugin.model.groups import group_sums
from tb_memplugin.model.notes import unrecorded_devices
from tb_memplugin.model.text import clean, format_table
from tb_memplugin.model.units import UNKNOWN, format_bytes, format_figure, unit_for
from tb_memplugin.prediction.demand import demand_sentences, peak_demand

MAX_ROWS = 15
"""Printed rows of a long table; the others are summed in one row."""
MAX_NAME_CHARACTERS = 60
MAX_MODELS = 3
"""Most models of different workers whose layers are listed."""
_WEIGHTS = {False: "weights, frozen", True: "weights, trainable", None: "weights, frozen or trainable"}


def format_run(run: Run, selection: Selection = EVERYTHING, by_worker: Mapping[str, Run] | None = None) -> str:
    """Answers, devices, breakdown of each at its peak, pool, layers, failures, findings and missing data of a run.

    `by_worker` is as for `describe_run`.
    """
    steps = step_range(run)
    span = f"{steps.steps:,} steps ({steps.first_step} to {steps.last_step})" if steps.steps else "no steps"
    sessions = f", {len(run.sessions)} sessions" if len(run.sessions) > 1 else ""
    workers = f", {len(run.workers)} workers" if len(run.workers) > 1 else ""
    # Why there are no devices comes first: nothing below is complete without them.
    absent = [] if device_facts(run) else unrecorded_devices(run.notes)
    parts = [*map(clean, absent), f"{clean(run.name)}: {span}{sessions}{workers}"]
    devices = [facts for facts in device_facts(run) if selection.device in (None, facts.device)]
    for facts in devices:
        lines = answer_lines(facts.device, answers(run, facts.device, selection.phase, by_worker))
        parts.append("\n".join(clean(line) for line in lines))
    if devices:
        parts.append(format_table(*device_table(run, devices)))
    if selection.device is None:
        parts.extend(device_lines(describe_devices(by_worker or {"": run}, selection.phase or main_phase(run))))
    for facts in devices:
        snapshots = _snapshots(run, facts.device, selection)
        if snapshots:
            # The selected one with the highest peak.
            parts.append(_snapshot_text(max(snapshots, key=lambda snapshot: snapshot.in_use_bytes)))
        elif selection.step is not None:
            parts.append(_without_breakdown(run, facts.device, selection, selection.step))
        phase = device_phase(run, facts.device)
        if selection.step is None and selection.phase in (None, phase):
            lines = pool_lines(_name(facts.device), pool_history(run, facts.device), phase)
            parts.extend(["\n".join(lines)] if lines else [])
        demand = peak_demand(run, facts.device) if selection.step is None and selection.phase is None else None
        if demand is not None:
            parts.append("\n".join(demand_lines(_name(facts.device), demand_sentences(demand))))
    if selection == EVERYTHING:
        for worker, summary in host_summaries(by_worker or {"": run}).items():
            parts.append("\n".join(clean(line) for line in host_lines(worker, summary)))
    parts.extend(_layers_of_workers(run, selection, by_worker or {}))
    if len(run.activations):
        parts.append(_activations(run))
    for oom in run.ooms:
        if selection.includes(oom):
            parts.append("\n".join(clean(line) for line in oom_lines(oom)))
    parts.extend(f"finding: {clean(sentence)}" for sentence in run.findings)
    parts.extend(f"note: {clean(note)}" for note in run.notes if note not in absent)
    parts.extend(f"damaged data: {clean(sentence)}" for sentence in run.damage)
    return "\n\n".join(parts)


def device_table(run: Run, devices: Sequence[DeviceFacts]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of devices: peak, capacity and headroom."""
    failed = {oom.device for oom in run.ooms}
    unit = unit_for([size for facts in devices for size in (facts.peak_bytes, facts.capacity_bytes)])
    rows = []
    for facts in devices:
        peak, capacity = facts.peak_bytes, facts.capacity_bytes
        known = peak is not None and capacity is not None
        free = capacity - peak if peak is not None and capacity is not None and facts.device not in failed else None
        share = f"{100 * peak / capacity:.0f} %" if known and capacity and peak is not None else UNKNOWN
        step = UNKNOWN if facts.peak_step is None else str(facts.peak_step)
        figures = [format_figure(size, unit) for size in (peak, capacity, free)]
        rows.append([_name(facts.device), *figures, share, step, str(facts.snapshots)])
    head = ["device", f"peak {unit}", f"capacity {unit}", f"headroom {unit}", "used", "peak at step", "snapshots"]
    return head, rows


def _snapshots(run: Run, device: str, selection: Selection) -> list[Snapshot]:
    return [one for one in run.snapshots if one.device == device and selection.includes(one)]


def _without_breakdown(run: Run, device: str, selection: Selection, step: int) -> str:
    """Why a step has no breakdown, and the nearest step that has one."""
    why = "not traced" if step in run.samples.step else "not recorded"
    others = [one.step for one in _snapshots(run, device, dataclasses.replace(selection, step=None))]
    nearest = min(others, key=lambda other: (abs(other - step), other), default=None)
    phase = "" if selection.phase is None else f" of phase {selection.phase}"
    found = f"No step{phase} has one." if nearest is None else f"The nearest{phase} is that of step {nearest}."
    return f"{_name(device)}: step {step} has no breakdown, it was {why}. {found}"


def _snapshot_text(snapshot: Snapshot) -> str:
    batch = None if snapshot.batch_size is None else f"batch size {snapshot.batch_size}"
    step = f"{snapshot.step} ({', '.join(filter(None, (snapshot.phase, snapshot.mode, batch)))})"
    if snapshot.at_failure:
        which, when = f"failed step {step}", "failed allocation"
    else:
        which, when = f"traced step {step}", "peak"
    title = f"{_name(snapshot.device)}, {which}: {format_bytes(snapshot.in_use_bytes)} in use at the {when}"
    owners: dict[tuple[str, str], int] = {}
    for row in snapshot.ledger:
        key = (_name(row.layer) if row.layer is not None else "not tied to a layer", row.category.replace("_", " "))
        owners[key] = owners.get(key, 0) + row.bytes
    parts = [
        "\n".join([title, *_pool_text(snapshot), *_replay_text(snapshot.replay)]),
        _shares("by category", _categories(snapshot), snapshot.in_use_bytes),
        _shares("by layer and category", _largest_first(owners), snapshot.in_use_bytes),
        _held_tensors(snapshot.held_tensors),
    ]
    parts.extend(f"  {clean(sentence)}" for sentence in snapshot.not_available)
    return "\n\n".join(part for part in parts if part)


def _categories(snapshot: Snapshot) -> list[tuple[tuple[str, ...], int]]:
    """Names and sizes of the ledger's groups, from the top of the stack."""
    return [
        ((_WEIGHTS[trainable] if category == "weights" else category.replace("_", " "),), size)
        for (category, trainable), size in reversed(group_sums(snapshot.ledger).items())
    ]


def _largest_first(sizes: dict[tuple[str, str], int]) -> list[tuple[tuple[str, ...], int]]:
    return sorted(sizes.items(), key=lambda entry: -entry[1])


def _held_tensors(groups: Sequence[HeldTensorGroup]) -> str:
    """Tensors with a holder, largest groups first, and what is known of their origin and holders."""
    if not groups:
        return ""
    unit = unit_for([groups[0].bytes])
    has_lines = any(group.line is not None for group in groups[:MAX_ROWS])
    rows = [
        [
            _tensor_name(group),
            _known_name(group.held_by),
            *([_known_name(group.line)] if has_lines else []),
            f"{group.count:,}",
            format_figure(group.bytes, unit),
        ]
        for group in groups[:MAX_ROWS]
    ]
    others = groups[MAX_ROWS:]
    head = ["tensors", "held by", *(["made at"] if has_lines else []), "count", unit]
    if others:
        size = format_figure(sum(group.bytes for group in others), unit)
        names = [f"{len(others)} more", *[""] * (len(head) - 3)]
        rows.append([*names, f"{sum(group.count for group in others):,}", size])
    paths = [
        f"  retaining path of {_tensor_name(group)}: {clean(group.retaining_path)}"
        for group in groups[:MAX_ROWS]
        if group.retaining_path is not None
    ]
    return "\n".join([format_table(head, rows, left=len(head) - 2), *paths])


def _tensor_name(group: HeldTensorGroup) -> str:
    return f"{clean(group.dtype)} [{', '.join(map(str, group.shape))}]"[:MAX_NAME_CHARACTERS]


def _pool_text(snapshot: Snapshot) -> list[str]:
    """The pool at the peak: free bytes, fragmentation and rounding."""
    pool, rounding = snapshot.pool, snapshot.rounding_bytes
    lines = []
    if pool is not None and pool.pool_bytes:
        free, largest, other = pool.free_bytes, pool.largest_free_bytes, pool.other_free_bytes
        share = f"{100 * pool.in_use_bytes / pool.pool_bytes:.0f} %"
        lines.append(f"  pool {format_bytes(pool.pool_bytes)}, {share} in use, {format_bytes(free)} free")
        if largest is not None and other is not None and free:
            lines[-1] += f": largest chunk {format_bytes(largest)}, other chunks {format_bytes(other)}"
        lines.append(f"  fragmentation {_fragmentation(snapshot.fragmentation, free)}")
    if rounding is not None:
        lines.append(f"  rounding {format_bytes(rounding)} (allocated − requested)")
    return lines


def _replay_text(replay: Replay | None) -> list[str]:
    """The share of the traced step that the replay reproduced."""
    if replay is None:
        return []
    addresses = f"{replay.addresses:,} of {replay.of_addresses:,} addresses"
    return [f"  replay: {addresses}, {replay.chunks:,} of {replay.of_chunks:,} chunks"]


def _fragmentation(figure: float | None, free: int) -> str:
    if free == 0:
        return "undefined: the pool is full"
    return UNKNOWN if figure is None else f"{100 * figure:.0f} % (free bytes outside the largest free chunk)"


def _shares(title: str, sizes: Sequence[tuple[tuple[str, ...], int]], total: int) -> str:
    """The first of `sizes` with their share of `total`, the others in one row; empty ones are left out."""
    ordered = [entry for entry in sizes if entry[1]]
    if not ordered:
        return ""
    others = ordered[MAX_ROWS:]
    width = len(ordered[0][0])
    shown = ordered[:MAX_ROWS]
    if others:
        shown = [*shown, ((f"{len(others)} more", *[""] * (width - 1)), sum(size for _, size in others))]
    unit = unit_for([max(size for _, size in ordered)])
    rows = [
        [*names, format_figure(size, unit), f"{100 * size / total:.1f} %" if total else UNKNOWN]
        for names, size in shown
    ]
    head = [title, *[""] * (width - 1), unit, "share"]
    return format_table(head, rows, left=width)


def _layers_of_workers(run: Run, selection: Selection, by_worker: Mapping[str, Run]) -> Iterator[str]:
    """The layers of the selected device's worker, or of all workers, each model once."""
    tables = {"": table_at(with_layers_of(run, by_worker, selection.device).layer_tables, selection.step)}
    if selection.device is None and len(by_worker) > 1:
        tables = {worker: table_at(own.layer_tables, selection.step) for worker, own in by_worker.items()}
    workers: dict[tuple[Layer, ...], list[str]] = {}
    for worker, table in tables.items():
        if table is not None:
            workers.setdefault(table.layers, []).append(worker)
    for names in list(workers.values())[:MAX_MODELS]:
        (first, *_), table = names, tables[names[0]]
        if table is not None:
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield (f"{_name(first)}{others}: " if len(workers) > 1 else "") + _layers(table)
    if len(workers) > MAX_MODELS:
        yield f"{len(workers) - MAX_MODELS} more models: choose a worker's device with --device"


def _layers(table: LayerTable) -> str:
    totals = layer_totals(table)
    title = (
        f"layers from step {table.step} on: "
        f"{totals.trainable_layers} trainable with {format_bytes(totals.trainable_weight_bytes)}, "
        f"{totals.frozen_layers} frozen with {format_bytes(totals.frozen_weight_bytes)}, "
        f"optimizer {clean(table.optimizer) if table.optimizer else 'none'} with {format_bytes(totals.optimizer_bytes)}"
    )
    heavy = sorted((layer for layer in table.layers if layer.weight_bytes), key=lambda layer: -layer.weight_bytes)
    if not heavy:
        return title
    unit = unit_for([heavy[0].weight_bytes])
    rows = [
        [
            _name(layer.path),
            clean(layer.type)[:30],
            "trainable" if layer.trainable else "frozen",
            f"{layer.parameters:,}",
            format_figure(layer.weight_bytes, unit),
            format_figure(layer.optimizer_bytes, unit),
        ]
        for layer in heavy[:MAX_ROWS]
    ]
    if len(heavy) > MAX_ROWS:
        others = heavy[MAX_ROWS:]
        sums = [sum(layer.weight_bytes for layer in others), sum(layer.optimizer_bytes for layer in others)]
        parameters = sum(layer.parameters for layer in others)
        rows.append([f"{len(others)} more", "", "", f"{parameters:,}", *(format_figure(size, unit) for size in sums)])
    head = ["layer", "type", "", "parameters", f"weights {unit}", f"optimizer {unit}"]
    return f"{title}\n\n{format_table(head, rows, left=3)}"


def _activations(run: Run) -> str:
    described = sorted(describe_activations(run.activations), key=lambda entry: -int(entry["max_bytes"]))
    unit = unit_for([entry["max_bytes"] for entry in described])
    rows = [
        [
            _name(entry["layer"]),
            format_figure(entry["max_bytes"], unit),
            str(entry["max_step"]),
            format_figure(entry["last_bytes"], unit),
            f"{entry['steps']:,}",
        ]
        for entry in described[:MAX_ROWS]
    ]
    if len(described) > MAX_ROWS:
        rows.append([f"{len(described) - MAX_ROWS} more", "", "", "", ""])
    return format_table(["recorded activations", f"highest {unit}", "at step", f"last {unit}", "steps"], rows)


def _known_name(text: str | None) -> str:
    return UNKNOWN if text is None else _name(text)


def _name(text: str) -> str:
    """A name that fits its column; a long path is cut at the front."""
    text = clean(text)
    return text if len(text) <= MAX_NAME_CHARACTERS else "…" + text[1 - MAX_NAME_CHARACTERS :]
