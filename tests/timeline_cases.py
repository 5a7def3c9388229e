"""Timelines added up for checks: bytes by category at every moment."""

import numpy as np

from tb_memplugin.schema import MISSING, Integers, Timeline


def split_columns(allocated: Integers, rounding: Integers) -> tuple[Integers, Integers]:
    """(requested, rounding) of allocated bytes; (allocated, 0) if the rounding is `MISSING`."""
    known = np.where(rounding == MISSING, 0, np.clip(rounding, 0, allocated))
    return allocated - known, known


def category_totals(timeline: Timeline) -> dict[str, Integers]:
    """Bytes of each category at every moment, shape [moments], with rounding as one of them."""
    requested, rounding = split_columns(timeline.bytes, timeline.rounding_bytes)
    totals: dict[str, Integers] = {}
    rows = zip(timeline.start.tolist(), timeline.end.tolist(), timeline.owner.tolist(), strict=True)
    for row, (start, end, owner) in enumerate(rows):
        for category, size in (
            (timeline.owners[owner].category, requested[row]),
            ("rounding", rounding[row]),
        ):
            if size:
                totals.setdefault(category, np.zeros(len(timeline.time_ns), np.int64))[
                    start:end
                ] += size
    return totals
