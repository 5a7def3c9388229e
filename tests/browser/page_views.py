"""The views of the page, as its source names them."""

import pathlib
import re

_SOURCE = pathlib.Path(__file__).parents[2] / "frontend" / "src" / "state" / "address.ts"


def _named_in(source: str) -> tuple[str, ...]:
    (listed,) = re.findall(r"^export const VIEWS = \[(.*?)\] as const;", source, re.MULTILINE | re.DOTALL)
    return tuple(re.findall(r'"([a-z-]+)"', listed))


VIEWS = _named_in(_SOURCE.read_text("utf-8"))
OF_STEPS = tuple(view for view in VIEWS if view != "activations")
"""Those that show recorded steps; `activations` shows what `summary.layer_activations` wrote."""
