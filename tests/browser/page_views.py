"""The views of the page, as its source names them."""

import pathlib
import re

_SOURCE = pathlib.Path(__file__).parents[2] / "frontend" / "src" / "state" / "views.ts"


def _named_in(source: str) -> tuple[str, ...]:
    (table,) = re.findall(r"^const TABLE = \{$(.*?)^\} as const", source, re.MULTILINE | re.DOTALL)
    return tuple(re.findall(r'^  "?([a-z-]+)"?: \{', table, re.MULTILINE))


VIEWS = _named_in(_SOURCE.read_text("utf-8"))
OF_STEPS = tuple(view for view in VIEWS if view != "activations")
"""Those that show recorded steps; `activations` shows what `summary.layer_activations` wrote."""
