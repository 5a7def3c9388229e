"""Text and tables as HTML for notebooks, escaped."""

import html
from collections.abc import Sequence

from tb_memplugin.model.text import clean


def html_text(text: str) -> str:
    """Lines as they are printed in a terminal, in a fixed-width font."""
    return f'<pre style="white-space: pre-wrap">{_escaped(text)}</pre>'


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table; as in `format_table` the first `left` columns are aligned to the left, the others to the right."""

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ("left" if column < left else "right" for column in range(len(cells)))
        texts = (
            f'<{tag} style="text-align: {side}">{_escaped(cell)}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )
        return f"<tr>{''.join(texts)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


def html_details(title: str, content: str) -> str:
    """HTML that opens with a click on its title."""
    return f"<details><summary>{_escaped(title)}</summary>{content}</details>"


def _escaped(text: str) -> str:
    return html.escape("\n".join(map(clean, text.split("\n"))))
