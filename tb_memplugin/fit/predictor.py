"""Predicts the peak of a training under other conditions from its recorded steps. Pure.

Only steps that their replay reproduces predict anything. The prediction simulates a training from
its first step on; its range holds the lowest and the highest peak of the simulated steps, with the
least and the most bytes of sizes that are not known exactly.

A prediction passes the modules in this order: `evidence` says what the run shows, `recording` why
its steps predict nothing, `cases` makes the steps that are simulated, with the sizes of `steps` and
the lifetimes of `changes` and `recomputation`, `simulation` runs them, and `cases` makes the peak
and its breakdown."""

import collections
import copy
import dataclasses
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from tb_memplugin.analysis import device_facts, phases, retracing_of
from tb_memplugin.errors import NotFoundError
from tb_memplugin.fit.asking import Ask
from tb_memplugin.fit.cases import Case, PeakParts, make_case, recorded_parts, simulated_parts
from tb_memplugin.fit.conditions import (
    MAX_BATCH_SIZE,
    RECORDED,
    TOO_LITTLE,
    Conditions,
    Interval,
)
from tb_memplugin.fit.evidence import (
    NOTHING,
    Evidence,
    Verdict,
    last_failed_batch,
    layer_table_of,
    measured_peak,
    program_of,
    recorded_evidence,
)
from tb_memplugin.fit.prediction import Prediction
from tb_memplugin.fit.recording import Recording
from tb_memplugin.fit.search import EVERY_SIZE, largest
from tb_memplugin.fit.simulation import SIMULATED_STEPS, simulated
from tb_memplugin.fit.trials import (
    LASTING_STEPS,
    LASTING_VARIANTS,
    certain_failure,
    first_failing,
    first_step_bytes,
    least_bytes,
)
from tb_memplugin.schema import Layer, Phase, Run, StepRequests, is_cpu, recorded_precision

REMEMBERED = 192
"""Most peaks and searches, and most simulated trainings, that are remembered."""
_TRAIN: Phase = "train"
_Value = TypeVar("_Value")


