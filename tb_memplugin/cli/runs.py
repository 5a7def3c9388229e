"""Commands on recorded runs: ``tb-memplugin runs``, ``inspect``, ``compare``, ``what-if``, ``plan``
and ``export``."""

import argparse
import dataclasses
import json
import os
import pathlib
import shlex
from collections.abc import Mapping
from typing import Any

from tb_memplugin.analysis import device_facts, failure_of
from tb_memplugin.cli.parser import EXIT_CODES, LOGDIR, CommandParser, print_json
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.export import (
    Runs,
    Selection,
    compare_runs,
    describe_run,
    existing_runs,
    export_parquet,
    format_comparison,
    format_run,
    plan_of_run,
    predictor_of,
    runs_table,
    shown_device,
    step_timelines,
    summarize_run,
    trace_events,
)
from tb_memplugin.fit import (
    MEASURE,
    Plan,
    WhatIf,
    answer_of,
    checked_conditions,
    describe_what_if,
)
from tb_memplugin.schema import PHASES, Run, as_json, clean, format_bytes, some, unknown_name
from tb_memplugin.server import DATA_ROUTES, Lookup, RunList, data_body
from tb_memplugin.storage import Reader
from tb_memplugin.storage.files import FileSource

INCOMPLETE = 1  # exit code if a worker could not be exported
DOES_NOT_FIT = 1
_FITTING = EXIT_CODES | {0: "it fits, or that is unknown", DOES_NOT_FIT: "it does not fit"}
TABLES, PERFETTO = "parquet", "perfetto"


def add_runs(parser: CommandParser) -> None:
    parser.describe(
        "Lists the runs, the one to look at first on top. JSON has the records of the HTTP API's "
        "GET runs, in the order of their names.",
        examples=("tb-memplugin runs runs", "tb-memplugin runs runs --format json"),
    )
    parser.add_logdir()
    parser.add_format("text (default), or one JSON object")
    parser.set_defaults(command=_runs)


def _runs(options: argparse.Namespace) -> int:
    loaded = existing_runs(options.logdir)
    if options.format == "json":
        lookup = Lookup(Reader(), FileSource(options.logdir), RunList())
        body, _ = data_body(DATA_ROUTES["runs"].answer(lookup, {}))
        print_json(json.loads(body))
    else:
        print(runs_table(loaded, {name: loaded.by_worker(name) for name in loaded})[0])
    return 0


def add_inspect(parser: CommandParser) -> None:
    parser.describe(
        "Summarizes a run in at most 20 lines. Of several runs, prints a line each and the "
        "summary of the worst one.",
        examples=(
            "tb-memplugin inspect runs",
            "tb-memplugin inspect runs --run exp1 --step 1",
            "tb-memplugin inspect runs --format json",
        ),
    )
    parser.add_logdir()
    parser.option("--run R", "only this run")
    parser.option("--step S", "snapshots, failures and layers at this step", type=_step)
    parser.option("--device D", "only this device, e.g. GPU:0")
    parser.option("--phase", "only snapshots and failures of this phase", choices=PHASES)
    parser.option("--verbose", "all tables, instead of at most 20 lines")
    parser.add_format("text (default), or one JSON object")
    parser.option("--all-attempts", "keep steps that a later session repeats")
    parser.set_defaults(command=_inspect)


def _inspect(options: argparse.Namespace) -> int:
    loaded = existing_runs(options.logdir, all_attempts=options.all_attempts)
    runs = _selected_runs(loaded, options)
    selection = Selection(options.step, options.device, options.phase)
    shown = {name: (run, selection, loaded.by_worker(name)) for name, run in runs.items()}
    if options.format == "json":
        print_json({"runs": {name: describe_run(*run) for name, run in shown.items()}})
    elif options.verbose:
        print("\n\n".join(format_run(*run) for run in shown.values()))
    else:
        print(summary(loaded, runs, options.logdir, selection))
    return 0


def summary(
    loaded: Runs, runs: Mapping[str, Run], logdir: str, selection: Selection | None = None
) -> str:
    """The run to look at first in few lines, below a line for each if there are several of them."""
    workers = {name: loaded.by_worker(name) for name in runs}
    table, first = runs_table(runs, workers)
    after = next_commands(runs[first], logdir, first if len(loaded) > 1 else None, loaded)
    text = summarize_run(runs[first], selection or Selection(), workers[first], after)
    return f"{table}\n\n{text}" if len(runs) > 1 else text


MOST_SIBLINGS = 20  # runs that are read to find one that answers the failure of another


