"""Array types, phases, what the type of a record's field says (kind, unit, bounds, storage),
records as rows and JSON.

A record is a frozen dataclass. Everything that is derived from it (frames, checks, JSON,
TypeScript, tables of docs, columns of tables) asks `fields_of`. What types cannot say is an
invariant: a method ``faults`` of the record that yields sentences on what does not hold.

A column of one value takes no memory and is read-only: it is one number with a stride of zero.
Capacities, phases and unknown figures are such columns."""

import dataclasses
import functools
import inspect
import itertools
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

Phase: TypeAlias = Literal["train", "validation", "predict"]
PHASES: tuple[Phase, ...] = ("train", "validation", "predict")

Mode: TypeAlias = Literal["graph", "eager", "xla"]

Record = TypeVar("Record")

MISSING = -(2**63)
"""Stands for "unknown" in integer arrays; floating-point arrays have NaN."""

MAX_STEP = 2**53 - 1
"""JavaScript represents no larger integer exactly."""


def values_of(record: object, *names: str) -> dict[str, Any]:
    """Name to value of some fields of a record; a tuple is a list, as in JSON."""
    values = {name: getattr(record, name) for name in names}
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }


def record_of(kind: type[Record], *sources: object, **values: Any) -> Record:
    """A record with these values; it has the other fields from the first of the sources that has
    them, or by default."""
    for source in sources:
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # records are dataclasses
            if hasattr(source, field.name):
                values.setdefault(field.name, getattr(source, field.name))
    return kind(**values)


def known_values(records: Iterable[object], name: str) -> list[Any]:
    """The values of a field of some records, without None."""
    values = (getattr(one, name) for one in records)
    return [value for value in values if value is not None]


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

    Faster than `numpy.unique`, which hashes since NumPy 2.3: twenty times for a few thousand
    integers."""
    values = np.sort(np.concatenate(columns))
    result: Integers = values[np.diff(values, prepend=values[:1] - 1) != 0]
    return result


def rows_of(*columns: npt.NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of columns of equal length, as numbers of Python."""
    return zip(*(column.tolist() for column in columns), strict=True)


def is_gpu(device: str) -> bool:
    """Whether ``GPU:0``, ``worker/GPU:0`` in a run of several workers, or ``/device:GPU:0`` is a
    GPU."""
    return _kind(device) == "GPU"


def is_cpu(device: str) -> bool:
    return _kind(device) == "CPU"


def is_pinned(device: str) -> bool:
    """Whether it is a pool of host memory that is pinned for transfers to GPUs: TensorFlow's
    allocators ``gpu_host_bfc``, before 2.3 ``cuda_host_bfc``."""
    return device.endswith("_host_bfc")


def _kind(device: str) -> str:
    return device.rsplit("/", 1)[-1].removeprefix("device:").partition(":")[0].upper()


def as_json(value: Any, without: Collection[str] = ()) -> Any:
    """A record as an object, `without` some fields, a tuple as a list, a column as a list with None
    for `MISSING`."""
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
    """Least and most of a number, or of the characters of a text; whether a column may hold
    `MISSING`."""

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


class Matrix(NamedTuple):
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
    "integer",
    "number",
    "flag",
    "text",
    "record",
    "rows",
    "texts",
    "sizes",
    "mapping",
    "integers",
    "numbers",
    "devices",
]
"""``record``: another record. ``rows``: a tuple of records. ``texts``: a tuple of texts. ``sizes``:
a tuple of integers. ``mapping``: text to text. ``integers`` and ``numbers``: an array. ``devices``:
name to record."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a record.

    Attributes:
        optional: Whether it may be None; of ``texts``, whether its items may be.
        record: The record of the kinds ``record``, ``rows`` and ``devices``.
        choices: The texts that are allowed; empty for any."""

    name: str
    kind: Kind
    optional: bool = False
    record: Any = None
    choices: tuple[str, ...] = ()
    bounds: Bounds | None = None
    table: Table | None = None
    most: int = MAX_ROWS
    index: IndexOf | None = None
    matrix: Matrix | None = None
    stored: bool = True


