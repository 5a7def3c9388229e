"""Predicts the peak of a training under other conditions from its recorded steps. Pure.

Only steps that their replay reproduces predict anything. The prediction simulates a training from
its first step on; its range holds the lowest and the highest peak of the simulated steps, with the
least and the most bytes of sizes that are not known exactly.

A prediction passes the modules in this order: `evidence` says what the run shows, `cases` makes the
steps that are simulated, with the sizes of `steps` and the lifetimes of `changes` and
`recomputation`, `simulation` runs them, and `cases` makes the peak and its breakdown."""

import collections
import copy
import dataclasses
import itertools
import math
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from tb_memplugin.allocator import PoolRules, rules_of
from tb_memplugin.analysis import device_facts, phases, retracing_of
from tb_memplugin.errors import NotFoundError
from tb_memplugin.fit.asking import COMPILED, Answers, Ask
from tb_memplugin.fit.cases import (
    Case,
    Method,
    PeakParts,
    make_case,
    recorded_parts,
    simulated_parts,
)
from tb_memplugin.fit.changes import Changed
from tb_memplugin.fit.conditions import (
    MAX_BATCH_SIZE,
    PRECISIONS,
    RECORDED,
    TOO_LITTLE,
    Conditions,
    refuse_unmatched,
)
from tb_memplugin.fit.evidence import (
    NOTHING,
    Evidence,
    last_failed_batch,
    layer_table_of,
    measured_peak,
    program_of,
    recorded_evidence,
)
from tb_memplugin.fit.prediction import Enough, Prediction, WhatIf, describe_failure
from tb_memplugin.fit.simulation import (
    MARGIN,
    SIMULATED_STEPS,
    VARIANTS,
    FailedRequest,
    Outcome,
    Reproduced,
    exploratory_rows,
    of_highest_kind,
    peak_in_one_piece,
    reproduce,
    settled,
    simulated,
    start_map,
    trainings,
)
from tb_memplugin.fit.steps import LEFT_OUT, NOT_ASKED, SizedStep
from tb_memplugin.schema import (
    Layer,
    Phase,
    Run,
    StepRequests,
    format_bytes,
    recorded_precision,
    values_of,
)

LASTING_STEPS = 24
"""Simulated steps after the first one that must all pass: pieces that earlier steps leave can make
one fail."""
LASTING_VARIANTS = 12
"""Simulations of `LASTING_STEPS` that must all pass for a training to pass. Few leave out orders in
which much overlaps. With 3, four recordings of the failing demo advise batch sizes of 42 to 47 and
a fifth one 49, with which 3 of 31 real trainings of eight steps failed. With 12, the four advise 42
to 46; with 47, 10 of 10 real trainings passed. No quick test depends on its value."""
REMEMBERED = 192
"""Peaks, verdicts and searches that a predictor remembers."""
SPARE = 0.02
"""Share of the capacity that must be left at the simulated peak of a training that passes, for the
same reason. At 0, `test_a_training_that_fits_leaves_two_percent_of_the_capacity` fails."""
MOST_DEVIATION = 0.1
"""Largest deviation of the simulated from the measured peak of the recorded steps with which
anything is predicted."""
SMALLER = 0.98
"""Factor between the batch sizes, or the capacities, that are tried one after the other. With 0.5,
`test_the_failed_training_fails_and_every_simulated_fix_passes` fails."""
MAX_CAPACITY_FACTOR = 64
"""Capacities up to this many times the one that is not enough, or the bytes that the steps need,
are tried."""
RESERVE, RESERVE_EACH_DOUBLING = 0.05, 0.035
"""Share that is added to the smallest capacity that passes, and more of it for each doubling
between the recorded batch size and the asked one: kernels that run in parallel overlap in other
ways in larger batches. At 0, `test_the_failed_training_fails_and_every_simulated_fix_passes`
fails."""
_RECURRENT = ("RNN", "LSTM", "GRU")
"""Parts of the types of recurrent layers."""

