"""The views of the page, as its source names them."""

import pathlib
import re
from collections.abc import Collection, Iterable
from typing import Any

import pytest

_SOURCE = pathlib.Path(__file__).parents[2] / "frontend" / "src" / "state" / "views.ts"


def _named_in(source: str) -> tuple[str, ...]:
    (table,) = re.findall(r"^const TABLE = \{$(.*?)^\} as const", source, re.MULTILINE | re.DOTALL)
    return tuple(re.findall(r'^  "?([a-z-]+)"?: \{', table, re.MULTILINE))


VIEWS = _named_in(_SOURCE.read_text("utf-8"))
OF_STEPS = tuple(view for view in VIEWS if view != "activations")
"""Those that show recorded steps; `activations` shows what `summary.layer_activations` wrote."""


ALL_COLUMNS = {"columns": 1}
"""Of the address: the table of layers has a column for each figure."""


def run_of(view: str, died: str = "died_fragmentation") -> str:
    """The sample run that has something to show in a view."""
    return {"oom": died, "what-if": "requests", "activations": "activations_only"}.get(
        view, "frozen"
    )


def mostly_long(cases: Iterable[str], short: Collection[str]) -> list[Any]:
    """Parameters of which all but those in `short` have the mark `long`."""
    return [case if case in short else pytest.param(case, marks=pytest.mark.long) for case in cases]
