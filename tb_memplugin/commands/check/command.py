"""``tb-memplugin check``: a memory budget for CI."""

import argparse
import json

from tb_memplugin.analysis.budget import exit_status
from tb_memplugin.commands.check.checks import EXIT_CODES, budget, check, describe_checks, format_checks
from tb_memplugin.commands.check.reports import FORMATS
from tb_memplugin.commands.command_parser import USER_ERROR, Commands
from tb_memplugin.model import PHASES

CHECKED = {
    0: "every peak is within the budget",
    1: "a peak exceeds it, or a run ran out of memory",
    USER_ERROR: "wrong usage, nothing to check, or something could not be checked",
}


def add_command(commands: Commands) -> None:
    """Add the command with its options."""
    checking = commands.add_parser(
        "check",
        help="compare peaks with a budget, for CI",
        description="Compares the highest peak of each device of each run with a budget, or the bytes that are live at "
        "once in a traced step. A run that ran out of memory violates any budget.",
        epilog="Sizes: 10GiB (10 x 2^30 bytes), 10GB (10 x 10^9 bytes), 500MiB or 900B.",
        examples=(
            "tb-memplugin check runs/pr --max-peak 10GiB",
            "tb-memplugin check runs/pr --of live --max-regression 5% --baseline runs/main",
            "tb-memplugin check runs/pr --max-peak 10GiB --format github",
        ),
        exit_codes=CHECKED,
    )
    checking.add_argument("logdir", metavar="LOGDIR", help="log directory, or the directory of one run")
    checking.add_argument("--max-peak", metavar="SIZE", help="highest allowed peak of a device, e.g. 10GiB")
    checking.add_argument(
        "--max-regression", metavar="R", help="allowed growth over the baseline's peak: 5%% of it, or a size"
    )
    checking.add_argument(
        "--baseline",
        metavar="DIR",
        help="the run to compare all runs with, or a log directory with runs of their names",
    )
    checking.add_argument(
        "--of",
        choices=("peak", "live"),
        default="peak",
        help="the allocator's peak (default), or the bytes that are live at once, which vary less from run to run",
    )
    checking.add_argument("--run", metavar="R", action="append", default=[], help="only this run; can be repeated")
    checking.add_argument(
        "--device", metavar="D", action="append", default=[], help="only this device, e.g. GPU:0 of each worker"
    )
    checking.add_argument("--phase", choices=PHASES, action="append", default=[], help="only peaks of this phase")
    checking.add_argument(
        "--allow-new", action="store_true", help="accept runs and devices that the baseline does not have"
    )
    checking.add_argument(
        "--format",
        choices=("table", "json", *FORMATS),
        default="table",
        help="text (default), JSON, annotations of GitHub Actions, JUnit XML, or a table in Markdown",
    )
    checking.set_defaults(command=_check)


def _check(options: argparse.Namespace) -> int:
    limits = budget(options.max_peak, options.max_regression, options.device, options.phase, options.of)
    checks = check(options.logdir, limits, options.baseline, options.run)
    if options.format == "table":
        print(format_checks(checks, options.logdir))
    elif options.format == "json":
        print(json.dumps(describe_checks(checks, options.of, options.allow_new), allow_nan=False))
    else:
        print(FORMATS[options.format](checks, options.logdir, options.allow_new))
    return EXIT_CODES[exit_status(checks, options.allow_new)]
