"""Questions that take several predictions: one with the largest batch size and an enough capacity,
a curve over batch sizes, and the batch sizes of a capacity. Pure."""

import dataclasses
import math
from typing import Any

import numpy as np

from tb_memplugin.fit.conditions import MAX_BATCH_SIZE, PEAK, Conditions, refuse_unmatched
from tb_memplugin.fit.prediction import Enough, WhatIf
from tb_memplugin.fit.predictor import Predictor
from tb_memplugin.fit.recording import OTHER_SIZES_UNKNOWN
from tb_memplugin.fit.search import bisected, smallest_capacity
from tb_memplugin.schema import as_json, values_of

CURVE_POINTS, FEWEST_CURVE_POINTS = 16, 4
"""Most and fewest batch sizes of a curve, beside the recorded, the requested and the largest
one."""
CURVE_EVENTS = 40_000
"""Events of one step of each of a curve's points together: with more events, there are fewer
points."""
MAX_CAPACITY_FACTOR = 64
"""Capacities up to this many times the one that is not enough, or the bytes that the steps need,
are tried."""
RESERVE, RESERVE_EACH_DOUBLING = 0.05, 0.035
"""Share that is added to the smallest capacity that passes, and more of it for each doubling
between the recorded batch size and the asked one: kernels that run in parallel overlap in other
ways in larger batches. At 0, `test_the_failed_training_fails_and_every_simulated_fix_passes`
fails."""


def most_capacity(predictor: Predictor, conditions: Conditions) -> int:
    needed = max(conditions.capacity_bytes or 0, predictor.peak_in_one_piece(conditions))
    return MAX_CAPACITY_FACTOR * needed


def enough_capacity(predictor: Predictor, conditions: Conditions) -> Enough | None:
    """The smallest capacity, with a reserve, at which a training passes that fails in the
    smaller one of the conditions, if any."""
    most, batch = most_capacity(predictor, conditions), conditions.batch_size or 1

    def holds(capacity: int) -> bool:
        wanted = dataclasses.replace(conditions, capacity_bytes=capacity)
        # The prediction may say otherwise: the largest batch size may be smaller.
        return predictor.fits(wanted, alone=True) and predictor.fits(wanted)

    doublings = math.log2(max(1.0, batch / (predictor.batch_size or batch)))
    reserve = RESERVE + RESERVE_EACH_DOUBLING * doublings
    smallest = smallest_capacity(most // MAX_CAPACITY_FACTOR, most, holds)
    if smallest is None:
        return None
    # A larger capacity may leave worse pieces, so it is simulated as well.
    found = smallest_capacity(smallest * (1 + reserve), most, holds)
    return None if found is None else Enough(found, smallest)


def answer_of(predictor: Predictor, conditions: Conditions) -> WhatIf:
    """The prediction, and the largest batch size that fits; `RequestError` if a glob for layers
    matches none."""
    refuse_unmatched(conditions, predictor.layers)
    prediction = predictor.predict(conditions)
    enough = None
    is_training = prediction.fits is False and prediction.elsewhere is None
    if is_training and prediction.batch_size and prediction.peak_bytes:
        asked = values_of(prediction, "batch_size", "capacity_bytes")
        enough = enough_capacity(predictor, dataclasses.replace(conditions, **asked))
    return WhatIf(
        device=predictor.device,
        conditions=conditions,
        prediction=prediction,
        largest_batch_size=predictor.largest_batch_size(conditions),
        recorded_batch_sizes=predictor.batch_sizes,
        recorded_steps=tuple(one.step for one in predictor.steps),
        measured_peak_bytes=predictor.measured_bytes,
        enough=enough,
    )


def curve(predictor: Predictor, conditions: Conditions) -> list[dict[str, Any]]:
    """Predictions over batch sizes, as JSON objects: from an eighth of the recorded one to beyond
    the largest that fits, fewer if a step has more events. Each is as an answer of its own gives
    it. Errors as `answer_of`."""
    refuse_unmatched(conditions, predictor.layers)
    recorded = predictor.batch_size
    if recorded is None:
        return []
    asked, largest = predictor.default_batch or 0, predictor.largest_batch_size(conditions) or 0
    high = min(MAX_BATCH_SIZE, max(recorded * 4, round(largest * 1.25), asked))
    spread = curve_sizes(predictor, max(1, recorded // 8), high)
    found = [
        predictor.predict(dataclasses.replace(conditions, batch_size=size))
        for size in sorted({recorded, asked, largest, *spread} - {0})
    ]
    return [
        {
            **values_of(one, "batch_size", *PEAK, "fits"),
            "fails_at": as_json(one.fails_at),
        }
        for one in found
        if one.peak_bytes is not None
    ]


def curve_sizes(predictor: Predictor, low: int, high: int) -> list[int]:
    events = predictor.steps[-1].events
    points = max(FEWEST_CURVE_POINTS, min(CURVE_POINTS, CURVE_EVENTS // max(1, events)))
    return sorted({round(size) for size in np.geomspace(low, high, points).tolist()})


def batch_limit(predictor: Predictor, conditions: Conditions) -> dict[str, Any]:
    """The largest batch size in a capacity, its peak, and the largest that may fit, as a JSON
    object; errors as `answer_of`."""
    refuse_unmatched(conditions, predictor.layers)
    capacity = conditions.capacity_bytes or predictor.capacity_bytes
    wanted = dataclasses.replace(conditions, batch_size=None, capacity_bytes=capacity)
    largest = predictor.largest_batch_size(wanted)
    peak = dict.fromkeys(PEAK)
    if largest:
        found = predictor.predict(dataclasses.replace(wanted, batch_size=largest), always=True)
        peak = values_of(found, *PEAK)
    reason = predictor.reason_against(wanted)
    sizes = {"capacity_bytes": capacity, "largest_batch_size": largest}
    if largest is None:
        reason = reason or OTHER_SIZES_UNKNOWN
        return {**sizes, "may_fit_batch_size": None, **peak, "reason": reason}

    def is_possible(size: int) -> bool:
        asked = dataclasses.replace(wanted, batch_size=size)
        return predictor.verdict(asked).fits is not False

    failing = largest + 1
    while failing <= MAX_BATCH_SIZE and is_possible(failing):
        failing = min(2 * failing, MAX_BATCH_SIZE + 1)
    most = bisected(largest, failing, is_possible)
    return {**sizes, "may_fit_batch_size": most, **peak, "reason": reason}
