"""Finds by simulation which segments of a recorded step to recompute. Pure."""

import dataclasses
from collections.abc import Callable

import numpy as np

from tb_memplugin.analysis.plan_units import Units
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.prediction.predictor import Predictor
from tb_memplugin.prediction.segment_choice import Choice, SegmentChoices
from tb_memplugin.prediction.segment_costs import unit_costs
from tb_memplugin.prediction.sized_steps import peak_in_one_piece

MOST_TRIES = 5
"""Choices of segments that are simulated for one question: they halve the span from the smallest peak four times."""


@dataclasses.dataclass(frozen=True)
class Recomputing:
    """Segments of a step, and what they need.

    Attributes:
        segments: The paths of each segment's layers.
        extra_time: Additional time of a step as a share of the recorded one.
        range: (low, typical, high) peak.
    """

    segments: tuple[tuple[str, ...], ...]
    extra_time: float
    range: tuple[int, int, int]


class SegmentSearch:
    """Chooses segments under some conditions, which include the batch size, and simulates them.

    Args:
        predictor: Predicts for the recorded program.
        units: The layers that can be recomputed.
        conditions: The conditions.
    """

    def __init__(self, predictor: Predictor, units: Units, conditions: Conditions) -> None:
        self._predictor, self._units, self._conditions = predictor, units, conditions
        step = predictor.sized_step(conditions)
        self._choices = SegmentChoices(unit_costs(step, units.found, units.seconds))
        self._found: dict[tuple[tuple[int, int], ...], Recomputing | None] = {}
        self.smallest_bytes = self._choices.smallest()
        self.demand_bytes = peak_in_one_piece(step)

    def cheapest(self, enough: Callable[[Recomputing], bool]) -> Recomputing | None:
        """The segments that are enough at the least time; those of the smallest peak if none are; None if none save.

        A choice counts requested bytes; its simulation adds what the allocator keeps unsplit.
        """
        fitting, failing = self.smallest_bytes, self.demand_bytes
        best = self._simulated(self._choices.choose(fitting))
        if best is None or not enough(best):
            return best
        for _ in range(MOST_TRIES - 1):
            limit = (fitting + failing) // 2
            found = self._simulated(self._choices.choose(limit))
            if found is not None and enough(found):
                fitting = limit
                best = min(best, found, key=lambda one: one.extra_time)
            else:
                failing = limit
        return best

    def curve(self, points: int) -> list[Recomputing]:
        """Choices from the smallest peak upward, and all that were simulated before; none costs more for a higher peak.

        Args:
            points: Choices to simulate.
        """
        for limit in np.linspace(self.smallest_bytes, self.demand_bytes, points + 1)[:-1].astype(int).tolist():
            self._simulated(self._choices.choose(limit))
        kept: list[Recomputing] = []
        for one in sorted(filter(None, self._found.values()), key=lambda one: (one.range[-1], one.extra_time)):
            if not kept or one.extra_time < kept[-1].extra_time:
                kept.append(one)
        return kept

    def _simulated(self, choice: Choice | None) -> Recomputing | None:
        """A choice with its range; None without segments, or if it cannot be simulated."""
        if choice is None or not choice.spans:
            return None
        if choice.spans not in self._found:
            found = self._units.found
            segments = tuple(
                tuple(path for unit, _ in found[first:end] for path in unit.layers) for first, end in choice.spans
            )
            self._found[choice.spans] = self._with_range(segments, choice.seconds / self._units.step_seconds)
        return self._found[choice.spans]

    def _with_range(self, segments: tuple[tuple[str, ...], ...], extra_time: float) -> Recomputing | None:
        span = self._predictor.range_at(dataclasses.replace(self._conditions, recompute=segments))
        return None if span is None else Recomputing(segments, extra_time, span)
