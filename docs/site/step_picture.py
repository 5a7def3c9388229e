"""Draws the pictures of docs/understand_the_numbers.md: one recorded step, and the categories.

usage: python docs/site/step_picture.py LOGDIR RUN STEP docs/images

The step comes from a recorded run, such as the run `batch_48` that the tutorial makes. Colors are
those of the tab. Each picture has a light and a dark version with a background of its own, so that
it is readable on any page.
"""

import dataclasses
import html
import pathlib
import re
import sys
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tb_memplugin import load

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
SCHEMES = ("light", "dark")
KINDS = {
    "Across steps": {
        "weights": "the model's variables, frozen and trainable",
        "optimizer_state": "such as Adam's two moments per weight",
        "other_state": "metrics, seeds, constants, other variables",
        "held_tensors": "kept by Python code: leaks appear here",
    },
    "Within one step": {
        "inputs": "batches; a data set on the device stays",
        "activations": "saved by the forward pass for the backward pass",
        "weight_gradients": "one value per trainable weight",
        "activation_gradients": "passed backward from layer to layer",
        "workspace": "temporaries and scratch space of operations",
    },
    "Of the allocator": {
        "rounding": "allocated − requested bytes",
        "unattributed": "in use, owner unknown",
    },
}
"""Categories from the bottom of the stack upwards, by how long they live, with a short
description."""
CATEGORIES = [category for kind in KINDS.values() for category in kind]
WIDTH, LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT = 1000, 70, 70, 660, 380
FONT = "font-family='Roboto, Helvetica, Arial, sans-serif'"


@dataclasses.dataclass(frozen=True)
class Step:
    """Allocated bytes of a step by category and event, and the events and sizes that the picture
    names."""

    run: str
    number: int
    stack: npt.NDArray[np.int64]
    peak: int
    forward_end: int
    capacity: int


def read_step(logdir: str, name: str, number: int) -> Step:
    """A traced training step of a recorded run."""
    run = load(logdir)[name]
    timeline = next(
        found for found in run.timelines if (found.step, found.phase) == (number, "train")
    )
    stack = np.zeros((len(CATEGORIES), timeline.events), np.int64)
    for owner, start, end, size, rounding in zip(
        timeline.owner,
        timeline.start,
        timeline.end,
        timeline.bytes,
        timeline.rounding_bytes,
        strict=True,
    ):
        stack[CATEGORIES.index(timeline.owners[owner].category), start:end] += size - max(
            rounding, 0
        )
        stack[CATEGORIES.index("rounding"), start:end] += max(rounding, 0)
    assert stack[:, timeline.peak].sum() == timeline.in_use_bytes
    capacity = int(run.samples.devices[timeline.device].capacity_bytes.max())
    forward = next(band for band in timeline.bands if band.name == "forward")
    return Step(name, number, stack, timeline.peak, forward.end, capacity)


def colors(scheme: str) -> Mapping[str, str]:
    """The tab's colors of categories and texts."""
    text = (ROOT / "frontend" / "src" / "theme" / "palette.ts").read_text(encoding="utf-8")
    pairs = re.findall(r'^  (\w+): \["(#\w{6})", "(#\w{6})"\]', text, re.MULTILINE)
    return {name: pair[SCHEMES.index(scheme)] for name, *pair in pairs}


def words(
    x: float,
    y: float,
    text: str,
    color: str,
    size: int = 13,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    """A line of text."""
    return (
        f"<text x='{x:.0f}' y='{y:.0f}' fill='{color}' font-size='{size}' font-weight='{weight}' "
        f"text-anchor='{anchor}'>{html.escape(text)}</text>"
    )


def page(height: int, title: str, ink: Mapping[str, str], parts: list[str]) -> str:
    """A document with a background."""
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' role='img' {FONT}>"
    )
    ground = f"<rect width='{WIDTH}' height='{height}' fill='{ink['background']}'/>"
    return "\n".join([head, f"<title>{html.escape(title)}</title>", ground, *parts, "</svg>\n"])


