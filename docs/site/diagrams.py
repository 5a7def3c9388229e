"""Draws Mermaid's flowcharts as SVG while the site is built, so that its pages load no script from elsewhere.

Reads what tests/import_graph.py writes: nodes ``r0["name"]`` and arrows ``r0 --> r1`` of a graph without cycles. Each
node lies on a layer below the nodes with an arrow to it; an arrow across layers passes between the nodes of each.
"""

import collections
import html
import itertools
import re
import statistics

from docutils import nodes
from sphinx.application import Sphinx

NODE = re.compile(r'^\s*(\w+)\["(.*)"\]$', re.MULTILINE)
ARROW = re.compile(r"^\s*(\w+) --> (\w+)$", re.MULTILINE)
CHARACTER, HEIGHT, GAP, LAYER, BEND = 7.4, 26, 16, 62, 10
"""Width of a character in the site's monospaced font; heights and distances, in CSS pixels."""
WIDTH = 720
"""Width of the nodes of one layer, at most: that of the site's column of text."""
SWEEPS = 24

Chain = list[str]


def layers_of(widths: dict[str, float], arrows: list[tuple[str, str]]) -> dict[str, int]:
    """Layer of each node: below all nodes with an arrow to it, and on the first such layer with room for it."""
    above = {name: {one for one, other in arrows if other == name} for name in widths}
    depth: dict[str, int] = {}
    filled: dict[int, float] = collections.defaultdict(float)
    while len(depth) < len(widths):
        name = next(name for name in widths if name not in depth and above[name] <= depth.keys())
        layer = max((depth[one] + 1 for one in above[name]), default=0)
        while filled[layer] and filled[layer] + widths[name] + GAP > WIDTH:
            layer += 1
        depth[name] = layer
        filled[layer] += widths[name] + GAP
    return depth


def chains_of(arrows: list[tuple[str, str]], depth: dict[str, int]) -> list[Chain]:
    """Each arrow as the places that it passes, one on each layer; adds the places between nodes to `depth`."""
    chains = []
    for above, below in arrows:
        between = range(depth[above] + 1, depth[below])
        passed = {f"{above} {below} {layer}": layer for layer in between}
        depth.update(passed)
        chains.append([above, *passed, below])
    return chains


def order(depth: dict[str, int], chains: list[Chain]) -> list[list[str]]:
    """The places of each layer from left to right, such that few arrows cross."""
    beside = collections.defaultdict(list)
    for chain in chains:
        for one, other in itertools.pairwise(chain):
            beside[one].append(other)
            beside[other].append(one)
    rows = [[name for name in depth if depth[name] == layer] for layer in range(max(depth.values()) + 1)]
    for sweep in range(SWEEPS):
        at = {name: index / max(1, len(row) - 1) for row in rows for index, name in enumerate(row)}
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            layer = depth[row[0]] + (-1 if down else 1)
            near = {name: [at[other] for other in beside[name] if depth[other] == layer] for name in row}
            row.sort(key=lambda name: statistics.mean(near[name]) if near[name] else at[name])
            at.update({name: index / max(1, len(row) - 1) for index, name in enumerate(row)})
    return rows


def places(rows: list[list[str]], chains: list[Chain], widths: dict[str, float]) -> dict[str, float]:
    """The centre of each place from left to right: near what it is joined to, without overlaps."""
    beside = collections.defaultdict(list)
    for chain in chains:
        for one, other in itertools.pairwise(chain):
            beside[one].append(other)
            beside[other].append(one)
    at = {name: 60.0 * index for row in rows for index, name in enumerate(row)}
    for _ in range(SWEEPS * 4):
        for row in rows:
            wanted = [statistics.mean([at[other] for other in beside[name]] or [at[name]]) for name in row]
            at.update(zip(row, _apart(wanted, [widths.get(name, BEND) for name in row]), strict=True))
    left = min(at[name] - widths.get(name, BEND) / 2 for name in at)
    return {name: x - left + GAP / 2 for name, x in at.items()}


def _apart(wanted: list[float], widths: list[float]) -> list[float]:
    """Increasing centres close to the wanted ones: the mean of those pushed right and those pushed left."""
    right, left = list(wanted), list(wanted)
    for index in range(1, len(wanted)):
        room = (widths[index - 1] + widths[index]) / 2 + GAP
        right[index] = max(right[index], right[index - 1] + room)
        left[-1 - index] = min(left[-1 - index], left[-index] - (widths[-index] + widths[-1 - index]) / 2 - GAP)
    return [(one + other) / 2 for one, other in zip(right, left, strict=True)]


def draw(text: str, number: int = 0) -> str:
    """A flowchart as an SVG element; the number tells it from others of its page."""
    labels = dict(NODE.findall(text))
    arrows = ARROW.findall(text)
    widths = {name: CHARACTER * len(label) + 20 for name, label in labels.items()}
    depth = layers_of(widths, arrows)
    chains = chains_of(arrows, depth)
    rows = order(depth, chains)
    x = places(rows, chains, widths)
    width = max(x[name] + widths.get(name, BEND) / 2 for name in x) + GAP / 2
    drawn = [
        f'<svg class="diagram" role="img" aria-label="What imports what" '
        f'viewBox="0 0 {width:.0f} {LAYER * len(rows) - LAYER + 2 * HEIGHT}" width="{width:.0f}">',
        f'<marker id="arrow-{number}" viewBox="0 0 8 8" refX="8" refY="4" '
        'markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker>',
    ]
    for chain in chains:
        drawn.append(f'<path class="arrow" marker-end="url(#arrow-{number})" d="{_curve(chain, x, depth)}"/>')
    for name, label in labels.items():
        top = LAYER * depth[name] + HEIGHT / 2
        left, across = x[name] - widths[name] / 2, widths[name]
        drawn.append(
            f'<rect x="{left:.1f}" y="{top}" width="{across:.1f}" height="{HEIGHT}" rx="5"/>'
            f'<text x="{x[name]:.1f}" y="{top + HEIGHT / 2 + 4.5}">{html.escape(label)}</text>'
        )
    return "\n".join([*drawn, "</svg>"])


def _curve(chain: Chain, x: dict[str, float], depth: dict[str, int]) -> str:
    """From the lower edge of the first node, straight through each layer between, to the upper edge of the last."""
    first, *_, last = chain
    points = [(x[first], LAYER * depth[first] + HEIGHT * 1.5)]
    for name in chain[1:-1]:
        points += [(x[name], LAYER * depth[name] + edge * HEIGHT) for edge in (0.5, 1.5)]
    points.append((x[last], LAYER * depth[last] + HEIGHT / 2))
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for index, (one, other) in enumerate(itertools.pairwise(points)):
        middle = (one[1] + other[1]) / 2
        if index % 2:
            path += f"V{other[1]:.1f}"
        else:
            path += f"C{one[0]:.1f} {middle:.1f} {other[0]:.1f} {middle:.1f} {other[0]:.1f} {other[1]:.1f}"
    return path


def replace(app: Sphinx, document: nodes.document) -> None:
    """Puts the drawing in the place of each block with the language ``mermaid``."""
    blocks = [block for block in document.findall(nodes.literal_block) if block.get("language") == "mermaid"]
    for number, block in enumerate(blocks):
        block.replace_self(nodes.raw("", draw(block.astext(), number), format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", replace)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
