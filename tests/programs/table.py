"""Runs every program and writes the table of docs/programs.md; with names, these programs' rows of it.

usage: python tests/programs/table.py [--write docs/programs.md] [PROGRAM …]
"""

import argparse
import importlib.metadata
import pathlib
import platform
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from measure import PROGRAMS, Figures, Program, measure
from reported_table import TITLE

MIB = 1 << 20
COLUMNS = (
    "program",
    "what it is",
    "peak",
    "unattributed",
    "weights",
    "slots",
    "saved",
    "replayed",
    "what if",
    "steps",
    "same",
)
PACKAGES = ("tensorflow", "keras", "tf-keras", "keras-hub")
HEAD = """# Programs

Short programs, written as users write them (in `tests/programs`), each run as it is in a fresh process on the CPU's BFC
allocator, and their runs compared with the programs' own objects. `make programs` measures and writes this page.

- **peak**: allocated bytes at the peak of the last traced step.
- **unattributed**: the largest share of a traced step's allocated bytes.
- **weights, slots**: bytes in the breakdown minus the bytes of the program's own variables. Slots are the
  optimizers' variables of layers, without counters and learning rates.
  Accumulators that were just emptied share one buffer of zeros, which counts once.
- **saved**: bytes saved for backward, against the tensors that gradient ops of the traced graph read: in the program as
  written, and with TensorFlow's optimizer of graphs off. The optimizer regroups products and then saves other tensors
  than the traced graph; without it, transposed copies are saved that the traced graph does not show. "–" for eager
  programs, loops, replicas and several backward passes in a step, where the graph does not show what is saved.
- **replayed**: allocations of traced steps that the simulator placed at the recorded address.
- **what if**: the predicted peak for twice the batch size against the median of a real run; bold outside its range.
  A data set in arrays may count in one run and not in the other: depending on where an array lies, TensorFlow copies it
  into the device's memory or uses it in place.
- **steps**: highest minus lowest peak of that run's steps, as a share of the median.
- **same**: whether losses and variables equal those of a run without the recorder, bit for bit, with a fixed seed.

"""


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
        f"{figures.peak / MIB:,.1f} MiB | {100 * figures.unattributed:.3f} % | {_difference(figures.weights)} | "
        f"{_difference(figures.slots)} | {saved} | {100 * figures.replayed[0] / figures.replayed[1]:.4g} % | "
        f"{_what_if(figures)} | {100 * figures.spread:.0f} % | {'yes' if figures.same_losses else '**no**'}"
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


def rows_of(page: str) -> dict[str, str]:
    """Name of a program to its row in a page."""
    return {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}


def page_of(rows: dict[str, str]) -> str:
    """The page, from the rows of programs."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|---" + "|---:" * 8 + "|---|"]
    lines += [rows[program.name] for program in PROGRAMS if program.name in rows]
    return HEAD + "\n".join(lines) + f"\n\n{versions()}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    rows = rows_of(options.write.read_text(encoding="utf-8")) if options.write and options.programs else {}
    for program in PROGRAMS:
        if options.programs and program.name not in options.programs:
            continue
        rows[program.name] = f"| `{program.name}` | {program.what} | {measured(program)} |"
        print(rows[program.name], flush=True)
    if options.write:
        # The other table of the page is `reported_table.py`'s.
        _, title, table = options.write.read_text(encoding="utf-8").partition(TITLE)
        options.write.write_text(page_of(rows) + title + table, encoding="utf-8")


if __name__ == "__main__":
    main()
