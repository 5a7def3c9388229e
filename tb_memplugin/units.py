"""Bytes for people: KiB, MiB, GiB, with the sign kept, and one unit for a whole column where asked.

``tests/golden/bytes.json`` holds the cases that this module and the page's formatter share.
"""

import math
from collections.abc import Iterable
from typing import Final

UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNKNOWN: Final = "–"
"""Stands for a size that is not known."""


def unit_for(sizes: Iterable[int | None]) -> str:
    """The unit in which the largest of `sizes` (in bytes, of either sign) is shown."""
    largest = max((abs(size) for size in sizes if size is not None), default=0)
    at = 0
    while at + 1 < len(UNITS) and _figure(largest / 1024**at, at, forced=False)[1] >= 1024:
        at += 1
    return UNITS[at]


def format_figure(size: int | None, unit: str) -> str:
    """Only the figure of `size` bytes in `unit`, for columns whose head names the unit."""
    if size is None:
        return UNKNOWN
    at = UNITS.index(unit)
    text = _figure(abs(size) / 1024**at, at, forced=True)[0]
    if size >= 0:
        return text
    return f">-{text[1:]}" if text.startswith("<") else f"-{text}"


def format_bytes(size: int | None, unit: str | None = None) -> str:
    """``14.2 GiB``; with `unit`, in that one."""
    if size is None:
        return UNKNOWN
    if unit is not None:
        return f"{format_figure(size, unit)} {unit}"
    chosen = unit_for([size])
    at = UNITS.index(chosen)
    return f"{'-' if size < 0 else ''}{_figure(abs(size) / 1024**at, at, forced=False)[0]} {chosen}"


def format_exact(size: int) -> str:
    """Every byte: ``734,003,200 B``."""
    return f"{size:,} B"


def _figure(scaled: float, at: int, forced: bool) -> tuple[str, float]:
    """A figure in the unit at index `at`, as text and as the number that the text says; halves are rounded up."""
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
