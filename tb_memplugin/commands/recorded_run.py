"""A run as `load` and `probe` return it: its data, and how it is read in a terminal, a notebook and a data frame."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.analysis.steps.facts import device_facts, device_names
from tb_memplugin.commands.inspect.table import device_table, format_run
from tb_memplugin.model import MISSING, PHASES, Floats, HeldTensorGroup, Integers, Layer, LedgerRow, Run
from tb_memplugin.model.basics import optional_column
from tb_memplugin.model.text import html_details, html_table, html_text

Column: TypeAlias = Integers | Floats | list[str | None] | list[bool | None]
"""One value for each row. Unknown is `MISSING` in an array of integers and None in a list."""
Table: TypeAlias = Mapping[str, Column]
_SNAPSHOT = {"step": int, "phase": str, "device": str}
_LEDGER = {"layer": str, "category": str, "trainable": bool, "bytes": int, "rounding_bytes": int}
_HELD = {
    "shape": str,
    "dtype": str,
    "count": int,
    "bytes": int,
    "held_by": str,
    "line": str,
    "retaining_path": str,
    "category": str,
}
_LAYER = {
    "path": str,
    "type": str,
    "trainable": bool,
    "parameters": int,
    "weight_bytes": int,
    "trainable_weight_bytes": int,
    "optimizer_bytes": int,
    "output_shape": str,
    "output_dtype": str,
    "output_bytes": int,
}


def run_tables(run: Run) -> dict[str, Table]:
    """The tables of a run, sizes in bytes.

    - ``peaks``: a row for each sample of each device, device by device in the order of recording;
    - ``ledger`` and ``held_tensors``: rows of all snapshots;
    - ``layers``: rows of all layer tables, `from_step` on.
    """
    return {
        "peaks": _peaks(run),
        "ledger": _of_snapshots(run, "ledger", _LEDGER),
        "layers": _table(
            {"from_step": int, **_LAYER},
            [{"from_step": table.step, **_fields(layer)} for table in run.layer_tables for layer in table.layers],
        ),
        "held_tensors": _of_snapshots(run, "held_tensors", _HELD),
    }


def _peaks(run: Run) -> Table:
    samples = run.samples
    rows: list[Integers] = [np.empty((6, 0), np.int64)]
    times: list[Floats] = [np.empty(0)]
    devices = [name for name in device_names(run) if name in samples.devices]
    for number, name in enumerate(devices):
        figures = samples.devices[name]
        of_device = np.full(len(samples), number, np.int64)
        columns = (samples.step, samples.phase, samples.epoch, of_device, figures.in_use_bytes, figures.peak_bytes)
        # The samples of other workers have no figures of this device.
        known = (figures.in_use_bytes != MISSING) | (figures.peak_bytes != MISSING)
        rows.append(np.asarray(columns, np.int64)[:, known])
        times.append(samples.wall_time[known])
    step, phase, epoch, device, in_use, peak = np.concatenate(rows, axis=1)
    return {
        "step": step,
        "phase": [PHASES[at] for at in phase.tolist()],
        "epoch": epoch,
        "device": [devices[at] for at in device.tolist()],
        "wall_time": np.concatenate(times),
        "in_use_bytes": in_use,
        "peak_bytes": peak,
    }


def _of_snapshots(run: Run, name: str, columns: Mapping[str, type]) -> Table:
    rows = [
        {"step": snapshot.step, "phase": snapshot.phase, "device": snapshot.device, **_fields(row)}
        for snapshot in run.snapshots
        for row in getattr(snapshot, name)
    ]
    return _table({**_SNAPSHOT, **columns}, rows)


def _fields(row: LedgerRow | HeldTensorGroup | Layer) -> dict[str, Any]:
    fields = dataclasses.asdict(row)
    shapes = {name: shape for name, shape in fields.items() if isinstance(shape, tuple)}
    return fields | {name: f"[{', '.join(map(str, shape))}]" for name, shape in shapes.items()}


def _table(columns: Mapping[str, type], rows: Sequence[Mapping[str, Any]]) -> Table:
    """The named fields of the rows, as columns of the given types."""
    values = {name: [row[name] for row in rows] for name in columns}
    return {name: optional_column(values[name]) if kind is int else values[name] for name, kind in columns.items()}


@dataclasses.dataclass(frozen=True, repr=False)
class RecordedRun(Run):
    """A run as `tb_memplugin.load` and `tb_memplugin.probe` return it.

    `print` shows what ``tb-memplugin inspect`` shows, and a notebook a table of its devices.

    Attributes:
        by_worker: Worker name to the run of that worker, with devices under their own names such as ``GPU:0``.
    """

    by_worker: Mapping[str, Run] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return format_run(self, by_worker=self.by_worker or None)

    def _repr_html_(self) -> str:
        devices = device_facts(self)
        table = html_table(*device_table(self, devices)) if devices else ""
        return html_text(repr(self)) + table + html_details("tb-memplugin inspect", html_text(str(self)))

    def to_pandas(self) -> dict[str, Any]:
        """The run as data frames of pandas, which must be installed.

        Unknown integers are ``<NA>``, sizes are in bytes, and times in seconds since the epoch.

        Returns:
            ``peaks``: `step`, `phase`, `epoch`, `device`, `wall_time`, `in_use_bytes` (at step end) and `peak_bytes` of
            each sample; ``ledger`` and ``held_tensors``: the rows of all snapshots, with their `step`, `phase` and
            `device`; ``layers``: the rows of all layer tables, which hold from `from_step` on.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError(f"to_pandas needs pandas: {error}. Install it with: pip install pandas") from error
        return {name: _data_frame(pandas, table) for name, table in run_tables(self).items()}


def recorded_run(run: Run, by_worker: Mapping[str, Run], **changes: Any) -> RecordedRun:
    """A run that was read, with some of its fields changed."""
    fields = {field.name: getattr(run, field.name) for field in dataclasses.fields(Run)}
    return RecordedRun(**(fields | changes), by_worker=by_worker)


def _data_frame(pandas: Any, table: Table) -> Any:
    return pandas.DataFrame({name: _series(pandas, column) for name, column in table.items()})


def _series(pandas: Any, column: Column) -> Any:
    """A column with types that can say unknown, whatever its first values are."""
    if isinstance(column, np.ndarray):
        is_whole = np.issubdtype(column.dtype, np.integer)
        return pandas.arrays.IntegerArray(column.copy(), column == MISSING) if is_whole else column
    flags = any(isinstance(value, bool) for value in column)
    return pandas.array(column, dtype="boolean" if flags else "string")
