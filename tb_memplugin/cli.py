"""``tb-memplugin``: the data of the Memory tab in the terminal. User errors print one line and exit with code 2."""

import argparse
import contextlib
import io
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from tb_memplugin.analysis.budget import exit_status
from tb_memplugin.analysis.describe import FORMAT, Selection, describe_run
from tb_memplugin.analysis.fit.plan_answer import describe_plan
from tb_memplugin.analysis.fit.what_if import RunPredictor, checked_conditions, device_of
from tb_memplugin.analysis.fit.what_if_answer import describe_what_if
from tb_memplugin.analysis.steps.facts import device_facts
from tb_memplugin.commands import check_reports, export
from tb_memplugin.commands.check import EXIT_CODES, budget, check, describe_checks, format_checks
from tb_memplugin.commands.command_parser import USER_ERROR, CommandParser
from tb_memplugin.commands.completion import SHELLS, completion_script
from tb_memplugin.commands.doctor.command import add_arguments as add_doctor
from tb_memplugin.commands.import_files import import_files
from tb_memplugin.commands.inspect_table import format_run
from tb_memplugin.commands.loading import existing_runs
from tb_memplugin.commands.run.command import add_arguments as add_run
from tb_memplugin.commands.what_if import plan_of_run
from tb_memplugin.errors import MemoryPluginError, NotFoundError, RequestError
from tb_memplugin.model import PHASES, Run
from tb_memplugin.model.text import clean, some, unknown_name
from tb_memplugin.model.units import format_bytes
from tb_memplugin.version import __version__

FAILED = {0: "success", USER_ERROR: "an error, in one line on standard error"}
CHECKED = {
    0: "every peak is within the budget",
    1: "a peak exceeds it, or a run ran out of memory",
    USER_ERROR: "wrong usage, nothing to check, or something could not be checked",
}
CHECK_FORMATS = ("table", "json", *check_reports.FORMATS)
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
        exit_codes=FAILED,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_run(commands.add_parser("run", help="run a program and record what it trains"))
    _add_inspect(commands)
    _add_what_if(commands)
    _add_plan(commands)
    _add_check(commands)
    _add_view(commands)
    _add_report(commands)
    _add_export(commands)
    _add_import(commands)
    _add_completion(commands)
    add_doctor(commands.add_parser("doctor", help="check whether recording works here"))
    return parser


