"""The answer about recorded conditions: what was measured. Pure."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tb_memplugin.model import LedgerRow, StepRequests
from tb_memplugin.prediction.changes import Change
from tb_memplugin.prediction.evidence import Peaks
from tb_memplugin.prediction.history import StepPeak
from tb_memplugin.prediction.peak_ledger import peak_ledger
from tb_memplugin.prediction.prediction import Prediction
from tb_memplugin.prediction.reproduction import Reproduced
from tb_memplugin.prediction.sized_steps import as_recorded, in_use


def recorded_ledger(steps: Sequence[StepRequests], batch: int, peaks: Peaks) -> tuple[LedgerRow, ...]:
    """The breakdown of the most typical recorded step of a batch size; sums to the median peak. Empty without one.

    Args:
        steps: The recorded steps.
        batch: The batch size.
        peaks: Its measured peaks.
    """
    own = [(one, recorded_peak(one)) for one in steps if one.batch_size == batch]
    if not own:
        return ()
    typical, peak = min(own, key=lambda pair: abs(pair[1].bytes - peaks.median_bytes))
    return peak_ledger([(as_recorded(typical), dataclasses.replace(peak, bytes=peaks.median_bytes))], Change())


def recorded_prediction(
    steps: Sequence[StepRequests], batch: int, capacity: int | None, peaks: Peaks, reproduced: Reproduced
) -> Prediction:
    """The measured peaks of a batch size that ran, with the ledger of its most typical recorded step.

    Args:
        steps: The recorded steps.
        batch, capacity: The conditions.
        peaks: The measured peaks.
        reproduced: The replays of the recorded steps.
    """
    return Prediction(
        batch_size=batch,
        capacity_bytes=capacity,
        peak_bytes=peaks.median_bytes,
        low_bytes=peaks.low_bytes,
        high_bytes=peaks.high_bytes,
        fits=True,
        fails_at=None,
        method="recorded",
        reproduced=reproduced,
        assumptions=(),
        ledger=recorded_ledger(steps, batch, peaks),
    )


def recorded_peak(requests: StepRequests) -> StepPeak:
    """The peak of a step as it was recorded."""
    levels = in_use(requests, requests.allocated)
    highest = int(np.argmax(levels))
    return StepPeak(int(levels[highest]), 0, highest - 1)
