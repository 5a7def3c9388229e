"""The exported tables: their columns, types and meanings. `docs/export.md` states the same; a test compares them."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from tb_memplugin.errors import RequestError
from tb_memplugin.schema import DeviceSamples, HeldTensorGroup, Layer, LedgerRow, Oom

VERSION = 1
"""Rises with each change of a table, so that everything is exported anew."""

Kind: TypeAlias = Literal["text", "integer", "flag", "time", "dimensions"]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column; integers named ``…_bytes`` are sizes in bytes, ``time`` is UTC, ``dimensions`` a list of integers.

    `unknown` says what NULL means; it is empty if the column is never NULL.
    """

    name: str
    kind: Kind
    meaning: str
    unknown: str = ""


class TableSchema:
    """A table: what each of its rows is, and its columns."""

    def __init__(self, row: str, *columns: Column) -> None:
        self.row, self.columns = row, columns


_UNKNOWN = "unknown"
_KINDS: Mapping[Any, Kind] = {int: "integer", bool: "flag", float: "time", tuple: "dimensions", np.ndarray: "integer"}


def _fields(record: type, **meanings: str | tuple[str, str]) -> tuple[Column, ...]:
    """Columns of fields of a record, of the fields' types; a second text says what NULL means if not ``unknown``."""
    hints = typing.get_type_hints(record)
    columns = []
    for name, meaning in meanings.items():
        hint = hints["wall_time" if name == "time" else name]
        optional = types.NoneType in typing.get_args(hint)
        kind = typing.get_args(hint)[0] if optional else hint
        kind = typing.get_origin(kind) or kind
        null = _UNKNOWN if optional or kind in (float, np.ndarray) else ""
        text, unknown = (meaning, null) if isinstance(meaning, str) else meaning
        columns.append(Column(name, _KINDS.get(kind, "text"), text, unknown))
    return tuple(columns)


_WORKER = (
    Column("run", "text", "run, as TensorBoard names it"),
    Column("worker", "text", "worker; empty for a run of one process"),
)
_DEVICE = (*_WORKER, Column("device", "text", "device of the worker, such as `GPU:0`"))
_PHASE = "`train`, `validation` or `predict`"
_STEP = (
    *_DEVICE,
    Column("step", "integer", "training step; a validation batch has the training step it came after"),
    Column("phase", "text", _PHASE),
    Column("time", "time", "end of the step", _UNKNOWN),
)

TABLES: Mapping[str, TableSchema] = {
    "samples": TableSchema(
        "a step or batch on a device",
        *_STEP,
        Column("epoch", "integer", "epoch from 0", "outside an epoch"),
        *_fields(
            DeviceSamples,
            in_use_bytes="allocated at step end",
            peak_bytes="highest allocated bytes of the step",
            capacity_bytes="the allocator's limit",
            pool_bytes="reserved by the allocator at step end",
            largest_free_bytes="largest free chunk at step end",
            driver_process_bytes="device memory of the process, by the driver",
            driver_used_bytes="device memory of all processes, by the driver",
            driver_total_bytes="total device memory, by the driver",
        ),
        Column("host_resident_bytes", "integer", "host RSS of the process", _UNKNOWN),
        Column("tf_data_bytes", "integer", "elements in buffers and caches of `tf.data`, read at some steps", _UNKNOWN),
        Column("pinned_pool_bytes", "integer", "TensorFlow's pool of pinned host memory, read at some steps", _UNKNOWN),
    ),
    "peaks": TableSchema(
        "a device in a phase on a day, at its highest peak",
        *_DEVICE,
        Column("phase", "text", _PHASE),
        Column("day", "time", "begin of the day", _UNKNOWN),
        Column("peak_bytes", "integer", "highest allocated bytes"),
        Column("at_step_end", "flag", "the allocator keeps no peak: `peak_bytes` is the highest at step end"),
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
        Column("at_failure", "flag", "breakdown at a failed allocation, not at the peak of a traced step"),
        *_fields(
            LedgerRow,
            layer=("layer path", "not tied to a layer"),
            category="category",
            trainable=("whether the layer's weights are trainable", "not applicable, or unknown"),
            bytes="allocated bytes; the rows of a breakdown sum to the bytes in use",
            rounding_bytes="part of `bytes` that was not requested",
        ),
    ),
    "layers": TableSchema(
        "a layer of the model, from a step on",
        *_WORKER,
        Column("from_step", "integer", "first step of this table of layers"),
        Column("time", "time", "time of the table", _UNKNOWN),
        Column("reason", "text", "why the table was made"),
        Column("optimizer", "text", "class of the optimizer", "not built yet"),
        Column("position", "integer", "place in the model, from 0"),
        *_fields(
            Layer,
            path="layer path",
            type="class of the layer",
            trainable="whether it has trainable weights",
            parameters="number of weights",
            weight_bytes="size of its weights",
            trainable_weight_bytes="size of its trainable weights",
            optimizer_bytes="size of the optimizer's slots for it",
            output_shape="shape of its output; -1 for the batch",
            output_dtype="dtype of its output",
            output_bytes="size of its outputs for one batch",
        ),
    ),
    "held_tensors": TableSchema(
        "tensors of one shape that a Python object, a function or a data set keeps, in a breakdown",
        *_STEP,
        *_fields(
            HeldTensorGroup,
            shape="shape of each tensor",
            dtype="dtype of each tensor",
            count="number of tensors",
            bytes="size of all of them",
            held_by="variable, container or object that holds them",
            line="Python line that made them, such as `train.py:42`",
            retaining_path="references from a module or function to them",
            category="their category in the ledger",
        ),
    ),
    "failures": TableSchema(
        "a failed allocation",
        *_DEVICE,
        *_fields(
            Oom,
            step=("failed step; outside of steps the last one before", "imported from a file, before the first step"),
            phase=(_PHASE, "imported from a file, outside of steps"),
            during=("`step`, `between_steps` or `building` (a model)", "imported from a file"),
            time="time of the failure",
            status="`failed`; `survived` if the program caught the error; `failing` if the process was killed while "
            "it waited for memory",
            verdict="`capacity` or `fragmentation`",
            reason="sizes behind the verdict, as a sentence",
            requested_bytes="size of the request",
            in_use_bytes="allocated",
            free_bytes="free bytes of the pool",
            largest_free_bytes="largest free chunk",
            pool_bytes="reserved by the allocator",
            capacity_bytes="the allocator's limit",
            op="op of the request",
            layer="layer of the request",
            shape="shape of the requested tensor",
            line="line of the program, such as `train.py:42`",
            batch_size="examples in the batch",
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
            f"Parquet needs pyarrow: {error}. Install it with: pip install 'tb-memplugin[parquet]'"
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
        arrow.field(one.name, kinds[one.kind], nullable=bool(one.unknown), metadata={"meaning": one.meaning})
        for one in TABLES[table].columns
    ]
    return arrow.schema(fields, metadata={"tb_memplugin.export": str(VERSION)})
