"""``tb-memplugin``: the data of the Memory tab in the terminal. User errors print one line and exit with code 2."""

import io
import logging
import os
import sys
import threading
from collections.abc import Sequence

from tb_memplugin.cli import check, doctor, export, fit, import_files, inspect_runs, report, run, view
from tb_memplugin.cli.command_parser import EXIT_CODES, USER_ERROR, CommandParser
from tb_memplugin.errors import MemoryPluginError
from tb_memplugin.schema import clean
from tb_memplugin.version import __version__

INTERRUPTED = 130
"""Exit code after Ctrl+C, as of a shell."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: `sys.argv`) and return the exit code."""
    _print_what_can_be_printed()
    # The client for Google Cloud Storage logs a traceback of each failed request; what failed is said in a sentence.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
        sys.stdout.flush()
    except MemoryPluginError as error:
        print(f"tb-memplugin: {clean(str(error))}", file=sys.stderr)
        return USER_ERROR
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
        return USER_ERROR
    if arguments is None and threading.active_count() > 1:
        # A server's threads may still answer a request: tearing the interpreter down under them can crash it.
        sys.stderr.flush()
        os._exit(code)
    return code


def _print_what_can_be_printed() -> None:
    """Replace characters that the terminal's encoding lacks, such as those of other languages in ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="tb-memplugin",
        description="Shows the device memory of TensorFlow training runs by layer and category. tb-memplugin COMMAND "
        "--help describes a command.",
        examples=(
            "tb-memplugin inspect runs",
            "tb-memplugin what-if runs --batch-size 64 --capacity 24GiB",
            "tb-memplugin check runs --max-peak 10GiB",
            "tb-memplugin view runs --open",
        ),
        exit_codes=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    run.add_arguments(commands.add_parser("run", help="run a program and record what it trains"))
    inspect_runs.add_command(commands)
    fit.add_what_if(commands)
    fit.add_plan(commands)
    check.add_command(commands)
    view.add_command(commands)
    report.add_command(commands)
    export.add_command(commands)
    import_files.add_command(commands)
    doctor.add_command(commands)
    return parser
