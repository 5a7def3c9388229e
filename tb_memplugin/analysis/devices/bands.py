"""How the peaks of many devices are distributed over the steps, from roll-ups. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tb_memplugin.analysis.steps.facts import of_one_kind
from tb_memplugin.model import MISSING, PHASES, Integers, Phase, full_device_name
from tb_memplugin.model.basics import optional_values
from tb_memplugin.model.rollup import Rollup

QUANTILES = {"min_peak_bytes": 0, "p5_peak_bytes": 5, "p50_peak_bytes": 50, "p95_peak_bytes": 95, "max_peak_bytes": 100}
"""Columns of the answer to percents of the devices."""


def device_bands(by_worker: Mapping[str, Sequence[Rollup]], phase: Phase) -> dict[str, Any] | None:
    """Quantiles of the devices' peaks at the last step of each span; None without spans.

    The spans are those that most sessions have. A device counts in a span with the highest peak of its own spans that
    end in it, and a later session replaces an earlier one.

    Args:
        by_worker: Worker to the roll-ups of its sessions, in order of their start.
    """
    at_phase = PHASES.index(phase)
    rows = {id(one): np.flatnonzero(one.spans.phase == at_phase) for of in by_worker.values() for one in of}
    layouts = Counter(
        tuple(one.spans.last_step[at].tolist()) for of in by_worker.values() for one in of if len(at := rows[id(one)])
    )
    if not layouts:
        return None
    # Of equally frequent ones the longest.
    lasts, _ = max(layouts.items(), key=lambda item: (item[1], item[0][-1], len(item[0])))
    shown = set(
        of_one_kind(
            full_device_name(worker, device.name)
            for worker, of in by_worker.items()
            for one in of
            for device in one.devices
        )
    )
    peaks = np.stack(
        [
            _peaks(worker, name, of, rows, np.asarray(lasts, np.int64))
            for worker, of in by_worker.items()
            for name in dict.fromkeys(device.name for one in of for device in one.devices)
            if full_device_name(worker, name) in shown
        ]
    )
    counts = np.count_nonzero(peaks != MISSING, axis=0)
    # Unknown peaks come first; those after them are in order.
    ordered = np.sort(peaks, axis=0)
    columns = {name: _ranked(ordered, counts, percent) for name, percent in QUANTILES.items()}
    return {"step": list(lasts), **columns, "sum_in_use_bytes": None}


def _peaks(worker: str, name: str, rollups: Sequence[Rollup], rows: Mapping[int, Any], lasts: Integers) -> Integers:
    """The peak of a device in each span, `MISSING` where it has none."""
    peaks = np.full(len(lasts), MISSING)
    for one in rollups:
        row = next((at for at, device in enumerate(one.devices) if device.name == name), None)
        spans = rows[id(one)]
        if row is None or not len(spans):
            continue
        own = np.full(len(lasts), MISSING)
        places = np.minimum(np.searchsorted(lasts, one.spans.last_step[spans]), len(lasts) - 1)
        np.maximum.at(own, places, one.spans.peak_bytes[row, spans])
        peaks = np.where(own == MISSING, peaks, own)
    return peaks


def _ranked(ordered: Integers, counts: Integers, percent: int) -> list[int | None]:
    """The value at a quantile by nearest rank, of each column of ascending values whose unknown ones come first."""
    ranks = np.maximum(-(-percent * counts // 100), 1)
    rows = len(ordered) - counts + ranks - 1
    values = ordered[np.minimum(rows, len(ordered) - 1), np.arange(ordered.shape[1])]
    return optional_values(values)
