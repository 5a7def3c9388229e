"""``tb-memplugin inspect``: recorded runs in the terminal."""

import argparse
import json
from collections.abc import Mapping

from tb_memplugin.analysis import device_facts
from tb_memplugin.cli.command_parser import EXIT_CODES, Commands
from tb_memplugin.errors import NotFoundError
from tb_memplugin.export import FORMAT, Selection, describe_run, existing_runs, format_run
from tb_memplugin.schema import PHASES, Run, some, unknown_name


def add_command(commands: Commands) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="print recorded runs",
        description="Prints the data of the Memory tab, without TensorFlow.",
        examples=(
            "tb-memplugin inspect runs",
            "tb-memplugin inspect runs --run frozen --step 73",
            "tb-memplugin inspect runs --format json",
        ),
        exit_codes=EXIT_CODES,
    )
    inspect.add_logdir()
    inspect.add_argument("--run", metavar="R", help="only this run")
    inspect.add_argument("--step", metavar="S", type=_step, help="snapshots, failures and layers at this step")
    inspect.add_argument("--device", metavar="D", help="only this device, e.g. GPU:0")
    inspect.add_argument("--phase", choices=PHASES, help="only snapshots and failures of this phase")
    inspect.add_argument(
        "--format", choices=("table", "json"), default="table", help="tables (default), or one JSON object"
    )
    inspect.add_argument("--all-attempts", action="store_true", help="keep steps that a later session repeats")
    inspect.set_defaults(command=_inspect)


def _inspect(options: argparse.Namespace) -> int:
    loaded = existing_runs(options.logdir, all_attempts=options.all_attempts)
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