@functools.cache
def fields_of(record: Any) -> tuple[Field, ...]:
    hints = typing.get_type_hints(record, include_extras=True)
    return tuple(
        _field(one.name, hints[one.name], one.default is None) for one in dataclasses.fields(record)
    )


@functools.cache
def meanings(record: Any) -> Mapping[str, str]:
    """Name of a field to what it is and its unit, as a clause: its entry under ``Attributes:`` in
    the docstring."""
    found: dict[str, str] = {}
    _, _, listed = inspect.cleandoc(record.__doc__ or "").partition("Attributes:\n")
    for names, text in re.findall(r"^    (\w[\w, ]*): (.*(?:\n {8}.*)*)", listed, re.MULTILINE):
        clause = " ".join(text.split()).removesuffix(".").replace("``", "`")
        first, space, rest = clause.partition(" ")
        first = first.lower() if first == first.capitalize() else first  # not "TensorFlow's"
        found.update(dict.fromkeys(names.split(", "), first + space + rest))
    return found


def column_names(record: Any, table: str) -> tuple[str, ...]:
    return tuple(
        field.name for field in fields_of(record) if field.table and field.table.name == table
    )


def stored_fields(record: Any) -> Iterator[Field]:
    return (field for field in fields_of(record) if field.stored)


def _field(name: str, hint: Any, optional: bool) -> Field:
    marks: dict[type, Any] = {}
    bare, may_be_none = _bare(hint, marks)
    kind, item, origin = _KINDS.get(bare), bare, get_origin(bare)
    if origin is tuple:
        item, items_may_be_none = _bare(get_args(bare)[0], marks)
        kind = "rows" if dataclasses.is_dataclass(item) else "sizes" if item is int else "texts"
        may_be_none = may_be_none if item is int else items_may_be_none
    elif origin is Mapping:
        item = get_args(bare)[1]
        kind = "mapping" if item is str else "devices"
    elif dataclasses.is_dataclass(bare) or origin is Literal:
        kind = "text" if origin is Literal else "record"
    if kind is None:
        raise TypeError(f"field {name} has a type that is not known: {hint}")
    return Field(
        name,
        kind,
        optional or may_be_none,
        record=item if dataclasses.is_dataclass(item) else None,
        choices=get_args(item) if get_origin(item) is Literal else (),
        bounds=marks.get(Bounds),
        table=marks.get(Table),
        index=marks.get(IndexOf),
        matrix=marks.get(Matrix),
        most=marks.get(Most, Most(MAX_ROWS)).items,
        stored=NotStored not in marks,
    )


_KINDS: Mapping[Any, Kind] = {
    int: "integer",
    float: "number",
    bool: "flag",
    str: "text",
    Integers: "integers",
    Floats: "numbers",
}


def _bare(hint: Any, marks: dict[type, Any]) -> tuple[Any, bool]:
    """A type without its annotations, which go into `marks`, and without None; and whether it may
    be None."""
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


Rows: TypeAlias = slice | Sequence[int] | npt.NDArray[np.intp] | npt.NDArray[np.bool_]


def take_rows(record: Record, rows: Rows) -> Record:
    """The given rows."""
    if not isinstance(rows, (slice, np.ndarray)):
        rows = np.asarray(rows, np.intp)

    def taken(column: Any) -> Any:
        if isinstance(column, tuple):
            return tuple(column[at] for at in np.arange(len(column))[rows].tolist())
        if not isinstance(rows, slice) and len(column) and column.strides == (0,):
            return np.broadcast_to(
                column[0], int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
            )
        return column[rows]

    return each_column(record, taken)


