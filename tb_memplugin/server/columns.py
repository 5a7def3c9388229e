"""Tables as responses of routes, and those of host memory and the pool by step."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.host.host_memory import describe_host, host_summaries
from tb_memplugin.analysis.host.host_parts import host_steps
from tb_memplugin.analysis.pool.pool_steps import POOL_SOURCES, PoolSteps
from tb_memplugin.analysis.steps.overview import Overview
from tb_memplugin.model import Phase, Run
from tb_memplugin.model.basics import fields_of


@dataclasses.dataclass(frozen=True)
class Columns:
    """A response of JSON fields and columns of equal length."""

    fields: Mapping[str, Any]
    columns: Mapping[str, npt.NDArray[Any]]


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


_OF_THE_POOL = ("pool_bytes", "largest_free_bytes", "fragmentation", "rounding_bytes")


def pool_columns(fields: dict[str, Any], view: Overview, pool: PoolSteps) -> Columns:
    """Columns of the pool at the rows of an overview.

    Args:
        fields: Further fields of the response.
        view, pool: The overview and the pool at its rows.
    """
    columns: dict[str, npt.NDArray[Any]] = {
        "step": view.step,
        "wall_time": view.wall_time,
        "session": pool.session,
        "in_use_bytes": pool.in_use_bytes,
        "peak_bytes": pool.peak_bytes,
        "capacity_bytes": view.figures.capacity_bytes,
        "pool_source": np.asarray(pool.source, np.int64),
        **fields_of(pool, *_OF_THE_POOL),
    }
    return Columns(
        {
            **fields,
            "total_rows": view.total_rows,
            "sources": list(POOL_SOURCES),
            "growths": [dataclasses.asdict(growth) for growth in pool.growths],
            "sentences": list(pool.sentences),
        },
        columns,
    )
