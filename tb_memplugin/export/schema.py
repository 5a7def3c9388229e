"""The exported tables: their columns, types and meanings. `docs/export.md` states the same; a test compares them."""

import dataclasses
from collections.abc import Mapping
from typing import Literal, TypeAlias

VERSION = 1
"""Rises with each change of a table, so that everything is exported anew."""

Kind: TypeAlias = Literal["text", "integer", "flag", "time", "dimensions"]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column; integers named ``…_bytes`` are sizes in bytes.

    Attributes:
        name: Its name.
        kind: ``time`` is UTC, ``dimensions`` a list of integers.
        meaning: What it holds.
        unknown: What NULL means; empty if the column is never NULL.
    """

    name: str
    kind: Kind
    meaning: str
    unknown: str = ""


@dataclasses.dataclass(frozen=True)
class TableSchema:
    """A table: what each of its rows is, and its columns."""

    row: str
    columns: tuple[Column, ...]


_UNKNOWN = "unknown"
_WORKER = (
    Column("run", "text", "run, as TensorBoard names it"),
    Column("worker", "text", "worker; empty for a run of one process"),
)
_DEVICE = (*_WORKER, Column("device", "text", "device of the worker, such as `GPU:0`"))
_STEP = (
    *_DEVICE,
    Column("step", "integer", "training step; a validation batch has the training step it came after"),
    Column("phase", "text", "`train`, `validation` or `predict`"),
    Column("time", "time", "end of the step", _UNKNOWN),
)


def _sizes(**meanings: str) -> tuple[Column, ...]:
    return tuple(Column(name, "integer", meaning, _UNKNOWN) for name, meaning in meanings.items())


TABLES: Mapping[str, TableSchema] = {
    "samples": TableSchema(
        "a step or batch on a device",
        (
            *_STEP,
            Column("epoch", "integer", "epoch from 0", "outside an epoch"),
            *_sizes(
                in_use_bytes="allocated at step end",
                peak_bytes="highest allocated bytes of the step",
                capacity_bytes="the allocator's limit",
                pool_bytes="reserved by the allocator at step end",
                largest_free_bytes="largest free chunk at step end",
                driver_process_bytes="device memory of the process, by the driver",
                driver_used_bytes="device memory of all processes, by the driver",
                driver_total_bytes="total device memory, by the driver",
                host_resident_bytes="host RSS of the process",
            ),
        ),
    ),
    "peaks": TableSchema(
        "a device in a phase on a day, at its highest peak",
        (
            *_DEVICE,
            Column("phase", "text", "`train`, `validation` or `predict`"),
            Column("day", "time", "begin of the day", _UNKNOWN),
            Column("peak_bytes", "integer", "highest allocated bytes"),
            Column("at_step_end", "flag", "the allocator keeps no peak: `peak_bytes` is the highest at step end"),
            Column("step", "integer", "earliest step with this peak"),
            Column("time", "time", "end of that step", _UNKNOWN),
            *_sizes(capacity_bytes="the allocator's limit"),
            Column("samples", "integer", "recorded steps and batches"),
            Column("snapshots", "integer", "traced steps"),
            Column("last_step", "integer", "last recorded step"),
            Column("last_time", "time", "end of the last recorded step", _UNKNOWN),
        ),
    ),
    "ledger": TableSchema(
        "bytes of one layer and category, in the breakdown of a traced or failed step",
        (
            *_STEP,
            Column("at_failure", "flag", "breakdown at a failed allocation, not at the peak of a traced step"),
            Column("layer", "text", "layer path", "not tied to a layer"),
            Column("category", "text", "category"),
            Column("trainable", "flag", "whether the layer's weights are trainable", "not applicable, or unknown"),
            Column("bytes", "integer", "allocated bytes; the rows of a breakdown sum to the bytes in use"),
            *_sizes(rounding_bytes="part of `bytes` that was not requested"),
        ),
    ),
    "layers": TableSchema(
        "a layer of the model, from a step on",
        (
            *_WORKER,
            Column("from_step", "integer", "first step of this table of layers"),
            Column("time", "time", "time of the table", _UNKNOWN),
            Column("reason", "text", "why the table was made"),
            Column("optimizer", "text", "class of the optimizer", "not built yet"),
            Column("position", "integer", "place in the model, from 0"),
            Column("path", "text", "layer path"),
            Column("type", "text", "class of the layer"),
            Column("trainable", "flag", "whether it has trainable weights"),
            Column("parameters", "integer", "number of weights"),
            Column("weight_bytes", "integer", "size of its weights"),
            Column("trainable_weight_bytes", "integer", "size of its trainable weights"),
            Column("optimizer_bytes", "integer", "size of the optimizer's slots for it"),
            Column("output_shape", "dimensions", "shape of its output; -1 for the batch", _UNKNOWN),
            Column("output_dtype", "text", "dtype of its output", _UNKNOWN),
            *_sizes(output_bytes="size of its outputs for one batch"),
        ),
    ),
    "held_tensors": TableSchema(
        "tensors of one shape that a Python object, a function or a data set keeps, in a breakdown",
        (
            *_STEP,
            Column("shape", "dimensions", "shape of each tensor"),
            Column("dtype", "text", "dtype of each tensor"),
            Column("count", "integer", "number of tensors"),
            Column("bytes", "integer", "size of all of them"),
            Column("held_by", "text", "variable, container or object that holds them", _UNKNOWN),
            Column("line", "text", "Python line that made them, such as `train.py:42`", _UNKNOWN),
            Column("retaining_path", "text", "references from a module or function to them", _UNKNOWN),
            Column("category", "text", "their category in the ledger"),
        ),
    ),
    "failures": TableSchema(
        "a failed allocation",
        (
            *_DEVICE,
            Column(
                "step",
                "integer",
                "failed step; outside of steps the last one before",
                "imported from a file, before the first step",
            ),
            Column("phase", "text", "`train`, `validation` or `predict`", "imported from a file, outside of steps"),
            Column("during", "text", "`step`, `between_steps` or `building` (a model)", "imported from a file"),
            Column("time", "time", "time of the failure", _UNKNOWN),
            Column(
                "status",
                "text",
                "`failed`; `survived` if the program caught the error; `failing` if the process was killed while it "
                "waited for memory",
            ),
            Column("verdict", "text", "`capacity` or `fragmentation`", _UNKNOWN),
            Column("reason", "text", "sizes behind the verdict, as a sentence"),
            *_sizes(
                requested_bytes="size of the request",
                in_use_bytes="allocated",
                free_bytes="free bytes of the pool",
                largest_free_bytes="largest free chunk",
                pool_bytes="reserved by the allocator",
                capacity_bytes="the allocator's limit",
            ),
            Column("op", "text", "op of the request", _UNKNOWN),
            Column("layer", "text", "layer of the request", _UNKNOWN),
            Column("shape", "text", "shape of the requested tensor", _UNKNOWN),
            Column("line", "text", "line of the program, such as `train.py:42`", _UNKNOWN),
            Column("batch_size", "integer", "examples in the batch", _UNKNOWN),
        ),
    ),
    "dead_letters": TableSchema(
        "a problem with the files of a worker",
        (
            *_WORKER,
            Column("exported", "flag", "whether the rest of the worker's data was exported"),
            Column("reason", "text", "what could not be read, and why"),
        ),
    ),
}
"""Table name to its schema."""
