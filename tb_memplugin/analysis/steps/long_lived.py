"""Long-lived bytes by category at steps without a trace, inferred from the bytes in use at step end. Pure.

What is measured at every step is the sum at its end; traced steps tell which categories a rise of it belongs to.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import MISSING, Integers


class Moments(NamedTuple):
    """Steps, ascending: their numbers, their bytes in use at step end (`MISSING` if unknown), their layer tables."""

    step: Integers
    end_bytes: Integers
    table: Integers


def long_lived(rows: Moments, traced: Moments, measured: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Bytes by category of each row, and whether a traced step has the row's layer table; 0 for rows without one.

    Between two traced steps the bytes are interpolated: by the bytes in use at step end if these explain most of the
    change, else by the step. Before the first and after the last one, a rise of the bytes in use belongs to the
    categories that grew between the two nearest traced steps, in the same proportion; with one traced step, the bytes
    stay as they were.

    Args:
        rows, traced: The steps in question, and the traced ones, each once.
        measured: Bytes of the traced steps, shape [traced, categories].
    """
    known = np.isin(rows.table, traced.table)
    values = np.zeros((len(rows.step), measured.shape[1]), np.int64)
    if known.any():
        part = Moments(rows.step[known], rows.end_bytes[known], rows.table[known])
        values[known] = np.rint(np.maximum(_followed(part, traced, measured), 0))
    return values, known


def _followed(rows: Moments, traced: Moments, measured: Integers) -> npt.NDArray[np.float64]:
    first = np.searchsorted(traced.table, rows.table, side="left")
    end = np.searchsorted(traced.table, rows.table, side="right")
    after = np.clip(np.searchsorted(traced.step, rows.step, side="right"), first, end)
    between = (after > first) & (after < end)
    # The traced step that the bytes start from, and the two that tell what changes.
    anchor = np.where(after > first, after - 1, first)
    low = np.clip(after - 1, first, np.maximum(end - 2, first))
    high = np.minimum(low + 1, end - 1)
    change = (measured[high] - measured[low]).astype(np.float64)
    ends = traced.end_bytes
    has_ends = (
        (rows.end_bytes != MISSING) & (ends[anchor] != MISSING) & (ends[low] != MISSING) & (ends[high] != MISSING)
    )
    rise = np.where(has_ends, ends[high] - ends[low], 0).astype(np.float64)
    since = np.where(has_ends, rows.end_bytes - ends[anchor], 0).astype(np.float64)
    by_step = (rows.step - traced.step[low]) / np.maximum(traced.step[high] - traced.step[low], 1)
    explained = (rise != 0) & (2 * np.abs(rise) >= np.abs(change).sum(axis=1))
    way = np.where(explained, np.clip(since / np.where(rise == 0, 1, rise), 0, 1), by_step)
    grown = np.maximum(change, 0)
    shares = np.where((rise > 0)[:, None], grown / np.maximum(np.maximum(rise, grown.sum(axis=1)), 1)[:, None], 0)
    added = np.where(between[:, None], way[:, None] * change, since[:, None] * shares)
    followed: npt.NDArray[np.float64] = measured[anchor].astype(np.float64) + added
    return followed
