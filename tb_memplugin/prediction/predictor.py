"""Predicts the peak of a training under other conditions from its recorded steps. Pure.

Only steps that their replay reproduces predict anything. The prediction simulates a training from its first step on;
its range holds the lowest and the highest peak of the simulated steps, with the least and the most bytes of sizes that
are not known exactly.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property

from tb_memplugin.allocator.growth import PoolRules, rules_of
from tb_memplugin.model import Layer, StepRequests
from tb_memplugin.prediction.cases import Case, make_case
from tb_memplugin.prediction.changes import Change, change_of
from tb_memplugin.prediction.conditions import RECORDED, Conditions
from tb_memplugin.prediction.history import LARGE_DISTANCE, TYPICAL_DISTANCE, FailedRequest, History, Outcome
from tb_memplugin.prediction.limits import Limits, ledger_at, settled
from tb_memplugin.prediction.prediction import Prediction
from tb_memplugin.prediction.reproduction import Reproduced, reproduce
from tb_memplugin.prediction.sized_steps import SizedStep, empty_map, peak_in_one_piece

SIMULATED_STEPS = 10
"""Simulated steps after the first one: the pool's pieces settle within a few."""
LASTING_STEPS = 24
"""Simulated steps after the first one that must all pass for a training to pass: pieces that earlier steps leave behind
can make a step fail that passed many times."""
VARIANTS = 3
"""Simulations of a prediction, each with the recorded steps in another order."""
NO_LIMIT = 1 << 60
NEGLIGIBLE_SHARE = 0.002
"""Share of a step's requests up to which the least and the most sizes are simulated as one."""
CURVE_STEPS = 4
"""Simulated steps after the first one for a point of a curve."""
SPARE = 0.02
"""Share of the capacity that must be left at the simulated peak of a training that passes, for the same reason."""
SMALLER = 0.98
"""Factor between the batch sizes, or the capacities, that are tried one after the other."""
MOST_DEVIATION = 0.1
"""Largest deviation of the simulated from the measured peak of the recorded steps with which anything is predicted."""
MAX_BATCH_SIZE = 1 << 24
"""Largest batch size of a prediction."""


