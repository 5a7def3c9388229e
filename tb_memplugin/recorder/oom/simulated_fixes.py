"""Adds fixes that were simulated to a post-mortem."""

import dataclasses
from collections.abc import Iterable, Sequence

from tb_memplugin.model import Layer, Oom, StepRequests, is_gpu
from tb_memplugin.prediction.fixes import FailedTraining, simulated_fixes
from tb_memplugin.prediction.predictor import Predictor
from tb_memplugin.prediction.program import first_typical_step, recorded_program
from tb_memplugin.recorder.oom.step_peaks import StepPeaks


def with_simulated_fixes(
    oom: Oom,
    batch_size: int | None,
    requests: Iterable[StepRequests],
    peaks: StepPeaks,
    layers: Sequence[Layer],
) -> Oom:
    """The post-mortem with simulated fixes instead of estimates, or with a sentence on why there are none.

    Args:
        oom: The post-mortem.
        batch_size: Examples in the batch of the failed step, None if unknown.
        requests: Requests of recorded steps, in order.
        peaks: Peaks of the steps before.
        layers: The model's layers, in order.
    """
    if oom.phase is None or oom.capacity_bytes is None:
        return oom
    steps = recorded_program(requests, oom.device, oom.phase)
    first = first_typical_step(steps)
    if first is None or not batch_size:
        missing = "no whole step was traced before" if first is None else "the batch size of the failed step is unknown"
        return _with_note(oom, f"No fix could be simulated: {missing}. What is listed is estimated for this request.")
    failed = FailedTraining(
        batch_size=batch_size,
        capacity_bytes=oom.capacity_bytes,
        verdict=oom.verdict,
        is_gpu=is_gpu(oom.device),
        is_training=oom.phase == "train",
        op=oom.op,
    )
    predictor = Predictor(steps, layers, peaks.median(oom.device, oom.phase, first))
    fixes, reason = simulated_fixes(predictor, layers, failed)
    oom = oom if reason is None else _with_note(oom, reason)
    return dataclasses.replace(oom, fixes=fixes) if fixes else oom


def _with_note(oom: Oom, sentence: str) -> Oom:
    return dataclasses.replace(oom, not_available=(*oom.not_available, sentence))
