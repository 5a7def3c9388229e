"""Tables as text."""

from collections.abc import Sequence


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
