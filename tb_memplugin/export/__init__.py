"""FACE."""

from tb_memplugin.export.asking import plan_of_run, predictor_of, what_if
from tb_memplugin.export.loading import RecordedRun, Runs, existing_runs, load
from tb_memplugin.export.schema import TABLES, arrow_schema
from tb_memplugin.export.tables import Exported, ExportUnit, export_parquet, export_units, rows_of_table, unit_tables
from tb_memplugin.export.text import (
    EVERYTHING,
    FORMAT,
    Selection,
    describe_activations,
    describe_oom,
    describe_run,
    describe_snapshot,
    device_table,
    format_run,
)
from tb_memplugin.export.trace_events import step_timelines, trace_events
