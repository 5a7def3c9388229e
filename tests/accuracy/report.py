"""docs/accuracy.md from measured cells."""

from collections.abc import Sequence
from typing import Any

import numpy as np

HEAD = """# Accuracy of predictions

Predicted against measured peaks on the CPU's BFC allocator, made by `make accuracy`. Every row is a set of trainings
at batch sizes 4, 8, 16 and 32; each recorded training predicts the peaks at the other batch sizes, a quarter to eight
times as large. The measured peak is the median over the steps of a real training, from the allocator's statistics.
Peaks of real steps differ from step to step, as ops run in other orders: the last column says by how much, as half of
the range between the lowest and the highest step.
"""


def written(cells: Sequence[Any]) -> str:
    """The page."""
    lines = [HEAD, "| model | trainings | cells | median error | 90th percentile | worst | in range | unknown |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|---:|")
    groups: dict[tuple[str, str], list[Any]] = {}
    for cell in cells:
        groups.setdefault((cell.model, cell.kind), []).append(cell)
    for (model, kind), group in groups.items():
        lines.append(f"| {model} | {kind} | {_figures(group)} |")
    for title, chosen in (
        ("**all in graph mode**", [cell for cell in cells if cell.kind.startswith("graph")]),
        ("**all compiled**", [cell for cell in cells if cell.kind.startswith("XLA")]),
    ):
        if chosen:
            lines.append(f"| {title} | | {_figures(chosen)} |")
    return "\n".join(lines) + "\n"


def _figures(cells: Sequence[Any]) -> str:
    known = [cell for cell in cells if cell.error is not None]
    if not known:
        return f"{len(cells)} | – | – | – | – | {len(cells)}"
    errors = np.abs([cell.error for cell in known]) * 100
    inside = np.mean([cell.low <= cell.measured <= cell.high for cell in known]) * 100
    worst = max(known, key=lambda cell: abs(cell.error)).error * 100
    return (
        f"{len(cells)} | {np.median(errors):.1f} % | {np.percentile(errors, 90):.1f} % | {worst:+.1f} % | "
        f"{inside:.0f} % | {len(cells) - len(known)}"
    )