NO_BATCH_SIZE = (
    "Unknown: the recorded steps do not show their batch size. Name it with `batch_size=` of "
    "`MemoryRecorder`, its `step`, or `MemoryCallback`."
)
OTHER_SIZES_UNKNOWN = (
    "Unknown: the step is compiled, and only one batch size was recorded. Record a second one, "
    "for example with tb_memplugin.probe."
)
CURVE_POINTS, FEWEST_CURVE_POINTS = 16, 4
"""Most and fewest batch sizes of a curve, beside the recorded, the requested and the largest
one."""
CURVE_EVENTS = 40_000
"""Events of one step of each of a curve's points together: with more events, there are fewer
points."""
_TRAIN: Phase = "train"
_Value = TypeVar("_Value")


def bisected(
    passing: int, failing: int, passes: Callable[[int], bool], asked: int | None = None
) -> int:
    """The number next to one that fails, between one that passes and one that fails; for `asked`
    see `largest`."""
    while abs(failing - passing) > 1 and (asked is None or passing < asked < failing):
        middle = (passing + failing) // 2
        if passes(middle):
            passing = middle
        else:
            failing = middle
    return passing


def largest(
    ran: int,
    below: int,
    possible: Callable[[int], bool],
    passes: Callable[[int], bool],
    asked: int | None = None,
) -> int:
    """The largest batch size below another that passes, of those above one that is known to; 0 if
    none does. With `asked` only so far that it is known whether that is larger.

    Whether a size passes is not monotonic: a larger batch may leave better pieces. So the search
    goes down from the first size that no allocator could serve, which `possible` says quickly."""
    passing, impossible = ran, ran + 1
    while impossible < below and possible(impossible):
        passing, impossible = impossible, min(impossible * 2, below)
    passing = bisected(passing, impossible, possible)
    failing = passing + 1
    while passing > ran and (asked is None or asked < failing) and not passes(passing):
        failing, passing = passing, max(ran, min(passing - 1, int(passing * SMALLER)))
    return bisected(passing, failing, passes, asked)  # between two of these steps


