"""Numbers in a log, which may come from a stranger."""

from tb_memplugin.errors import FormatError

MAX_DIGITS = 20
"""Digits of 2^64 - 1, TensorFlow's largest number."""


def log_integer(digits: str, base: int = 10) -> int:
    """The integer that `digits` stand for.

    Raises:
        FormatError: There are more digits than TensorFlow writes; Python would take quadratic time or refuse.
    """
    if len(digits) > MAX_DIGITS:
        raise FormatError(f"the log contains a number of {len(digits)} digits; at most {MAX_DIGITS} are accepted")
    return int(digits, base)
