"""The fix of a failed allocation that recomputes segments of layers. Pure."""

import dataclasses
from collections.abc import Sequence

from tb_memplugin.analysis.plan import inside, recompute_sentence
from tb_memplugin.analysis.plan_answer import format_time
from tb_memplugin.analysis.plan_code import remat_line
from tb_memplugin.analysis.plan_units import Units
from tb_memplugin.analysis.segment_search import Recomputing, SegmentSearch
from tb_memplugin.model import Fix, Layer
from tb_memplugin.model.units import format_bytes
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.prediction.fixes import FailedTraining
from tb_memplugin.prediction.predictor import SPARE, Predictor


def recomputing_fix(predictor: Predictor, units: Units, layers: Sequence[Layer], failed: FailedTraining) -> Fix | None:
    """The segments with which the failed training passes at the least time; None if none are enough.

    Args:
        predictor: Predicts for the program that failed.
        units: The layers that can be recomputed.
        layers: The model's layers, the first being the model itself.
        failed: The training that failed.
    """
    capacity = failed.capacity_bytes
    budget = int(capacity / (1 + SPARE))
    conditions = Conditions(batch_size=failed.batch_size)

    def passes(found: Recomputing) -> bool:
        wanted = dataclasses.replace(conditions, recompute=found.segments)
        return found.range[-1] <= budget and predictor.passes(failed.batch_size, capacity, wanted)

    if not len(units):
        return None
    found = SegmentSearch(predictor, units, conditions).cheapest(passes)
    if found is None or not passes(found):
        return None
    segments = inside(f"{layers[0].path}/", found.segments)
    what = recompute_sentence(segments)
    change, peak = f"{what[0].upper()}{what[1:]}", found.range[1]
    sentence = (
        f"{change} in the backward pass. Simulated peak: "
        f"{format_bytes(peak)} of {format_bytes(capacity)}, about {format_time(found.extra_time)} time."
    )
    line = remat_line(segments)
    return Fix("recompute", change, sentence, enough=True, budget_bytes=found.range[-1], peak_bytes=peak, code=line)
