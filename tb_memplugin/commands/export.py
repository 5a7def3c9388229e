"""``tb-memplugin export``: tables for analysis, and traced steps for other viewers."""

import argparse

from tb_memplugin.export.parquet import export_parquet
from tb_memplugin.model.text import clean

INCOMPLETE = 1
"""Exit code if a worker could not be read."""
EXIT_CODES = {
    0: "success",
    INCOMPLETE: "some workers could not be read; the others were exported",
    2: "an error, in one line on standard error",
}
DESCRIPTION = "Writes all runs as Parquet tables. A second call reads only what has changed."
EXAMPLES = ("tb-memplugin export runs --to tables",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options, and set the parser's `command`."""
    parser.add_argument("logdir", metavar="LOGDIR", help="log directory, as for tensorboard --logdir")
    parser.add_argument("--to", metavar="PATH", required=True, help="directory of the tables; created if missing")
    parser.add_argument("--format", choices=("parquet",), default="parquet", help="Parquet tables (default)")
    parser.add_argument("--run", metavar="R", action="append", default=[], help="only this run; can be repeated")
    parser.set_defaults(command=_export)


def _export(options: argparse.Namespace) -> int:
    exported = export_parquet(options.logdir, options.to, runs=options.run)
    print("\n".join(map(clean, str(exported).splitlines())))
    return INCOMPLETE if exported.failed else 0
