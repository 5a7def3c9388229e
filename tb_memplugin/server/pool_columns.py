"""Response of the route ``pool``."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.overview import Overview
from tb_memplugin.analysis.pool_steps import POOL_SOURCES, PoolSteps
from tb_memplugin.server.columns import Columns

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
        **{name: getattr(pool, name) for name in _OF_THE_POOL},
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
