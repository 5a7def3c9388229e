"""Records as frames and back, with all checks, as their fields say; see
`tb_memplugin.schema.fields`.

A run directory may come from a stranger, so types, signs, lengths and indices are checked even in
frames with a valid checksum. Invalid values raise `FormatError` and cost only their frame. Of a
record, scalars are attributes of the frame, arrays are columns, and a tuple of records is a table;
None, empty tables and columns without a value are left out."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.schema import (
    MAX_BYTES,
    MAX_ROWS,
    MISSING,
    Bounds,
    Field,
    Integers,
    fields_of,
    optional_column,
    stored_fields,
)
from tb_memplugin.storage.frames.codec import MAX_STRING_CHARACTERS, Frame
from tb_memplugin.storage.frames.metadata import STREAMS

Record = TypeVar("Record")

_ROW_BYTES = 400
"""One object of a row in memory: an estimate, above rather than below."""
_NUMBER_BYTES = 40
_ANY = Bounds(-MAX_BYTES, MAX_BYTES)
_RANKS = Bounds(0, 254)
_FEW_ROWS = 4096
_Tables = Mapping[str, Mapping[str, Any]]


def frame_of(stream: str, record: Any, sequence: int, **attributes: Any) -> Frame:
    """The frame of a record, with further `attributes`, which do not belong to the record."""
    tables: dict[str, dict[str, Any]] = {}
    own = _parts(record, "", tables)
    steps = (
        getattr(record, "step", 0)
        if any(one.name == "step" for one in stored_fields(type(record)))
        else 0
    )
    steps = steps if isinstance(steps, np.ndarray) else np.asarray([steps or 0])
    if not len(steps):
        raise FormatError(f"a frame of stream {stream} needs at least one row. Received: no rows")
    first, last = int(steps.min()), int(steps.max())
    return Frame(
        STREAMS.index(stream), sequence, first, last, len(steps), {**attributes, **own}, tables
    )


def read_frame(
    record: type[Record], frame: Frame, only: Collection[str] = (), **given: Any
) -> Record:
    """The record of a frame, with the `given` values of fields that frames do not hold.

    Of the records of each device, only the fields of `only` are read, all if it is empty; the
    others are unknown."""
    made: Record = _read(record, frame.attributes, frame.tables, "", given, only)
    return made


def object_bytes(record: Any, prefix: str = "") -> dict[str, int]:
    found: dict[str, int] = {}
    for field in stored_fields(record):
        if field.kind == "record":
            found |= object_bytes(field.record, f"{prefix}{field.name}/")
        elif field.kind == "rows":
            found[prefix + field.name] = _ROW_BYTES
            sizes = [one.name for one in fields_of(field.record) if one.kind == "sizes"]
            found |= dict.fromkeys(
                (f"{prefix}{field.name}.{name}" for name in sizes), _NUMBER_BYTES
            )
            found |= object_bytes(field.record, f"{prefix}{field.name}.")
        elif field.kind == "texts" and field.table:
            found[prefix + field.table.name] = _NUMBER_BYTES
    return found


def _parts(record: Any, prefix: str, tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The attributes of a record; its columns go into `tables`."""
    attributes: dict[str, Any] = {}
    for field in stored_fields(type(record)):
        value, name = getattr(record, field.name), field.name
        if value is None:
            continue
        if field.kind == "rows":
            _check_count(record, field, len(value), field.most)
            _add_rows(prefix + name, field.record, value, tables)
        elif field.kind == "record":
            attributes[name] = _parts(value, f"{prefix}{name}/", tables)
        elif field.kind == "devices" and field.table:
            attributes[name] = list(value)
            columns = tables[prefix + field.table.name]
            for device, one in value.items():
                columns.update(
                    (f"{part.name}/{device}", getattr(one, part.name))
                    for part in fields_of(field.record)
                )
        elif field.table:
            _check_count(record, field, len(value), field.table.most)
            if field.matrix:
                if value.shape != tuple(len(getattr(record, axis)) for axis in field.matrix):
                    raise FormatError(
                        f"{name} of shape {value.shape} does not fit {' × '.join(field.matrix)}"
                    )
                value = np.ascontiguousarray(value.T).reshape(-1)
            tables.setdefault(prefix + field.table.name, {})[name] = value
        else:
            attributes[name] = list(value) if isinstance(value, tuple) else value
    return attributes


