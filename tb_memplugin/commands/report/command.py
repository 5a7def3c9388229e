"""``tb-memplugin report``: the Memory tab as one HTML file."""

import argparse

from tb_memplugin.commands.command_parser import EXIT_CODES, Commands
from tb_memplugin.model.text import clean
from tb_memplugin.model.units import format_bytes


def add_command(commands: Commands) -> None:
    """Add the command with its options."""
    report = commands.add_parser(
        "report",
        help="write a standalone HTML page",
        description="Writes the Memory tab with the data of the selected runs into one HTML file that opens without "
        "TensorBoard or network.",
        examples=(
            "tb-memplugin report runs -o memory.html",
            "tb-memplugin report runs -o memory.html --run frozen --run all_trainable",
        ),
        exit_codes=EXIT_CODES,
    )
    report.add_logdir()
    report.add_argument(
        "-o", "--output", metavar="FILE.html", required=True, help="output file; overwritten if it exists"
    )
    report.add_argument(
        "--run", metavar="R", action="append", default=[], help="run to include, up to 8 times (default: newest eight)"
    )
    report.set_defaults(command=_report)


def _report(options: argparse.Namespace) -> int:
    # Other commands do not need the server, which is slow to import.
    from tb_memplugin.commands.report.page import write_report

    contents, size = write_report(options.logdir, options.output, options.run)
    print(f"{clean(options.output)}: {format_bytes(size)}, with {clean(', '.join(contents.runs))}")
    for sentence in contents.absent:
        print(clean(sentence))
    return 0
