"""The exported tables: their columns, types and meanings; the tables of `docs/export.md` are made
of them."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from tb_memplugin.errors import RequestError
from tb_memplugin.schema import (
    SAMPLE_COLUMNS,
    DeviceSamples,
    HeldTensorGroup,
    Layer,
    LedgerRow,
    Oom,
    Samples,
    meanings,
)

VERSION = 1  # rises with each change of a table, so that everything is exported again

Kind: TypeAlias = Literal["text", "integer", "flag", "time", "dimensions"]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column; integers named ``…_bytes`` are sizes in bytes, ``time`` is UTC, ``dimensions`` a
    list of integers.

    `unknown` says what NULL means; it is empty if the column is never NULL."""

    name: str
    kind: Kind
    meaning: str
    unknown: str = ""


class TableSchema:
    """A table: what each of its rows is, and its columns."""

    def __init__(self, row: str, *columns: Column) -> None:
        self.row, self.columns = row, columns


_UNKNOWN = "unknown"
_KINDS: Mapping[Any, Kind] = {
    int: "integer",
    bool: "flag",
    float: "time",
    tuple: "dimensions",
    np.ndarray: "integer",
}


def _fields(record: type, names: str = "", **null: str) -> tuple[Column, ...]:
    """Columns of fields of a record, by default all; `null` says what NULL means in a column, if
    not ``unknown``."""
    hints, meaning = typing.get_type_hints(record), meanings(record)
    columns = []
    for name in names.split() or hints:
        field = "wall_time" if name == "time" else name
        optional = types.NoneType in typing.get_args(hints[field])
        kind = typing.get_args(hints[field])[0] if optional else hints[field]
        kind = typing.get_origin(kind) or kind
        unknown = null.get(name, _UNKNOWN if optional or kind in (float, np.ndarray) else "")
        columns.append(Column(name, _KINDS.get(kind, "text"), meaning[field], unknown))
    return tuple(columns)


_WORKER = (
    Column("run", "text", "run, as TensorBoard names it"),
    Column("worker", "text", "worker; empty for a run of one process"),
)
_DEVICE = (*_WORKER, Column("device", "text", "device of the worker, such as `GPU:0`"))
_PHASE = "`train`, `validation` or `predict`"
_STEP = (
    *_DEVICE,
    Column(
        "step", "integer", "training step; a validation batch has the training step it came after"
    ),
    Column("phase", "text", _PHASE),
    Column("time", "time", "end of the step", _UNKNOWN),
)

TABLES: Mapping[str, TableSchema] = {
    "samples": TableSchema(
        "a step or batch on a device",
        *_STEP,
        Column("epoch", "integer", "epoch from 0", "outside an epoch"),
        *sorted(_fields(DeviceSamples), key=lambda column: column.name.startswith("driver_")),
        *_fields(Samples, " ".join(SAMPLE_COLUMNS[SAMPLE_COLUMNS.index("host_resident_bytes") :])),
    ),
    "peaks": TableSchema(
        "a device in a phase on a day, at its highest peak",
        *_DEVICE,
        Column("phase", "text", _PHASE),
        Column("day", "time", "begin of the day", _UNKNOWN),
        Column("peak_bytes", "integer", "highest allocated bytes"),
        Column(
            "at_step_end",
            "flag",
            "the allocator keeps no peak: `peak_bytes` is the highest at step end",
        ),
        Column("step", "integer", "earliest step with this peak"),
        Column("time", "time", "end of that step", _UNKNOWN),
        Column("capacity_bytes", "integer", "the allocator's limit", _UNKNOWN),
        Column("samples", "integer", "recorded steps and batches"),
        Column("snapshots", "integer", "traced steps"),
        Column("last_step", "integer", "last recorded step"),
        Column("last_time", "time", "end of the last recorded step", _UNKNOWN),
    ),
    "ledger": TableSchema(
        "bytes of one layer and category, in the breakdown of a traced or failed step",
        *_STEP,
        Column(
            "at_failure",
            "flag",
            "breakdown at a failed allocation, not at the peak of a traced step",
        ),
        *_fields(LedgerRow, layer="not tied to a layer", trainable="not applicable, or unknown"),
    ),
    "layers": TableSchema(
        "a layer of the model, from a step on",
        *_WORKER,
        Column("from_step", "integer", "first step of this table of layers"),
        Column("time", "time", "time of the table", _UNKNOWN),
        Column("reason", "text", "why the table was made"),
        Column("optimizer", "text", "class of the optimizer", "not built yet"),
        Column("position", "integer", "place in the model, from 0"),
        *(column for column in _fields(Layer) if column.name not in ("unit", "recomputed")),
    ),
    "held_tensors": TableSchema(
        "tensors of one shape that a Python object, a function or a data set keeps, in a breakdown",
        *_STEP,
        *_fields(HeldTensorGroup),
    ),
    "failures": TableSchema(
        "a failed allocation",
        *_DEVICE,
        *_fields(
            Oom,
            "step phase during time status verdict reason requested_bytes in_use_bytes "
            "free_bytes largest_free_bytes pool_bytes capacity_bytes op layer shape line "
            "batch_size",
            step="imported from a file, before the first step",
            phase="imported from a file, outside of steps",
            during="imported from a file",
        ),
    ),
    "dead_letters": TableSchema(
        "a problem with the files of a worker",
        *_WORKER,
        Column("exported", "flag", "whether the rest of the worker's data was exported"),
        Column("reason", "text", "what could not be read, and why"),
    ),
}
"""Table name to its schema."""


def pyarrow() -> Any:
    """The package; `RequestError` if it is not installed."""
    try:
        import pyarrow
    except ImportError as error:
        raise RequestError(
            f"Parquet needs pyarrow: {error}. Install it with: pip install pyarrow"
        ) from error
    return pyarrow


def arrow_schema(table: str) -> Any:
    """The `pyarrow.Schema` of an exported table, by its name."""
    arrow = pyarrow()
    kinds = {
        "text": arrow.string(),
        "integer": arrow.int64(),
        "flag": arrow.bool_(),
        "time": arrow.timestamp("us"),
        "dimensions": arrow.list_(arrow.int64()),
    }
    fields = [
        arrow.field(
            one.name, kinds[one.kind], nullable=bool(one.unknown), metadata={"meaning": one.meaning}
        )
        for one in TABLES[table].columns
    ]
    return arrow.schema(fields, metadata={"tb_memplugin.export": str(VERSION)})