def _add_rows(
    name: str, record: Any, rows: Sequence[Any], tables: dict[str, dict[str, Any]]
) -> None:
    if not rows:
        return
    columns = tables[name] = {}
    for field in stored_fields(record):
        values = [getattr(row, field.name) for row in rows]
        if field.kind == "rows":
            _add_rows(
                f"{name}.{field.name}",
                field.record,
                [one for value in values for one in value],
                tables,
            )
            values = [len(value) for value in values]
        if field.kind == "sizes":
            sizes = [size for value in values for size in value or ()]
            tables[f"{name}.{field.name}"] = {"size": np.asarray(sizes, np.int64)}
            values = [None if value is None else len(value) for value in values]
        if all(value is None for value in values):
            continue
        columns[field.name] = values if field.kind == "text" else optional_column(values)


def _check_count(record: Any, field: Field, count: int, most: int) -> None:
    if count > most:
        name = record.__name__ if isinstance(record, type) else type(record).__name__
        raise FormatError(f"{field.name} of a {name}: {count} are over the limit of {most}")


def _read(
    record: Any,
    attributes: Any,
    tables: _Tables,
    prefix: str,
    given: Mapping[str, Any],
    only: Collection[str] = (),
) -> Any:
    if not isinstance(attributes, Mapping):
        raise FormatError(f"a {record.__name__} is not an object")
    values = dict(given)
    columns = _Columns(record, tables, prefix)
    for field in stored_fields(record):
        values[field.name] = _value(record, field, attributes, tables, prefix, columns, only)
    columns.check_bounds()
    for field in stored_fields(record):
        if field.index:
            bounds = Bounds(-1 if field.index.unknown else 0, len(values[field.index.field]) - 1)
            _check_bounds(f"{field.name} of a {record.__name__}", values[field.name], bounds)
        if field.matrix:
            rows, across = (len(values[axis]) for axis in field.matrix)
            if values[field.name].size != rows * across:
                raise FormatError(f"{values[field.name].size} values do not fit {rows} × {across}")
            values[field.name] = values[field.name].reshape(across, rows).T
    made = record(**values)
    for sentence in getattr(made, "faults", tuple)():
        raise FormatError(sentence)
    return made


def _value(
    record: Any,
    field: Field,
    attributes: Mapping[str, Any],
    tables: _Tables,
    prefix: str,
    columns: "_Columns",
    only: Collection[str],
) -> Any:
    if field.kind == "rows":
        return _rows(record, field, prefix + field.name, tables)
    value: Any = attributes.get(field.name)
    if field.kind == "devices":
        return _devices(field, value, columns, only)
    if field.table:
        if field.kind == "texts":
            column = columns.of(field, field.name)
            return _texts(field, () if column is None and not columns.rows(field) else column)
        if field.optional and field.name not in columns.table(field):
            return None
        return columns.array(field, field.name)
    if value is None and field.optional:
        return None
    if field.kind == "record":
        return _read(field.record, value, tables, f"{prefix}{field.name}/", {})
    if not _is_valid(field, value):
        raise FormatError(f"{field.name} of a {record.__name__} is not valid: {value!r:.40}")
    if field.kind == "texts":
        return tuple(value)
    return float(value) if field.kind == "number" else value


def _is_valid(field: Field, value: Any) -> bool:
    bounds = field.bounds or _ANY
    match field.kind:
        case "flag":
            return isinstance(value, bool)
        case "integer":
            return type(value) is int and bounds.least <= value <= bounds.most
        case "number":
            # False for NaN
            return type(value) in (int, float) and bounds.least <= value <= bounds.most
        case "text":
            least = field.bounds.least if field.bounds else 0
            return (
                _is_text(value)
                and least <= len(value)
                and (not field.choices or value in field.choices)
            )
        case "texts":
            return (
                isinstance(value, list) and len(value) <= field.most and all(map(_is_text, value))
            )
        case "mapping":
            is_small = isinstance(value, dict) and len(value) <= field.most
            return is_small and all(map(_is_text, (*value, *value.values())))
    return False


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_STRING_CHARACTERS


def _devices(
    field: Field, names: Any, columns: "_Columns", only: Collection[str]
) -> dict[str, Any]:
    valid = isinstance(names, list) and len(names) <= field.most
    if not valid or not all(_is_text(name) and name for name in names):
        raise FormatError(
            f"{field.name} must be at most {field.most} names of 1 to {MAX_STRING_CHARACTERS} "
            "characters"
        )
    parts = fields_of(field.record)
    wanted = {part.name for part in parts if not only or part.name in only}
    unknown = np.broadcast_to(np.int64(MISSING), columns.rows(field))
    return {
        name: field.record(
            *(
                columns.array(part, f"{part.name}/{name}", field)
                if part.name in wanted
                else unknown
                for part in parts
            )
        )
        for name in names
    }


