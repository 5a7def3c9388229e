"""Pool sizes measured in samples, and their fragmentation. Pure."""

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import MISSING, DeviceSamples, Floats, Integers

_RATIO_STEPS = 1 << 40
"""Resolution of a ratio as an integer."""


def measured_rows(figures: DeviceSamples) -> npt.NDArray[np.bool_]:
    """Mask of rows with a measured pool that holds the allocated bytes and the largest free chunk at step end."""
    in_use, pool, largest = figures.in_use_bytes, figures.pool_bytes, figures.largest_free_bytes
    known = (in_use != MISSING) & (pool != MISSING) & (largest != MISSING)
    measured: npt.NDArray[np.bool_] = known & (in_use + largest <= pool)
    return measured


def fragmentation(figures: DeviceSamples) -> Floats:
    """1 − largest free chunk / free bytes of each row; NaN if nothing is free or the pool was not measured."""
    free = figures.pool_bytes - figures.in_use_bytes
    known = measured_rows(figures) & (free > 0)
    ratio: Floats = np.where(known, 1 - figures.largest_free_bytes / np.where(known, free, 1), np.nan)
    return ratio


def pool_extremes(figures: DeviceSamples) -> list[Integers]:
    """Columns whose extremes a reduction keeps; none if no pool was measured."""
    measured = measured_rows(figures)
    if not measured.any():
        return []
    ratio = fragmentation(figures)
    return [
        np.where(measured, figures.pool_bytes, MISSING),
        np.where(measured, figures.largest_free_bytes, MISSING),
        np.where(np.isnan(ratio), MISSING, np.nan_to_num(ratio) * _RATIO_STEPS).astype(np.int64),
    ]