class Predictor:
    """Predictions for one device of one run.

    Args:
        steps: Result of `recorded_program`.
        layers: The model's layers.
        measured_bytes: Median peak of the run's steps with the latest recorded batch size; None if unknown.
    """

    def __init__(
        self, steps: Sequence[StepRequests], layers: Sequence[Layer] = (), measured_bytes: int | None = None
    ) -> None:
        self._measured_bytes = measured_bytes
        self._first = [one for one in steps if one.first][:1]
        self._steps = [one for one in steps if not one.first]
        self._layers = layers

    # --- what was recorded --------------------------------------------------------------------------------------------

    @cached_property
    def reproduced(self) -> Reproduced:
        """The replays of all recorded steps together."""
        replays = [reproduce(one) for one in (*self._first, *self._steps)]
        return Reproduced(sum(one.addresses for one in replays), sum(one.of for one in replays))

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The recorded batch sizes, the latest one last."""
        return tuple(dict.fromkeys(one.batch_size for one in reversed(self._steps) if one.batch_size))[::-1]

    @property
    def batch_size(self) -> int | None:
        """The latest recorded batch size."""
        return self.batch_sizes[-1] if self.batch_sizes else None

    @property
    def capacity_bytes(self) -> int | None:
        """The recorded capacity."""
        return self._steps[-1].capacity_bytes if self._steps else None

    @cached_property
    def deviation(self) -> float | None:
        """By which share the simulated peak of the recorded steps exceeds the measured one; None if unknown."""
        if not self._measured_bytes:
            return None
        case = self._case(RECORDED, Change())
        outcomes = self._simulate(case.most, None, Change(), VARIANTS)
        return Limits(outcomes, outcomes).peak / self._measured_bytes - 1

    # --- predictions --------------------------------------------------------------------------------------------------

    def predict(self, conditions: Conditions) -> Prediction:
        """Predict the peak, and whether it fits."""
        reason = self._reason_against(conditions)
        batch = conditions.batch_size or self.batch_size
        capacity = conditions.capacity_bytes or self.capacity_bytes
        if reason is not None:
            return Prediction(batch, capacity, None, None, None, None, None, "unknown", self._checked(), (reason,), ())
        change = change_of(conditions, self._layers)
        case = self._case(conditions, change)
        assumptions = [*change.sentences, *case.sentences]
        if not self._first:
            assumptions.append("The run's first step was not traced, so its long-lived chunks are simulated in one go.")
        unlimited = self._limits(case, None, change, VARIANTS)
        least, most = change.transient_bytes
        low, high, peak = unlimited.low + least, unlimited.high + most, unlimited.peak + (least + most) // 2
        fits, failed = (None, None) if capacity is None else self._fits(case, capacity, change, unlimited, high)
        return Prediction(
            batch_size=batch,
            capacity_bytes=capacity,
            peak_bytes=peak,
            low_bytes=min(low, peak),
            high_bytes=max(high, peak),
            fits=fits,
            fails_at=failed,
            method=case.method,
            reproduced=self.reproduced,
            assumptions=tuple(assumptions),
            ledger=ledger_at(case.most, unlimited.typical, change),
        )

    def range_at(self, batch_size: int, conditions: Conditions = RECORDED) -> tuple[int, int, int] | None:
        """(low, typical, high) peak for a batch size, from one simulation instead of several; None if unknown."""
        wanted = dataclasses.replace(conditions, batch_size=batch_size)
        if self._reason_against(wanted) is not None:
            return None
        change = change_of(wanted, self._layers)
        case = self._case(wanted, change)
        limits = self._limits(case, None, change, 1, CURVE_STEPS)
        low, high = (end + more for end, more in zip((limits.low, limits.high), change.transient_bytes, strict=True))
        return low, limits.peak + sum(change.transient_bytes) // 2, high

    def passes(
        self, batch_size: int, capacity_bytes: int, conditions: Conditions = RECORDED, quick: bool = False
    ) -> bool:
        """Whether every simulated step passes within a capacity, with the most bytes of sizes that are not exact.

        Args:
            batch_size, capacity_bytes: The batch size and the capacity.
            conditions: The other conditions.
            quick: Simulate one short training only, to find a size to start from.
        """
        wanted = dataclasses.replace(conditions, batch_size=batch_size)
        change = change_of(wanted, self._layers)
        case = self._case(wanted, change)
        left = capacity_bytes - change.transient_bytes[1]
        variants, steps = (1, SIMULATED_STEPS) if quick else (VARIANTS, LASTING_STEPS)
        return all(
            one.failed is None and max(settled(one)) * (1 + SPARE) <= left
            for one in self._simulations(case.most, left, change, variants, steps)
        )

    def peak_in_one_piece(self, batch_size: int, conditions: Conditions = RECORDED) -> int:
        """Peak for a batch size as if free memory were always in one piece: less than any real allocator needs."""
        wanted = dataclasses.replace(conditions, batch_size=batch_size)
        change = change_of(wanted, self._layers)
        extra = sum(size for _, size in change.extra) + change.transient_bytes[1]
        return extra + max(peak_in_one_piece(step) for step in self._case(wanted, change).most)

    def largest_batch_size(self, capacity_bytes: int, conditions: Conditions = RECORDED) -> int | None:
        """The largest batch size of which every simulated step passes; None if no batch does, or it is unknown."""
        if self._reason_against(dataclasses.replace(conditions, batch_size=None)) is not None:
            return None
        if not self.batch_size or (self._steps[-1].mode == "xla" and len(self.batch_sizes) < 2):
            return None
        # Whether a size passes is not monotonic: a larger batch may leave better pieces. So the search goes down from
        # the first size that no allocator could serve.
        least, most = 0, 1
        while most <= MAX_BATCH_SIZE and self.peak_in_one_piece(most, conditions) <= capacity_bytes:
            least, most = most, most * 2
        while most - least > 1 and least * 1.005 < most:
            middle = (least + most) // 2
            if self.peak_in_one_piece(middle, conditions) <= capacity_bytes:
                least = middle
            else:
                most = middle
        while least and not self.passes(least, capacity_bytes, conditions):
            least = min(least - 1, int(least * SMALLER))
        return least or None

    # --- parts --------------------------------------------------------------------------------------------------------

    def _checked(self) -> Reproduced:
        return self.reproduced if self._steps else Reproduced(0, 0)

    def _reason_against(self, conditions: Conditions) -> str | None:
        """Why there is no prediction, as a sentence."""
        if not self._steps:
            return (
                "Unknown: the run has no traced training step with its requests. Runs recorded with earlier versions "
                "have none, nor have imported profiles and runs without memory maps."
            )
        if not self.reproduced.whole:
            return (
                f"Unknown: the replay reproduced {self.reproduced.addresses:,} of {self.reproduced.of:,} addresses, so "
                "the simulation does not follow this allocator."
            )
        if rules_of(empty_map(self._steps[-1])) is None:
            return "Unknown: the allocator's capacity is unknown."
        if self.deviation is not None and abs(self.deviation) > MOST_DEVIATION:
            return (
                f"Unknown: simulated, the recorded steps need {100 * abs(self.deviation):.0f} % "
                f"{'more' if self.deviation > 0 else 'less'} than the median of the run's steps. The traced steps are "
                "not typical of this run, for example because its ops run in very different orders."
            )
        if conditions.batch_size is None or conditions.batch_size == self.batch_size:
            return None
        if not self.batch_size:
            return "Unknown: the batch size of the recorded steps is unknown."
        if conditions.batch_size < 1 or conditions.batch_size > MAX_BATCH_SIZE:
            return f"Unknown: a batch size is 1 to {MAX_BATCH_SIZE:,}. Received: {conditions.batch_size:,}."
        if self._steps[-1].mode == "xla" and len(self.batch_sizes) < 2 and conditions.batch_size != self.batch_size:
            return (
                "Unknown: the step is compiled, and only one batch size was recorded. Record a second one, for example "
                "with tb_memplugin.probe."
            )
        return None

    def _case(self, conditions: Conditions, change: Change) -> Case:
        return make_case(self._first, self._steps, conditions.batch_size or self.batch_size, change)

    def _simulate(
        self, steps: Sequence[SizedStep], capacity: int | None, change: Change, variants: int = 1
    ) -> list[Outcome]:
        """Short simulations; see `_simulations`."""
        return list(self._simulations(steps, capacity, change, variants, SIMULATED_STEPS))

    def _simulations(
        self, steps: Sequence[SizedStep], capacity: int | None, change: Change, variants: int, count: int
    ) -> Iterator[Outcome]:
        """Simulate trainings of `count` steps after the first, each in other orders, by default without a limit.

        If all of many steps must pass, their orders differ more.
        """
        distance = LARGE_DISTANCE if count >= LASTING_STEPS else TYPICAL_DISTANCE
        recorded = rules_of(empty_map(self._steps[-1]))
        assert recorded is not None
        rules = PoolRules(NO_LIMIT)
        if capacity is not None:
            rules = dataclasses.replace(recorded, capacity_bytes=capacity, grows=self._grows)
        first = len(self._first)
        history = History(steps, rules, [size for _, size in change.extra])
        history.run(range(first))
        later = len(steps) - first
        for seed in range(variants):
            yield history.copy().run([first + (turn + seed) % later for turn in range(count)], seed, distance)

    @cached_property
    def _grows(self) -> bool:
        """Whether the recorded pool grows, by its regions when the latest step began."""
        one = self._steps[-1]
        return not (len(one.region_bytes) == 1 and int(one.region_bytes[0]) >= (one.capacity_bytes or 0) // 256 * 256)

    def _limits(
        self, case: Case, capacity: int | None, change: Change, variants: int, count: int = SIMULATED_STEPS
    ) -> Limits:
        """The simulations of the least and of the most bytes."""
        most = list(self._simulations(case.most, capacity, change, variants, count))
        if case.uncertain_bytes <= NEGLIGIBLE_SHARE * case.total_bytes:
            return Limits(most, most, case.uncertain_bytes)
        return Limits(list(self._simulations(case.least, capacity, change, variants, count)), most)

    def _fits(
        self, case: Case, capacity: int, change: Change, unlimited: Limits, high: int
    ) -> tuple[bool | None, FailedRequest | None]:
        """Whether a training fits into a capacity, and where it fails."""
        left = capacity - change.transient_bytes[1]
        limited = unlimited
        if not self._grows or max(one.pool_bytes for one in (*unlimited.least, *unlimited.most)) > left:
            least, most = (
                list(self._simulations(end, left, change, VARIANTS, LASTING_STEPS)) for end in (case.least, case.most)
            )
            limited = Limits(least, most)
        failures = [outcome.failed for outcome in limited.least if outcome.failed is not None]
        if high <= capacity and all(outcome.failed is None for outcome in limited.most):
            return True, None
        return (False, failures[0]) if len(failures) == len(limited.least) else (None, None)
