"""The tables of docs/accuracy.md from measured cells."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tb_memplugin.schema import format_bytes

WIDTH = 120
"""Characters in a line of the document's text."""
ALIKE = 0.05
"""Steps of a training are alike if their highest and lowest peak differ by less than this share of
the median."""
OUTSIDE = """
These measured peaks are outside the range. Rounding, mostly unsplit remainders of chunks, depends
on the chunks that earlier steps left behind, and these differ under other conditions.

"""


def replaced(page: str, tables: Mapping[str, str]) -> str:
    """The page with other tables of some sets."""
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->\n"
        if begin not in page:
            raise SystemExit(f"the page has no table {name}: add {begin.strip()} and {end.strip()}")
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}"
    return page


def of_changes(cells: Sequence[Any]) -> str:
    """The table of predictions of changed conditions, and those that are outside their range."""
    kinds = dict.fromkeys(cell.kind for cell in cells)
    totals = {kind: [cell for cell in cells if cell.kind == kind] for kind in kinds}
    return _table("change", cells, totals) + _outside(cells)


def of_sizes(cells: Sequence[Any]) -> str:
    """The table of predictions of other batch sizes."""
    graph = [cell for cell in cells if cell.kind.startswith("graph")]
    compiled = [cell for cell in cells if cell.kind.startswith("XLA")]
    return _table("trainings", cells, {"graph mode": graph, "compiled": compiled}) + _steady(cells)


def _steady(cells: Sequence[Any]) -> str:
    """How many predictions of trainings whose steps are alike are as close as these; nothing
    without such trainings."""
    steady = [cell for cell in cells if cell.error is not None and 2 * cell.spread < ALIKE]
    if not steady:
        return ""
    close = np.mean([abs(cell.error) < ALIKE for cell in steady]) * 100
    sentence = (
        f"Of the {len(steady)} predictions for trainings whose steps differ by less than "
        f"{100 * ALIKE:.0f} %, {close:.0f} % are within {100 * ALIKE:.0f} %."
    )
    return "\n".join(["", *textwrap.wrap(sentence, WIDTH), ""])


def _outside(cells: Sequence[Any]) -> str:
    """A list of the predictions whose range does not contain the measured peak; nothing without
    any."""
    sentences = [
        f"- {cell.model}, {cell.kind}, batch size {cell.batch}: {format_bytes(cell.low)} to "
        f"{format_bytes(cell.high)} predicted, {format_bytes(cell.measured)} measured (steps ± "
        f"{100 * cell.spread:.1f} %); rounding: {format_bytes(cell.rounding[0])} predicted, "
        f"{format_bytes(cell.rounding[1])} measured"
        for cell in cells
        if cell.error is not None and not cell.low <= cell.measured <= cell.high
    ]
    lines = [
        line
        for sentence in sentences
        for line in textwrap.wrap(sentence, WIDTH, subsequent_indent="  ")
    ]
    return OUTSIDE + "\n".join([*lines, ""]) if lines else ""


def _table(name: str, cells: Sequence[Any], totals: Mapping[str, Sequence[Any]]) -> str:
    """A row for each of the totals; the rows of single models are printed, so that two measurements
    can be compared."""
    head = "predictions | median error | 90th percentile | worst | in range | unknown | steps ± |"
    groups: dict[tuple[str, str], list[Any]] = {}
    for cell in cells:
        groups.setdefault((cell.model, cell.kind), []).append(cell)
    print(f"| model | {name} | {head}")
    for (model, kind), group in groups.items():
        print(f"| {model} | {kind} | {_figures(group)} |")

    lines = [f"| {name} | {head}", "|---|---:|---:|---:|---:|---:|---:|---:|"]
    lines += [f"| {title} | {_figures(chosen)} |" for title, chosen in totals.items() if chosen]
    return "\n".join(lines) + "\n"


def _figures(cells: Sequence[Any]) -> str:
    spread = f"{100 * np.median([cell.spread for cell in cells]):.1f} %"
    known = [cell for cell in cells if cell.error is not None]
    if not known:
        return f"{len(cells)} | – | – | – | – | {len(cells)} | {spread}"
    errors = np.abs([cell.error for cell in known]) * 100
    inside = np.mean([cell.low <= cell.measured <= cell.high for cell in known]) * 100
    worst = max(known, key=lambda cell: abs(cell.error)).error * 100
    return (
        f"{len(cells)} | {np.median(errors):.1f} % | {np.percentile(errors, 90):.1f} % | "
        f"{worst:+.1f} % | {inside:.0f} % | {len(cells) - len(known)} | {spread}"
    )
