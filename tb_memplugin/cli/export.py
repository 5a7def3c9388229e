"""``tb-memplugin export``: tables for analysis, and traced steps for other viewers."""

import argparse
import pathlib

from tb_memplugin.cli.command_parser import EXIT_CODES, Commands
from tb_memplugin.errors import RequestError
from tb_memplugin.export import export_parquet, step_timelines, trace_events
from tb_memplugin.schema import PHASES, clean, format_bytes

INCOMPLETE = 1
"""Exit code if a worker could not be read."""
TABLES, PERFETTO = "parquet", "perfetto"


def add_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "export",
        help="write tables for analysis, or a step for other viewers",
        description="Writes all runs as Parquet tables, or one traced step for Perfetto. A second export of tables "
        "reads only what has changed.",
        examples=(
            "tb-memplugin export runs --to tables",
            "tb-memplugin export runs --run frozen --step 73 --format perfetto --to step.json",
        ),
        exit_codes=EXIT_CODES | {INCOMPLETE: "some workers could not be read; the others were exported"},
    )
    parser.add_logdir()
    parser.add_argument(
        "--to", metavar="PATH", required=True, help="directory of the tables, or the file of a step; created if missing"
    )
    parser.add_argument(
        "--format",
        choices=(TABLES, PERFETTO),
        default=TABLES,
        help="Parquet tables (default), or the timeline of a step for Perfetto",
    )
    parser.add_argument(
        "--run", metavar="R", action="append", default=[], help="only this run; can be repeated for tables"
    )
    parser.add_argument("--step", metavar="S", type=int, help="the traced step; needed for Perfetto")
    parser.add_argument("--device", metavar="D", help="only this device of the step, e.g. GPU:0")
    parser.add_argument("--phase", choices=PHASES, help="the phase of the step (default: training if it was traced)")
    parser.set_defaults(command=_export)


def _export(options: argparse.Namespace) -> int:
    if options.format != TABLES:
        return _step(options)
    for name in ("step", "device", "phase"):
        if getattr(options, name) is not None:
            raise RequestError(f"--{name} is for --format {PERFETTO}; tables contain every step and device")
    exported = export_parquet(options.logdir, options.to, runs=options.run)
    print("\n".join(map(clean, str(exported).splitlines())))
    return INCOMPLETE if exported.failed else 0


def _step(options: argparse.Namespace) -> int:
    if options.step is None:
        raise RequestError(f"--format {options.format} needs --step: the number of a traced step")
    if len(options.run) > 1:
        raise RequestError(f"--format {options.format} takes one --run. Received: {', '.join(options.run)}")
    run, timelines = step_timelines(
        options.logdir, next(iter(options.run), None), options.step, options.device, options.phase
    )
    content = trace_events(run, timelines)
    pathlib.Path(options.to).write_bytes(content)
    devices = ", ".join(f"{one.device} ({len(one)} rows)" for one in timelines)
    about = f"run {run}, step {options.step}, phase {timelines[0].phase}, {devices}"
    print(clean(f"{options.to}: {format_bytes(len(content))}, with {about}"))
    return 0
