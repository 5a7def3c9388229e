"""Two runs side by side, at the failure or the highest traced peak of each: by category and by
layer. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tb_memplugin.errors import NotFoundError
from tb_memplugin.export.text import category_name, listed, shown_device, shown_name
from tb_memplugin.schema import Run, clean, format_bytes, group_sums, values_of


def compare_runs(runs: Sequence[Run], device: str | None = None) -> dict[str, Any]:
    """The first run (`before`) against the second one (`after`) as a JSON object: sizes by category
    and by layer, each of which sum to the breakdown; a change is the second's bytes minus the
    first's. By default on the device of the second run's summary; `NotFoundError` if a run has no
    breakdown on it."""
    before, after = runs
    chosen, sides, categories, layers = shown_device(after, device), [], [], []
    for run in (before, after):
        shown = [one for one in run.snapshots if one.device == chosen]
        if not shown:
            raise NotFoundError(
                f"run {run.name} has no breakdown on {chosen}: no step was traced there"
            )
        found = max(shown, key=lambda one: (one.at_failure, one.in_use_bytes))
        names = ("step", "phase", "at_failure", "batch_size", "in_use_bytes")
        sides.append({"run": run.name, **values_of(found, *names)})
        categories.append(group_sums(found.ledger))
        of_layers: Counter[tuple[str | None]] = Counter()
        for row in found.ledger:
            of_layers[(row.layer,)] += row.bytes
        layers.append(of_layers)
    return {
        "device": chosen,
        **dict(zip(("before", "after"), sides, strict=True)),
        "change_bytes": sides[1]["in_use_bytes"] - sides[0]["in_use_bytes"],
        "categories": _changes(categories, "category", "trainable"),
        "layers": _changes(layers, "layer"),
    }


def _changes(sides: Sequence[Mapping[Any, int]], *names: str) -> list[dict[str, Any]]:
    """What differs, the largest change first, and then what does not."""
    rows = [(key, *(side.get(key, 0) for side in sides)) for key in {**sides[0], **sides[1]}]
    return [
        {
            **dict(zip(names, key, strict=True)),
            "before_bytes": one,
            "after_bytes": two,
            "change_bytes": two - one,
        }
        for key, one, two in sorted(rows, key=lambda row: (-abs(row[2] - row[1]), -row[2]))
    ]


def format_comparison(compared: Mapping[str, Any]) -> str:
    """The object of `compare_runs` as text."""
    sides = compared["before"], compared["after"]
    sizes = (format_bytes(side["in_use_bytes"]) for side in sides)
    lines = [f"{compared['device']}: {' → '.join(sizes)}, {_signed(compared['change_bytes'])}"]
    for side in sides:
        when = "failure" if side["at_failure"] else "peak"
        batch = "" if side["batch_size"] is None else f", batch size {side['batch_size']}"
        lines.append(f"  {side['run']}: {when} of step {side['step']} ({side['phase']}{batch})")

    def figures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
        sums = [
            sum(row[name] for row in rows)
            for name in ("before_bytes", "after_bytes", "change_bytes")
        ]
        return [*map(format_bytes, sums[:2]), _signed(sums[2])]

    def name(row: Mapping[str, Any]) -> list[str]:
        if "category" in row:
            return [category_name(row["category"], row["trainable"])]
        return ["not tied to a layer" if row["layer"] is None else shown_name(row["layer"])]

    head = [*(shown_name(side["run"]) for side in sides), "change"]
    tables = [
        listed([key, *head], compared[key], name, figures)
        for key in ("categories", "layers")
        if compared[key]
    ]
    return "\n\n".join(["\n".join(map(clean, lines)), *tables])


def _signed(change: int) -> str:
    return f"{'+' if change > 0 else '−' if change else ''}{format_bytes(abs(change))}"
