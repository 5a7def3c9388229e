"""Tells a known crash of TensorFlow from others."""

import re

PROFILER_CRASHED = (
    "TensorFlow's profiler crashed a worker (see docs/limits.md). Run the scenario again."
)


def crashed_in_profiler(log: str) -> bool:
    """Whether a process died while TensorFlow stopped its profiler.

    Args:
        log: The standard error of a process that ran with ``-X faulthandler``.
    """
    stack = re.search(
        r"^Fatal Python error: .*?^Current thread " r"[^\n]*\n(.*?)(?:\n\n|\Z)",
        log,
        re.DOTALL | re.MULTILINE,
    )
    return (
        stack is not None
        and re.search(r'profiler_v2\.py", ' r"line " r"\d+ " r"in " r"stop", stack[1]) is not None
    )
