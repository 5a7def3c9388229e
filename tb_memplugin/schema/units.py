"""Sizes in bytes as text, as KiB, MiB or GiB, with their sign, and optionally in one unit for a whole column, and back;
counts with nouns.

``tests/golden/bytes.json`` has test cases for this module and the page's formatter.
"""

import math
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNKNOWN: Final = "–"
"""Stands for an unknown size."""
SIZE_RULE: Final = "a size with its unit, such as 24GiB"
_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGTP]i?B|B)", re.IGNORECASE | re.ASCII)


def unit_for(sizes: Iterable[int | None]) -> str:
    """The unit in which the largest of `sizes` (in bytes, of either sign) is shown."""
    largest = max((abs(size) for size in sizes if size is not None), default=0)
    at = 0
    while at + 1 < len(UNITS) and _figure(largest / 1024**at, at, forced=False)[1] >= 1024:
        at += 1
    return UNITS[at]


def format_figure(size: int | None, unit: str) -> str:
    """The number in `unit`, for a column whose header names it; one of six digits or more, in its own unit."""
    if size is None:
        return UNKNOWN
    at = UNITS.index(unit)
    if _is_long(size, at):
        return format_bytes(size)
    text = _figure(abs(size) / 1024**at, at, forced=True)[0]
    if size >= 0:
        return text
    return f">-{text[1:]}" if text.startswith("<") else f"-{text}"


def format_bytes(size: int | None, unit: str | None = None) -> str:
    """A size such as ``14.2 GiB``; in `unit` if that is given and the number has at most five digits in it."""
    if size is None:
        return UNKNOWN
    if unit is not None and not _is_long(size, UNITS.index(unit)):
        return f"{format_figure(size, unit)} {unit}"
    chosen = unit_for([size])
    at = UNITS.index(chosen)
    return f"{'-' if size < 0 else ''}{_figure(abs(size) / 1024**at, at, forced=False)[0]} {chosen}"


def counted(count: int, noun: str) -> str:
    """A count with its noun: ``1 layer``, ``2 layers``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def parse_bytes(text: str) -> int | None:
    """Bytes of a size such as ``10GiB``, ``1.5 GB`` or ``900 B``, rounded to whole ones; None if `text` is not a size.

    A number without a unit is no size: some would take it for bytes, others for GiB. ``KiB``, ``MiB``, ``GiB`` and so
    on are powers of 1024, ``KB``, ``MB``, ``GB`` and so on are powers of 1000.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    unit = match[2].upper()
    power = [name[0] for name in UNITS].index(unit[0])
    scale: int = (1024 if "I" in unit else 1000) ** power
    return round(Fraction(match[1]) * scale)


def _is_long(size: int, at: int) -> bool:
    """Whether `size` has six digits or more in the unit at index `at`, though not in a larger one."""
    return at + 1 < len(UNITS) and _figure(abs(size) / 1024**at, at, forced=True)[1] >= 100_000


def _figure(scaled: float, at: int, forced: bool) -> tuple[str, float]:
    """(text, its value) of a number in the unit at index `at`; halves are rounded up."""
    if at == 0 or _round(scaled, 1) >= 100:
        value = _round(scaled, 0)
        return f"{value:.0f}", value
    if not forced or _round(scaled, 2) >= 1:
        value = _round(scaled, 1)
        return f"{value:.1f}", value
    value = _round(scaled, 2)
    if scaled == 0:
        return "0", value
    return (f"{value:.2f}" if value else "<0.01"), value


def _round(figure: float, decimals: int) -> float:
    return math.floor(figure * 10.0**decimals + 0.5) / 10.0**decimals
