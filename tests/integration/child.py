"""Runs a piece of Python in a process of its own, where TensorFlow's CPU device has a GPU's
allocator class."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from prepared_python import run_python

from tb_memplugin import load
from tb_memplugin.schema import Run

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BFC = {
    "TF_CPU_ALLOCATOR_USE_BFC": "1",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": "1024",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "",
}
ANSWER = "ANSWER "
PRELUDE = (
    f"import json, sys\ndef answer(value): print({ANSWER!r} + json.dumps(value), flush=True)\n"
)
WARNINGS = """
import logging
warnings = []
class Collect(logging.Handler):
    def emit(self, record): warnings.append(record.getMessage())
logging.getLogger("tb_memplugin").addHandler(Collect())
"""
"""Code that collects what the package says, in `warnings`."""


def child_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **BFC, "PYTHONPATH": path, **(more or {})}


def run_child(
    code: str, *arguments: str, environment: Mapping[str, str] | None = None, timeout: float = 240
) -> Any:
    """Runs `code` (its arguments are in `sys.argv`) and returns what it gave to `answer(...)`, with
    `stderr` of the child if that is a dictionary."""
    return _answered(["-c", PRELUDE + code, *arguments], environment, timeout)


def run_file(
    name: str, *arguments: str, environment: Mapping[str, str] | None = None, timeout: float = 280
) -> Any:
    """As `run_child`, for a file beside this one, which prints its answer as ``ANSWER JSON``."""
    return _answered([str(HERE / name), *arguments], environment, timeout)


def _answered(command: list[str], environment: Mapping[str, str] | None, timeout: float) -> Any:
    done = run_python(command, environment=child_environment(environment), timeout=timeout)
    answers = [line for line in done.stdout.splitlines() if line.startswith(ANSWER)]
    assert done.returncode == 0 and answers, (
        f"child ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    value = json.loads(answers[-1][len(ANSWER) :])
    if isinstance(value, dict):
        value["stderr"] = done.stderr
    return value


def start_child(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[str]":
    """Starts Python and returns while it runs; what it prints can be read, so that it can be killed
    at some point."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        env=child_environment(environment),
    )


def recorded(
    directory: pathlib.Path, code: str, *arguments: str, **options: Any
) -> tuple[Any, Run]:
    """What `code` answered, which recorded into its first argument, and that run."""
    told = run_child(code, str(directory / "run"), *arguments, **options)
    return told, load(directory)["run"]
