"""``tb-memplugin``: the data of the Memory tab in the terminal. User errors print one line and exit
with code 2.

What a command needs is imported when it is called; before ``run`` starts a program, only the
standard library is."""

import importlib
import io
import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tb_memplugin.version import __version__

if TYPE_CHECKING:
    from tb_memplugin.cli.parser import CommandParser

INTERRUPTED = 130  # exit code after Ctrl+C, as of a shell
_COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("run.add_arguments", "run a program and record what it trains"),
    "runs": ("runs.add_runs", "list recorded runs"),
    "inspect": ("runs.add_inspect", "summarize recorded runs"),
    "compare": ("runs.add_compare", "compare two recorded runs"),
    "what-if": ("runs.add_what_if", "predict what a run would need under other conditions"),
    "plan": ("runs.add_plan", "find the change with which a run fits into a budget"),
    "check": ("check.add_arguments", "compare peaks with a budget, for CI"),
    "report": ("report.add_arguments", "write a standalone HTML page"),
    "export": ("runs.add_export", "write tables for analysis, or a step for other viewers"),
    "import": ("import_files.add_arguments", "import a dump, a log, a profile or XLA's plans"),
    "doctor": ("doctor.add_arguments", "check whether recording works here"),
}
"""Name to the function that adds a command's arguments to its parser, and its line in the list of
commands."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: `sys.argv`) and return the exit code; ``run`` ends as the
    program does."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["run"]:
        from tb_memplugin.cli.run import main as run

        run(given[1:])
    from tb_memplugin.cli.parser import default_logdir
    from tb_memplugin.errors import MemoryPluginError
    from tb_memplugin.schema import clean

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # characters that the terminal's encoding lacks
    # The client for Google Cloud Storage logs a traceback of each failed request; what failed is
    # said in a sentence.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    options = parser_for(given).parse_args(given or ["--help"])
    try:
        if vars(options).get("logdir", "") is None:
            options.logdir = default_logdir()
        code: int = options.command(options)
        sys.stdout.flush()
    except MemoryPluginError as error:
        print(f"tb-memplugin: {clean(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tb-memplugin: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The pipe's reader (head, less) has ended; Python would raise again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk, a missing permission
        about = "" if error.filename is None else f": {error.filename}"
        print(f"tb-memplugin: {clean(f'{error.strerror or error}{about}')}", file=sys.stderr)
        return 2
    if arguments is None and threading.active_count() > 1:
        # A server's threads may still answer a request: tearing the interpreter down under them can
        # crash it.
        sys.stderr.flush()
        os._exit(code)
    return code


def parser_for(arguments: Sequence[str]) -> "CommandParser":
    """The parser, with the arguments of those commands that occur in `arguments`."""
    from tb_memplugin.cli.parser import EXIT_CODES, CommandParser

    parser = CommandParser(prog="tb-memplugin")
    parser.describe(
        "Shows the device memory of TensorFlow training runs by layer and category. tb-memplugin "
        "COMMAND --help describes a command.",
        examples=(
            "tb-memplugin inspect runs",
            "tb-memplugin what-if runs --batch-size 64 --capacity 24GiB",
            "tb-memplugin check runs --max-peak 10GiB",
        ),
        exit_codes=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (place, line) in _COMMANDS.items():
        command = commands.add_parser(name, help=line)
        if name in arguments:
            module, _, function = place.partition(".")
            getattr(importlib.import_module(f"tb_memplugin.cli.{module}"), function)(command)
    return parser
