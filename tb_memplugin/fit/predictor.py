"""Predicts the peak of a training under other conditions from its recorded steps. Pure.

Only steps that their replay reproduces predict anything. The prediction simulates a training from its first step on;
its range holds the lowest and the highest peak of the simulated steps, with the least and the most bytes of sizes that
are not known exactly.
"""

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

from tb_memplugin.allocator import PoolRules, rules_of
from tb_memplugin.fit.cases import Case, make_case
from tb_memplugin.fit.changes import change_of
from tb_memplugin.fit.conditions import PRECISIONS, RECORDED, Conditions
from tb_memplugin.fit.evidence import NOTHING, SMALLER, Evidence, largest
from tb_memplugin.fit.history import (
    LARGE_DISTANCE,
    TYPICAL_DISTANCE,
    FailedRequest,
    History,
    Outcome,
    most_live_bytes,
)
from tb_memplugin.fit.prediction import (
    Limits,
    Method,
    PeakParts,
    Prediction,
    Reproduced,
    arrays_in_place,
    peak_ledger,
    recorded_parts,
    reproduce,
    settled,
)
from tb_memplugin.fit.sized_steps import SizedStep, exploratory_rows, peak_in_one_piece, start_map
from tb_memplugin.schema import ChunkOwner, Layer, LedgerRow, StepRequests, recorded_precision

SIMULATED_STEPS = 10
"""Simulated steps after the first one: the pool's pieces settle within a few."""
LASTING_STEPS = 24
"""Simulated steps after the first one that must all pass for a training to pass: pieces that earlier steps leave behind
can make a step fail that passed many times."""
VARIANTS = 3
"""Simulations of a prediction, each with the recorded steps in another order."""
LASTING_VARIANTS = 12
"""Simulations of `LASTING_STEPS` that must all pass for a training to pass. Few leave out orders in which much
overlaps. With 3, four recordings of the failing demo advise batch sizes of 42 to 47 and a fifth one 49, with which 3 of
31 real trainings of eight steps failed. With 12, the four advise 42 to 46; with 47, 10 of 10 real trainings passed. No
quick test depends on its value."""
NO_LIMIT = 1 << 60
NEGLIGIBLE_SHARE = 0.002
"""Share of a step's requests up to which the least and the most sizes are simulated as one. It only saves
simulations: no quick test fails at 0."""
REMEMBERED = 192
"""Peaks, verdicts and searches that a predictor remembers."""
SPARE = 0.02
"""Share of the capacity that must be left at the simulated peak of a training that passes, for the same reason. At 0,
`test_a_training_that_fits_leaves_two_percent_of_the_capacity` fails."""
MOST_DEVIATION = 0.1
"""Largest deviation of the simulated from the measured peak of the recorded steps with which anything is predicted."""
MAX_BATCH_SIZE = 1 << 24
MAX_CAPACITY_FACTOR = 64
"""Capacities up to this many times the one that is not enough, or the bytes that the steps need, are tried."""
RESERVE, RESERVE_EACH_DOUBLING = 0.05, 0.035
"""Share that is added to the smallest capacity that passes, and more of it for each doubling between the recorded batch
size and the asked one: kernels that run in parallel overlap in other ways in larger batches. At 0,
`test_the_failed_training_fails_and_every_simulated_fix_passes` fails."""
_RECURRENT = ("RNN", "LSTM", "GRU")
"""Parts of the types of recurrent layers."""
WITHOUT_FIRST_STEP = "The run's first step was not traced: its long-lived chunks are simulated without it."

NO_BATCH_SIZE = (
    "Unknown: the recorded steps do not show their batch size. Name it with `batch_size=` of `MemoryRecorder`, its "
    "`step`, or `MemoryCallback`."
)
_Value = TypeVar("_Value")


@dataclasses.dataclass(frozen=True)
class Enough:
    """A capacity at which a training fits: the smallest one that passes, and with the reserve."""

    bytes: int
    without_reserve_bytes: int


