"""Strict parsing of request parameters: unknown, repeated and malformed ones are errors."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tb_memplugin.errors import RequestError
from tb_memplugin.model import MAX_STEP, PHASES, Phase

MAX_TEXT_CHARACTERS = 4096
"""Longest accepted name of a run or a device."""
MAX_BATCH_SIZE = 1 << 24
"""Largest accepted batch size."""
DEFAULT_POINTS = 1500
MIN_POINTS = 10
MAX_POINTS = 10_000


class Arguments(Protocol):
    """Query arguments with repetitions; werkzeug's `Request.args` is one."""

    def __iter__(self) -> Iterator[str]: ...

    def getlist(self, name: str) -> Sequence[str]: ...


def parse(arguments: Arguments, accepted: Sequence[str]) -> dict[str, str]:
    """The parameters of a request; each must be in `accepted` and given once.

    Raises:
        RequestError: A parameter is unknown or repeated.
    """
    values = {}
    for name in arguments:
        if name not in accepted:
            raise RequestError(f"unknown parameter {name!r:.80}; accepted: {', '.join(accepted) or 'none'}")
        given = arguments.getlist(name)
        if len(given) != 1:
            raise RequestError(f"parameter {name!r} is given {len(given)} times; pass it once")
        values[name] = given[0]
    return values


def text_of(values: Mapping[str, str], name: str) -> str:
    """A required text.

    Raises:
        RequestError: It is missing, empty or too long.
    """
    value = values.get(name, "")
    if not value:
        raise RequestError(f"parameter {name!r} is missing; pass the name of a {name}")
    if len(value) > MAX_TEXT_CHARACTERS:
        raise RequestError(
            f"parameter {name!r} has {len(value)} characters; at most {MAX_TEXT_CHARACTERS} are accepted"
        )
    return value


def optional_text_of(values: Mapping[str, str], name: str) -> str | None:
    """An optional text, None if not given.

    Raises:
        RequestError: It is empty or too long.
    """
    return text_of(values, name) if name in values else None


def step(values: Mapping[str, str], name: str) -> int:
    """A required step.

    Raises:
        RequestError: It is missing or not an integer from 0 to `MAX_STEP`.
    """
    if name not in values:
        raise RequestError(f"parameter {name!r} is missing; pass a step, an integer >= 0")
    return _integer(name, values[name], 0, MAX_STEP)


def optional_step(values: Mapping[str, str], name: str) -> int | None:
    """An optional step, None if not given.

    Raises:
        RequestError: It is not an integer from 0 to `MAX_STEP`.
    """
    return step(values, name) if name in values else None


def step_limits(values: Mapping[str, str]) -> tuple[int | None, int | None]:
    """`first_step` and `last_step`, each None if not given.

    Raises:
        RequestError: One is not a step, or they are in the wrong order.
    """
    first, last = optional_step(values, "first_step"), optional_step(values, "last_step")
    if first is not None and last is not None and first > last:
        raise RequestError(f"first_step {first} is after last_step {last}; pass them in order")
    return first, last


def points(values: Mapping[str, str]) -> int:
    """The number of points that fit on the screen.

    Raises:
        RequestError: It is not an integer from `MIN_POINTS` to `MAX_POINTS`.
    """
    if "points" not in values:
        return DEFAULT_POINTS
    return _integer("points", values["points"], MIN_POINTS, MAX_POINTS)


def batch_size_of(values: Mapping[str, str]) -> int | None:
    """An optional batch size, None if not given.

    Raises:
        RequestError: It is not an integer from 1 to `MAX_BATCH_SIZE`.
    """
    return _integer("batch_size", values["batch_size"], 1, MAX_BATCH_SIZE) if "batch_size" in values else None


def phase(values: Mapping[str, str]) -> Phase:
    """The phase, ``train`` unless given.

    Raises:
        RequestError: It is not one of `PHASES`.
    """
    value = values.get("phase", "train")
    if value not in PHASES:
        raise RequestError(f"parameter 'phase' is {value!r:.80}; accepted: {', '.join(PHASES)}")
    return value


def _integer(name: str, value: str, least: int, most: int) -> int:
    # int() also accepts blanks, signs, underscores and digits of other scripts.
    if not (value.isascii() and value.isdigit() and len(value) <= 16) or not least <= int(value) <= most:
        raise RequestError(f"parameter {name!r} is {value!r:.80}; accepted: an integer from {least} to {most}", name)
    return int(value)
