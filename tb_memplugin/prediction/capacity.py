"""The search for a capacity that is enough. Pure."""

import dataclasses
import math

from tb_memplugin.prediction.conditions import RECORDED, Conditions
from tb_memplugin.prediction.evidence import SMALLER
from tb_memplugin.prediction.predictor import Predictor

MAX_CAPACITY_FACTOR = 64
"""Capacities up to this many times the one that is not enough, or the bytes that the steps need, are tried."""
RESERVE, RESERVE_EACH_DOUBLING = 0.05, 0.035
"""Share that is added to the smallest capacity that passes, and more of it for each doubling between the recorded batch
size and the asked one: kernels that run in parallel overlap in other ways in larger batches. At 0,
`test_the_failed_training_fails_and_every_simulated_fix_passes` fails."""


@dataclasses.dataclass(frozen=True)
class Enough:
    """A capacity at which a training fits: the smallest one that passes, and with the reserve."""

    bytes: int
    without_reserve_bytes: int


class CapacitySearch:
    """Finds a capacity at which a training fits that does not fit into a smaller one.

    Args:
        predictor: Predicts for the program.
        batch_size: The training's batch size.
        capacity_bytes: The capacity that is not enough.
        conditions: The other conditions.
    """

    def __init__(
        self, predictor: Predictor, batch_size: int, capacity_bytes: int, conditions: Conditions = RECORDED
    ) -> None:
        self._predictor, self._batch_size, self._conditions = predictor, batch_size, conditions
        self._least = max(capacity_bytes, predictor.peak_in_one_piece(batch_size, conditions))

    @property
    def most_bytes(self) -> int:
        """The largest capacity that is tried."""
        return MAX_CAPACITY_FACTOR * self._least

    def find(self) -> Enough | None:
        """The smallest capacity at which every simulated step passes, with a reserve; None if none does."""
        recorded = self._predictor.batch_size or self._batch_size
        doublings = math.log2(max(1.0, self._batch_size / recorded))
        smallest = self._passing_from(self._least)
        # A larger capacity may leave worse pieces, so it is simulated as well.
        found = smallest and self._passing_from(smallest * (1 + RESERVE + RESERVE_EACH_DOUBLING * doublings))
        return Enough(found, smallest) if found and smallest else None

    def _fits(self, capacity: int) -> bool:
        """Whether the batch passes, and whether the prediction says so: the largest one may be smaller."""
        asked = dataclasses.replace(self._conditions, batch_size=self._batch_size, capacity_bytes=capacity)
        return self._predictor.passes(self._batch_size, capacity, self._conditions) and self._predictor.fits(asked)

    def _passing_from(self, capacity: float) -> int | None:
        """The first whole MiB from a capacity on, in steps of some percent, at which the batch passes."""
        while capacity <= self.most_bytes:
            rounded = math.ceil(capacity / (1 << 20)) << 20
            if self._fits(rounded):
                return rounded
            capacity = rounded / SMALLER
        return None
