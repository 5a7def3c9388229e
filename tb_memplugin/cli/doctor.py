"""``tb-memplugin doctor``: says whether recording works on this machine, and what to do where it does not."""

import argparse
import os

from tb_memplugin.cli.command_parser import Commands
from tb_memplugin.schema import clean


def add_command(commands: Commands) -> None:
    """Add the command."""
    commands.add_parser(
        "doctor",
        help="check whether recording works here",
        description="Checks TensorFlow, the allocator, the memory map, the GPU, its driver and TensorBoard's plugin, "
        "records a small training for two seconds and compares the run with Keras's own count. Each line is `ok`, or "
        "says what to do.",
        examples=("tb-memplugin doctor",),
        exit_codes={0: "every line is ok", 1: "a line says what to do"},
    ).set_defaults(command=_doctor)


def _doctor(_: argparse.Namespace) -> int:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # what TensorFlow logs would bury the lines
    # Imports the recorder, which other commands do not need.
    from tb_memplugin.cli.doctor_checks import checks

    well = True
    for check in checks():
        well = well and check.ok
        print(f"{'ok' if check.ok else '!!':<4}{check.name}: {clean(check.sentence)}", flush=True)
    return 0 if well else 1
