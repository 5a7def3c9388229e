"""What leaves a run for other programs and for the terminal.

In come the readings of a run from ``tb_memplugin.storage`` and the answers of the analyses; out go
the text of ``inspect``, data frames, Parquet files and trace events of Perfetto. The command line,
the server and ``tb_memplugin.load`` call it; it writes no run."""

from tb_memplugin.export.comparison import compare_runs, format_comparison
from tb_memplugin.export.loading import (
    RecordedRun,
    Runs,
    existing_runs,
    load,
    plan_of_run,
    predictor_of,
    what_if,
)
from tb_memplugin.export.schema import TABLES, arrow_schema
from tb_memplugin.export.tables import (
    Exported,
    ExportUnit,
    export_parquet,
    export_units,
    rows_of_table,
    unit_tables,
)
from tb_memplugin.export.text import (
    Selection,
    describe_run,
    format_run,
    runs_table,
    shown_device,
    summarize_run,
)
from tb_memplugin.export.trace_events import step_timelines, trace_events
