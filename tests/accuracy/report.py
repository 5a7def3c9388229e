"""docs/accuracy.md from measured cells."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tb_memplugin.model.units import format_bytes

WIDTH = 120
"""Characters in a line of the document's text."""
ALIKE = 0.05
"""Steps of a training are alike if their highest and lowest peak differ by less than this share of the median."""
HEAD = """# Accuracy of predictions

Predicted against measured peaks of trainings on the CPU's BFC allocator, made by `make accuracy`. Each row is a set of
trainings at batch sizes 4, 8, 16 and 32. Each recorded training predicts the peaks at the other batch sizes, which are
between an eighth and eight times its own; compiled trainings were recorded at two sizes. The measured peak is the
median over the steps of a real training, from the allocator's statistics. Each training ran on two processor cores.

- **in range**: share of the predictions whose range contains the measured peak.
- **unknown**: predictions that were withheld, because the simulation of the recorded steps misses the measured peak of
  the recorded run by more than 10 %.
- **steps ±**: half of the range between the lowest and the highest peak of a training's own steps, median over the
  trainings. Operations that run in parallel ask for memory in another order each time, so no prediction can be better
  than about this.

"""
CHANGED = """## Changed conditions

The same for another optimizer, and for models whose first half of layers is frozen or unfrozen. Each recorded training
predicts the one with the other conditions and its own batch size. All of these trainings run in graph mode.

Optimizer state follows exactly from the weights; the range covers temporaries of the update. Freezing and unfreezing
change which results of the forward pass are kept, so their range is wide: from no activations of the layers concerned
to all of them.

"""
OUTSIDE = """
These measured peaks are outside the range. Rounding, mostly unsplit remainders of chunks, depends on the chunks that
earlier steps left behind, and these differ under other conditions.

"""
FEEDS = """## Arrays and slices

The same for `fit(x, y)` and for slices of arrays, shuffled and in batches. The data set, which lies in the device's
memory as a whole, has 384 examples at each batch size.

"""
DRAWN = """## Models drawn at random

Models of 4 to 20 layers, with optimizer, precision, frozen layers and feed, each drawn by the seed in its name.
Of drawn:5, a small model with LSTM layers, the first steps peak higher than the later ones, and the first ones are
traced.

"""
HUB = """## KerasHub models

Small ones without weights, with inputs in a dictionary.

"""
PLANS = """## Plans

`tb_memplugin.plan` of a recorded training at batch size 32, for budgets of 85 and 70 % of its peak, against five
trainings that follow it with `tb_memplugin.remat`. A training's peak is the median over its steps after the third one;
with accumulated gradients, the median of the highest peaks of its updates after the first. The table has the median,
the lowest and the highest of the five. Times are medians, too. The last column compares losses and variables of 20
steps with plain training, both with deterministic ops. BERT and GPT-2 differ by rounding: TensorFlow's arithmetic
rewrites find other patterns in a graph with recomputation. Without these
(`tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})`) they are bit-identical, too.

The five differ because operations run in parallel, in another order each time, and the allocator then splits other
chunks. A model without a row had no plan that recomputes or accumulates.

"""
HEADINGS = {
    "sizes": "",
    "feeds": FEEDS,
    "drawn": DRAWN,
    "kerashub": HUB,
    "changed": CHANGED,
    "plans": PLANS,
}
"""Name of each table to the text above it, in the page's order."""
TAIL = """
## Published figures of others

They are of other models and devices, so they only give the order of magnitude.

- DNNMem, mean error 5.9 %: Gao et al., "Estimating GPU Memory Consumption of Deep Learning Models", ESEC/FSE 2020,
  doi:10.1145/3368089.3417050
- xMem, median error 3.59 %: Shi et al., "xMem: A CPU-Based Approach for Accurate Estimation of GPU Memory in Deep
  Learning Training Workloads", 2025, arXiv:2510.21048
"""


def written(tables: Mapping[str, str]) -> str:
    """The page, from the tables of all sets."""
    return HEAD + "\n".join(f"{HEADINGS[name]}{_marked(name, tables[name])}" for name in HEADINGS) + TAIL


def replaced(page: str, tables: Mapping[str, str]) -> str:
    """The page with other tables of some sets."""
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->\n"
        if begin not in page:
            raise SystemExit(f"the page has no table {name}: measure all sets once")
        before, _, rest = page.partition(begin)
        page = before + _marked(name, table) + rest.partition(end)[2]
    return page


def _marked(name: str, table: str) -> str:
    return f"<!-- {name} -->\n\n{table}\n<!-- end -->\n"


def of_changes(cells: Sequence[Any]) -> str:
    """The table of predictions of changed conditions, and those that are outside their range."""
    kinds = dict.fromkeys(cell.kind for cell in cells)
    totals = {f"**all, {kind}**": [cell for cell in cells if cell.kind == kind] for kind in kinds}
    return _table("change", cells, totals) + _outside(cells)


def of_sizes(cells: Sequence[Any]) -> str:
    """The table of predictions of other batch sizes."""
    graph = [cell for cell in cells if cell.kind.startswith("graph")]
    compiled = [cell for cell in cells if cell.kind.startswith("XLA")]
    return _table("trainings", cells, {"**all in graph mode**": graph, "**all compiled**": compiled}) + _steady(cells)


def _steady(cells: Sequence[Any]) -> str:
    """How many predictions of trainings whose steps are alike are as close as these; nothing without such trainings."""
    steady = [cell for cell in cells if cell.error is not None and 2 * cell.spread < ALIKE]
    if not steady:
        return ""
    close = np.mean([abs(cell.error) < ALIKE for cell in steady]) * 100
    sentence = (
        f"Of the {len(steady)} predictions for trainings whose steps differ by less than {100 * ALIKE:.0f} %, "
        f"{close:.0f} % are within {100 * ALIKE:.0f} %."
    )
    return "\n".join(["", *textwrap.wrap(sentence, WIDTH), ""])


def _outside(cells: Sequence[Any]) -> str:
    """A list of the predictions whose range does not contain the measured peak; nothing without any."""
    sentences = [
        f"- {cell.model}, {cell.kind}, batch size {cell.batch}: {format_bytes(cell.low)} to {format_bytes(cell.high)} "
        f"predicted, {format_bytes(cell.measured)} measured (steps ± {100 * cell.spread:.1f} %); rounding: "
        f"{format_bytes(cell.rounding[0])} predicted, {format_bytes(cell.rounding[1])} measured"
        for cell in cells
        if cell.error is not None and not cell.low <= cell.measured <= cell.high
    ]
    lines = [line for sentence in sentences for line in textwrap.wrap(sentence, WIDTH, subsequent_indent="  ")]
    return OUTSIDE + "\n".join([*lines, ""]) if lines else ""


def _table(name: str, cells: Sequence[Any], totals: Mapping[str, Sequence[Any]]) -> str:
    """A row for each model and kind, then one for each of the totals."""
    lines = [
        f"| model | {name} | predictions | median error | 90th percentile | worst | in range | unknown | steps ± |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    groups: dict[tuple[str, str], list[Any]] = {}
    for cell in cells:
        groups.setdefault((cell.model, cell.kind), []).append(cell)
    lines += [f"| {model} | {kind} | {_figures(group)} |" for (model, kind), group in groups.items()]
    lines += [f"| {title} | | {_figures(chosen)} |" for title, chosen in totals.items() if chosen]
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
        f"{len(cells)} | {np.median(errors):.1f} % | {np.percentile(errors, 90):.1f} % | {worst:+.1f} % | "
        f"{inside:.0f} % | {len(cells) - len(known)} | {spread}"
    )
