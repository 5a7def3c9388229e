"""Array types, phases, records as JSON, and what the type of a record's field says: its kind, unit, bounds, storage.

A record is a frozen dataclass. Everything that is derived from it (frames, checks, JSON, TypeScript, tables of docs,
columns of tables) asks `fields_of`. What types cannot say is an invariant: a method ``faults`` of the record that
yields sentences on what does not hold.
"""

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

Phase: TypeAlias = Literal["train", "validation", "predict"]
PHASES: tuple[Phase, ...] = ("train", "validation", "predict")

Mode: TypeAlias = Literal["graph", "eager", "xla"]

MISSING = -(2**63)
"""Stands for "unknown" in integer arrays; floating-point arrays have NaN."""

MAX_STEP = 2**53 - 1
"""JavaScript represents no larger integer exactly."""


def values_of(record: object, *names: str) -> dict[str, Any]:
    """Name to value of some fields of a record; a tuple is a list, as in JSON."""
    values = {name: getattr(record, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def optional_column(values: Iterable[int | None]) -> Integers:
    """Integers with `MISSING` for None."""
    return np.asarray([MISSING if value is None else value for value in values], np.int64)


def optional_values(column: Integers) -> list[int | None]:
    return [None if value == MISSING else value for value in column.tolist()]


def last_known(column: Integers) -> int | None:
    known = np.flatnonzero(column != MISSING)
    return int(column[known[-1]]) if len(known) else None


def distinct(*columns: Integers) -> Integers:
    """The values that occur in any of the columns, sorted.

    Faster than `numpy.unique`, which hashes since NumPy 2.3: twenty times for a few thousand integers.
    """
    values = np.sort(np.concatenate(columns))
    result: Integers = values[np.diff(values, prepend=values[:1] - 1) != 0]
    return result


def is_gpu(device: str) -> bool:
    """Whether ``GPU:0``, ``worker/GPU:0`` in a run of several workers, or ``/device:GPU:0`` is a GPU."""
    return _kind(device) == "GPU"


def is_cpu(device: str) -> bool:
    return _kind(device) == "CPU"


def _kind(device: str) -> str:
    return device.rsplit("/", 1)[-1].removeprefix("device:").partition(":")[0].upper()


def as_json(value: Any, without: Collection[str] = ()) -> Any:
    """A record as an object, `without` some fields, a tuple as a list, a column as a list with None for `MISSING`."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name not in without]
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, (tuple, list)):
        return [as_json(one) for one in value]
    if isinstance(value, Mapping):
        return {name: as_json(one) for name, one in value.items()}
    return optional_values(value) if isinstance(value, np.ndarray) else value


MAX_BYTES = 2**53 - 1
"""Largest byte count (8 PiB): the largest integer that JavaScript represents exactly."""
MAX_ADDRESS = 2**62
"""Addresses of a 64-bit process lie far below."""
MAX_TOTAL_BYTES = 2.0**62
"""Most bytes of all chunks of a record together: their sums stay within 64 bits."""
MAX_ROWS = 200_000
"""Most rows of a table that become objects; a reader refuses more before it builds them."""

MAX_LAYERS = 100_000


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Least and most of a number, or of the characters of a text; whether a column may hold `MISSING`."""

    least: float
    most: float
    missing: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
    """The table that holds a column, and the most rows that it may have."""

    name: str
    most: int = MAX_ROWS


@dataclasses.dataclass(frozen=True)
class Most:
    """Most items of a tuple."""

    items: int


@dataclasses.dataclass(frozen=True)
class IndexOf:
    """A column of indices into another field; whether -1 stands for an unknown one."""

    field: str
    unknown: bool = True


@dataclasses.dataclass(frozen=True)
class Matrix:
    """An array of two dimensions, as long as these fields."""

    rows: str
    columns: str


class NotStored:
    """Marks a field that a frame does not hold."""


Size: TypeAlias = Annotated[int, Bounds(0, MAX_BYTES)]
"""A number of bytes, or a count."""
Step: TypeAlias = Annotated[int, Bounds(0, MAX_STEP)]
Share: TypeAlias = Annotated[float, Bounds(0, 1)]
Name: TypeAlias = Annotated[str, Bounds(1, 4096)]
"""The name of a device."""
Sizes: TypeAlias = Annotated[Integers, Bounds(0, MAX_BYTES)]
MaybeSizes: TypeAlias = Annotated[Integers, Bounds(0, MAX_BYTES, missing=True)]
"""Numbers of bytes, `MISSING` where they are unknown."""
Addresses: TypeAlias = Annotated[Integers, Bounds(0, MAX_ADDRESS)]

Kind: TypeAlias = Literal[
    "integer", "number", "flag", "text", "record", "rows", "texts", "sizes", "mapping", "integers", "numbers", "devices"
]
"""``record``: another record. ``rows``: a tuple of records. ``texts``: a tuple of texts. ``sizes``: a tuple of
integers. ``mapping``: text to text. ``integers`` and ``numbers``: an array. ``devices``: name to record."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a record.

    Attributes:
        optional: Whether it may be None; of ``texts``, whether its items may be.
        record: The record of the kinds ``record``, ``rows`` and ``devices``.
        choices: The texts that are allowed; empty for any.
    """

    name: str
    kind: Kind
    optional: bool = False
    record: Any = None
    choices: tuple[str, ...] = ()
    bounds: Bounds | None = None
    table: Table | None = None
    most: int = MAX_ROWS
    index: IndexOf | None = None
    matrix: tuple[str, str] | None = None
    stored: bool = True


@functools.cache
def fields_of(record: Any) -> tuple[Field, ...]:
    hints = typing.get_type_hints(record, include_extras=True)
    fields = [(_field(one.name, hints[one.name]), one.default) for one in dataclasses.fields(record)]
    return tuple(dataclasses.replace(field, optional=field.optional or default is None) for field, default in fields)


@functools.cache
def meanings(record: Any) -> Mapping[str, str]:
    """Name of a field to what it is and its unit, as a clause: its entry under ``Attributes:`` in the docstring."""
    found: dict[str, str] = {}
    _, _, listed = inspect.cleandoc(record.__doc__ or "").partition("Attributes:\n")
    for names, text in re.findall(r"^    (\w[\w, ]*): (.*(?:\n {8}.*)*)", listed, re.MULTILINE):
        clause = " ".join(text.split()).removesuffix(".").replace("``", "`")
        first, space, rest = clause.partition(" ")
        first = first.lower() if first == first.capitalize() else first  # not "TensorFlow's"
        found.update(dict.fromkeys(names.split(", "), first + space + rest))
    return found


def column_names(record: Any, table: str) -> tuple[str, ...]:
    return tuple(field.name for field in fields_of(record) if field.table and field.table.name == table)


def stored_fields(record: Any) -> Iterator[Field]:
    return (field for field in fields_of(record) if field.stored)


def _field(name: str, hint: Any) -> Field:
    marks: dict[type, Any] = {}
    bare, optional = _bare(hint, marks)
    known: dict[str, Any] = {
        "optional": optional,
        "bounds": marks.get(Bounds),
        "table": marks.get(Table),
        "index": marks.get(IndexOf),
        "matrix": (marks[Matrix].rows, marks[Matrix].columns) if Matrix in marks else None,
        "most": marks.get(Most, Most(MAX_ROWS)).items,
        "stored": NotStored not in marks,
    }
    if bare in _KINDS:
        return Field(name, _KINDS[bare], **known)
    if get_origin(bare) is Literal:
        return Field(name, "text", choices=get_args(bare), **known)
    if dataclasses.is_dataclass(bare):
        return Field(name, "record", record=bare, **known)
    if get_origin(bare) is tuple:
        item, known["optional"] = _bare(get_args(bare)[0], marks)
        if dataclasses.is_dataclass(item):
            return Field(name, "rows", record=item, **known)
        if item is int:
            return Field(name, "sizes", **{**known, "optional": optional, "bounds": marks.get(Bounds)})
        if item is str or get_origin(item) is Literal:
            return Field(name, "texts", choices=() if item is str else get_args(item), **known)
    if get_origin(bare) is Mapping:
        item = get_args(bare)[1]
        return Field(name, "mapping", **known) if item is str else Field(name, "devices", record=item, **known)
    raise TypeError(f"field {name} has a type that is not known: {hint}")


_KINDS: Mapping[Any, Kind] = {
    int: "integer",
    float: "number",
    bool: "flag",
    str: "text",
    Integers: "integers",
    Floats: "numbers",
}


def _bare(hint: Any, marks: dict[type, Any]) -> tuple[Any, bool]:
    """A type without its annotations, which go into `marks`, and without None; and whether it may be None."""
    optional = False
    while True:
        if get_origin(hint) is Annotated:
            hint, *found = get_args(hint)
            marks.update((mark if isinstance(mark, type) else type(mark), mark) for mark in found)
        elif get_origin(hint) in (Union, types.UnionType):
            optional = True
            (hint,) = (one for one in get_args(hint) if one is not types.NoneType)
        else:
            return hint, optional