class Predictor(Recording):
    """Predictions for one device of one run, from the steps of `recorded_program` and from what
    else the run shows.

    `absent` says why there are no steps, if that is known; `default_batch` is the batch size of
    questions that name none, by default the latest recorded one."""

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
        refused = absent if all(one.first for one in steps) else evidence.refused
        super().__init__(steps, layers, measured_bytes, refused, ask)
        self.evidence = evidence
        self.device, self.default_batch = device, default_batch
        self._known: dict[Hashable, Any] = {}
        self._tried = _tried_with(self.steps, self.layers) if steps else {}
        self._failures = collections.Counter[int]()  # by order

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
        """The same with other evidence, of a run that does not grow."""
        other = copy.copy(self)
        other.evidence, other._known = evidence, {}
        return other

    def ask(self, conditions: Conditions) -> bool:
        """Ask the compiler about a batch size and segments that the run does not have, where that
        is possible; returns whether there is a new answer, which tells more about other batch
        sizes, too."""
        batch = conditions.batch_size or 0
        is_possible = self.answers.are_possible and 0 < batch <= MAX_BATCH_SIZE
        if not is_possible or self.unusable is not None:
            return False
        if batch in self.evidence.ran and not (conditions.recompute or conditions.accumulate):
            return False
        is_new = self.answers.ask(conditions)
        if is_new:
            self._known, self._tried = {}, {}
        return is_new

    def predict(self, conditions: Conditions, always: bool = False) -> Prediction:
        """Predict the peak, and whether it fits. Every view of a prediction shows this one.

        If it may fit or not and its range says little, the peak is unknown, but for those that ask
        `always`."""
        if conditions.batch_size is None:
            conditions = dataclasses.replace(conditions, batch_size=self.default_batch)
        wanted = self._filled(conditions)
        batch = wanted.batch_size
        self.ask(wanted)
        verdict = self.verdict(wanted)
        if self.evidence.other_failure is not None:
            verdict = self.evidence.of_run(verdict, wanted, self._evidence_for(wanted))
        unknown = Prediction(batch, wanted.capacity_bytes, reproduced=self.reproduced)
        if verdict.unknown is not None:
            texts = (verdict.unknown, *verdict.sentences, *self.answers.said(wanted), *self.shared)
            return dataclasses.replace(unknown, fits=verdict.fits, assumptions=texts)
        found = self.peaks(wanted)
        method, assumptions = found.method, found.sentences
        if method == "recorded" and verdict.recorded_bytes is None:
            # its peak is measured, but the simulation says whether it fits
            case = self.case(wanted)
            method, assumptions = case.method, case.sentences
        low, typical, high = found.peak
        if verdict.within_bytes is not None:
            # Not less: steps of a smaller batch peak higher now and then, as their operations run
            # in another order.
            high = max(typical, min(high, verdict.within_bytes))
        texts = (*verdict.sentences, *self.answers.said(wanted), *assumptions, *self.shared)
        if verdict.fits is None and Interval(low, typical, high).says_little and not always:
            return dataclasses.replace(unknown, assumptions=(TOO_LITTLE, *texts))
        return dataclasses.replace(
            unknown,
            peak_bytes=typical,
            low_bytes=low,
            high_bytes=high,
            fits=verdict.fits,
            fails_at=verdict.failed,
            method=method,
            assumptions=texts,
            ledger=found.ledger,
            demand_bytes=found.demand_bytes,
            recorded_peak_bytes=verdict.recorded_bytes,
            elsewhere=verdict.elsewhere,
        )

    def verdict(self, conditions: Conditions) -> Verdict:
        """Whether a training fits: as the run shows it; else it does if its simulation says so, it
        does not if every simulation fails even with the least bytes, and it may between these."""
        wanted = self._filled(conditions)
        shown = self._evidence_for(wanted).verdict(wanted.batch_size, wanted.capacity_bytes)
        if shown.fits and wanted.batch_size in self.evidence.ran:
            return shown
        reason = self.reason_against(wanted)
        if shown.fits or reason is not None or wanted.capacity_bytes is None:
            return shown._replace(unknown=reason)
        if shown.fits is None and self._simulated_fits(wanted):
            return Verdict(True)
        failed = shown.failed or certain_failure(
            self.case(wanted).changed, self.rules, self.may_fail, wanted.capacity_bytes
        )
        return shown if failed is None else shown._replace(fits=False, failed=failed)

    def fits(self, conditions: Conditions, alone: bool = False, quick: bool = False) -> bool:
        """Whether a training is known to fit, see `verdict`. With `alone` larger batch sizes do not
        count, and with `quick` as well one short training is simulated, to find a start."""
        wanted = self._filled(conditions)
        shown = self._evidence_for(wanted).verdict(wanted.batch_size, wanted.capacity_bytes).fits
        if shown is not None or self.reason_against(wanted) is not None:
            return shown or False
        return self._passes(wanted, quick) if alone else self._simulated_fits(wanted)

    def _simulated_fits(self, wanted: Conditions) -> bool:
        """Of batch sizes that a user asks for, those up to the largest one that passes fit, though
        a smaller one may leave worse pieces of free memory. Other conditions are parts of
        plans."""

        def simulate() -> bool:
            batch, changes = wanted.batch_size, (wanted.frozen, wanted.accumulate, wanted.recompute)
            most = None if any(changes) else self.largest_batch_size(wanted, asked=batch)
            return self._passes(wanted) if most is None or batch is None else batch <= most

        return _once(self._known, ("fits", wanted), simulate)

    def _passes(self, wanted: Conditions, quick: bool = False) -> bool:
        """Whether all simulations and the peak's range pass; with `quick`, one short simulation."""
        capacity = wanted.capacity_bytes or 0
        variants, count = (1, SIMULATED_STEPS) if quick else (LASTING_VARIANTS, LASTING_STEPS)

        def simulate() -> bool:
            changed = self.case(wanted).changed
            # those that failed most are tried first
            orders = sorted(range(variants), key=self._failures.__getitem__, reverse=True)
            failing = first_failing(changed, self.rules, self.may_fail, capacity, orders, count)
            self._failures.update(() if failing is None else (failing,))
            return failing is None

        passes = _once(self._tried, (wanted, quick), simulate)
        return passes and (quick or self.peaks(wanted).peak.high_bytes <= capacity)

    def is_within(self, budget: int, conditions: Conditions) -> bool:
        """Whether the whole range of the peak and the first step are within a budget, and the
        training fits."""
        peak = self.peaks(conditions).peak
        if conditions.accumulate and peak.low_bytes <= budget and self.ask(conditions):
            peak = self.peaks(conditions).peak  # the answer narrows the range
        most = max(peak.high_bytes, self.first_bytes(conditions))
        return most <= budget and self.fits(conditions)

    def peaks(self, conditions: Conditions) -> PeakParts:
        """The peaks under conditions that `reason_against` allows: measured, or else simulated
        without a limit."""
        key = dataclasses.replace(self._filled(conditions), capacity_bytes=None)
        measured = self._evidence_for(key).ran.get(key.batch_size or 0)
        if measured is not None:
            return recorded_parts(self.later, key.batch_size, measured.peak)

        def simulate() -> PeakParts:
            bias, case = self.bias, self.case(key)
            recorded = self.evidence.ran.get(case.changed.high[-1].requests.batch_size or 0)
            found = simulated(case.changed, self.rules, self.may_fail)
            return simulated_parts(case, found, bias, recorded and recorded.peak, self.later[-1])

        return _once(self._known, ("peaks", key), simulate)

    def first_bytes(self, conditions: Conditions) -> int:
        """Peak of the first step, with the slots that it made; 0 for others, or if unknown."""
        if conditions.frozen or conditions.optimizer:
            return 0
        return first_step_bytes(self.case(conditions).changed, self.rules, self.may_fail)

    def peak_in_one_piece(self, conditions: Conditions) -> int:
        """Peak as if free memory were always in one piece: less than any real allocator needs."""
        return least_bytes(self.case(conditions).changed, self.may_fail)

    def case(self, conditions: Conditions) -> Case:
        wanted = self._filled(conditions)
        return make_case(self.first, self.later, wanted, self.layers, self.answers.sizes(wanted))

    def largest_batch_size(
        self, conditions: Conditions, below: int = MAX_BATCH_SIZE + 1, asked: int | None = None
    ) -> int | None:
        """The largest batch size, smaller than `below`, at which every simulated step passes within
        the capacity; 0 if none does, None if that is unknown. For `asked` see `largest`."""
        wanted = dataclasses.replace(self._filled(conditions), batch_size=None)
        key = ("largest", wanted, below)
        if asked is None or key in self._known:
            return _once(self._known, key, lambda: self._largest(wanted, below))
        return self._largest(wanted, below, asked)

    def _largest(self, wanted: Conditions, below: int, asked: int | None = None) -> int | None:
        capacity, is_usable = wanted.capacity_bytes, self.reason_against(wanted) is None
        if capacity is None or not (is_usable and self.knows_other_batch_sizes):
            return None

        def sized(size: int) -> Conditions:
            return dataclasses.replace(wanted, batch_size=size)

        evidence = self._evidence_for(wanted)
        end = min(below, evidence.smallest_failed(capacity) or below)
        if asked is not None and asked < min(EVERY_SIZE, end) and self.fits(sized(asked), True):
            return asked  # the search finds it as well, but may try many larger ones first
        planned = [size for size in self.answers.sizes(RECORDED) if size < end]
        known = [size for size in planned if self.fits(sized(size), alone=True)]
        return largest(
            min(max(evidence.largest(capacity), *known, 0), end - 1),
            end,
            possible=lambda size: self.peak_in_one_piece(sized(size)) <= capacity,
            passes=lambda size: self.fits(sized(size), alone=True),
            asked=asked,
        )

    def _filled(self, conditions: Conditions) -> Conditions:
        """With the recorded batch size and capacity where others are not asked for."""
        batch = self.batch_size if conditions.batch_size is None else conditions.batch_size
        capacity = conditions.capacity_bytes or self.capacity_bytes
        return dataclasses.replace(conditions, batch_size=batch, capacity_bytes=capacity)

    def _evidence_for(self, conditions: Conditions) -> Evidence:
        """What the run shows of conditions: nothing if more than batch or capacity is changed."""
        same = dataclasses.replace(conditions, batch_size=None, capacity_bytes=None)
        if same.precision == recorded_precision(self.layers):
            same = dataclasses.replace(same, precision=None)
        return self.evidence if same == RECORDED else NOTHING


