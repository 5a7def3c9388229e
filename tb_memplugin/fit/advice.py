"""Finds changes with which a recorded training fits: into a budget at the least cost, and after a
failure. Pure.

Both simulate `Conditions` in order of preference. A plan is the cheapest change whose whole range
is within a budget. A fix of a failed allocation counts only if the simulation of the failed
training fails as well, and if every step of the changed training passes in the simulation."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from tb_memplugin.fit.asking import MOST_ASKED, Ask, Measure, Measured
from tb_memplugin.fit.conditions import RECORDED, TOO_LITTLE, Conditions, Interval, globs_of
from tb_memplugin.fit.evidence import (
    NOTHING,
    Evidence,
    layer_table_of,
    measured_peak,
    recorded_evidence,
    recorded_program,
)
from tb_memplugin.fit.plans import (
    Applied,
    Kind,
    Plan,
    PlanOption,
    PlanPoint,
    besides_memory,
    code_of,
    format_time,
)
from tb_memplugin.fit.prediction import Prediction, by_category
from tb_memplugin.fit.predictor import SPARE, Predictor, bisected, largest
from tb_memplugin.fit.segments import (
    Recomputing,
    SegmentSearch,
    Units,
    units_of,
    unsuitable_recording,
)
from tb_memplugin.fit.simulation import NO_LIMIT, FailedRequest, peak_in_one_piece
from tb_memplugin.fit.steps import SizedStep, sizes_for
from tb_memplugin.fit.trained import (
    LEAST_SAVED,
    MOST_TRAINED,
    TRAINED,
    Trained,
    cheapest_first,
    switches,
)
from tb_memplugin.schema import (
    Fix,
    FixKind,
    Layer,
    LedgerRow,
    Oom,
    Run,
    StepRequests,
    counted,
    format_bytes,
    is_gpu,
    owned,
    recorded_precision,
    values_of,
)

MOST_PARTS = 16
"""Most batches that gradients are accumulated over."""
SEARCHED_PARTS = (2, 4, 8, 16)
"""Numbers of batches that are tried together with recomputation, which takes a search for each."""
CURVE_POINTS = 4
"""Points of the curve that are simulated beside those that the search simulates."""
FREEZING_PARTS = 32
"""Parts of a model's layers whose freezing is told apart."""
NAMED_CATEGORIES = 4
"""Categories that a sentence on the smallest peak names."""
MAX_FIXED = 8
"""Failures of a run, the last ones, whose fixes are simulated where nobody asks for one of them."""
MOST_ACCUMULATED = 1024
"""Most batches that gradients are accumulated over."""
_UNKNOWN_REST = (
    "No fix could be simulated: the first step ran out of memory, so the rest of it is unknown."
)
_MEASURE = "To measure what fits: print(tb_memplugin.largest_batch_size(model, data))"
_BYTES = ("peak_bytes", "low_bytes", "high_bytes")
_OF_OPTION = (
    "segments",
    "batch_size",
    "accumulation",
    "peak_source",
    "extra_time",
    "time_source",
    *_BYTES,
)
"""What a plan has of its option."""


def plan_for(
    run: Run,
    device: str,
    budget: int | None = None,
    batch_size: int | None = None,
    ask: Ask | None = None,
    measure: Measure | None = None,
) -> Plan:
    """The cheapest change with which a run, with its requests, fits into a budget, by default the
    allocator's limit, and into its allocator; the batch size is by default the recorded one, `ask`
    as in `Predictor.of`. `measure` trains the run's model: without it, no change is offered whose
    effect no recording shows."""
    predictor = Predictor.of(run, device, ask)
    recorded = predictor.predict(Conditions(batch_size=batch_size), always=True)
    limit = recorded.capacity_bytes or 0
    budget = budget or limit
    withheld = recorded.assumptions if recorded.peak_bytes is None else ()
    if recorded.peak_bytes is not None:
        there = predictor.predict(Conditions(batch_size, max(budget, limit)), always=True)
        fits = there.fits and there.high_bytes is not None and there.high_bytes <= budget
        reason = None if fits else predictor.reason_against(RECORDED)
        # Otherwise it would be recorded the same way again.
        unsuitable = (
            unsuitable_recording(predictor.steps[-1], predictor.layers) if predictor.steps else None
        )
        size, most = format_bytes(recorded.peak_bytes), format_bytes(recorded.high_bytes)
        needed = f"As recorded, the training needs {size}, at most {most}."
        withheld = (needed, reason, *filter(None, [unsuitable])) if reason else ()
    if withheld and (measure is None or not predictor.steps):
        return Plan(
            device, budget, None, unchanged_peak_bytes=recorded.peak_bytes, sentences=withheld
        )
    return _Planner(predictor, run, device, budget, recorded, withheld).plan(measure)