class _Columns:
    """The arrays of one record, whose bounds are checked together: that takes a fraction of the
    time."""

    def __init__(self, record: Any, tables: _Tables, prefix: str) -> None:
        self._record, self._tables, self._prefix = record, tables, prefix
        self._by_bounds: dict[Bounds, list[tuple[str, Integers]]] = {}

    def array(self, field: Field, name: str, holder: Field | None = None) -> Any:
        column = self.of(holder or field, name)
        kind: type = np.int64 if field.kind == "integers" else np.float64
        if not isinstance(column, np.ndarray) or column.dtype != kind:
            raise FormatError(f"column {name!r:.80} is missing or of another type")
        if field.bounds and field.kind == "integers":
            self._by_bounds.setdefault(field.bounds, []).append((name, column))
        return column

    def of(self, field: Field, name: str) -> Any:
        assert field.table is not None
        _check_count(self._record, field, self.rows(field), field.table.most)
        return self.table(field).get(name)

    def table(self, field: Field) -> Mapping[str, Any]:
        assert field.table is not None, field
        return self._tables.get(self._prefix + field.table.name, {})

    def rows(self, field: Field) -> int:
        return len(next(iter(self.table(field).values()), ()))

    def check_bounds(self) -> None:
        for bounds, named in self._by_bounds.items():
            columns = [column for _, column in named]
            lengths = set(map(len, columns))
            if len(lengths) == 1 and max(lengths) <= _FEW_ROWS:
                values = np.stack(columns)
                outside = (values < bounds.least) | (values > bounds.most)
                if bounds.missing:
                    outside &= values != MISSING
                if not outside.any():
                    continue
            for name, column in named:
                _check_bounds(name, column, bounds)


def _check_bounds(name: str, column: Integers, bounds: Bounds) -> None:
    if not len(column):
        return
    values = column[:1] if column.strides == (0,) else column
    least, most = int(values.min()), int(values.max())
    if bounds.missing and least == MISSING:
        least = int(values.min(where=values != MISSING, initial=most))
        if most == MISSING:
            return
    if least < bounds.least or most > bounds.most:
        raise FormatError(
            f"column {name!r:.80} holds {least} to {most}, not {bounds.least:.0f} to "
            f"{bounds.most:.0f}"
        )


def _rows(record: Any, field: Field, name: str, tables: _Tables) -> tuple[Any, ...]:
    table = tables.get(name, {})
    count = max(map(len, table.values()), default=0)
    _check_count(record, field, count, field.most)
    if not count:
        return ()
    columns = [
        _row_values(one, table, count, f"{name}.{one.name}", tables)
        for one in stored_fields(field.record)
    ]
    return tuple(map(field.record, *columns))


def _row_values(
    field: Field, table: Mapping[str, Any], count: int, name: str, tables: _Tables
) -> Iterable[Any]:
    column = table.get(field.name)
    if column is None and field.optional:
        return [None] * count
    if field.kind == "text":
        return _texts(field, column)
    if not isinstance(column, np.ndarray) or column.dtype != np.int64:
        raise FormatError(f"column {name!r:.80} is missing or of another type")
    bounds = {"flag": Bounds(0, 1), "sizes": _RANKS, "rows": Bounds(0, MAX_ROWS)}.get(
        field.kind, field.bounds or _ANY
    )
    _check_bounds(name, column, Bounds(bounds.least, bounds.most, field.optional))
    values: list[Any] = column.tolist()
    if field.kind == "sizes":
        sizes = tables.get(name, {}).get("size")
        if not isinstance(sizes, np.ndarray) or sizes.dtype != np.int64:
            raise FormatError(f"table {name!r:.80} is missing or of another type")
        _check_bounds(name, sizes, field.bounds or _ANY)
        return _split(values, sizes.tolist(), name)
    if field.kind == "rows":
        return _split(values, _rows(field.record, field, name, tables), name)
    if field.kind == "flag":
        return [None if value == MISSING else value == 1 for value in values]
    return [None if value == MISSING else value for value in values] if field.optional else values


def _split(counts: Sequence[int], items: Sequence[Any], name: str) -> list[tuple[Any, ...] | None]:
    if sum(count for count in counts if count != MISSING) != len(items):
        raise FormatError(f"{len(items)} items of {name!r:.80} do not fit the numbers of them")
    rest = iter(items)
    return [None if count == MISSING else tuple(itertools.islice(rest, count)) for count in counts]


def _texts(field: Field, column: Any) -> tuple[str | None, ...]:
    if not isinstance(column, tuple):
        raise FormatError(f"column {field.name!r:.80} is missing or of another type")
    found = set(column)
    if None in found and not field.optional:
        raise FormatError(f"column {field.name!r:.80} lacks a text")
    for unknown in found - {None, *field.choices} if field.choices else ():
        raise FormatError(
            f"unknown {field.name} {unknown!r:.40}; expected one of {', '.join(field.choices)}"
        )
    return column
