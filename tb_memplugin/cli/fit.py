"""What a run would need, and what makes it fit: in Python, as ``tb-memplugin what-if`` and ``tb-memplugin plan``."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from tb_memplugin.cli.command_parser import EXIT_CODES, Commands
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.export import FORMAT, existing_runs, plan_of_run, predictor_of
from tb_memplugin.fit import (
    Plan,
    WhatIf,
    checked_conditions,
    describe_plan,
    describe_what_if,
)
from tb_memplugin.schema import Run, clean, unknown_name


def add_what_if(commands: Commands) -> None:
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
        exit_codes=EXIT_CODES,
    )
    asking.add_logdir()
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


def add_plan(commands: Commands) -> None:
    planning = commands.add_parser(
        "plan",
        help="find what makes a run fit into a budget",
        description="Simulates a recorded step with activations recomputed, gradients accumulated and other changes, "
        "and chooses the cheapest one whose peak stays within a budget.",
        examples=(
            "tb-memplugin plan runs --budget 8GiB",
            "tb-memplugin plan runs --run big --budget 8GiB --format json",
        ),
        exit_codes=EXIT_CODES,
    )
    planning.add_logdir()
    planning.add_argument("--budget", metavar="SIZE", required=True, help="the most that the peak may be, e.g. 8GiB")
    planning.add_argument("--batch-size", metavar="N", type=int, help="examples in a batch (default: as recorded)")
    planning.add_argument("--run", metavar="R", help="the run (default: the only one)")
    planning.add_argument("--device", metavar="D", help="the device (default: the first with recorded requests)")
    planning.add_argument(
        "--format", choices=("table", "json"), default="table", help="text (default), or a JSON object"
    )
    planning.set_defaults(command=_plan)


def _what_if(options: argparse.Namespace) -> int:
    conditions = checked_conditions(
        options.batch_size, options.capacity, options.freeze, options.unfreeze, options.optimizer, options.precision
    )
    name, run = _only_run(options)
    answer = predictor_of(run, options.device).what_if(conditions)
    return _print(options, name, answer, describe_what_if(answer))


def _plan(options: argparse.Namespace) -> int:
    name, run = _only_run(options)
    answer = plan_of_run(run, options.budget, options.device, options.batch_size)
    return _print(options, name, answer, describe_plan(answer))


def _print(options: argparse.Namespace, run: str, answer: Plan | WhatIf, described: Mapping[str, Any]) -> int:
    if options.format == "json":
        print(json.dumps({"format": FORMAT, "run": run, **described}, allow_nan=False))
    else:
        print(f"{clean(run)}\n{answer}")
    return 0


def _only_run(options: argparse.Namespace) -> tuple[str, Run]:
    runs = existing_runs(options.logdir)
    if options.run is None and len(runs) > 1:
        raise RequestError(f"several runs: choose one with --run. Available: {', '.join(runs)}")
    name = options.run or next(iter(runs))
    if name not in runs:
        raise NotFoundError(unknown_name("no run", name, runs))
    return name, runs[name]
