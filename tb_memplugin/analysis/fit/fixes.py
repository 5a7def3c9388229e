"""Possible fixes of a failed allocation, simulated from the steps that the run recorded before it. Pure."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from tb_memplugin.analysis.fit.plan import inside, recompute_sentence
from tb_memplugin.analysis.fit.plan_answer import format_time
from tb_memplugin.analysis.fit.plan_code import remat_line
from tb_memplugin.analysis.fit.segment_search import SegmentSearch, Units, units_of
from tb_memplugin.analysis.fit.what_if import layer_table_of
from tb_memplugin.analysis.fit.what_if_evidence import measured_peak, recorded_evidence, recorded_program
from tb_memplugin.model import Fix, Layer, Oom, Run, is_gpu
from tb_memplugin.model.units import format_bytes
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.prediction.evidence import NOTHING
from tb_memplugin.prediction.fixes import FailedTraining, simulated_fixes
from tb_memplugin.prediction.predictor import Predictor

MAX_FIXED = 8
"""Failures of a run, the last ones, whose fixes are simulated where nobody asks for one of them."""


class Advice(NamedTuple):
    """The fixes, and a sentence on why there are none, or on what their simulation shows differently; None without."""

    fixes: tuple[Fix, ...]
    note: str | None


def advice(session: Run, oom: Oom) -> Advice:
    """The fixes of a failure.

    Takes up to some seconds.

    Args:
        session: The session that failed, with its requests, including steps that a later session repeats.
        oom: The failure, on a device as the session names it.
    """
    before = [one for one in session.requests if one.wall_time <= oom.wall_time]
    steps = () if oom.phase is None else recorded_program(before, oom.device, oom.phase)
    if not any(not one.first for one in steps):
        return Advice((), "No fix could be simulated: no whole step was traced before.")
    if not oom.batch_size:
        return Advice((), "No fix could be simulated: the batch size of the failed step is unknown.")
    if oom.capacity_bytes is None:
        return Advice((), "No fix could be simulated: the allocator's capacity is unknown.")
    table = layer_table_of(session, steps)
    layers = () if table is None else table.layers
    failed = FailedTraining(
        batch_size=oom.batch_size,
        capacity_bytes=oom.capacity_bytes,
        verdict=oom.verdict,
        is_gpu=is_gpu(oom.device),
        is_training=oom.phase == "train",
        op=oom.op,
    )
    evidence = recorded_evidence(session, oom.device, steps, oom.wall_time) if failed.is_training else NOTHING
    if evidence.growth is not None:
        return Advice((), f"No fix could be simulated. {evidence.growth}")
    predictor = Predictor(steps, layers, measured_peak(session, oom.device, steps, until=oom.wall_time))

    def recomputation(predictor: Predictor) -> Fix | None:
        return recomputing_fix(predictor, units_of(session, steps[-1], layers), layers, failed)

    return Advice(*simulated_fixes(predictor, layers, failed, evidence, recomputation))


def with_advice(oom: Oom, found: Advice) -> Oom:
    """The failure with its fixes."""
    notes = oom.not_available if found.note is None else (*oom.not_available, found.note)
    return dataclasses.replace(oom, fixes=found.fixes, not_available=notes)


def recomputing_fix(predictor: Predictor, units: Units, layers: Sequence[Layer], failed: FailedTraining) -> Fix | None:
    """The segments with which the failed training passes at the least time; None if none are enough.

    Args:
        predictor: Predicts for the program that failed.
        units: The layers that can be recomputed.
        layers: The model's layers, the first being the model itself.
        failed: The training that failed.
    """
    capacity = failed.capacity_bytes
    if not len(units):
        return None
    search = SegmentSearch(predictor, units, Conditions(failed.batch_size, capacity))
    found = search.cheapest(capacity)
    if found is None or not search.fits(found, capacity):
        return None
    segments = inside(f"{layers[0].path}/", found.segments)
    what = recompute_sentence(segments)
    change, (_, peak, high) = f"{what[0].upper()}{what[1:]}", found.peaks.span
    sentence = (
        f"{change} in the backward pass. Simulated peak: "
        f"{format_bytes(peak)} of {format_bytes(capacity)}, about {format_time(found.extra_time)} time."
    )
    line = remat_line(segments)
    return Fix("recompute", change, sentence, enough=True, budget_bytes=high, peak_bytes=peak, code=line)
