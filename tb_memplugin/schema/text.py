"""Text for a terminal, a log or a notebook: cleaned text of a run directory, tables, and lists of names."""

import difflib
import html
import unicodedata
from collections.abc import Collection, Sequence
from typing import Any

LISTED = 10
"""Most names that are listed."""
MAX_CHARACTERS = 80
"""Of each name that is shown."""
MAX_COMPARED = 2_000
"""Most names that are compared with the given one."""


def clean(text: str) -> str:
    """`text` from a run directory with control characters replaced."""
    return "".join("�" if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") else one for one in text)


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns aligned under `head`: the first `left` ones to the left, the others (numbers) to the right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return ("  " + "  ".join(cells)).rstrip()

    return "\n".join([line(head), *(line(row) for row in rows)])


def did_you_mean(name: str, known: Collection[str]) -> str | None:
    """``did you mean 'NAME'?`` with the most similar known name, None without a similar one."""
    by_lower = {one.lower()[:MAX_CHARACTERS]: one for one in list(known)[:MAX_COMPARED]}
    found = difflib.get_close_matches(name.lower()[:MAX_CHARACTERS], by_lower, n=1, cutoff=0.7)
    return f"did you mean {by_lower[found[0]][:MAX_CHARACTERS]!r}?" if found else None


def unknown_name(kind: str, name: str, known: Collection[str], offer: str = "available:") -> str:
    """A sentence on a name that is not known, such as that of a run, with the known ones."""
    hint = did_you_mean(name, known)
    listed = f"; {offer}" if hint is None else f"; {hint} {offer.capitalize()}"
    return f"{kind} {name[:MAX_CHARACTERS]!r}{listed} {some(list(known))}"


def some(names: Sequence[Any]) -> str:
    """The first names, and the number of further ones."""
    shown = ", ".join(f"{name!s:.{MAX_CHARACTERS}}" for name in names[:LISTED])
    return (shown + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")) or "none"


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
