"""Runs every program and renews the table of docs/development/programs.md; with names, these
programs' rows of it.

usage: python tests/programs/table.py [--write] [PROGRAM …]
"""

import importlib.metadata
import pathlib
import platform
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from measure import PROGRAMS, Figures, Program, measure
from reported_table import PAGE, TITLE, arguments

MIB = 1 << 20
PACKAGES = ("tensorflow", "keras", "tf-keras", "keras-hub")


def measured(program: Program) -> str:
    """The cells of a program's figures."""
    if program.missing:
        return f"not run: needs {', '.join(program.missing)}" + " |" * 8
    with tempfile.TemporaryDirectory() as directory:
        try:
            return cells(measure(program, pathlib.Path(directory), fresh=True))
        except AssertionError as error:
            return f"**failed: {str(error).strip().splitlines()[-1]}**" + " |" * 8


def cells(figures: Figures) -> str:
    errors = figures.saved_errors
    saved = "–" if errors is None else ", ".join(f"{100 * error:+.2f} %" for error in errors)
    return (
        f"{figures.peak / MIB:,.1f} MiB | {100 * figures.unattributed:.3f} % | "
        f"{_difference(figures.weights)} | "
        f"{_difference(figures.slots)} | {saved} | "
        f"{100 * figures.replayed[0] / figures.replayed[1]:.4g} % | "
        f"{_what_if(figures)} | {100 * figures.spread:.0f} % | "
        f"{'yes' if figures.same_losses else '**no**'}"
    )


def _difference(pair: tuple[int, int]) -> str:
    return "0" if pair[0] == pair[1] else f"**{pair[0] - pair[1]:+,}**"


def _what_if(figures: Figures) -> str:
    if figures.measured is None:
        return "–"
    if figures.predicted is None:
        return "**withheld**"
    low, _, high = figures.predicted
    text = f"{100 * (figures.what_if_error or 0):+.1f} %"
    return text if low <= figures.measured <= high else f"**{text}**"


def versions() -> str:
    """A sentence that names the versions."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} not installed")
    return f"Python {platform.python_version()}, {', '.join(found)}."


def main() -> None:
    options = arguments(__doc__)
    # The other table of the page is `reported_table.py`'s.
    page, title, others = PAGE.read_text(encoding="utf-8").partition(TITLE)
    for program in PROGRAMS:
        if not options.names or program.name in options.names:
            row = f"| `{program.name}` | {program.what} | {measured(program)} |"
            print(row, flush=True)
            before = rf"(?m)^\| `{re.escape(program.name)}` \|.*$"
            assert re.search(before, page), (
                f"the page has no row for {program.name}: add one with its name"
            )
            page = re.sub(before, lambda _, row=row: row, page)
    if options.write:
        page = re.sub(r"(?m)^Python \d.*$", versions(), page)
        PAGE.write_text(page + title + others, encoding="utf-8")


if __name__ == "__main__":
    main()
