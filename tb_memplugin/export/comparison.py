"""Two runs side by side, at the failure or the highest traced peak of each: by category and by layer. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tb_memplugin.analysis import device_names
from tb_memplugin.errors import NotFoundError
from tb_memplugin.export.text import category_name, listed, shown_device, shown_name
from tb_memplugin.schema import Run, Snapshot, clean, format_bytes, group_sums, unknown_name, values_of


def compare_runs(runs: Sequence[Run], device: str | None = None) -> dict[str, Any]:
    """The run that began first (`before`) against the other one (`after`) as a JSON object: sizes by category and by
    layer, each of which sum to the breakdown. By default on the device of the later run's summary.

    Raises:
        NotFoundError: A run does not have the device, or no breakdown on it."""
    pair = sorted(runs, key=lambda run: max(run.session_starts, default=0.0))
    common = [name for name in device_names(pair[0]) if name in device_names(pair[1])]
    chosen = device or next((name for name in (shown_device(pair[1]), *common) if name in common), None)
    if chosen is None or chosen not in common:
        raise NotFoundError(unknown_name("the runs do not share a device", chosen or "", common, offer="shared:"))
    shown = [_largest(run, chosen) for run in pair]
    names = ("step", "phase", "at_failure", "batch_size", "in_use_bytes")
    sides = [{"run": run.name, **values_of(one, *names)} for run, one in zip(pair, shown, strict=True)]
    layers: list[Counter[tuple[Any, ...]]] = [Counter(), Counter()]
    for sums, one in zip(layers, shown, strict=True):
        for row in one.ledger:
            sums[(row.layer,)] += row.bytes
    return {
        "device": chosen,
        "before": sides[0],
        "after": sides[1],
        "change_bytes": shown[1].in_use_bytes - shown[0].in_use_bytes,
        "categories": _changes([group_sums(one.ledger) for one in shown], "category", "trainable"),
        "layers": _changes(layers, "layer"),
    }


def _largest(run: Run, device: str) -> Snapshot:
    found = [one for one in run.snapshots if one.device == device]
    if not found:
        raise NotFoundError(f"run {run.name} has no breakdown on {device}: none of its steps was traced")
    return max(found, key=lambda one: one.in_use_bytes)


def _changes(sums: Sequence[Mapping[Any, int]], *names: str) -> list[dict[str, Any]]:
    """What differs, the largest change first, and then what does not."""
    rows = [(key, *(side.get(key, 0) for side in sums)) for key in {**sums[0], **sums[1]}]
    rows.sort(key=lambda row: (-abs(row[2] - row[1]), -row[2]))
    return [
        {**dict(zip(names, key, strict=True)), "before_bytes": one, "after_bytes": two, "change_bytes": two - one}
        for key, one, two in rows
    ]


def format_comparison(compared: Mapping[str, Any]) -> str:
    """The object of `compare_runs` as text."""
    sides = compared["before"], compared["after"]
    before, after = (format_bytes(side["in_use_bytes"]) for side in sides)
    lines = [f"{compared['device']}: {before} → {after}, {_signed(compared['change_bytes'])}"]
    for side in sides:
        when = "failure" if side["at_failure"] else "peak"
        batch = "" if side["batch_size"] is None else f", batch size {side['batch_size']}"
        lines.append(f"  {side['run']}: {when} of step {side['step']} ({side['phase']}{batch})")

    def figures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
        sizes = [sum(row[name] for row in rows) for name in ("before_bytes", "after_bytes", "change_bytes")]
        return [*map(format_bytes, sizes[:2]), _signed(sizes[2])]

    def name(row: Mapping[str, Any]) -> list[str]:
        if "category" in row:
            return [category_name(row["category"], row["trainable"])]
        return ["not tied to a layer" if row["layer"] is None else shown_name(row["layer"])]

    head = [*(shown_name(side["run"]) for side in sides), "change"]
    tables = [listed([f"by {of}", *head], compared[key], name, figures) for of, key in _TABLES if compared[key]]
    return "\n\n".join(["\n".join(map(clean, lines)), *tables])


_TABLES = (("category", "categories"), ("layer", "layers"))


def _signed(change: int) -> str:
    return f"{'+' if change > 0 else '−' if change else ''}{format_bytes(abs(change))}"
