"""Runs a piece of Python in a process of its own, where TensorFlow's CPU device has a GPU's allocator class."""

import json
import os
import subprocess
import sys
from typing import Any

from prepared_python import run_python

BFC = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "1024"}


def run_child(code: str, *arguments: str, environment: dict[str, str] | None = None, timeout: float = 240) -> Any:
    """Runs `code` (its arguments are in `sys.argv`) and returns what it gave to `answer(...)`, with `stderr` of the
    child on failure."""
    prelude = "import json, sys\ndef answer(value): print('ANSWER ' + json.dumps(value), flush=True)\n"
    done = run_python(
        ["-c", prelude + code, *arguments],
        environment={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **BFC, **(environment or {})},
        timeout=timeout,
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert done.returncode == 0 and answers, (
        f"child ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    value = json.loads(answers[-1][len("ANSWER ") :])
    if isinstance(value, dict):
        value["stderr"] = done.stderr
    return value


def start_child(code: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """Starts `code` and returns while it runs; what it prints can be read, so that it can be killed at some point."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **BFC, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