class Predictor:
    """Predictions for one device of one run, from the steps of `recorded_program`.

    `measured_bytes` is the median peak of the run's steps with the latest recorded batch size, if
    known; `absent` says why there are no steps, if that is known. `layers` are the model's in these
    steps."""

    def __init__(
        self,
        steps: Sequence[StepRequests],
        layers: Sequence[Layer] = (),
        measured_bytes: int | None = None,
        absent: str | None = None,
        evidence: Evidence = NOTHING,
        device: str = "",
        default_batch: int | None = None,
        ask: Ask | None = None,
    ) -> None:
        self.steps, self.layers = tuple(steps), tuple(layers)
        self._evidence = evidence
        self._device, self._default_batch = device, default_batch
        self._measured_bytes = measured_bytes
        self._first = [one for one in steps if one.first][:1]
        self._steps = [one for one in steps if not one.first]
        self._absent = absent
        self._known: dict[Hashable, Any] = {}
        # by order: those that failed most are tried first
        self._failures = collections.Counter[int]()
        self._tried = _tried_with(self.steps, self.layers) if steps else {}
        self.answers = None if ask is None else Answers(ask)

    @classmethod
    def of(cls, run: Run, device: str, ask: Ask | None = None) -> "Predictor":
        """For a run that has its requests; without a batch size, a run that failed is asked about
        what failed. `ask` asks the compiler of its model, if the run has a model in this
        process."""
        steps = program_of(run, device)
        table = layer_table_of(run, steps)
        return cls(
            steps,
            () if table is None else table.layers,
            measured_peak(run, device, steps),
            _without_steps(run, device),
            recorded_evidence(run, device, steps),
            device,
            last_failed_batch(run, device, steps),
            ask if steps and steps[-1].mode == "xla" else None,
        )

    def bounded_by(self, evidence: Evidence) -> "Predictor":
        other = copy.copy(self)
        other._evidence, other._known = evidence, {}
        vars(other).pop("_unusable", None)
        return other

    # --- what was recorded ------------------------------------------------------------------------

    @cached_property
    def reproduced(self) -> Reproduced:
        replays = [reproduce(one) for one in (*self._first, *self._steps) if not one.planned]
        return Reproduced(sum(one.addresses for one in replays), sum(one.of for one in replays))

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The latest one last."""
        return tuple(
            dict.fromkeys(one.batch_size for one in reversed(self._steps) if one.batch_size)
        )[::-1]

    @cached_property
    def batch_size(self) -> int | None:
        return self.batch_sizes[-1] if self.batch_sizes else None

    @property
    def capacity_bytes(self) -> int | None:
        return self._steps[-1].capacity_bytes if self._steps else None

    @cached_property
    def deviation(self) -> float | None:
        """By which share the simulated peak of the recorded training exceeds the measured one; None
        if unknown. A growing pool leaves a compiled module's chunk whole, or splits it if it has
        larger regions: then, live bytes."""
        return min(self._excesses(same_start=True), key=abs, default=None)

    @cached_property
    def _bias(self) -> float:
        """The same for trainings that begin in other orders, as predicted ones do; 0 if unknown."""
        return next(iter(self._excesses(same_start=False)), 0.0)

    def _excesses(self, same_start: bool) -> list[float]:
        if not self._measured_bytes:
            return []
        found = simulated(
            self._case(RECORDED).changed, self._allocator, self._exploratory, same_start
        )
        counted = 2 if self._steps[-1].mode == "xla" and self._allocator.grows else 1
        return [
            one / self._measured_bytes - 1
            for one in (found.peak.typical_bytes, found.live_bytes)[:counted]
        ]

    @property
    def knows_other_batch_sizes(self) -> bool:
        """Whether the sizes for other batch sizes follow from the recorded steps."""
        latest = self._steps[-1]
        known = latest.mode != "xla" or len(self.batch_sizes) > 1 or latest.module_moments
        return bool(self.batch_size and (known or self._asked()))

    def ask(self, conditions: Conditions) -> bool:
        """Ask the compiler about a batch size and segments that the run does not have, where that
        is possible; returns whether there is a new answer, which tells more about other batch
        sizes, too."""
        batch, segments = conditions.batch_size, conditions.recompute
        is_recorded = batch in self._evidence.ran and not (segments or conditions.accumulate)
        if (
            not batch
            or self.answers is None
            or self._unusable is not None
            or batch > MAX_BATCH_SIZE
            or is_recorded
        ):
            return False
        is_new = self.answers.ask(batch, segments, conditions.accumulate)
        if is_new:
            self._known.clear()
            self._tried = {}
        return is_new

    def _asked(self, wanted: Conditions = RECORDED) -> Mapping[int, int]:
        """Batch size to bytes of the compiled step's temporaries, as far as the compiler was
        asked."""
        return (
            NOT_ASKED
            if self.answers is None
            else self.answers.sizes(wanted.recompute, wanted.accumulate)
        )

    def _said(self, conditions: Conditions) -> tuple[str, ...]:
        said = self.answers and self.answers.sentence(conditions)
        return (said,) if said else ()

    @cached_property
    def _exploratory(self) -> frozenset[int]:
        return exploratory_rows(self._first[0], self._steps) if self._first else frozenset()

    @cached_property
    def rules(self) -> PoolRules | None:
        return rules_of(start_map(self._steps[-1]))

    @property
    def spread(self) -> float:
        """Share by which the steps of the largest recorded batch size differ, at least `MARGIN`."""
        peaks = [one.peak for _, one in sorted(self._evidence.ran.items())[-1:]]
        return max([MARGIN, *(high / low - 1 for low, _, high in peaks)])

    @cached_property
    def _allocator(self) -> PoolRules:
        assert self.rules is not None  # or there is no prediction
        return self.rules

    # --- predictions ------------------------------------------------------------------------------

    def predict(self, conditions: Conditions, always: bool = False) -> Prediction:
        """Predict the peak, and whether it fits. Every view of a prediction shows this one.

        If it may fit or not and its range says little, the peak is unknown, but for those that ask
        `always`."""
        batch = conditions.batch_size
        batch = (self._default_batch or self.batch_size) if batch is None else batch
        capacity = conditions.capacity_bytes or self.capacity_bytes
        wanted = dataclasses.replace(conditions, batch_size=batch, capacity_bytes=capacity)
        evidence = self._evidence_for(wanted)
        known, sentences, proven = evidence.about(batch, capacity)
        is_recorded = bool(known) and batch in evidence.ran
        self.ask(wanted)
        reason = None if is_recorded else self.reason_against(wanted)
        if reason is not None:
            reproduced = self.reproduced if self._steps else Reproduced(0, 0)
            texts = (reason, *sentences, *self._said(wanted))
            return Prediction(
                batch, capacity, None, None, None, known, None, "unknown", reproduced, texts, ()
            )
        found, method, assumptions = self._answered(wanted)
        # its peak is measured, but the simulation says whether it fits
        if method == "recorded" and not is_recorded:
            case = self._case(wanted)
            method, assumptions = case.method, case.sentences
        peak = found.peak
        if known and capacity is not None:
            # Not less: steps of a smaller batch peak higher now and then, as their operations run
            # in another order.
            peak = peak._replace(
                high_bytes=max(peak.typical_bytes, min(peak.high_bytes, proven or peak.high_bytes))
            )
        fits, failed = known, None
        if capacity is not None and not known:
            fits = True if known is None and self._simulation_fits(wanted, capacity) else known
            failed = (
                None
                if fits
                else evidence.failed_request(batch, capacity) or self._failure(wanted, capacity)
            )
            fits = fits if failed is None else False
        if fits is None and peak.says_little and not always:
            texts = (TOO_LITTLE, *sentences, *self._said(wanted), *assumptions)
            return Prediction(
                batch, capacity, None, None, None, None, None, "unknown", self.reproduced, texts, ()
            )
        return Prediction(
            batch_size=batch,
            capacity_bytes=capacity,
            peak_bytes=peak.typical_bytes,
            low_bytes=peak.low_bytes,
            high_bytes=peak.high_bytes,
            fits=fits,
            fails_at=failed,
            method=method,
            reproduced=self.reproduced,
            assumptions=(*sentences, *self._said(wanted), *assumptions),
            ledger=found.ledger,
            demand_bytes=found.demand_bytes,
        )

    def fits(self, conditions: Conditions) -> bool:
        batch = conditions.batch_size or self.batch_size
        capacity = conditions.capacity_bytes or self.capacity_bytes
        known = self._evidence_for(conditions).fits(batch, capacity)
        if known is not None or capacity is None or self.reason_against(conditions) is not None:
            return known or False
        return self._simulation_fits(dataclasses.replace(conditions, batch_size=batch), capacity)

    def peaks(self, conditions: Conditions) -> PeakParts:
        """The peaks under conditions that `reason_against` allows: measured, or else simulated
        without a limit."""
        return self._answered(
            dataclasses.replace(conditions, batch_size=conditions.batch_size or self.batch_size)
        )[0]

    def first_bytes(self, conditions: Conditions) -> int:
        """Peak of the first step, which makes the optimizer's slots, without requests that may
        fail; 0 if unknown."""
        changed = self._case(conditions).changed
        first = SizedStep(changed.high[0].requests, changed.high[0].sizes.copy())
        first.sizes[list(self._exploratory)] = LEFT_OUT
        (found,) = trainings(
            [first], self._allocator, changed.extra, frozenset(), orders=[0], count=0
        )
        has_same_slots = bool(found.peaks) and not (conditions.frozen or conditions.optimizer)
        return found.peaks[0].bytes + changed.transient.high_bytes if has_same_slots else 0

    def assumptions(self, conditions: Conditions) -> tuple[str, ...]:
        return self._answered(conditions)[2]

    def _answered(self, conditions: Conditions) -> tuple[PeakParts, Method, tuple[str, ...]]:
        """The peaks, how they are known, and what they assume."""
        key, batch = dataclasses.replace(conditions, capacity_bytes=None), conditions.batch_size
        measured = self._evidence_for(key).ran.get(batch or 0)
        if measured is not None and batch is not None:
            return recorded_parts(self._steps, batch, measured.peak), "recorded", ()
        bias = self._bias

        def computed() -> tuple[PeakParts, Method, tuple[str, ...]]:
            case = self._case(key)
            found = simulated(case.changed, self._allocator, self._exploratory)
            recorded = self._evidence.ran.get(case.changed.high[-1].requests.batch_size or 0)
            parts = simulated_parts(case, found, bias, recorded and recorded.peak, self._steps[-1])
            return parts, case.method, case.sentences

        return _once(self._known, ("peaks", key), computed)

    def _simulation_fits(self, conditions: Conditions, capacity: int) -> bool:
        """Whether a training fits that the run shows nothing of.

        Of batch sizes that a user asks for, those up to the largest one that passes fit, though a
        smaller one may leave worse pieces of free memory. Other conditions are parts of plans."""
        key, batch = dataclasses.replace(conditions, capacity_bytes=capacity), conditions.batch_size
        is_asked = not (conditions.frozen or conditions.accumulate or conditions.recompute)

        def computed() -> bool:
            largest = self.largest_batch_size(key, asked=batch) if is_asked else None
            return (
                self._passes(key, capacity)
                if batch is None or largest is None
                else batch <= largest
            )

        return _once(self._known, ("fits", key), computed)

    def _failure(self, conditions: Conditions, capacity: int) -> FailedRequest | None:
        """The request at which every simulation fails first, even with the least bytes; None if one
        passes."""
        changed = self._case(conditions).changed
        left = capacity - changed.transient.low_bytes
        outcomes = self._trainings(changed, changed.low, left, range(VARIANTS), LASTING_STEPS)
        failures = [
            outcome.failed
            for outcome in itertools.takewhile(lambda one: one.failed is not None, outcomes)
        ]
        return failures[0] if len(failures) == VARIANTS else None

    def passes(
        self,
        batch_size: int,
        capacity_bytes: int,
        conditions: Conditions = RECORDED,
        quick: bool = False,
    ) -> bool:
        """Whether every simulated step passes within a capacity, with the most bytes of sizes that
        are not exact, and the whole range of the peak is within it. With `quick` one short training
        is simulated, to find a start."""
        wanted = dataclasses.replace(conditions, batch_size=batch_size)
        known = self._evidence_for(wanted).fits(batch_size, capacity_bytes)
        if known is not None:
            return known
        if quick:
            return self._all_pass(wanted, capacity_bytes, 1, SIMULATED_STEPS)
        return self._passes(wanted, capacity_bytes)

    def _passes(self, conditions: Conditions, capacity: int) -> bool:
        lasting = self._all_pass(conditions, capacity, LASTING_VARIANTS, LASTING_STEPS)
        return lasting and self.peaks(conditions).peak.high_bytes <= capacity

    def _all_pass(self, conditions: Conditions, capacity: int, variants: int, count: int) -> bool:
        """Whether every step of every simulation passes and leaves some of the capacity; stops at
        the first failure."""

        def computed() -> bool:
            changed = self._case(conditions).changed
            left = capacity - changed.transient.high_bytes
            orders = sorted(range(variants), key=self._failures.__getitem__, reverse=True)
            outcomes = self._trainings(changed, changed.high, left, orders, count)
            for order, one in zip(orders, outcomes, strict=True):
                if (
                    one.failed is not None
                    or max(peak.bytes for peak in settled(one)) * (1 + SPARE) > left
                ):
                    self._failures[order] += 1
                    return False
            return True

        same = dataclasses.replace(conditions, capacity_bytes=None)
        return _once(self._tried, (same, capacity, variants, count), computed)

    def _trainings(
        self,
        changed: Changed,
        steps: Sequence[SizedStep],
        capacity: int,
        orders: Iterable[int],
        count: int,
    ) -> Iterator[Outcome]:
        return trainings(
            steps, self._allocator, changed.extra, self._exploratory, capacity, orders, count
        )

    def peak_in_one_piece(self, batch_size: int, conditions: Conditions = RECORDED) -> int:
        """Peak for a batch size as if free memory were always in one piece: less than any real
        allocator needs."""
        changed = self._case(dataclasses.replace(conditions, batch_size=batch_size)).changed
        pieces = [
            peak_in_one_piece(step, self._exploratory if step.requests.first else frozenset())
            for step in changed.high
        ]
        return max(pieces) + sum(changed.extra) + changed.transient.high_bytes

    def sized_step(self, conditions: Conditions) -> SizedStep:
        return self._case(conditions).changed.high[-1]

    def largest_batch_size(
        self, conditions: Conditions, below: int = MAX_BATCH_SIZE + 1, asked: int | None = None
    ) -> int | None:
        """The largest batch size, smaller than `below`, at which every simulated step passes within
        the capacity; 0 if none does, None if that is unknown. For `asked` see `largest`."""
        capacity = conditions.capacity_bytes or self.capacity_bytes
        conditions = dataclasses.replace(conditions, batch_size=None, capacity_bytes=None)
        if (
            capacity is None
            or self.reason_against(conditions) is not None
            or not self.knows_other_batch_sizes
        ):
            return None
        limit = capacity

        def found() -> int:
            evidence = self._evidence_for(conditions)
            end = min(below, evidence.smallest_failed(limit) or below)
            planned = [
                size
                for size in self._asked()
                if size < end and self.passes(size, limit, conditions)
            ]
            return largest(
                min(max(evidence.largest(limit), *planned, 0), end - 1),
                end,
                possible=lambda size: self.peak_in_one_piece(size, conditions) <= limit,
                passes=lambda size: self.passes(size, limit, conditions),
                asked=asked,
            )

        key = ("largest", conditions, limit, below)
        return (
            found()
            if asked is not None and key not in self._known
            else _once(self._known, key, found)
        )

    def most_capacity(
        self, batch_size: int, capacity_bytes: int, conditions: Conditions = RECORDED
    ) -> int:
        return MAX_CAPACITY_FACTOR * max(
            capacity_bytes, self.peak_in_one_piece(batch_size, conditions)
        )

    def enough_capacity(
        self, batch_size: int, capacity_bytes: int, conditions: Conditions = RECORDED
    ) -> Enough | None:
        """The smallest capacity, with a reserve, at which a training passes that fails in a smaller
        one, if any."""
        most = self.most_capacity(batch_size, capacity_bytes, conditions)

        def passing_from(capacity: float) -> int | None:
            """The first whole MiB from a capacity on, in steps of some percent, at which the batch
            passes."""
            while capacity <= most:
                rounded = math.ceil(capacity / (1 << 20)) << 20
                asked = dataclasses.replace(
                    conditions, batch_size=batch_size, capacity_bytes=rounded
                )
                # The prediction may say otherwise: the largest batch size may be smaller.
                if self.passes(batch_size, rounded, conditions) and self.fits(asked):
                    return rounded
                capacity = rounded / SMALLER
            return None

        doublings = math.log2(max(1.0, batch_size / (self.batch_size or batch_size)))
        smallest = passing_from(most // MAX_CAPACITY_FACTOR)
        # A larger capacity may leave worse pieces, so it is simulated as well.
        found = smallest and passing_from(
            smallest * (1 + RESERVE + RESERVE_EACH_DOUBLING * doublings)
        )
        return Enough(found, smallest) if found and smallest else None

    # --- questions about a run --------------------------------------------------------------------

    def what_if(self, conditions: Conditions) -> WhatIf:
        """The prediction, and the largest batch size that fits; `RequestError` if a glob for layers
        matches none."""
        refuse_unmatched(conditions, self.layers)
        prediction = self.predict(conditions)
        batch, capacity, enough = prediction.batch_size, prediction.capacity_bytes, None
        if (
            prediction.fits is False
            and prediction.method != "unknown"
            and batch is not None
            and capacity is not None
        ):
            enough = self.enough_capacity(batch, capacity, conditions)
        return WhatIf(
            device=self._device,
            conditions=conditions,
            prediction=prediction,
            largest_batch_size=self.largest_batch_size(conditions),
            recorded_batch_sizes=self.batch_sizes,
            recorded_steps=tuple(one.step for one in self.steps),
            measured_peak_bytes=self._measured_bytes,
            enough=enough,
        )

    def curve(self, conditions: Conditions) -> list[dict[str, Any]]:
        """Predictions over batch sizes, as JSON objects: from an eighth of the recorded one to
        beyond the largest that fits, fewer if a step has more events. Each is as an answer of its
        own gives it."""
        refuse_unmatched(conditions, self.layers)
        recorded = self.batch_size
        if recorded is None:
            return []
        asked, largest = self._default_batch or 0, self.largest_batch_size(conditions)
        low, high = max(1, recorded // 8), max(recorded * 4, round((largest or 0) * 1.25), asked)
        spread = self.curve_sizes(low, min(MAX_BATCH_SIZE, high))
        sizes = sorted({recorded, *spread, *(size for size in (asked, largest) if size)})
        found = [self.predict(dataclasses.replace(conditions, batch_size=size)) for size in sizes]
        names = ("batch_size", "peak_bytes", "low_bytes", "high_bytes", "fits")
        return [
            {**values_of(one, *names), "fails_at": describe_failure(one.fails_at)}
            for one in found
            if one.peak_bytes is not None
        ]

    def batch_limit(self, conditions: Conditions) -> dict[str, Any]:
        """The largest batch size in a capacity, its peak, the largest that may fit, as JSON; errors
        as `what_if`."""
        refuse_unmatched(conditions, self.layers)
        conditions = dataclasses.replace(conditions, batch_size=None)
        capacity, largest = (
            conditions.capacity_bytes or self.capacity_bytes,
            self.largest_batch_size(conditions),
        )
        found = self.predict(
            dataclasses.replace(conditions, batch_size=largest or None), always=True
        )
        unknown = self.reason_against(conditions) or (
            OTHER_SIZES_UNKNOWN if largest is None else None
        )
        most, evidence, names = (
            largest,
            self._evidence_for(conditions),
            ("peak_bytes", "low_bytes", "high_bytes"),
        )

        def may_fit(size: int, limit: int) -> bool:
            known = evidence.fits(size, limit)
            wanted = dataclasses.replace(conditions, batch_size=size)
            return known or (known is None and self._failure(wanted, limit) is None)

        if largest is not None and capacity is not None:
            failing = largest + 1
            while failing <= MAX_BATCH_SIZE and may_fit(failing, capacity):
                failing = min(2 * failing, MAX_BATCH_SIZE + 1)
            most = bisected(largest, failing, lambda size: may_fit(size, capacity))
        sizes = {
            "capacity_bytes": capacity,
            "largest_batch_size": largest,
            "may_fit_batch_size": most,
        }
        return {
            **sizes,
            **(values_of(found, *names) if largest else dict.fromkeys(names)),
            "reason": unknown,
        }

    def curve_sizes(self, low: int, high: int) -> list[int]:
        events = self._steps[-1].events if self._steps else 0
        points = max(FEWEST_CURVE_POINTS, min(CURVE_POINTS, CURVE_EVENTS // max(1, events)))
        return sorted({round(size) for size in np.geomspace(low, high, points).tolist()})

    # --- parts ------------------------------------------------------------------------------------

    def _evidence_for(self, conditions: Conditions) -> Evidence:
        """What the run shows of conditions: nothing, if they change more than the batch size or the
        capacity."""
        same = dataclasses.replace(conditions, batch_size=None, capacity_bytes=None)
        if same.precision == recorded_precision(self.layers):
            same = dataclasses.replace(same, precision=None)
        return self._evidence if same == RECORDED else NOTHING

    @cached_property
    def _unusable(self) -> str | None:
        """Why nothing can be predicted from the recorded steps, as a sentence."""
        if not self._steps:
            return self._absent or (
                "Unknown: the run has no traced training step with its requests. Imported "
                "profiles and runs without memory maps have none."
            )
        if self._evidence.growth is not None:
            return self._evidence.growth
        if not self.reproduced.whole:
            return (
                f"Unknown: the replay reproduced {self.reproduced.addresses:,} of "
                f"{self.reproduced.of:,} addresses, so the simulation does not follow this "
                "allocator."
            )
        if self.rules is None:
            return "Unknown: the allocator's capacity is unknown."
        if self.deviation is not None and abs(self.deviation) > MOST_DEVIATION:
            return (
                "Unknown: the simulation of the recorded steps peaks "
                f"{100 * abs(self.deviation):.0f} % {'above' if self.deviation > 0 else 'below'} "
                f"the median of the run's steps. {self._untypical}"
            )
        return None

    @property
    def _untypical(self) -> str:
        own = of_highest_kind([one for one in self._steps if one.batch_size == self.batch_size])
        sums = [int(one.requested[one.birth >= 0].sum()) for one in own]
        if max(sums) > (1 + MOST_DEVIATION) * min(sums):
            sizes = f"{format_bytes(min(sums))} to {format_bytes(max(sums))}"
            return f"The traced steps request {sizes}, so tensors have other shapes in other steps."
        because = (
            "for example because its operations run in very different orders, or on tensors of "
            "other shapes"
        )
        return f"The traced steps are not typical of this run, {because}."

    def reason_against(self, conditions: Conditions) -> str | None:
        if self._steps and not self.batch_size and conditions.batch_size is not None:
            return NO_BATCH_SIZE
        if self._unusable is not None:
            return self._unusable
        recorded = recorded_precision(self.layers)
        if conditions.precision not in (None, recorded) and recorded not in (None, *PRECISIONS):
            return (
                f"Unknown: the run was recorded in {recorded}. Which of its tensors would take "
                f"more bytes in {conditions.precision} is unknown. Record a few steps in "
                f"{conditions.precision}."
            )
        recurrent = any(name in layer.type for layer in self.layers for name in _RECURRENT)
        if recurrent and conditions.precision not in (None, recorded or "float32"):
            return (
                "Unknown: recurrent layers may copy their weights to half precision in every "
                f"time step. Record a few steps in {conditions.precision}."
            )
        if conditions.recompute and self._steps[-1].mode == "xla":
            is_asked = conditions.batch_size in self._asked(conditions)
            return None if is_asked else f"Unknown: {COMPILED}"
        if conditions.batch_size is None or conditions.batch_size == self.batch_size:
            return None
        if conditions.batch_size < 1 or conditions.batch_size > MAX_BATCH_SIZE:
            return (
                f"Unknown: a batch size is 1 to {MAX_BATCH_SIZE:,}. Received: "
                f"{conditions.batch_size:,}."
            )
        return None if self.knows_other_batch_sizes else OTHER_SIZES_UNKNOWN

    def _case(self, conditions: Conditions) -> Case:
        wanted = dataclasses.replace(
            conditions, batch_size=conditions.batch_size or self.batch_size
        )
        return make_case(self._first, self._steps, wanted, self.layers, self._asked(wanted))


_tried: "weakref.WeakKeyDictionary[StepRequests, dict[Hashable, dict[Hashable, bool]]]" = (
    weakref.WeakKeyDictionary()
)


def _tried_with(steps: tuple[StepRequests, ...], layers: tuple[Layer, ...]) -> dict[Hashable, bool]:
    """Whether simulated trainings of these steps pass: the same for fixes, plans and other
    questions, as no evidence changes it. Kept as long as the last step."""
    same = *map(weakref.ref, steps), layers
    return _tried.setdefault(steps[-1], {}).setdefault(same, {})


def _once(known: dict[Hashable, Any], key: Hashable, compute: Callable[[], _Value]) -> _Value:
    if key not in known:
        value = compute()
        if len(known) >= REMEMBERED:
            del known[next(iter(known))]
        known[key] = value
    found: _Value = known[key]
    return found


def _without_steps(run: Run, device: str) -> str | None:
    """A sentence on a run without training steps, or with none but those in which the program
    changed; else None."""
    others = phases(run)
    if others and _TRAIN not in others:
        return (
            "Unknown: predictions come from training steps, and this run has only "
            f"{' and '.join(others)} steps."
        )
    if not any(one.device == device and one.phase == _TRAIN for one in run.requests):
        return None
    because = retracing_of(run, device)
    reason = (
        "Unknown: each traced training step is the first one after a change of the program, and "
        "so not typical."
    )
    return f"{reason} {because}" if because else reason


def device_of(run: Run, device: str | None) -> str:
    """The device of a question; `NotFoundError` if the run has no such device."""
    # Devices with recorded requests, then all others; accelerators first.
    known = {one.device for one in run.requests}
    devices = sorted(
        (facts.device for facts in device_facts(run)), key=lambda device: device not in known
    )
    if not devices or (device is not None and device not in devices):
        raise NotFoundError(
            f"no device {device!r:.80} in this run; available: {', '.join(devices) or 'none'}"
            if device is not None
            else "this run has no records of a device's memory"
        )
    return device or devices[0]
