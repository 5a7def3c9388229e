"""Numbers in a log, which may come from a stranger."""

import re

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


PRINTED_SIZE = r"\d{1,20}(?:\.\d{1,6})? ?(?:[KMGTPE]i)?B"
"""A size as TensorFlow prints it for readers (``HumanReadableNumBytes``): ``96B``, ``5.9KiB``, ``1.50GiB``."""

_PRINTED = re.compile(r"(\d+(?:\.(\d+))?) ?(?:([KMGTPE])i)?B")
_UNITS = "KMGTPE"


def printed_bytes(text: str) -> tuple[int, int]:
    """(bytes, by how many bytes the actual size may differ) of a size that matches `PRINTED_SIZE`.

    TensorFlow drops whole digits below the next smaller unit before it rounds: 1.50GiB may be up to 1 MiB more than
    its rounding allows.
    """
    match = _PRINTED.fullmatch(text)
    if match is None:
        raise FormatError(f"expected a size such as 1.50GiB. Received: {text!r}")
    digits, unit = match[2] or "", match[3]
    if unit is None:
        return round(float(match[1])), 0
    scale = 1 << (10 * (_UNITS.index(unit) + 1))
    cut = 0 if unit == "K" else scale >> 10
    return round(float(match[1]) * scale), round(scale / 10 ** len(digits) / 2) + cut