def next_commands(
    run: Run, logdir: str, name: str | None, others: Mapping[str, Run] | None = None
) -> list[str]:
    """How to see the run, which is `name` of several, and what answers its failure or finding: of a
    failure before any traced step, one of the `others` may."""
    place = shlex.quote(logdir)
    where = place + ("" if name is None else f" --run {shlex.quote(name)}")
    device = shown_device(run)
    failed, traced = failure_of(run, device), _has_steps(run, device)
    in_step = failed is not None and failed.during == "step"
    sibling = _sibling(run, name, device, others or {}) if in_step and not traced else None
    if traced and in_step:
        answer = f"plan {where} --budget 100%"
    elif sibling is not None and failed is not None:
        size = "" if failed.batch_size is None else f" --batch-size {failed.batch_size}"
        answer = f"what-if {place} --run {shlex.quote(sibling)}{size}"
    elif run.findings or failed is not None or not traced:
        answer = f"inspect {where} --verbose"
    else:
        answer = f"what-if {where}"
    measure = [MEASURE] if in_step and not traced and sibling is None else []
    return ["", *measure, f"tensorboard --logdir {place}", f"tb-memplugin {answer}"]


def _has_steps(run: Run, device: str | None) -> bool:
    return any(one.device == device and one.phase == "train" for one in run.requests)


def _sibling(
    run: Run, name: str | None, device: str | None, others: Mapping[str, Run]
) -> str | None:
    """Another run of the same layers that has traced training steps; None without one."""

    def layers(one: Run) -> list[tuple[str, str]]:
        table = one.layer_tables[-1].layers if one.layer_tables else ()
        return [(layer.path, layer.type) for layer in table]

    own = layers(run)
    for other in [one for one in others if one != name][:MOST_SIBLINGS] if own else ():
        if _has_steps(others[other], device) and layers(others[other]) == own:
            return other
    return None


def _selected_runs(runs: Mapping[str, Run], options: argparse.Namespace) -> dict[str, Run]:
    selected = dict(runs) if options.run is None else {options.run: runs[options.run]}
    if options.device is not None:
        devices = {
            name: [facts.device for facts in device_facts(run)] for name, run in selected.items()
        }
        selected = {name: run for name, run in selected.items() if options.device in devices[name]}
        if not selected:
            known = sorted({device for names in devices.values() for device in names})
            raise NotFoundError(f"no device {options.device!r:.80}; available: {some(known)}")
    return selected


