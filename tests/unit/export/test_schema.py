"""The tables' columns, and the page that describes them."""

import pathlib
import re
from typing import Any

from tb_memplugin.export import TABLES

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "export.md"


def described(name: str, table: Any) -> str:
    """The part of the page about a table."""
    lines = [f"### {name}", "", f"A row is {table.row}.", "", "| column | type | meaning | NULL |", "|---|---|---|---|"]
    lines += [
        f"| `{column.name}` | {column.kind} | {column.meaning} | {column.unknown or '–'} |" for column in table.columns
    ]
    return "\n".join(lines) + "\n"


def test_the_page_describes_exactly_the_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    _, _, tables = page.partition("## Tables\n")
    tables = tables.partition("\n## ")[0]
    assert re.findall(r"^### (.*)$", tables, re.M) == list(TABLES)
    for name, table in TABLES.items():
        assert described(name, table) in tables, f"docs/export.md must have:\n{described(name, table)}"
