"""Text for a terminal, a log or a notebook: sizes, cleaned text of a run directory, tables, lists
of names, notes.

``tests/golden/bytes.json`` has test cases for the sizes here and the page's formatter."""

import difflib
import html
import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from typing import Any, Final

UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNKNOWN: Final = "–"
"""Stands for an unknown size."""
SIZE_RULE: Final = "a size with its unit, such as 24GiB"
_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGTP]i?B|B)", re.IGNORECASE | re.ASCII)

_SHARE: Final = re.compile(r"(\d{1,4}(?:\.\d{1,6})?)\s*%", re.ASCII)


def unit_for(sizes: Iterable[int | None]) -> str:
    """The unit in which the largest of `sizes` (in bytes, of either sign) is shown."""
    largest = max((abs(size) for size in sizes if size is not None), default=0)
    at = 0
    while at + 1 < len(UNITS) and _figure(largest / 1024**at, at, forced=False)[1] >= 1024:
        at += 1
    return UNITS[at]


def format_figure(size: int | None, unit: str) -> str:
    """The number in `unit`, for a column whose header names it; one of six digits or more, in its
    own unit."""
    if size is None:
        return UNKNOWN
    at = UNITS.index(unit)
    if _is_long(size, at):
        return format_bytes(size)
    text = _figure(abs(size) / 1024**at, at, forced=True)[0]
    return text if size >= 0 else f"-{text}".replace("-<", ">-")


def format_bytes(size: int | None, unit: str | None = None) -> str:
    """A size such as ``14.2 GiB``; in `unit` if that is given and the number has at most five
    digits in it."""
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
    """Bytes of a size such as ``10GiB``, ``1.5 GB`` or ``900 B``, rounded to whole ones; None if
    `text` is not a size.

    A number without a unit is no size: some would take it for bytes, others for GiB."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    unit = match[2].upper()
    scale: int = (1024 if "I" in unit else 1000) ** "BKMGTP".index(unit[0])
    return round(Fraction(match[1]) * scale)


def parse_share(text: str) -> Fraction | None:
    """A share such as ``60%``; None if `text` is not one."""
    match = _SHARE.fullmatch(text.strip())
    return None if match is None else Fraction(match[1]) / 100


def _is_long(size: int, at: int) -> bool:
    """Whether `size` has six digits or more in the unit at index `at`, though not in a larger
    one."""
    return at + 1 < len(UNITS) and _figure(abs(size) / 1024**at, at, forced=True)[1] >= 100_000


def _figure(scaled: float, at: int, forced: bool) -> tuple[str, float]:
    """(text, its value) of a number in the unit at index `at`; halves are rounded up."""
    rounded = [math.floor(scaled * 10.0**decimals + 0.5) / 10.0**decimals for decimals in range(3)]
    decimals = 0 if at == 0 or rounded[1] >= 100 else 1 if not forced or rounded[2] >= 1 else 2
    value = rounded[decimals]
    if decimals == 2 and not value:
        return ("<0.01" if scaled else "0"), value
    return f"{value:.{decimals}f}", value


LISTED = 10
"""Most names that are listed."""
MAX_CHARACTERS = 80
"""Of each name that is shown."""
MAX_COMPARED = 2_000
"""Most names that are compared with the given one."""


def clean(text: str) -> str:
    """`text` from a run directory with control characters replaced."""
    return "".join(
        "�" if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") else one for one in text
    )


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns aligned under `head`: the first `left` ones to the left, the others (numbers) to the
    right."""
    columns = [
        [cell.ljust(width) if at < left else cell.rjust(width) for cell in cells]
        for at, cells in enumerate(zip(head, *rows, strict=True))
        for width in [max(map(len, cells))]
    ]
    return "\n".join(("  " + "  ".join(line)).rstrip() for line in zip(*columns, strict=True))


