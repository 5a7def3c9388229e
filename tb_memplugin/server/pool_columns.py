"""What the route about the pool over the steps answers."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.overview import Overview
from tb_memplugin.analysis.pool_growth import PoolGrowth
from tb_memplugin.analysis.pool_steps import POOL_SOURCES, PoolSteps
from tb_memplugin.server.columns import Columns

_OF_THE_POOL = ("largest_free_bytes", "rounding_bytes", "fragmentation")


def pool_columns(fields: dict[str, Any], view: Overview, pool: PoolSteps) -> Columns:
    """Columns of the pool at the rows of an overview.

    Args:
        fields: What the answer says besides.
        view, pool: The overview and what is known of the pool at its rows.
    """
    columns: dict[str, npt.NDArray[Any]] = {
        "step": view.step,
        "wall_time": view.wall_time,
        "in_use_bytes": view.figures.in_use_bytes,
        "peak_bytes": pool.peak_bytes,
        "capacity_bytes": view.figures.capacity_bytes,
        "pool_low_bytes": pool.low_bytes,
        "pool_high_bytes": pool.high_bytes,
        "pool_source": pool.source,
        **{name: getattr(pool, name) for name in _OF_THE_POOL},
    }
    columns.update((f"band/{at}", pool.there[:, at].astype(np.int64)) for at in range(len(pool.bands)))
    return Columns(
        {
            **fields,
            "total_rows": view.total_rows,
            "sources": list(POOL_SOURCES),
            "bands": [{"bytes": band.bytes, "region": band.region, "growth": band.growth} for band in pool.bands],
            "growths": [_growth(growth) for growth in pool.growths],
            "sentences": list(pool.sentences),
        },
        columns,
    )


def _growth(growth: PoolGrowth) -> dict[str, Any]:
    return {
        "after_step": None if growth.after is None else growth.after.step,
        "by_step": growth.by.step,
        "bytes": growth.bytes,
        "pool_bytes": growth.pool_bytes,
    }