class Predictor:
    """Predictions for one device of one run, from the steps of `recorded_program`.

    `measured_bytes` is the median peak of the run's steps with the latest recorded batch size, if known; `absent` says
    why there are no steps, if that is known.
    """

    def __init__(
        self,
        steps: Sequence[StepRequests],
        layers: Sequence[Layer] = (),
        measured_bytes: int | None = None,
        absent: str | None = None,
        evidence: Evidence = NOTHING,
    ) -> None:
        self._evidence = evidence
        self._measured_bytes = measured_bytes
        self._first = [one for one in steps if one.first][:1]
        self._steps = [one for one in steps if not one.first]
        self._layers = layers
        self._absent = absent
        self._known: dict[Hashable, Any] = {}

    def bounded_by(self, evidence: Evidence) -> "Predictor":
        other = copy.copy(self)
        other._evidence, other._known = evidence, {}
        return other

    # --- what was recorded --------------------------------------------------------------------------------------------

    @cached_property
    def reproduced(self) -> Reproduced:
        replays = [reproduce(one) for one in (*self._first, *self._steps)]
        return Reproduced(sum(one.addresses for one in replays), sum(one.of for one in replays))

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The latest one last."""
        return tuple(dict.fromkeys(one.batch_size for one in reversed(self._steps) if one.batch_size))[::-1]

    @property
    def batch_size(self) -> int | None:
        return self.batch_sizes[-1] if self.batch_sizes else None

    @property
    def events(self) -> int:
        return self._steps[-1].events if self._steps else 0

    @property
    def capacity_bytes(self) -> int | None:
        return self._steps[-1].capacity_bytes if self._steps else None

    @cached_property
    def deviation(self) -> float | None:
        """By which share the simulated peak of the recorded training exceeds the measured one; None if unknown."""
        return self._excess(same_start=True)

    def _excess(self, same_start: bool) -> float | None:
        if not self._measured_bytes:
            return None
        return self._limits(self._case(RECORDED), same_start).peak / self._measured_bytes - 1

    @cached_property
    def _bias(self) -> float:
        """The same for trainings that begin in other orders, as predicted ones do; 0 if unknown."""
        return self._excess(same_start=False) or 0.0

    @property
    def knows_other_batch_sizes(self) -> bool:
        """Whether the sizes for other batch sizes follow from the recorded steps."""
        return bool(self.batch_size) and (self._steps[-1].mode != "xla" or len(self.batch_sizes) > 1)

    @cached_property
    def _exploratory(self) -> frozenset[int]:
        return exploratory_rows(self._first[0], self._steps) if self._first else frozenset()

    @cached_property
    def _rules(self) -> PoolRules | None:
        return rules_of(start_map(self._steps[-1]))

    # --- predictions --------------------------------------------------------------------------------------------------

    def predict(self, conditions: Conditions) -> Prediction:
        """Predict the peak, and whether it fits. Every view of a prediction shows this one."""
        batch = conditions.batch_size or self.batch_size
        capacity = conditions.capacity_bytes or self.capacity_bytes
        evidence = self._evidence_for(conditions)
        known, sentences = evidence.fits(batch, capacity), evidence.sentences(batch, capacity)
        is_recorded = bool(known) and batch in evidence.peaks
        reason = None if is_recorded else self.reason_against(conditions)
        if reason is not None:
            texts = (reason, *sentences)
            return Prediction(batch, capacity, None, None, None, known, None, "unknown", self._checked(), texts, ())
        found = self.peaks(conditions)
        method: Method = "recorded"
        high, assumptions = found.high_bytes, sentences
        if not is_recorded:
            case = self._case(conditions)
            method, assumptions = case.method, [*sentences, *case.change.sentences, *case.sentences]
            if not self._first:
                assumptions.append(WITHOUT_FIRST_STEP)
        if known and capacity is not None:
            # Not less: steps of a smaller batch peak higher now and then, as their operations run in another order.
            high = max(found.peak_bytes, min(high, evidence.proven_within(batch, capacity) or high))
        fits, failed = known, None
        if capacity is not None and not known:
            fits = True if known is None and self._simulation_fits(conditions, batch, capacity) else known
            failed = None if fits else self._failure(conditions, capacity)
            fits = fits if failed is None else False
        return Prediction(
            batch_size=batch,
            capacity_bytes=capacity,
            peak_bytes=found.peak_bytes,
            low_bytes=found.low_bytes,
            high_bytes=high,
            fits=fits,
            fails_at=failed,
            method=method,
            reproduced=self._checked(),
            assumptions=tuple(assumptions),
            ledger=found.ledger,
            demand_bytes=found.demand_bytes,
        )

    def fits(self, conditions: Conditions) -> bool:
        batch = conditions.batch_size or self.batch_size
        capacity = conditions.capacity_bytes or self.capacity_bytes
        known = self._evidence_for(conditions).fits(batch, capacity)
        if known is not None or capacity is None or self.reason_against(conditions) is not None:
            return known or False
        return self._simulation_fits(conditions, batch, capacity)

    def peaks(self, conditions: Conditions) -> PeakParts:
        """The peaks under conditions that `reason_against` allows: measured, or else simulated without a limit."""
        batch = conditions.batch_size or self.batch_size
        key = dataclasses.replace(conditions, batch_size=batch, capacity_bytes=None)
        measured = self._evidence_for(key).peaks.get(batch or 0)
        if measured is not None and batch is not None:
            return recorded_parts(self._steps, batch, measured)
        return self._once(("peaks", key), lambda: self._simulated_peaks(self._case(key)))

    def _simulated_peaks(self, case: Case) -> PeakParts:
        limits = self._limits(case)
        return PeakParts(*self._range(limits, case), *_breakdown(limits, case))

    def _simulation_fits(self, conditions: Conditions, batch: int | None, capacity: int) -> bool:
        """Whether a training fits that the run shows nothing of.

        Of batch sizes that a user asks for, those up to the largest one that passes fit, though a smaller one may leave
        worse pieces of free memory.
        """
        key = dataclasses.replace(conditions, batch_size=batch, capacity_bytes=capacity)

        def computed() -> bool:
            largest = self.largest_batch_size(capacity, conditions) if conditions.is_asked else None
            return self._passes(key, capacity) if batch is None or largest is None else batch <= largest

        return self._once(("fits", key), computed)

    def _failure(self, conditions: Conditions, capacity: int) -> FailedRequest | None:
        """The request at which every simulation fails first, even with the least bytes; None if one passes."""
        case = self._case(conditions)
        outcomes = self._simulations(case, case.least, capacity - case.transient_bytes[0], VARIANTS, LASTING_STEPS)
        failures = [outcome.failed for outcome in itertools.takewhile(lambda one: one.failed is not None, outcomes)]
        return failures[0] if len(failures) == VARIANTS else None

    def passes(
        self, batch_size: int, capacity_bytes: int, conditions: Conditions = RECORDED, quick: bool = False
    ) -> bool:
        """Whether every simulated step passes within a capacity, with the most bytes of sizes that are not exact, and
        the whole range of the peak is within it.

        With `quick` only one short training is simulated, to find a size to start from.
        """
        wanted = dataclasses.replace(conditions, batch_size=batch_size)
        known = self._evidence_for(wanted).fits(batch_size, capacity_bytes)
        if known is not None:
            return known
        if quick:
            return self._all_pass(wanted, capacity_bytes, 1, SIMULATED_STEPS)
        return self._passes(wanted, capacity_bytes)

    def _passes(self, conditions: Conditions, capacity: int) -> bool:
        lasting = self._all_pass(conditions, capacity, LASTING_VARIANTS, LASTING_STEPS)
        return lasting and self.peaks(conditions).high_bytes <= capacity

    def _all_pass(self, conditions: Conditions, capacity: int, variants: int, count: int) -> bool:
        """Whether every step of every simulation passes and leaves some of the capacity; stops at the first failure."""
        case = self._case(conditions)
        left = capacity - case.transient_bytes[-1]
        return all(
            one.failed is None and max(peak.bytes for peak in settled(one)) * (1 + SPARE) <= left
            for one in self._simulations(case, case.most, left, variants, count)
        )

    def peak_in_one_piece(self, batch_size: int, conditions: Conditions = RECORDED) -> int:
        """Peak for a batch size as if free memory were always in one piece: less than any real allocator needs."""
        case = self._case(dataclasses.replace(conditions, batch_size=batch_size))
        extra = sum(case.extra) + case.transient_bytes[-1]
        first = len(self._first)
        return extra + max(
            peak_in_one_piece(step, self._exploratory if row < first else frozenset())
            for row, step in enumerate(case.most)
        )

    def sized_step(self, conditions: Conditions) -> SizedStep:
        return self._case(conditions).most[-1]

    def largest_batch_size(
        self, capacity_bytes: int, conditions: Conditions = RECORDED, below: int = MAX_BATCH_SIZE + 1
    ) -> int | None:
        """The largest batch size, smaller than `below`, at which every simulated step passes; 0 if none does, None if
        that is unknown.
        """
        conditions = dataclasses.replace(conditions, batch_size=None, capacity_bytes=None)
        if self.reason_against(conditions) is not None or not self.knows_other_batch_sizes:
            return None
        evidence = self._evidence_for(conditions)
        below = min(below, evidence.smallest_failed(capacity_bytes) or below)

        def found() -> int:
            return largest(
                min(evidence.largest(capacity_bytes), below - 1),
                below,
                possible=lambda size: self.peak_in_one_piece(size, conditions) <= capacity_bytes,
                passes=lambda size: self.passes(size, capacity_bytes, conditions),
            )

        return self._once(("largest", conditions, capacity_bytes, below), found)

    def most_capacity(self, batch_size: int, capacity_bytes: int, conditions: Conditions = RECORDED) -> int:
        return MAX_CAPACITY_FACTOR * max(capacity_bytes, self.peak_in_one_piece(batch_size, conditions))

    def enough_capacity(self, batch_size: int, capacity_bytes: int, conditions: Conditions = RECORDED) -> Enough | None:
        """The smallest capacity, with a reserve, at which a training passes that fails in a smaller one; None if
        none does.
        """
        most = self.most_capacity(batch_size, capacity_bytes, conditions)

        def passing_from(capacity: float) -> int | None:
            """The first whole MiB from a capacity on, in steps of some percent, at which the batch passes."""
            while capacity <= most:
                rounded = math.ceil(capacity / (1 << 20)) << 20
                asked = dataclasses.replace(conditions, batch_size=batch_size, capacity_bytes=rounded)
                # The prediction may say otherwise: the largest batch size may be smaller.
                if self.passes(batch_size, rounded, conditions) and self.fits(asked):
                    return rounded
                capacity = rounded / SMALLER
            return None

        doublings = math.log2(max(1.0, batch_size / (self.batch_size or batch_size)))
        smallest = passing_from(most // MAX_CAPACITY_FACTOR)
        # A larger capacity may leave worse pieces, so it is simulated as well.
        found = smallest and passing_from(smallest * (1 + RESERVE + RESERVE_EACH_DOUBLING * doublings))
        return Enough(found, smallest) if found and smallest else None

    # --- parts --------------------------------------------------------------------------------------------------------

    def _once(self, key: Hashable, compute: Callable[[], _Value]) -> _Value:
        if key not in self._known:
            value = compute()
            if len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = value
        found: _Value = self._known[key]
        return found

    def _checked(self) -> Reproduced:
        return self.reproduced if self._steps else Reproduced(0, 0)

    def _evidence_for(self, conditions: Conditions) -> Evidence:
        """What the run shows of conditions: nothing, if they change more than the batch size or the capacity."""
        same = dataclasses.replace(conditions, batch_size=None, capacity_bytes=None)
        if same.precision == recorded_precision(self._layers):
            same = dataclasses.replace(same, precision=None)
        return self._evidence if same == RECORDED else NOTHING

    def reason_against(self, conditions: Conditions) -> str | None:
        if not self._steps:
            return self._absent or (
                "Unknown: the run has no traced training step with its requests. Imported profiles and runs "
                "without memory maps have none."
            )
        if self._evidence.growth is not None:
            return self._evidence.growth
        if not self.reproduced.whole:
            return (
                f"Unknown: the replay reproduced {self.reproduced.addresses:,} of {self.reproduced.of:,} addresses, so "
                "the simulation does not follow this allocator."
            )
        if self._rules is None:
            return "Unknown: the allocator's capacity is unknown."
        if self.deviation is not None and abs(self.deviation) > MOST_DEVIATION:
            return (
                f"Unknown: the simulation of the recorded steps peaks {100 * abs(self.deviation):.0f} % "
                f"{'above' if self.deviation > 0 else 'below'} the median of the run's steps. The traced steps are not "
                "typical of this run, for example because its operations run in very different orders."
            )
        recorded = recorded_precision(self._layers)
        if conditions.precision not in (None, recorded) and recorded not in (None, *PRECISIONS):
            return (
                f"Unknown: the run was recorded in {recorded}. Which of its tensors would take more bytes in "
                f"{conditions.precision} is unknown. Record a few steps in {conditions.precision}."
            )
        recurrent = any(name in layer.type for layer in self._layers for name in _RECURRENT)
        if recurrent and conditions.precision not in (None, recorded or "float32"):
            return (
                "Unknown: recurrent layers may copy their weights to half precision in every time step. Record a few "
                f"steps in {conditions.precision}."
            )
        if conditions.batch_size is None or conditions.batch_size == self.batch_size:
            return None
        if not self.batch_size:
            return NO_BATCH_SIZE
        if conditions.batch_size < 1 or conditions.batch_size > MAX_BATCH_SIZE:
            return f"Unknown: a batch size is 1 to {MAX_BATCH_SIZE:,}. Received: {conditions.batch_size:,}."
        if not self.knows_other_batch_sizes:
            return (
                "Unknown: the step is compiled, and only one batch size was recorded. Record a second one, for example "
                "with tb_memplugin.probe."
            )
        return None

    def _case(self, conditions: Conditions) -> Case:
        change = change_of(conditions, self._layers, self._steps[-1] if self._steps else None)
        return make_case(self._first, self._steps, conditions.batch_size or self.batch_size, change)

    def _simulations(
        self,
        case: Case,
        steps: Sequence[SizedStep],
        capacity: int | None,
        variants: int,
        count: int,
        same_start: bool = False,
    ) -> Iterator[Outcome]:
        """Simulate trainings of `count` steps after the first, each in other orders.

        The orders are those of typical steps if there is no capacity to pass within, and else differ more. With
        `same_start` the first step runs in the recorded order, which decides what free chunks later steps find.
        """
        assert self._rules is not None  # or there is no prediction
        rules, distance = PoolRules(NO_LIMIT, descends=self._rules.descends), TYPICAL_DISTANCE
        if capacity is not None:
            rules, distance = dataclasses.replace(self._rules, capacity_bytes=capacity), LARGE_DISTANCE
        first = len(self._first)
        start = History(steps, rules, case.extra, self._exploratory)
        later = len(steps) - first
        for seed in range(variants):
            history = start.copy()
            history.run(range(first), 0 if same_start else seed, distance)
            yield history.run([first + (turn + seed) % later for turn in range(count)], seed, distance)

    def _limits(self, case: Case, same_start: bool = False) -> Limits:
        """Simulations of the least and of the most bytes in a pool without limit."""

        def simulated(steps: Sequence[SizedStep]) -> list[Outcome]:
            return list(self._simulations(case, steps, None, VARIANTS, SIMULATED_STEPS, same_start))

        most = simulated(case.most)
        alike = case.typical is None and case.same_order
        negligible = alike and case.uncertain_bytes <= NEGLIGIBLE_SHARE * case.total_bytes
        return Limits(
            most if negligible else simulated(case.least),
            most,
            case.uncertain_bytes if negligible else 0,
            None if case.typical is None else simulated(case.typical),
            case.change.batches,
        )

    def _range(self, limits: Limits, case: Case) -> tuple[int, int, int]:
        """(low, typical, high) peak of simulations, with the additional bytes.

        If the simulated peak of the recorded training is above the measured one, the range begins lower by the same
        share; if it is below, the range ends higher. The range is at least as wide as the recorded steps differ: two
        convolutions that sometimes overlap have two peaks. A data set in arrays may be in this process's memory only.
        """
        low, peak, high = (
            size + more for size, more in zip((limits.low, limits.peak, limits.high), case.transient_bytes, strict=True)
        )
        low, high = round(low * (1 - max(self._bias, 0.0))), round(high * (1 - min(self._bias, 0.0)))
        recorded = self._evidence.peaks.get(self.batch_size or 0)
        if recorded is not None:
            low = min(low, peak * recorded.low_bytes // recorded.median_bytes)
            high = max(high, -(-peak * recorded.high_bytes // recorded.median_bytes))
        return min(low - arrays_in_place(self._steps[-1]), peak), peak, max(high, peak)


def _breakdown(limits: Limits, case: Case) -> tuple[tuple[LedgerRow, ...], int]:
    """The breakdown of the typical peak, which sums to it, and the bytes of it that are live at once.

    Both are of the simulated steps that have this peak, with the additional bytes: it is never below what is live.
    """
    if case.typical is not None:
        ends = [case.typical]
    else:
        ends = [case.most] if len(limits.typical) == 1 else [case.least, case.most]
    steps = [(steps[peak.index], peak) for steps, peak in zip(ends, limits.typical, strict=True)]
    additional = [
        (ChunkOwner(None, "activations", None), case.saved_bytes),
        (ChunkOwner(None, "workspace", None), case.transient_bytes[1] - case.saved_bytes),
    ]
    demand = sum(most_live_bytes(step, peak) for step, peak in steps) // len(steps)
    return peak_ledger(steps, case.change, additional), demand + sum(case.extra) + case.transient_bytes[1]
