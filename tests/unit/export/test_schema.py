"""The page that describes the tables."""

import pathlib
import re

from tb_memplugin.export import TABLES

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "export.md"


def test_the_page_describes_exactly_the_tables() -> None:
    _, _, tables = PAGE.read_text(encoding="utf-8").partition("## Tables\n")
    described = re.findall(
        r"^### (.*)\n\n<!-- generated " r"export: " r"(.*) " r"-->$",
        tables.partition("\n## ")[0],
        re.M,
    )
    assert described == [(name, name) for name in TABLES]
