"""A run as `load` and `probe` return it: its data, and how it is read in a terminal, a notebook and a data frame."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tb_memplugin.analysis.steps.facts import device_facts
from tb_memplugin.analysis.steps.run_tables import Column, Table, run_tables
from tb_memplugin.commands.inspect_table import device_table, format_run
from tb_memplugin.model import MISSING, Run
from tb_memplugin.model.text import html_details, html_table, html_text


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
