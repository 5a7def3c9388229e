"""The limits of the benchmarks: each measured number is printed with its limit and whether it
holds.

A benchmark fails if a limit does not hold; at its smallest size, only if that limit says something
at any size.
"""

import argparse
import pathlib
import sys

_TESTS = pathlib.Path(__file__).resolve().parents[1]
# A benchmark runs as a script, with what it shares with the tests on its path.
sys.path[:0] = [
    str(_TESTS.parent),
    str(_TESTS),
    str(_TESTS / "integration"),
    str(_TESTS / "browser"),
]

_SMALLEST = "--smallest"
_broken: list[str] = []


def parser_of(usage: str | None, **sizes: tuple[int, int]) -> argparse.ArgumentParser:
    """A benchmark's options: `--smallest`, which takes seconds, and sizes, each with its default
    and its smallest."""
    parser = argparse.ArgumentParser(
        description=usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        _SMALLEST, action="store_true", help="the smallest size: seconds instead of minutes"
    )
    for name, defaults in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=defaults[_SMALLEST in sys.argv])
    return parser


def print_limit(
    what: str, value: float, limit: float, unit: str = "", any_size: bool = False
) -> None:
    """Print a measured number, its limit and whether it holds.

    Args:
        what: What was measured.
        value: The number; ratios without a unit.
        limit: The most it may be.
        unit: Unit of both.
        any_size: The limit must hold at the smallest size too, on any machine.
    """
    holds = value <= limit
    unit = unit and f" {unit}"
    shown, most = (
        f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}" for number in (value, limit)
    )
    print(
        f"{what}: {shown}{unit}, limit {most}{unit}: {'holds' if holds else 'DOES NOT HOLD'}",
        flush=True,
    )
    if not holds and (any_size or _SMALLEST not in sys.argv):
        _broken.append(what)


def finish() -> None:
    """End with an error if a limit does not hold."""
    if _broken:
        sys.exit(f"limits that do not hold: {', '.join(_broken)}")
