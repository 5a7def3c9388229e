"""Recorded conditions are answered with the measured peaks and the breakdown of a typical step."""

import dataclasses

from requests_cases import make_traced

from tb_memplugin.model import StepRequests
from tb_memplugin.prediction.evidence import Peaks
from tb_memplugin.prediction.recorded import recorded_peak, recorded_prediction
from tb_memplugin.prediction.reproduction import Reproduced

STEP = next(iter(make_traced().values())).requests


def scaled(factor: int) -> StepRequests:
    return dataclasses.replace(STEP, allocated=STEP.allocated * factor, requested=STEP.requested * factor)


def test_the_breakdown_is_that_of_the_step_whose_peak_is_closest_to_the_median() -> None:
    assert STEP.batch_size is not None
    low, typical, high = (scaled(factor) for factor in (1, 2, 5))
    peaks = Peaks(recorded_peak(low).bytes, recorded_peak(typical).bytes, recorded_peak(high).bytes)

    def ledger_of(*steps: StepRequests) -> object:
        return recorded_prediction(steps, STEP.batch_size or 0, None, peaks, Reproduced(1, 1)).ledger

    alone = ledger_of(typical)
    assert alone and alone != ledger_of(low) and alone != ledger_of(high)
    assert ledger_of(low, typical, high) == ledger_of(high, typical, low) == alone