def did_you_mean(name: str, known: Collection[str]) -> str | None:
    """``did you mean 'NAME'?`` with the most similar known name, None without a similar one."""
    by_lower = {one.lower()[:MAX_CHARACTERS]: one for one in list(known)[:MAX_COMPARED]}
    found = difflib.get_close_matches(name.lower()[:MAX_CHARACTERS], by_lower, n=1, cutoff=0.7)
    return f"did you mean {by_lower[found[0]][:MAX_CHARACTERS]!r}?" if found else None


def unknown_name(kind: str, name: str, known: Collection[str], offer: str = "available:") -> str:
    """A sentence on a name that is not known, such as that of a run, with the known ones."""
    hint = did_you_mean(name, known)
    listed = f"; {offer}" if hint is None else f"; {hint} {offer.capitalize()}"
    return f"{kind} {name[:MAX_CHARACTERS]!r}{listed} {some(list(known))}"


def first_of(names: Sequence[str], most: int = 3) -> str:
    """The first names, and the number of further ones."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def some(names: Sequence[Any]) -> str:
    return first_of([f"{name!s:.{MAX_CHARACTERS}}" for name in names], LISTED) or "none"


def html_text(text: str) -> str:
    return f'<pre style="white-space: pre-wrap">{_escaped(text)}</pre>'


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table; as in `format_table` the first `left` columns are aligned to the left, the others to
    the right."""

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ["left"] * left + ["right"] * (len(cells) - left)
        styled = [
            (f'{tag} style="text-align: {side}"', cell)
            for cell, side in zip(cells, sides, strict=True)
        ]
        return f"<tr>{''.join(f'<{start}>{_escaped(cell)}</{tag}>' for start, cell in styled)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


def html_details(title: str, content: str) -> str:
    return f"<details><summary>{_escaped(title)}</summary>{content}</details>"


def _escaped(text: str) -> str:
    return html.escape("\n".join(map(clean, text.split("\n"))))


RECORDING = "memory recording"
SAMPLES = "memory samples"
WRONG_NUMBERS = "steps with a wrong number"
WRONG_PHASES = "steps with a wrong phase"
NOT_RECORDING = "Not recording"
"""Followed by the name of a device whose allocator keeps no statistics."""


def lost_step_notes(notes: Iterable[str]) -> list[str]:
    """The notes that say that steps were not recorded; a worker's name may precede a note."""
    parts = (RECORDING, SAMPLES, WRONG_NUMBERS, WRONG_PHASES)
    return [note for note in notes if any(f"{part} stopped" in note for part in parts)]


def unrecorded_devices(notes: Iterable[str]) -> list[str]:
    """The notes that name a device that was not recorded."""
    return [note for note in notes if f"{NOT_RECORDING} " in note]


def thinned_note(samples: int) -> str:
    """The note on a run with too many samples to show all of them; `samples` are as many as one is
    shown of."""
    return (
        f"Too many samples to show all: of about {samples} in a row, the one with the highest "
        "peak is shown."
    )


SEPARATOR = " › "
OMITTED = "…"
"""Stands for a name, a key or an index that is unknown, is not stored, or differs."""


def common_path(paths: Sequence[str]) -> str | None:
    """The path to several tensors, with "…" for the references that differ; None without any."""
    split = [path.split(SEPARATOR) for path in dict.fromkeys(paths)]
    if not split:
        return None
    columns = list(zip(*split, strict=False))
    if any(len(parts) != len(columns) for parts in split):
        same = next((at for at, parts in enumerate(columns) if len(set(parts)) > 1), len(columns))
        return SEPARATOR.join([*split[0][:same], OMITTED])
    common = []
    for parts in columns:
        references, _, classes = zip(*(part.partition(" (") for part in parts), strict=True)
        reference = references[0]
        if len(set(references)) > 1:
            reference = (
                f"[{OMITTED}]" if all(one.startswith("[") for one in references) else OMITTED
            )
        common.append(
            f"{reference} ({classes[0]}" if classes[0] and len(set(classes)) == 1 else reference
        )
    return SEPARATOR.join(common)
