"""Runs as tables in Apache Beam, which the extra ``beam`` installs: many run directories on any
runner.

The rows are those of `tb_memplugin.export_parquet`."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from tb_memplugin.export import (
    TABLES,
    ExportUnit,
    arrow_schema,
    export_units,
    rows_of_table,
    unit_tables,
)

__all__ = ["ReadRuns", "arrow_schema"]


class ReadRuns(beam.PTransform):  # type: ignore[misc]  # apache_beam's types are not loaded
    """Log directories to the rows of their runs.

    Takes a collection of log directories: paths or URLs that the workers of the pipeline can open.
    Gives a dictionary of collections by table, with the tables and columns of ``docs/export.md``:
    each row is a dictionary, a time a `datetime` in UTC, and NULL is None.
    ``beam.io.WriteToParquet`` takes them with `arrow_schema`.

    The unit of work is a worker of a run, whose files are read by one process. A log directory that
    cannot be listed and a worker that cannot be read become rows of ``dead_letters``."""

    def expand(self, logdirs: Any) -> Any:
        found = logdirs | "List workers" >> beam.ParDo(_ListWorkers()).with_outputs(
            "dead_letters", main="units"
        )
        read = (
            found.units
            | "Spread workers" >> beam.Reshuffle()
            | "Read workers" >> beam.ParDo(_ReadWorker()).with_outputs(*TABLES)
        )
        tables = {name: read[name] for name in TABLES}
        both = (found.dead_letters, tables["dead_letters"])
        tables["dead_letters"] = both | "All dead letters" >> beam.Flatten()
        return tables


class _ListWorkers(beam.DoFn):  # type: ignore[misc]
    def process(self, logdir: str) -> Iterator[Any]:
        try:
            yield from export_units(logdir)
        except Exception as error:  # one directory must not end a pipeline over thousands
            row = {"run": "", "worker": "", "exported": False, "reason": str(error)}
            yield beam.pvalue.TaggedOutput("dead_letters", row)


class _ReadWorker(beam.DoFn):  # type: ignore[misc]
    def process(self, unit: ExportUnit) -> Iterator[Any]:
        tables, _ = unit_tables(unit)
        for name, rows in tables.items():
            for row in rows_of_table(name, rows):
                yield beam.pvalue.TaggedOutput(name, row)
