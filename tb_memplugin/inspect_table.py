"""A run as text for a terminal: what fills each device, and who holds the peak. Pure."""

import unicodedata
from collections.abc import Sequence

from tb_memplugin.analysis.changes import layer_totals, table_at
from tb_memplugin.analysis.describe import EVERYTHING, Selection, describe_activations
from tb_memplugin.analysis.facts import DeviceFacts, device_facts, step_range
from tb_memplugin.analysis.pool_growth import knows_pool
from tb_memplugin.analysis.pool_steps import pool_history
from tb_memplugin.inspect_oom import oom_lines
from tb_memplugin.inspect_pool import pool_lines
from tb_memplugin.model import LayerTable, Run, Snapshot
from tb_memplugin.units import UNKNOWN, format_bytes, format_figure, unit_for

MAX_ROWS = 15
"""Rows of a long table that are shown; the rest are summed up in one more."""
MAX_NAME_CHARACTERS = 60
_WORDS = {
    ("weights", False): "weights, frozen",
    ("weights", True): "weights, trainable",
    ("weights", None): "weights, frozen or trainable",
}


def format_run(run: Run, selection: Selection = EVERYTHING) -> str:
    """The run's facts, narrowed to `selection`: devices, what fills each at its peak, layers, and what is missing."""
    steps = step_range(run)
    span = f"{steps.steps:,} steps ({steps.first_step} to {steps.last_step})" if steps.steps else "no steps"
    sessions = f", {len(run.sessions)} sessions" if len(run.sessions) > 1 else ""
    workers = f", {len(run.workers)} workers" if len(run.workers) > 1 else ""
    parts = [f"{clean(run.name)}: {span}{sessions}{workers}"]
    devices = [facts for facts in device_facts(run) if selection.device in (None, facts.device)]
    if devices:
        parts.append(_devices(devices))
    for facts in devices:
        snapshot = _snapshot(run, facts, selection)
        if snapshot is not None:
            parts.append(_snapshot_text(snapshot))
        if selection.step is None and selection.phase in (None, "train"):
            lines = pool_lines(_name(facts.device), pool_history(run, facts.device))
            parts.extend(["\n".join(lines)] if lines else [])
    table = table_at(run.layer_tables, selection.step)
    if table is not None:
        parts.append(_layers(table))
    if len(run.activations):
        parts.append(_activations(run))
    for oom in run.ooms:
        if selection.device in (None, oom.device) and selection.step in (None, oom.step):
            parts.append("\n".join(clean(line) for line in oom_lines(oom)))
    parts.extend(f"finding: {clean(sentence)}" for sentence in run.findings)
    parts.extend(f"note: {clean(note)}" for note in run.notes)
    parts.extend(f"not readable: {clean(loss)}" for loss in run.damage)
    return "\n\n".join(parts)


