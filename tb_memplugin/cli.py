"""``tb-memplugin``: the facts of the tab in the terminal. A user's error is one line on stderr and exit code 2."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence

from tb_memplugin.analysis.describe import FORMAT, Selection, describe_run
from tb_memplugin.analysis.facts import device_facts
from tb_memplugin.errors import MemoryPluginError, NotFoundError
from tb_memplugin.import_files import import_files
from tb_memplugin.inspect_table import clean, format_run
from tb_memplugin.loading import load
from tb_memplugin.model import PHASES, Run
from tb_memplugin.units import format_bytes
from tb_memplugin.version import __version__

USER_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line (default: that of the process) and returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
        sys.stdout.flush()
        return code
    except MemoryPluginError as error:
        print(f"tb-memplugin: {clean(str(error))}", file=sys.stderr)
        return USER_ERROR
    except BrokenPipeError:
        # The reader (head, less) has seen enough; Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tb-memplugin",
        description="Where a TensorFlow training run's device memory goes, by layer and kind of use.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_inspect(commands)
    _add_report(commands)
    _add_import(commands)
    return parser


def _add_inspect(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    inspect = commands.add_parser(
        "inspect", help="show what was recorded", description="Shows the facts of the Memory tab, without TensorFlow."
    )
    inspect.add_argument("logdir", metavar="LOGDIR", help="the directory that TensorBoard's --logdir names")
    inspect.add_argument("--run", metavar="R", help="only this run")
    inspect.add_argument("--step", metavar="S", type=_step, help="snapshots of this step, layers as they were then")
    inspect.add_argument("--device", metavar="D", help="only this device, e.g. GPU:0")
    inspect.add_argument("--phase", choices=PHASES, help="only snapshots of this phase")
    inspect.add_argument(
        "--format", choices=("table", "json"), default="table", help="for people (default), or one JSON object"
    )
    inspect.add_argument(
        "--all-attempts", action="store_true", help="keep the steps of sessions that a later one repeats"
    )
    inspect.set_defaults(command=_inspect)


def _add_report(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    report = commands.add_parser(
        "report",
        help="write one page that opens from disk",
        description="Writes the Memory tab and what it shows of one or two runs into one HTML file, which needs "
        "neither TensorBoard nor a network.",
    )
    report.add_argument("logdir", metavar="LOGDIR", help="the directory that TensorBoard's --logdir names")
    report.add_argument("-o", "--output", metavar="FILE.html", required=True, help="the file; replaced if it is there")
    report.add_argument(
        "--run", metavar="R", action="append", default=[], help="this run, up to 8 times (default: the newest two)"
    )
    report.set_defaults(command=_report)


def _add_import(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    taking = commands.add_parser(
        "import",
        help="take in a dump, a log or a profile",
        description="Takes files of TensorFlow's own into a run: memory dumps (TF_BFC_MEMORY_DUMP), logs of a job that "
        "ran out of memory, profiles (*.xplane.pb).",
    )
    taking.add_argument("paths", metavar="PATH", nargs="+", help="the files; what belongs together, in one call")
    taking.add_argument("--logdir", metavar="LOGDIR", required=True, help="the directory of the runs; made if missing")
    taking.add_argument("--run", metavar="NAME", help="the run's name (default: after the first file)")
    taking.set_defaults(command=_import)


def _report(options: argparse.Namespace) -> int:
    # The server's half is not needed by the other commands, and takes a while to import.
    from tb_memplugin.report.page import write_report

    contents, size = write_report(options.logdir, options.output, options.run)
    print(f"{options.output}: {format_bytes(size)}, with {clean(', '.join(contents.runs))}")
    for sentence in contents.absent:
        print(clean(sentence))
    return 0


def _import(options: argparse.Namespace) -> int:
    for sentence in import_files(options.paths, options.logdir, options.run):
        print(sentence)
    return 0


def _inspect(options: argparse.Namespace) -> int:
    runs = _selected_runs(load(options.logdir, all_attempts=options.all_attempts), options)
    selection = Selection(options.step, options.device, options.phase)
    if options.format == "json":
        described = {"format": FORMAT, "runs": {name: describe_run(run, selection) for name, run in runs.items()}}
        print(json.dumps(described, allow_nan=False))
    else:
        print("\n\n".join(format_run(run, selection) for run in runs.values()))
    return 0


def _selected_runs(runs: Mapping[str, Run], options: argparse.Namespace) -> dict[str, Run]:
    if not runs:
        raise NotFoundError(
            f"there are no memory records under {options.logdir}; "
            "record some with tb_memplugin.MemoryCallback or MemoryRecorder"
        )
    if options.run is not None and options.run not in runs:
        raise NotFoundError(f"there is no run {options.run!r}; there are: {', '.join(runs)}")
    selected = {name: runs[name] for name in runs if options.run in (None, name)}
    if options.device is not None:
        devices = {name: [facts.device for facts in device_facts(run)] for name, run in selected.items()}
        selected = {name: run for name, run in selected.items() if options.device in devices[name]}
        if not selected:
            known = sorted({device for names in devices.values() for device in names})
            raise NotFoundError(f"there is no device {options.device!r}; there are: {', '.join(known) or 'none'}")
    return selected


def _step(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a step; give a whole number from 0 on")
    return int(text)