def each_column(record: Record, change: Callable[[Any], Any]) -> Record:
    """The record with every column changed."""
    kind: Any = type(record)
    changed: dict[str, Any] = {}
    for field in _columns(kind):
        value = getattr(record, field.name)
        if field.kind == "devices":
            changed[field.name] = {name: each_column(one, change) for name, one in value.items()}
        else:
            changed[field.name] = change(value)
    return dataclasses.replace(record, **changed)  # type: ignore[type-var]  # records are dataclasses


def join_rows(records: Sequence[Record], devices: Collection[str] | None = None) -> Record:
    """The rows of records, one after the other; the first record has the other fields.

    Of the devices, these are kept, by default all; `MISSING` where a record lacks one."""
    kind: Any = type(records[0])
    return dataclasses.replace(
        records[0], **{one.name: _joined_field(records, one, devices) for one in _columns(kind)}
    )  # type: ignore[type-var]


def _joined_field(records: Sequence[Any], field: Field, devices: Collection[str] | None) -> Any:
    values = [getattr(one, field.name) for one in records]
    if field.kind != "devices":
        return joined(values)
    names = dict.fromkeys(itertools.chain(*values)) if devices is None else devices
    unknown = [missing_rows(field.record, len(one)) for one in records]
    return {
        name: join_rows(
            [value.get(name, rows) for value, rows in zip(values, unknown, strict=True)]
        )
        for name in names
    }


def missing_rows(kind: Callable[..., Record], rows: int) -> Record:
    """A record of columns that are `MISSING` at all rows."""
    missing = np.broadcast_to(np.int64(MISSING), rows)
    of: Any = kind
    return kind(**{field.name: missing for field in _columns(of)})


def all_columns(record: Any) -> Iterator[Any]:
    """The columns of a record, also those of its devices."""
    kind: Any = type(record)
    for field in _columns(kind):
        value = getattr(record, field.name)
        if field.kind == "devices":
            yield from itertools.chain.from_iterable(map(all_columns, value.values()))
        else:
            yield value


@functools.cache
def _columns(record: Any) -> list[Field]:
    """The fields of a value for each row: those in the table of the first column, and devices and
    matrices."""
    fields = [
        field for field in fields_of(record) if field.table or field.kind in ("integers", "numbers")
    ]
    return [field for field in fields if field.table == fields[0].table or field.matrix]


def joined(columns: Sequence[Any]) -> Any:
    """One column of several."""
    if isinstance(columns[0], tuple):
        return tuple(itertools.chain(*columns))
    return flat(np.concatenate(columns))


def flat(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column; one of equal values takes no memory and is read-only."""
    if not len(column) or column[-1] != column[0] or (column != column[0]).any():
        return column
    return np.broadcast_to(column[0].copy(), len(column))


def extreme_rows(
    columns: Sequence[Integers], limit: int, always: Iterable[int] = ()
) -> npt.NDArray[np.intp]:
    """Indices of the rows to show, in order: all if they are at most `limit`, else about that many.

    Each bucket of equal size keeps the first row with its lowest and the first with its highest
    value in each column; `MISSING` values are ignored. The first row, the last row and those of
    `always` stay too."""
    rows = len(columns[0])
    if rows <= limit:
        return np.arange(rows)
    buckets = max(1, limit // (2 * len(columns)))
    edges = np.linspace(0, rows, buckets + 1).astype(np.intp)[:-1]
    sizes = np.diff(np.append(edges, rows))
    chosen = [np.asarray([0, rows - 1], np.intp), np.fromiter(always, np.intp)]
    for column in columns:
        # MISSING is the lowest int64: replace it to find the lowest known value.
        known = np.where(column == MISSING, np.iinfo(np.int64).max, column)
        for values, extreme in ((column, np.maximum), (known, np.minimum)):
            equal = np.flatnonzero(values == np.repeat(extreme.reduceat(values, edges), sizes))
            _, first = np.unique(np.searchsorted(edges, equal, side="right"), return_index=True)
            chosen.append(equal[first])
    return np.unique(np.concatenate(chosen))