def _add_inspect(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    inspect = commands.add_parser(
        "inspect",
        help="print recorded runs",
        description="Prints the data of the Memory tab, without TensorFlow.",
        examples=(
            "tb-memplugin inspect runs",
            "tb-memplugin inspect runs --run frozen --step 73",
            "tb-memplugin inspect runs --format json",
        ),
        exit_codes=FAILED,
    )
    inspect.add_argument("logdir", metavar="LOGDIR", help="log directory, as for tensorboard --logdir")
    inspect.add_argument("--run", metavar="R", help="only this run")
    inspect.add_argument("--step", metavar="S", type=_step, help="snapshots, failures and layers at this step")
    inspect.add_argument("--device", metavar="D", help="only this device, e.g. GPU:0")
    inspect.add_argument("--phase", choices=PHASES, help="only snapshots and failures of this phase")
    inspect.add_argument(
        "--format", choices=("table", "json"), default="table", help="tables (default), or one JSON object"
    )
    inspect.add_argument("--all-attempts", action="store_true", help="keep steps that a later session repeats")
    inspect.set_defaults(command=_inspect)


def _add_what_if(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    asking = commands.add_parser(
        "what-if",
        help="predict what a run would need under other conditions",
        description="Replays the recorded steps of a run, and predicts the peak for another batch size, capacity, "
        "optimizer or precision, or with other layers frozen.",
        examples=(
            "tb-memplugin what-if runs --run frozen --batch-size 64 --capacity 24GiB",
            "tb-memplugin what-if runs --unfreeze '*/block5_*' --optimizer sgd",
            "tb-memplugin what-if runs --precision mixed_float16 --format json",
        ),
        exit_codes=FAILED,
    )
    asking.add_argument("logdir", metavar="LOGDIR", help="log directory, as for tensorboard --logdir")
    asking.add_argument("--run", metavar="R", help="the run (default: the only one)")
    asking.add_argument("--device", metavar="D", help="the device (default: the first with recorded requests)")
    asking.add_argument("--batch-size", metavar="N", type=int, help="examples in a batch")
    asking.add_argument("--capacity", metavar="SIZE", help="the allocator's limit, e.g. 24GiB")
    globs = "layers whose path matches, e.g. '*/block1_*'; * also matches /; several: repeat, or separate by commas"
    asking.add_argument("--freeze", metavar="GLOB", action="append", help=f"freeze the {globs}")
    asking.add_argument("--unfreeze", metavar="GLOB", action="append", help=f"unfreeze the {globs}")
    asking.add_argument("--optimizer", metavar="NAME", help="another optimizer, e.g. sgd, momentum, adam")
    asking.add_argument("--precision", metavar="P", help="float32, mixed_float16 or mixed_bfloat16")
    asking.add_argument("--format", choices=("table", "json"), default="table", help="text (default), or a JSON object")
    asking.set_defaults(command=_what_if)


def _add_plan(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    planning = commands.add_parser(
        "plan",
        help="find what makes a run fit into a budget",
        description="Simulates a recorded step with activations recomputed, gradients accumulated and other changes, "
        "and chooses the cheapest one whose peak stays within a budget.",
        examples=(
            "tb-memplugin plan runs --budget 8GiB",
            "tb-memplugin plan runs --run big --budget 8GiB --format json",
        ),
        exit_codes=FAILED,
    )
    planning.add_argument("logdir", metavar="LOGDIR", help="log directory, as for tensorboard --logdir")
    planning.add_argument("--budget", metavar="SIZE", required=True, help="the most that the peak may be, e.g. 8GiB")
    planning.add_argument("--batch-size", metavar="N", type=int, help="examples in a batch (default: as recorded)")
    planning.add_argument("--run", metavar="R", help="the run (default: the only one)")
    planning.add_argument("--device", metavar="D", help="the device (default: the first with recorded requests)")
    planning.add_argument(
        "--format", choices=("table", "json"), default="table", help="text (default), or a JSON object"
    )
    planning.set_defaults(command=_plan)


def _add_check(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    checking = commands.add_parser(
        "check",
        help="compare peaks with a budget, for CI",
        description="Compares the highest peak of each device of each run with a budget. A run that ran out of memory "
        "violates any budget.",
        epilog="Sizes: 10GiB (10 x 2^30 bytes), 10GB (10 x 10^9 bytes), 500MiB, or a number of bytes.",
        examples=(
            "tb-memplugin check runs/pr --max-peak 10GiB",
            "tb-memplugin check runs/pr --max-regression 5% --baseline runs/main",
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
    checking.add_argument("--run", metavar="R", action="append", default=[], help="only this run; can be repeated")
    checking.add_argument("--device", metavar="D", action="append", default=[], help="only this device, e.g. GPU:0")
    checking.add_argument("--phase", choices=PHASES, action="append", default=[], help="only peaks of this phase")
    checking.add_argument(
        "--allow-new", action="store_true", help="accept runs and devices that the baseline does not have"
    )
    checking.add_argument(
        "--format",
        choices=CHECK_FORMATS,
        default="table",
        help="text (default), JSON, annotations of GitHub Actions, JUnit XML, or a table in Markdown",
    )
    checking.set_defaults(command=_check)


def _add_view(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    viewing = commands.add_parser(
        "view",
        help="serve the Memory tab without TensorBoard's frame",
        description="Serves the page of the Memory tab alone; press Ctrl+C to stop. It reads the log directory as "
        "TensorBoard does, and shows new data as it arrives.",
        examples=("tb-memplugin view runs --open", "tb-memplugin view runs --port 0 --host 0.0.0.0"),
        exit_codes=FAILED,
    )
    viewing.add_argument("logdir", metavar="LOGDIR", help="log directory, as for tensorboard --logdir")
    viewing.add_argument(
        "--port", metavar="P", type=_port, default=6007, help="port; 0 takes a free one (default: 6007)"
    )
    viewing.add_argument("--host", metavar="H", default="localhost", help="host to listen on (default: localhost)")
    viewing.add_argument("--open", action="store_true", help="open the page in the default browser")
    viewing.set_defaults(command=_view)


def _add_report(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    report = commands.add_parser(
        "report",
        help="write a standalone HTML page",
        description="Writes the Memory tab with the data of the selected runs into one HTML file that opens without "
        "TensorBoard or network.",
        examples=(
            "tb-memplugin report runs -o memory.html",
            "tb-memplugin report runs -o memory.html --run frozen --run all_trainable",
        ),
        exit_codes=FAILED,
    )
    report.add_argument("logdir", metavar="LOGDIR", help="log directory, as for tensorboard --logdir")
    report.add_argument(
        "-o", "--output", metavar="FILE.html", required=True, help="output file; overwritten if it exists"
    )
    report.add_argument(
        "--run", metavar="R", action="append", default=[], help="run to include, up to 8 times (default: newest eight)"
    )
    report.set_defaults(command=_report)


def _add_export(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    exporting = commands.add_parser(
        "export",
        help="write tables for analysis, or a step for other viewers",
        description=export.DESCRIPTION,
        examples=export.EXAMPLES,
        exit_codes=export.EXIT_CODES,
    )
    export.add_arguments(exporting)


def _add_import(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    importing = commands.add_parser(
        "import",
        help="import a memory dump, a log or a profile",
        description="Imports files that TensorFlow wrote into a run: memory dumps (TF_BFC_MEMORY_DUMP), logs of jobs "
        "that ran out of memory, profiles (*.xplane.pb).",
        examples=(
            "tb-memplugin import job.log --logdir runs",
            "tb-memplugin import /tmp/dump.* --logdir runs --run failed",
        ),
        exit_codes=FAILED,
    )
    importing.add_argument("paths", metavar="PATH", nargs="+", help="files of one run")
    importing.add_argument("--logdir", metavar="LOGDIR", required=True, help="log directory; created if missing")
    importing.add_argument("--run", metavar="NAME", help="name of the run (default: from the first file's name)")
    importing.set_defaults(command=_import)


def _add_completion(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    completing = commands.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description="Prints a script with which a shell completes the commands, options and values of tb-memplugin.",
        examples=(
            "source <(tb-memplugin completion bash)  # or add this line to ~/.bashrc",
            'tb-memplugin completion zsh > "${fpath[1]}/_tb-memplugin"',
            "tb-memplugin completion fish > ~/.config/fish/completions/tb-memplugin.fish",
        ),
        exit_codes=FAILED,
    )
    completing.add_argument("shell", metavar="SHELL", choices=SHELLS, help=" or ".join(SHELLS))
    completing.set_defaults(command=_completion)


def _completion(options: argparse.Namespace) -> int:
    print(completion_script(_parser(), options.shell))
    return 0


def _what_if(options: argparse.Namespace) -> int:
    freeze, unfreeze = (None if globs is None else ",".join(globs) for globs in (options.freeze, options.unfreeze))
    conditions = checked_conditions(
        options.batch_size, options.capacity, freeze, unfreeze, options.optimizer, options.precision
    )
    name, run = _only_run(options)
    answer = RunPredictor(run, device_of(run, options.device)).what_if(conditions)
    if options.format == "json":
        print(json.dumps({"format": FORMAT, "run": name, **describe_what_if(answer)}, allow_nan=False))
    else:
        print(f"{clean(name)}\n{answer}")
    return 0


def _plan(options: argparse.Namespace) -> int:
    name, run = _only_run(options)
    answer = plan_of_run(run, options.budget, options.device, options.batch_size)
    if options.format == "json":
        print(json.dumps({"format": FORMAT, "run": name, **describe_plan(answer)}, allow_nan=False))
    else:
        print(f"{clean(name)}\n{answer}")
    return 0


def _only_run(options: argparse.Namespace) -> tuple[str, Run]:
    """The run of --run, or the only one."""
    runs = existing_runs(options.logdir)
    if options.run is None and len(runs) > 1:
        raise RequestError(f"several runs: choose one with --run. Available: {', '.join(runs)}")
    name = options.run or next(iter(runs))
    if name not in runs:
        raise NotFoundError(unknown_name("no run", name, runs))
    return name, runs[name]


def _check(options: argparse.Namespace) -> int:
    limits = budget(options.max_peak, options.max_regression, options.device, options.phase)
    checks = check(options.logdir, limits, options.baseline, options.run)
    if options.format == "table":
        print(format_checks(checks, options.logdir))
    elif options.format == "json":
        print(json.dumps(describe_checks(checks, options.allow_new), allow_nan=False))
    else:
        print(check_reports.FORMATS[options.format](checks, options.logdir, options.allow_new))
    return EXIT_CODES[exit_status(checks, options.allow_new)]


def _view(options: argparse.Namespace) -> int:
    with contextlib.suppress(KeyboardInterrupt):
        # As for a report: the server is slow to import.
        from tb_memplugin.commands.view.server import start

        address = start(options.logdir, options.host, options.port)
        print(f"Memory tab of {clean(options.logdir)} (press Ctrl+C to stop):\n{address}", flush=True)
        if options.open:
            import webbrowser

            webbrowser.open(address)
        while True:
            # Ctrl+C may reach a thread of the server, which would not wake this one from a longer wait.
            time.sleep(0.5)
    return 0


def _report(options: argparse.Namespace) -> int:
    # Other commands do not need the server, which is slow to import.
    from tb_memplugin.commands.report.page import write_report

    contents, size = write_report(options.logdir, options.output, options.run)
    print(f"{clean(options.output)}: {format_bytes(size)}, with {clean(', '.join(contents.runs))}")
    for sentence in contents.absent:
        print(clean(sentence))
    return 0


def _import(options: argparse.Namespace) -> int:
    for sentence in import_files(options.paths, options.logdir, options.run):
        print(clean(sentence))
    return 0


def _inspect(options: argparse.Namespace) -> int:
    loaded = existing_runs(options.logdir, all_attempts=options.all_attempts, fixes=True)
    runs = _selected_runs(loaded, options)
    selection = Selection(options.step, options.device, options.phase)
    if options.format == "json":
        objects = {name: describe_run(run, selection, loaded.by_worker(name)) for name, run in runs.items()}
        print(json.dumps({"format": FORMAT, "runs": objects}, allow_nan=False))
    else:
        print("\n\n".join(format_run(run, selection, loaded.by_worker(name)) for name, run in runs.items()))
    return 0


def _selected_runs(runs: Mapping[str, Run], options: argparse.Namespace) -> dict[str, Run]:
    if options.run is not None and options.run not in runs:
        raise NotFoundError(unknown_name("no run", options.run, runs))
    selected = {name: runs[name] for name in runs if options.run in (None, name)}
    if options.device is not None:
        devices = {name: [facts.device for facts in device_facts(run)] for name, run in selected.items()}
        selected = {name: run for name, run in selected.items() if options.device in devices[name]}
        if not selected:
            known = sorted({device for names in devices.values() for device in names})
            raise NotFoundError(f"no device {options.device!r:.80}; available: {some(known)}")
    return selected


def _step(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise argparse.ArgumentTypeError(f"step must be an integer >= 0. Received: {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"port must be an integer from 0 to 65535. Received: {text!r}")
    return int(text)