class _Change(NamedTuple):
    """A change to try, and over how many batches it accumulates gradients."""

    kind: Kind
    sentence: str
    conditions: Conditions
    parts: int = 1


class _Planner:
    """Tries changes. With reasons why nothing can be simulated, `withheld`, only what steps are
    trained with."""

    def __init__(
        self,
        predictor: Predictor,
        run: Run,
        device: str,
        budget: int,
        same: Prediction,
        withheld: tuple[str, ...],
    ) -> None:
        self._predictor, self._layers = predictor, predictor.layers
        # A budget above the limit is that of a larger device.
        self._device, self._budget, self._capacity = (
            device,
            budget,
            max(budget, same.capacity_bytes or 0),
        )
        asks, self._withheld = predictor.answers is not None, bool(withheld)
        self._units = (
            Units(sentences=withheld)
            if withheld
            else units_of(run, predictor.steps[-1], self._layers, asks)
        )
        self._is_compiled = predictor.steps[-1].mode == "xla"
        table = next((one for one in reversed(run.layer_tables) if one.optimizer), None)
        self._optimizer = "Optimizer" if table is None else str(table.optimizer)
        self._root = f"{self._layers[0].path}/" if self._layers else ""
        self._searches: dict[Conditions, SegmentSearch] = {}
        self._conditions: dict[PlanOption, Conditions] = {}
        recorded = Conditions(same.batch_size)
        larger = max(1.0, (same.batch_size or 1) / (predictor.batch_size or 1))
        in_proportion = (measured_peak(run, device, predictor.steps) or NO_LIMIT) * larger
        self._has_room = (
            in_proportion <= (predictor.capacity_bytes or 0)
            if withheld
            else predictor.fits(recorded)
        )
        fits = "fits " if not withheld and self._fits(recorded) else ""
        is_recorded = same.batch_size in (None, *predictor.batch_sizes)
        how = f"{fits}as recorded" if is_recorded else f"{fits}with batch size {same.batch_size}"
        peak = (same.peak_bytes, same.low_bytes, same.high_bytes)
        self._same = PlanOption(
            "none", f"no change: {how}", (), same.batch_size, 1, *peak, False, 0.0
        )
        if withheld and same.method == "recorded":
            self._same = dataclasses.replace(self._same, peak_source="measured")
        if not withheld:
            self._same = self._described(_Change("none", self._same.sentence, recorded))

    def plan(self, measure: Measure | None) -> Plan:
        options, trained = (
            [self._same, *([] if self._same.fits or self._withheld else self._options())],
            list[str](),
        )
        if not self._same.fits and measure is not None:
            options, trained = self._train(options, measure)
        chosen = next((option for option in options if option.fits), None)
        sentences = [
            *(besides_memory(chosen, self._layers) if chosen else ()),
            *self._units.sentences,
            *trained,
        ]
        least = chosen or min(options, key=lambda option: option.high_bytes or NO_LIMIT)
        # Of trained steps the peak is known, and nothing else.
        peaks = (
            self._predictor.peaks(self._conditions[least]) if least in self._conditions else None
        )
        ledger = () if peaks is None else peaks.ledger
        if chosen is None and not self._withheld:
            found = f"{format_bytes(least.peak_bytes)}, at most {format_bytes(least.high_bytes)}"
            sentences.insert(
                0,
                f"The smallest peak that was found is {found} "
                f"({least.sentence}){_holding(ledger)}.",
            )
        return Plan(
            device=self._device,
            budget_bytes=self._budget,
            fits=None if self._withheld and chosen is None else least.fits,
            **{name: getattr(least, name) for name in _OF_OPTION},
            unchanged_peak_bytes=options[0].peak_bytes,
            demand_bytes=None if peaks is None else peaks.demand_bytes,
            code=code_of(least, self._optimizer, self._layers, self._is_compiled)
            if least.fits
            else "",
            options=tuple(options),
            curve=self._curve(),
            ledger=ledger,
            sentences=tuple(sentences),
            model=self._root.rstrip("/"),
        )

    def _train(
        self, options: Sequence[PlanOption], measure: Measure
    ) -> tuple[list[PlanOption], list[str]]:
        """The options with what steps show that are trained with the best ones and with `switches`,
        and sentences."""
        unchanged, *changed = options
        same, added = self._measured(unchanged, measure), switches(unchanged, self._is_compiled)
        grows = self._predictor.rules is None or self._predictor.rules.grows
        trained = Trained(same, self._budget, self._is_compiled, grows, self._predictor.spread)
        found = {unchanged: same}
        for option in [one for one in changed if one.fits and one.kind in TRAINED][:MOST_TRAINED]:
            found[option] = self._measured(option, measure)
            if trained.option(option, found[option]).fits:
                break
        found |= {option: self._measured(option, measure) for option in added}
        known = {option: trained.option(option, one) for option, one in found.items()}
        begins = (
            self._withheld
            or self._predictor.first_bytes(self._conditions[unchanged]) <= self._budget
        )
        known[unchanged] = dataclasses.replace(
            known[unchanged], fits=known[unchanged].fits and begins
        )
        predicted = [
            one
            for one in known
            if one in self._conditions and known[one].peak_source == "predicted"
        ]
        self._conditions |= {known[one]: self._conditions[one] for one in predicted}
        enough = ((same.peak and same.peak.typical_bytes) or unchanged.peak_bytes or 0) * (
            1 - LEAST_SAVED
        )
        saving = [
            known[one]
            for one in added
            if found[one].peak and (known[one].peak_bytes or 0) <= enough
        ]
        ordered = cheapest_first([*(known.get(one, one) for one in changed), *saving])
        return [known[unchanged], *ordered], [f"{one.sentence}: {of}" for one, of in found.items()]

    def _measured(self, option: PlanOption, measure: Measure) -> Measured:
        conditions = self._conditions.get(option)
        has_room = (
            self._predictor.fits(conditions)
            if conditions
            else self._has_room or is_gpu(self._device)
        )
        return (
            measure(option)
            if has_room
            else Measured(None, None, "this device may not have the memory")
        )

    def _options(self) -> Iterator[PlanOption]:
        """Changes in order of preference.

        The first trains the same. Accumulation keeps the effective batch, but batch norm then sees
        smaller batches. The others change the training: a smaller batch, an optimizer without
        slots, half precision, and frozen layers, which no longer learn. Combinations follow where
        no single change is enough."""
        batch = self._same.batch_size
        alone = self._first([_Change("recompute", "", Conditions(batch))], recompute=True)
        found = [alone]
        if batch is not None:
            sizes = {
                count: batch // count for count in range(2, MOST_PARTS + 1) if batch % count == 0
            }
            said = "gradient accumulation over {} batches of {}".format
            parts = [
                _Change("accumulate", said(n, of), Conditions(of, accumulate=True), n)
                for n, of in sizes.items()
            ]
            has_slots = any(layer.optimizer_bytes for layer in self._layers)
            sgd = [
                _Change("optimizer", "SGD without momentum", Conditions(batch, optimizer="sgd"))
            ][:has_slots]
            found.append(self._first(parts))
            fits = any(one is not None and one.fits for one in found)
            if not fits:
                found.append(
                    self._first(
                        [one for one in parts if one.parts in SEARCHED_PARTS], recompute=True
                    )
                )
            changing = [self._smaller(batch, asks=not fits), self._first(sgd)]
            if recorded_precision(self._layers) in (None, "float32"):
                half = Conditions(batch, precision="mixed_float16")
                sentence = "mixed_float16, on a device that supports it"
                changing.append(self._first([_Change("precision", sentence, half)]))
            changing.append(self._freezing(batch))
            found += changing
            if not fits and not any(one is not None and one.fits for one in changing):
                found += [self._first(sgd, recompute=True), self._smaller(batch, recompute=True)]
        return filter(None, found)

    def _first(self, changes: Sequence[_Change], recompute: bool = False) -> PlanOption | None:
        """The first change that fits; else the last one, if it can be simulated."""
        for change in changes:
            found = None
            if recompute:
                search = self._search(change.conditions)
                # The segments that fit at the least time, those of the smallest peak if none fit.
                found = None if search is None else search.cheapest(self._budget)
                if found is None:
                    continue
            elif self._predictor.reason_against(change.conditions) is not None:
                continue
            if change is changes[-1] or self._fits(_with(change.conditions, found)):
                return self._described(change, found)
        return None

    def _smaller(
        self, batch: int, recompute: bool = False, asks: bool = False
    ) -> PlanOption | None:
        """The largest smaller batch that fits, else one example. With `asks`, a compiler plans what
        is found."""

        def changed(size: int) -> list[_Change]:
            return [
                _Change("batch_size", f"batch size {size} instead of {batch}", Conditions(size))
            ]

        def possible(size: int) -> bool:
            search = self._search(Conditions(size)) if recompute else None
            return (
                search.smallest_bytes if search else self._predictor.peak_in_one_piece(size)
            ) <= self._budget

        def passes(size: int) -> bool:
            return bool((option := self._first(changed(size), recompute)) and option.fits)

        if batch < 2 or (recompute and not len(self._units)):
            return None
        for _ in range(1 + MOST_ASKED * asks):
            size = largest(0, batch, possible, passes)
            if not (asks and size and self._predictor.ask(Conditions(size))):
                break
        return self._first(changed(max(1, size)), recompute)

    def _freezing(self, batch: int) -> PlanOption | None:
        """Freezing as few layers as needed, from the model's first on; all but the last if that is
        not enough."""
        trained = [layer.path for layer in self._layers if layer.trainable_weight_bytes]

        def frozen(count: int) -> PlanOption | None:
            sentence = f"freeze the first {counted(count, 'trainable layer')}"
            return self._first(
                [_Change("freeze", sentence, Conditions(batch, frozen=tuple(trained[:count])))]
            )

        def fits(at: int) -> bool:
            return bool((option := frozen(counts[at])) and option.fits)

        most, last = max(0, len(trained) - 1), FREEZING_PARTS - 1
        counts = [-(-most * part // FREEZING_PARTS) for part in range(1, FREEZING_PARTS + 1)]
        return frozen(counts[bisected(last, -1, fits) if fits(last) else last]) if most else None

    def _fits(self, wanted: Conditions) -> bool:
        """Whether the range and the first step are within the budget, and `what_if` says they fit
        into the limit."""
        within = dataclasses.replace(wanted, capacity_bytes=self._capacity)
        if wanted.accumulate and self._predictor.peaks(wanted).peak.low_bytes <= self._budget:
            self._predictor.ask(wanted)  # the answer narrows the range
        most = max(
            self._predictor.peaks(wanted).peak.high_bytes, self._predictor.first_bytes(wanted)
        )
        return most <= self._budget and self._predictor.fits(within)

    def _described(self, change: _Change, found: Recomputing | None = None) -> PlanOption:
        wanted = _with(change.conditions, found)
        again = [] if found is None else [recompute_sentence(found.segments)]
        time = 0.0 if change.kind == "none" else None
        if found and change.kind == "recompute" and not self._is_compiled:
            time = found.extra_time
        fits = self._fits(wanted)  # it may ask a compiler
        peak = (parts := self._predictor.peaks(wanted)).peak
        is_known = fits or change.kind == "none" or not peak.says_little
        first = self._predictor.first_bytes(wanted)
        is_less = peak.high_bytes < first and (
            change.kind == "none" or peak.high_bytes <= self._budget < first
        )
        begins = (
            (f"The first step needs {format_bytes(first)}, as it makes the optimizer's slots.")
            if is_less
            else None
        )
        option = PlanOption(
            kind=cast(Kind, f"recompute_and_{change.kind}")
            if found and change.kind != "recompute"
            else change.kind,
            sentence="; ".join([*again, *filter(None, [change.sentence])]),
            segments=() if found is None else inside(self._root, found.segments),
            batch_size=wanted.batch_size,
            accumulation=change.parts,
            **(peak.as_peak() if is_known else dict.fromkeys(_BYTES)),
            fits=fits,
            extra_time=time,
            peak_source=parts.source,
            time_source=self._units.time_source,
            frozen=tuple(path.removeprefix(self._root) for path in wanted.frozen),
            reason=begins
            if is_known
            else " ".join([TOO_LITTLE, *self._predictor.assumptions(wanted)]),
        )
        self._conditions[option] = wanted
        return option

    def _search(self, conditions: Conditions) -> SegmentSearch | None:
        if not len(self._units):
            return None
        if conditions not in self._searches:
            within = dataclasses.replace(conditions, capacity_bytes=self._capacity)
            self._searches[conditions] = SegmentSearch(self._predictor, self._units, within)
        return self._searches[conditions]

    def _curve(self) -> tuple[PlanPoint, ...]:
        """The curve at the recorded batch size, which ends with the training as recorded; empty if
        nothing saves."""
        search, same = self._search(Conditions(self._same.batch_size)), self._same
        search = None if self._is_compiled else search  # each point would ask the compiler
        same_peak = same.peak_bytes or 0
        found = [] if search is None else search.curve(CURVE_POINTS)
        points = [
            PlanPoint(
                **one.parts.peak.as_peak(), extra_time=one.extra_time, segments=len(one.segments)
            )
            for one in found
            if one.parts.peak.typical_bytes < same_peak and one.extra_time > 0
        ]
        return (
            (*points, PlanPoint(**values_of(same, *_BYTES), extra_time=0.0, segments=0))
            if points
            else ()
        )


def _with(conditions: Conditions, found: Recomputing | None) -> Conditions:
    return (
        conditions if found is None else dataclasses.replace(conditions, recompute=found.segments)
    )


def inside(root: str, segments: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(path.removeprefix(root) for path in segment) for segment in segments)


def recompute_sentence(segments: Sequence[Sequence[str]]) -> str:
    layers = sum(len(segment) for segment in segments)
    return f"recompute {counted(len(segments), 'segment')} with {counted(layers, 'layer')}"


def _holding(ledger: Sequence[LedgerRow]) -> str:
    sums = by_category(ledger).most_common(NAMED_CATEGORIES)
    largest = [f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in sums]
    return f": {', '.join(largest)}" if largest else ""


class Advice(NamedTuple):
    """The fixes, and a sentence on why there are none, or on what their simulation shows
    differently; None without. The peak of the training as it failed, in a simulation without a
    limit, if there are fixes."""

    fixes: tuple[Fix, ...]
    note: str | None
    unchanged: Interval | None = None


def advice(session: Run, oom: Oom) -> Advice:
    """The fixes of a session's failure; its requests include steps that a later session repeats.
    Takes some seconds."""
    if oom.phase is None:
        return Advice(
            (),
            "No fix could be simulated: memory ran out outside of steps, and only steps are "
            "simulated.",
        )
    before = [one for one in session.requests if one.wall_time <= oom.wall_time]
    steps = recorded_program(before, oom.device, oom.phase)
    if not any(not one.first for one in steps):
        if oom.requests is None:
            measure = f" {_MEASURE}" if oom.phase == "train" else ""
            return Advice(
                (), f"No fix could be simulated: no whole step was traced before.{measure}"
            )
        steps = (oom.requests,)
    if not oom.batch_size:
        return Advice(
            (), "No fix could be simulated: the batch size of the failed step is unknown."
        )
    if oom.capacity_bytes is None:
        return Advice((), "No fix could be simulated: the allocator's capacity is unknown.")
    table = layer_table_of(session, steps)
    layers = () if table is None else table.layers
    if steps[-1] is oom.requests and not oom.requests.planned:
        return Advice((), _bound(oom.requests, layers, oom.batch_size, oom.capacity_bytes))
    until = oom.wall_time
    evidence = (
        recorded_evidence(session, oom.device, steps, until) if oom.phase == "train" else NOTHING
    )
    if evidence.growth is not None:
        return Advice((), f"No fix could be simulated. {evidence.growth}")
    predictor = Predictor(steps, layers, measured_peak(session, oom.device, steps, until))
    return simulated_fixes(predictor, oom, evidence, lambda: units_of(session, steps[-1], layers))


def _bound(until: StepRequests, layers: Sequence[Layer], failed: int, capacity: int) -> str:
    """Which batch sizes cannot fit, by a step's requests up to the one that failed and the slots
    that it would make."""
    lasting = sum(layer.weight_bytes + layer.optimizer_bytes for layer in layers)
    here = int(until.requested[owned(until, lambda owner: owner.category == "weights")].sum())
    # else some are on other devices
    if lasting > capacity and sum(layer.weight_bytes for layer in layers) <= here:
        size = f"{format_bytes(lasting)} of {format_bytes(capacity)}"
        return (
            f"{_UNKNOWN_REST} Weights and optimizer state alone need {size}, so no batch size fits."
        )

    def least(batch: int) -> int:
        return peak_in_one_piece(SizedStep(until, sizes_for(until, batch).low))

    possible = bisected(0, failed, lambda batch: least(batch) <= capacity)
    alone = (
        f"Its requests until the failure alone need {format_bytes(least(failed))} of "
        f"{format_bytes(capacity)}"
    )
    if not possible:
        return (
            f"{_UNKNOWN_REST} {alone}, and even with a batch size of 1 more than that. {_MEASURE}"
        )
    return f"{_UNKNOWN_REST} {alone}, so only batch sizes up to {possible} may fit. {_MEASURE}"


def with_advice(oom: Oom, found: Advice) -> Oom:
    notes = oom.not_available if found.note is None else (*oom.not_available, found.note)
    return dataclasses.replace(oom, fixes=found.fixes, not_available=notes)


def simulated_fixes(
    predictor: Predictor, oom: Oom, evidence: Evidence = NOTHING, units: Callable[[], Units] = Units
) -> Advice:
    """The fixes of a failure of known batch size and capacity.

    The predictor predicts from steps alone, as the failure itself is no evidence; no fix
    contradicts the `evidence`. The predictor's first layer is the model itself; `units` finds those
    that can be recomputed."""
    here = predictor.predict(Conditions(oom.batch_size, oom.capacity_bytes))
    if here.method == "unknown":
        return Advice((), "No fix could be simulated. " + " ".join(here.assumptions))
    if here.fits is not False:
        passes = (
            f"{'passes' if here.fits else 'may pass'}, so the simulation does not reproduce the "
            "failure."
        )
        return Advice((), f"No fix could be simulated: in the simulation, the failed step {passes}")
    finder = _Finder(predictor.bounded_by(evidence), oom, units)
    return Advice(tuple(finder.fixes()), _other_request(here.fails_at, oom.op), Interval.of(here))


def _other_request(simulated: FailedRequest | None, failed_op: str | None) -> str | None:
    """A sentence if the simulation fails at another request than the step did."""
    if (
        simulated is None
        or simulated.op is None
        or failed_op is None
        or simulated.op.endswith(failed_op)
    ):
        return None
    what = (
        "runs out of memory at a different request: "
        f"{format_bytes(simulated.requested_bytes)} "
        f"by {simulated.op}"
    )
    why = "Parallel operations request memory in a different order each time."
    return f"In the simulation, the failed step {what}. {why}"


class _Finder:
    def __init__(self, predictor: Predictor, oom: Oom, units: Callable[[], Units]) -> None:
        self._predictor, self._oom, self._units = predictor, oom, units
        self._failed, self._capacity_bytes = oom.batch_size or 0, oom.capacity_bytes or 0
        self._trained = [layer.path for layer in predictor.layers if layer.trainable_weight_bytes]

    def fixes(self) -> list[Fix]:
        is_training = self._oom.phase == "train"
        within = Conditions(capacity_bytes=self._capacity_bytes)
        largest = self._predictor.largest_batch_size(within, below=self._failed)
        # A batch of one example has no smaller one.
        fixes: list[Fix | None] = [
            None if largest is None or self._failed == 1 else self._batch(largest)
        ]
        if is_training:
            fixes.append(
                recomputing_fix(self._predictor, self._units(), self._failed, self._capacity_bytes)
            )
            fixes += [self._accumulation(largest) if largest else None, self._freezing()]
        if self._oom.verdict == "fragmentation":
            fixes.append(self._one_piece())
        fixes += [self._capacity(), self._precision() if is_training else None]
        return [fix for fix in fixes if fix is not None]

    def _passes(self, conditions: Conditions, quick: bool = False) -> bool:
        batch = conditions.batch_size or self._failed
        return self._predictor.passes(batch, self._capacity_bytes, conditions, quick)

    def _fix(
        self, kind: FixKind, change: str, conditions: Conditions, detail: str = "", **advice: Any
    ) -> Fix:
        """A fix that is enough, with its peak: simulated over whole steps, or that of such steps in
        the run."""
        capacity = conditions.capacity_bytes or self._capacity_bytes
        batch = conditions.batch_size or self._failed
        prediction = self._predictor.predict(
            dataclasses.replace(conditions, batch_size=batch, capacity_bytes=capacity)
        )
        how = "Recorded" if prediction.method == "recorded" else "Simulated"
        peak = prediction.peak_bytes
        sentence = (
            f"{change}{detail}. {how} peak: {format_bytes(peak)} of {format_bytes(capacity)}."
        )
        peaks = values_of(prediction, *_BYTES)
        return Fix(kind, change, sentence, enough=True, **peaks, **advice)

    def _batch(self, largest: int) -> Fix:
        before = self._failed
        if not largest:
            sentence = f"Simulated: even a batch size of 1 instead of {before} fails."
            return Fix("batch", "Batch size 1", sentence, enough=False)
        conditions, detail = Conditions(batch_size=largest), f" instead of {before}"
        return self._fix("batch", f"Batch size {largest}", conditions, detail, batch_size=largest)

    def _accumulation(self, largest: int) -> Fix | None:
        """The same effective batch in fewest parts; the sums of the gradients take as much as the
        weights."""
        before = self._failed
        for parts in range(2, min(before, MOST_ACCUMULATED) + 1):
            size = before // parts
            conditions = Conditions(batch_size=size, accumulate=True)
            if before % parts == 0 and size <= largest and self._passes(conditions):
                change = f"Gradient accumulation over {parts} batches of {size}"
                detail = f" (gradient_accumulation_steps={parts})"
                return self._fix("accumulation", change, conditions, detail, batch_size=size)
        return None

    def _freezing(self) -> Fix | None:
        """Freezing as few layers as needed, from the model's first on; the last one stays
        trainable."""
        most = len(self._trained) - 1
        if most < 1 or not self._passes(self._frozen(most)):
            return None
        passing = bisected(most, 0, lambda count: self._passes(self._frozen(count), quick=True))
        while passing < most and not self._passes(self._frozen(passing)):
            passing += 1
        paths = self._trained[:passing]
        which = (
            (f"the first {passing} trainable layers (up to {paths[-1]})")
            if passing > 1
            else paths[0]
        )
        return self._fix(
            "freezing", f"Freeze {which}", self._frozen(passing), freeze=globs_of(paths)
        )

    def _frozen(self, count: int) -> Conditions:
        return Conditions(frozen=tuple(self._trained[:count]))

    def _capacity(self) -> Fix:
        batch, capacity = self._failed, self._capacity_bytes
        found = self._predictor.enough_capacity(batch, capacity)
        if found is None:
            tried = format_bytes(self._predictor.most_capacity(batch, capacity))
            return Fix(
                "limit",
                f"Capacity {tried}",
                f"Simulated: a capacity of {tried} is not enough.",
                enough=False,
            )
        conditions, detail = (
            Conditions(capacity_bytes=found.bytes),
            (f" instead of {format_bytes(capacity)}"),
        )
        change = f"Capacity {format_bytes(found.bytes)}"
        return self._fix("limit", change, conditions, detail, capacity_bytes=found.bytes)

    def _one_piece(self) -> Fix:
        """The same training in a pool whose free memory is always in one piece."""
        needed, capacity = self._predictor.peak_in_one_piece(self._failed), self._capacity_bytes
        enough = needed * (1 + SPARE) <= capacity
        how = (
            ("TF_GPU_ALLOCATOR=cuda_malloc_async joins free pieces. ")
            if is_gpu(self._oom.device)
            else ""
        )
        change = "Free memory in one piece"
        size = (
            f"{format_bytes(needed)} of {format_bytes(capacity)}, which is "
            f"{'enough' if enough else 'not enough'}"
        )
        sentence = f"{change}. {how}Simulated without fragmentation: peak {size}."
        return Fix(
            "unfragmented",
            change,
            sentence,
            enough=enough,
            **Interval(needed, needed, needed).as_peak(),
        )

    def _precision(self) -> Fix | None:
        capacity = self._capacity_bytes
        if recorded_precision(self._predictor.layers) not in (None, "float32"):
            return None  # it computes in half precision already
        conditions = Conditions(self._failed, capacity, precision="mixed_float16")
        prediction = self._predictor.predict(conditions)
        if prediction.low_bytes is None or prediction.low_bytes > capacity:
            return None
        change = "Mixed precision"
        span = f"{Interval.of(prediction).span} of {format_bytes(capacity)}"
        sentence = (
            f"{change} (mixed_float16, on a device that supports it). Estimated peak: {span}."
        )
        return Fix(
            "precision",
            change,
            sentence,
            low_bytes=prediction.low_bytes,
            high_bytes=prediction.high_bytes,
        )


def recomputing_fix(predictor: Predictor, units: Units, batch: int, capacity: int) -> Fix | None:
    """The segments with which the failed training passes at the least time; None if none are
    enough."""
    if not len(units):
        return None
    search = SegmentSearch(predictor, units, Conditions(batch, capacity))
    found = search.cheapest(capacity)
    if found is None or not search.fits(found, capacity):
        return None
    segments = inside(f"{predictor.layers[0].path}/", found.segments)
    what = recompute_sentence(segments)
    code = code_of(Applied("recompute", segments), "", predictor.layers)
    change, peak = f"{what[0].upper()}{what[1:]}", found.parts.peak
    size = f"{format_bytes(peak.typical_bytes)} of {format_bytes(capacity)}"
    sentence = (
        f"{change} in the backward pass. Simulated peak: {size}, about "
        f"{format_time(found.extra_time)} time."
    )
    return Fix(
        "recompute",
        change,
        sentence,
        enough=True,
        budget_bytes=peak.high_bytes,
        **peak.as_peak(),
        code=code,
    )