def _step(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise argparse.ArgumentTypeError(f"step must be an integer >= 0. Received: {text!r}")
    return int(text)


def add_compare(parser: CommandParser) -> None:
    parser.describe(
        "Compares a run with another one, in this order, by category and by layer: the memory at "
        "the failure, or else at the highest traced peak.",
        examples=(
            "tb-memplugin compare exp1 exp2",
            "tb-memplugin compare runs/exp1 other/exp1 --format json",
        ),
    )
    parser.add_argument("runs", metavar="RUN", nargs=2, help="name of a run, or its directory")
    parser.option(
        "--logdir DIR", "where names are looked up (default: %(default)s)", default=LOGDIR
    )
    parser.option("--device D", "the device (default: one that failed, or has the highest load)")
    parser.add_format("text (default), or one JSON object")
    parser.set_defaults(command=_compare)


def _compare(options: argparse.Namespace) -> int:
    found = [_run_at(name, options.logdir) for name in options.runs]
    compared = compare_runs(found, options.device)
    if options.format == "json":
        print_json(compared)
    else:
        print(format_comparison(compared))
    return 0


def _run_at(name: str, logdir: str) -> Run:
    """The run of this name in the log directory, or in the directory that is the run's own."""
    named = Runs(logdir) if os.path.isdir(logdir) or "://" in logdir else {}
    if name in named:
        return named[name]
    if not os.path.isdir(name) and "://" not in name:
        raise NotFoundError(unknown_name("no run", name, named))
    runs = existing_runs(name)
    if len(runs) > 1:
        raise RequestError(f"{name} has several runs: {some(list(runs))}. Name one of them")
    return dataclasses.replace(next(iter(runs.values())), name=name)


def add_what_if(parser: CommandParser) -> None:
    parser.describe(
        "Predicts the peak of a recorded run with another batch size, capacity, optimizer or "
        "precision, or with other layers frozen.",
        examples=(
            "tb-memplugin what-if runs --run exp1 --batch-size 64 --capacity 24GiB",
            "tb-memplugin what-if runs --unfreeze '*/block5_*' --optimizer sgd",
            "tb-memplugin what-if runs --precision mixed_float16 --format json",
        ),
        exit_codes=_FITTING,
    )
    _add_question(parser, "examples in a batch")
    parser.option("--capacity SIZE", "the allocator's limit, e.g. 24GiB")
    globs = (
        "layers whose path matches, e.g. '*/block1_*' (* also matches /); repeat it, or separate "
        "globs by commas"
    )
    for name in ("freeze", "unfreeze"):
        parser.option(f"--{name} GLOB", f"{name} the {globs}", action="append")
    parser.option("--optimizer NAME", "another optimizer, e.g. sgd, momentum, adam")
    parser.option("--precision P", "float32, mixed_float16 or mixed_bfloat16")
    parser.set_defaults(command=_what_if)


def add_plan(parser: CommandParser) -> None:
    parser.describe(
        "Finds the cheapest change with which a recorded run fits into a budget, such as "
        "activations recomputed or gradients accumulated. Each change is simulated with a "
        "recorded step.",
        examples=(
            "tb-memplugin plan --budget 60%",
            "tb-memplugin plan runs --run exp1 --budget 8GiB --format json",
        ),
        exit_codes=_FITTING,
    )
    _add_question(parser, "examples in a batch (default: as recorded)")
    budget = "the most that the peak may be: 8GiB, or 60%% of the capacity"
    parser.option("--budget SIZE", budget, required=True)
    parser.set_defaults(command=_plan)


def _add_question(parser: CommandParser, batch_size: str) -> None:
    parser.add_logdir()
    parser.option("--run R", "the run (default: the only one)")
    parser.option("--device D", "the device (default: the first with recorded requests)")
    parser.option("--batch-size N", batch_size, type=int)
    parser.add_format("text (default), or a JSON object")


def _what_if(options: argparse.Namespace) -> int:
    names = ("batch_size", "capacity", "freeze", "unfreeze", "optimizer", "precision")
    conditions = checked_conditions(**{name: getattr(options, name) for name in names})
    name, run = _only_run(options)
    answer = answer_of(predictor_of(run, options.device), conditions)
    return _print(options, name, answer, answer.prediction.fits, describe_what_if(answer))


def _plan(options: argparse.Namespace) -> int:
    name, run = _only_run(options)
    answer = plan_of_run(run, options.budget, options.device, options.batch_size)
    return _print(options, name, answer, answer.fits, as_json(answer))


def _print(
    options: argparse.Namespace,
    run: str,
    answer: Plan | WhatIf,
    fits: bool | None,
    described: Mapping[str, Any],
) -> int:
    if options.format == "json":
        print_json({"run": run, **described})
    else:
        print(f"{clean(run)}\n{answer}")
    return DOES_NOT_FIT if fits is False else 0


def _only_run(options: argparse.Namespace) -> tuple[str, Run]:
    runs = existing_runs(options.logdir)
    if options.run is None and len(runs) > 1:
        raise RequestError(f"several runs: choose one with --run. Available: {', '.join(runs)}")
    name = options.run or next(iter(runs))
    return name, runs[name]


def add_export(parser: CommandParser) -> None:
    parser.describe(
        "Writes all runs as Parquet tables, or one traced step for Perfetto. A second export of "
        "tables reads only what has changed.",
        examples=(
            "tb-memplugin export runs --to tables",
            "tb-memplugin export runs --run exp1 --step 1 --format perfetto --to step.json",
        ),
        exit_codes=EXIT_CODES
        | {INCOMPLETE: "some workers could not be read; the others were exported"},
    )
    parser.add_logdir()
    place = "directory of the tables, or the file of a step; created if missing"
    parser.option("--to PATH", place, required=True)
    said = "Parquet tables (default), or the timeline of a step for Perfetto"
    parser.option("--format", said, choices=(TABLES, PERFETTO), default=TABLES)
    runs = "only this run; can be repeated for tables"
    parser.option("--run R", runs, action="append", default=[])
    parser.option("--step S", "the traced step; needed for Perfetto", type=int)
    parser.option("--device D", "only this device of the step, e.g. GPU:0")
    phase = "the phase of the step (default: train if it was recorded)"
    parser.option("--phase", phase, choices=PHASES)
    parser.set_defaults(command=_export)


def _export(options: argparse.Namespace) -> int:
    if options.format == TABLES:
        return _export_tables(options)
    if options.step is None:
        raise RequestError(f"--format {options.format} needs --step: the number of a traced step")
    if len(options.run) > 1:
        raise RequestError(
            f"--format {options.format} takes one --run. Received: {', '.join(options.run)}"
        )
    named = next(iter(options.run), None)
    wanted = options.step, options.device, options.phase
    run, timelines = step_timelines(options.logdir, named, *wanted)
    content = trace_events(run, timelines)
    pathlib.Path(options.to).write_bytes(content)
    devices = ", ".join(f"{one.device} ({len(one)} rows)" for one in timelines)
    about = f"run {run}, step {options.step}, phase {timelines[0].phase}, {devices}"
    print(clean(f"{options.to}: {format_bytes(len(content))}, with {about}"))
    return 0


def _export_tables(options: argparse.Namespace) -> int:
    for name in ("step", "device", "phase"):
        if getattr(options, name) is not None:
            raise RequestError(
                f"--{name} is for --format {PERFETTO}; tables contain every step and device"
            )
    exported = export_parquet(options.logdir, options.to, runs=options.run)
    print("\n".join(map(clean, str(exported).splitlines())))
    return INCOMPLETE if exported.failed else 0