def draw_step(step: Step, scheme: str) -> str:
    """The step as a stack over its events, with annotations."""
    ink = colors(scheme)
    events = step.stack.shape[1]
    highest = step.capacity * 1.06
    right, bottom = LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT

    def x(event: float) -> float:
        return LEFT + PLOT_WIDTH * event / events

    def y(size: float) -> float:
        return bottom - PLOT_HEIGHT * size / highest

    # One column for each second pixel: the event with the most bytes in it, so that the peak is
    # among them.
    edges = np.linspace(0, events, PLOT_WIDTH // 2 + 1).astype(int)
    total = step.stack.sum(0)
    spans = zip(edges[:-1], np.maximum(edges[1:], edges[:-1] + 1), strict=True)
    shown = [start + int(total[start:end].argmax()) for start, end in spans]
    tops = np.vstack([np.zeros(len(shown), np.int64), step.stack[:, shown].cumsum(0)])
    across = [LEFT + 2 * at for at in range(len(shown) + 1)]
    parts = [
        words(
            LEFT,
            24,
            f"One training step: run {step.run}, step {step.number}",
            ink["text"],
            17,
            weight=500,
        )
    ]
    for at, category in enumerate(CATEGORIES):
        low, high = tops[at], tops[at + 1]
        if (high > low).any():
            upper = "".join(f"V{y(size):.1f}H{across[n + 1]}" for n, size in enumerate(high))
            lower = "".join(
                f"V{y(size):.1f}H{across[n]}" for n, size in reversed(list(enumerate(low)))
            )
            path = f"M{LEFT} {bottom}{upper}{lower}Z"
            parts.append(f"<path d='{path}' fill='{ink[category]}'/>")
    for size in range(0, int(highest / MIB), 50):
        parts.append(words(LEFT - 8, y(size * MIB) + 4, f"{size}", ink["faint"], 12, "end"))
        parts.append(f"<path d='M{LEFT - 4} {y(size * MIB):.0f}h4' stroke='{ink['faint']}'/>")
    parts.append(words(LEFT - 8, TOP - 8, "MiB", ink["faint"], 12, "end"))
    # Passes, above the chart
    for start, end, name in (
        (0, step.forward_end, "forward pass"),
        (step.forward_end, events, "backward pass and update"),
    ):
        parts.append(
            f"<path d='M{x(start) + 2:.0f} {TOP - 14}H{x(end) - 2:.0f}' stroke='{ink['faint']}' "
            "stroke-width='3'/>"
        )
        parts.append(words((x(start) + x(end)) / 2, TOP - 22, name, ink["faint"], 13, "middle"))
    # Capacity, peak and step end
    peak, end = int(total[step.peak]), int(total[-1])
    lines = (
        (LEFT, right, step.capacity, "7 4", ink["capacity"]),
        (x(step.peak), right, peak, "2 3", ink["text"]),
        (x(events - 1), right, end, "2 3", ink["text"]),
    )
    for start, stop, size, dash, color in lines:
        line = f"M{start:.0f} {y(size):.0f}H{stop + 8:.0f}"
        parts.append(
            f"<path d='{line}' stroke='{color}' stroke-width='1.5' stroke-dasharray='{dash}'/>"
        )
    parts.append(f"<circle cx='{x(step.peak):.0f}' cy='{y(peak):.0f}' r='4' fill='{ink['text']}'/>")
    persistent = int(step.stack[: CATEGORIES.index("inputs"), -1].sum())
    noted = (
        (y(step.capacity), f"① capacity {step.capacity / MIB:.0f} MiB", "the allocator's limit"),
        (
            (y(step.capacity) + y(peak)) / 2 + 2,
            f"② headroom {(step.capacity - peak) / MIB:.0f} MiB",
            "",
        ),
        (y(peak) + 6, f"③ peak {peak / MIB:.0f} MiB", "what the step needs"),
        (
            y(end) - 8,
            f"⑥ step end {end / MIB:.0f} MiB",
            f"{persistent / MIB:.1f} MiB of them persist",
        ),
    )
    for height, text, more in noted:
        parts.append(words(right + 14, height + 4, text, ink["text"], 14, weight=500))
        parts.append(words(right + 14, height + 21, more, ink["faint"], 12))
    # Inside the stack, on its own background
    inside = (
        (0.2, 0.30, "④ activations accumulate"),
        (0.72, 0.44, "⑤ and are freed, layer by layer"),
    )
    for share, level, text in inside:
        wide = 7.4 * len(text) + 16
        left, height = LEFT + PLOT_WIDTH * share - wide / 2, bottom - PLOT_HEIGHT * level
        parts.append(
            f"<rect x='{left:.0f}' y='{height - 17:.0f}' width='{wide:.0f}' height='25' rx='4' "
            f"fill='{ink['background']}' fill-opacity='0.88'/>"
        )
        parts.append(words(left + wide / 2, height, text, ink["text"], 14, "middle", 500))
    parts.append(
        words(LEFT, bottom + 20, "allocations and frees of the step, in order →", ink["faint"], 12)
    )
    # Categories at the peak
    parts.append(
        words(
            LEFT, bottom + 50, "At the peak, from the bottom of the stack (MiB):", ink["faint"], 12
        )
    )
    rows = [(category, int(step.stack[at, step.peak])) for at, category in enumerate(CATEGORIES)]
    rows = [(category, size) for category, size in rows if size >= 0.05 * MIB]
    for at, (category, size) in enumerate(rows):
        left, height = LEFT + 225 * (at % 4), bottom + 74 + 24 * (at // 4)
        parts.append(
            f"<rect x='{left}' y='{height - 11}' width='13' height='13' fill='{ink[category]}'/>"
        )
        parts.append(
            words(
                left + 20, height, f"{category.replace('_', ' ')} {size / MIB:.1f}", ink["text"], 13
            )
        )
    return page(
        bottom + 74 + 24 * ((len(rows) + 3) // 4),
        f"Memory inside step {step.number} of {step.run}",
        ink,
        parts,
    )


def draw_categories(scheme: str) -> str:
    """The categories as three boxes: what lives across steps, within one step, and what is the
    allocator's."""
    ink = colors(scheme)
    parts, top = [], 16
    for kind, categories in reversed(list(KINDS.items())):
        height = 44 + 30 * len(categories)
        parts.append(
            f"<rect x='16' y='{top}' width='{WIDTH - 32}' height='{height}' rx='8' fill='none' "
            f"stroke='{ink['faint']}'/>"
        )
        parts.append(words(36, top + 27, kind, ink["text"], 16, weight=500))
        for at, (category, text) in enumerate(reversed(categories.items())):
            line = top + 52 + 30 * at
            parts.append(
                f"<rect x='36' y='{line - 14}' width='18' height='18' fill='{ink[category]}'/>"
            )
            parts.append(words(68, line, category.replace("_", " "), ink["text"], 15))
            parts.append(words(300, line, text, ink["faint"], 15))
        top += height + 14
    return page(top + 2, "Categories of memory", ink, parts)


def main() -> None:
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    logdir, run, number, out = sys.argv[1:]
    step = read_step(logdir, run, int(number))
    for scheme in SCHEMES:
        pictures = {"step": draw_step(step, scheme), "categories": draw_categories(scheme)}
        for name, text in pictures.items():
            (pathlib.Path(out) / f"{name}-{scheme}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
