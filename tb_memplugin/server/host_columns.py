"""Response of the route ``host_memory``."""

from typing import Any

import numpy.typing as npt

from tb_memplugin.analysis.host_memory import describe_host, host_summaries
from tb_memplugin.analysis.host_parts import host_steps
from tb_memplugin.model import Phase, Run
from tb_memplugin.server.columns import Columns


def host_columns(
    fields: dict[str, Any], run: Run, phase: Phase, first_step: int | None, last_step: int | None, limit: int
) -> Columns:
    """Columns of the host memory of a worker by step, and its summary.

    Args:
        fields: Further fields of the response.
        run: The run of one worker.
        phase, first_step, last_step, limit: See `host_steps`.
    """
    (worker,) = run.workers
    summary = host_summaries(run).get(worker)
    view = host_steps(run.host[worker], phase, first_step, last_step, limit)
    columns: dict[str, npt.NDArray[Any]] = {
        "step": view.step,
        "wall_time": view.wall_time,
        "host_resident_bytes": view.host_resident_bytes,
        **view.figures,
    }
    described = None if summary is None else describe_host(summary)
    return Columns({**fields, "worker": worker, "total_rows": view.total_rows, "summary": described}, columns)
