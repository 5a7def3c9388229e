"""Parameters of HTTP requests, strictly: every one is known, given once, and what it should be."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tb_memplugin.errors import RequestError
from tb_memplugin.model import PHASES, Phase

MAX_TEXT_CHARACTERS = 4096
"""Longest name (of a run or a device) that is looked for."""
MAX_STEP = 2**53 - 1
"""Largest step that is accepted: what a number in JSON holds exactly."""
DEFAULT_POINTS = 1500
MIN_POINTS = 10
MAX_POINTS = 10_000


class Arguments(Protocol):
    """Query arguments with repetitions; werkzeug's `Request.args` is one."""

    def __iter__(self) -> Iterator[str]: ...

    def getlist(self, name: str) -> Sequence[str]: ...


def parse(arguments: Arguments, accepted: Sequence[str]) -> dict[str, str]:
    """The parameters of a request, each of them one of `accepted` and given once.

    Raises:
        RequestError: One is unknown or repeated.
    """
    values = {}
    for name in arguments:
        if name not in accepted:
            raise RequestError(f"unknown parameter {name!r:.80}; accepted here: {', '.join(accepted) or 'none'}")
        given = arguments.getlist(name)
        if len(given) != 1:
            raise RequestError(f"parameter {name!r} is given {len(given)} times; give it once")
        values[name] = given[0]
    return values


def text(values: Mapping[str, str], name: str) -> str:
    """A required text.

    Raises:
        RequestError: It is missing, empty or too long.
    """
    value = values.get(name, "")
    if not value:
        raise RequestError(f"parameter {name!r} is missing; give the name of a {name}")
    if len(value) > MAX_TEXT_CHARACTERS:
        raise RequestError(
            f"parameter {name!r} has {len(value)} characters; at most {MAX_TEXT_CHARACTERS} are accepted"
        )
    return value


def optional_text(values: Mapping[str, str], name: str) -> str | None:
    """A text, None if it is not given.

    Raises:
        RequestError: It is empty or too long.
    """
    return text(values, name) if name in values else None


def step(values: Mapping[str, str], name: str) -> int:
    """A required step.

    Raises:
        RequestError: It is missing or not a whole number from 0 on.
    """
    if name not in values:
        raise RequestError(f"parameter {name!r} is missing; give a step, a whole number from 0 on")
    return _whole_number(name, values[name], 0, MAX_STEP)


def optional_step(values: Mapping[str, str], name: str) -> int | None:
    """A step, None if it is not given.

    Raises:
        RequestError: It is not a whole number from 0 on.
    """
    return step(values, name) if name in values else None


def step_range(values: Mapping[str, str]) -> tuple[int | None, int | None]:
    """`first_step` and `last_step`, None where not given.

    Raises:
        RequestError: One is no step, or they are in the wrong order.
    """
    first, last = optional_step(values, "first_step"), optional_step(values, "last_step")
    if first is not None and last is not None and first > last:
        raise RequestError(f"first_step {first} is after last_step {last}; give them in order")
    return first, last


def points(values: Mapping[str, str]) -> int:
    """How many points the screen has room for.

    Raises:
        RequestError: It is not a whole number in the accepted range.
    """
    if "points" not in values:
        return DEFAULT_POINTS
    return _whole_number("points", values["points"], MIN_POINTS, MAX_POINTS)


def size(values: Mapping[str, str], name: str) -> int:
    """A required number of bytes, at least 1.

    Raises:
        RequestError: It is missing or not a whole number from 1 on.
    """
    if name not in values:
        raise RequestError(f"parameter {name!r} is missing; give a size in bytes, a whole number from 1 on")
    return _whole_number(name, values[name], 1, MAX_STEP)


def phase(values: Mapping[str, str]) -> Phase:
    """The phase, ``train`` unless given.

    Raises:
        RequestError: It is not one of `PHASES`.
    """
    value = values.get("phase", "train")
    if value not in PHASES:
        raise RequestError(f"parameter 'phase' is {value!r:.80}; accepted: {', '.join(PHASES)}")
    return value


def _whole_number(name: str, value: str, least: int, most: int) -> int:
    # int() accepts blanks, signs, underscores and other scripts' digits; none of them is what a program sends.
    if not (value.isascii() and value.isdigit() and len(value) <= 16) or not least <= int(value) <= most:
        raise RequestError(f"parameter {name!r} is {value!r:.80}; accepted: a whole number from {least} to {most}")
    return int(value)