def clean(text: str) -> str:
    """`text` from a run directory without what could steer a terminal or break a line."""
    return "".join("�" if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") else one for one in text)


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns aligned under `head`; the first `left` of them to the left, the others (figures) to the right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return ("  " + "  ".join(cells)).rstrip()

    return "\n".join([line(head), *(line(row) for row in rows)])


def _devices(devices: Sequence[DeviceFacts]) -> str:
    unit = unit_for([size for facts in devices for size in (facts.peak_bytes, facts.capacity_bytes)])
    rows = []
    for facts in devices:
        peak, capacity = facts.peak_bytes, facts.capacity_bytes
        known = peak is not None and capacity is not None
        free = capacity - peak if peak is not None and capacity is not None else None
        share = f"{100 * peak / capacity:.0f} %" if known and capacity and peak is not None else UNKNOWN
        step = UNKNOWN if facts.peak_step is None else str(facts.peak_step)
        figures = [format_figure(size, unit) for size in (peak, capacity, free)]
        rows.append([_name(facts.device), *figures, share, step, str(facts.snapshots)])
    head = ["device", f"peak {unit}", f"capacity {unit}", f"headroom {unit}", "used", "peak at step", "snapshots"]
    return format_table(head, rows)


def _snapshot(run: Run, facts: DeviceFacts, selection: Selection) -> Snapshot | None:
    """The snapshot of the highest peak among those selected."""
    chosen = [
        taken
        for taken in run.snapshots
        if taken.device == facts.device
        and selection.step in (None, taken.step)
        and selection.phase in (None, taken.phase)
    ]
    return max(chosen, key=lambda taken: taken.in_use_bytes, default=None)


def _snapshot_text(snapshot: Snapshot) -> str:
    title = (
        f"{_name(snapshot.device)}, traced step {snapshot.step} ({snapshot.phase}, {snapshot.mode}): "
        f"{format_bytes(snapshot.in_use_bytes)} in use at the peak"
    )
    groups: dict[str, int] = {}
    for row in snapshot.ledger:
        word = _WORDS.get((row.category, row.trainable), row.category.replace("_", " "))
        groups[word] = groups.get(word, 0) + row.bytes
    holders: dict[tuple[str, str], int] = {}
    for row in snapshot.ledger:
        key = (_name(row.layer) if row.layer is not None else UNKNOWN, row.category.replace("_", " "))
        holders[key] = holders.get(key, 0) + row.bytes
    parts = [
        "\n".join([title, *_pool_text(snapshot)]),
        _shares("by kind", [((name,), size) for name, size in groups.items()], snapshot.in_use_bytes),
        _shares("by layer and kind", list(holders.items()), snapshot.in_use_bytes),
    ]
    parts.extend(f"  {clean(sentence)}" for sentence in snapshot.not_available)
    return "\n\n".join(part for part in parts if part)


def _pool_text(snapshot: Snapshot) -> list[str]:
    """The pool at the peak: how much of it is free, in how large pieces, and what rounding takes."""
    pool, largest, rounding = snapshot.pool_bytes, snapshot.largest_free_bytes, snapshot.rounding_bytes
    lines = []
    if pool and knows_pool(snapshot):
        free = pool - snapshot.in_use_bytes
        share = f"{100 * snapshot.in_use_bytes / pool:.0f} %"
        lines.append(f"  pool {format_bytes(pool)}, {share} of it in use, {format_bytes(free)} free")
        if largest is not None and free:
            lines[-1] += f": the largest piece {format_bytes(largest)}, the rest {format_bytes(free - largest)}"
        lines.append(f"  TensorFlow's own fragmentation {_fragmentation(snapshot.fragmentation, free)}")
    if rounding is not None:
        lines.append(f"  rounding {format_bytes(rounding)}: allocated, but not asked for")
    return lines


def _fragmentation(figure: float | None, free: int) -> str:
    if free == 0:
        return "0/0: the pool is full"
    return UNKNOWN if figure is None else f"{100 * figure:.0f} %, of what is free outside of the largest piece"


def _shares(title: str, sizes: Sequence[tuple[tuple[str, ...], int]], total: int) -> str:
    """The largest of `sizes` with their share of `total`, the rest in one row."""
    ordered = sorted((entry for entry in sizes if entry[1]), key=lambda entry: -entry[1])
    if not ordered:
        return ""
    rest = ordered[MAX_ROWS:]
    width = len(ordered[0][0])
    shown = ordered[:MAX_ROWS]
    if rest:
        shown = [*shown, ((f"{len(rest)} more", *[""] * (width - 1)), sum(size for _, size in rest))]
    unit = unit_for([ordered[0][1]])
    rows = [
        [*names, format_figure(size, unit), f"{100 * size / total:.1f} %" if total else UNKNOWN]
        for names, size in shown
    ]
    head = [title, *[""] * (width - 1), unit, "share"]
    return format_table(head, rows, left=width)


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
        rest = heavy[MAX_ROWS:]
        sums = [sum(layer.weight_bytes for layer in rest), sum(layer.optimizer_bytes for layer in rest)]
        parameters = sum(layer.parameters for layer in rest)
        rows.append([f"{len(rest)} more", "", "", f"{parameters:,}", *(format_figure(size, unit) for size in sums)])
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


def _name(text: str) -> str:
    """A name that fits its column: of a long path the end says most."""
    text = clean(text)
    return text if len(text) <= MAX_NAME_CHARACTERS else "…" + text[1 - MAX_NAME_CHARACTERS :]