_simulated: "weakref.WeakKeyDictionary[StepRequests, dict[Hashable, dict[Hashable, Any]]]" = (
    weakref.WeakKeyDictionary()
)


def _tried_with(steps: tuple[StepRequests, ...], layers: tuple[Layer, ...]) -> dict[Hashable, Any]:
    """Whether simulated trainings of these steps pass: the same for fixes, plans and other
    questions, as no evidence changes it. Kept as long as the last step."""
    same = *map(weakref.ref, steps), layers
    return _simulated.setdefault(steps[-1], {}).setdefault(same, {})


def _once(known: dict[Hashable, Any], key: Hashable, compute: Callable[[], _Value]) -> _Value:
    """What is known of a key, or else computed now; the oldest is forgotten."""
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
    # Devices with recorded requests, the fullest accelerator first, then all others.
    known = {one.device: 0 for one in run.requests}
    for one in run.snapshots:
        if one.device in known and not is_cpu(one.device):
            known[one.device] = max(known[one.device], one.in_use_bytes)
    devices = sorted(
        (facts.device for facts in device_facts(run)),
        key=lambda device: -known.get(device, -1),
    )
    if not devices or (device is not None and device not in devices):
        raise NotFoundError(
            f"no device {device!r:.80} in this run; available: {', '.join(devices) or 'none'}"
            if device is not None
            else "this run has no records of a device's memory"
        )
    return device or devices[0]
