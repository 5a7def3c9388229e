"""Finds the change with which a recorded training fits into a budget at the least cost. Pure.

Changes are simulated in order of preference. A plan is the first one whose whole range is within
the budget, or one that steps were trained with."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from tb_memplugin.fit.asking import MOST_ASKED, Ask, Measure
from tb_memplugin.fit.conditions import PEAK, RECORDED, TOO_LITTLE, Conditions
from tb_memplugin.fit.evidence import OtherFailure
from tb_memplugin.fit.plans import (
    Kind,
    Plan,
    PlanOption,
    PlanPoint,
    besides_memory,
    code_of,
    compiled_with,
)
from tb_memplugin.fit.prediction import Prediction, by_category
from tb_memplugin.fit.predictor import Predictor
from tb_memplugin.fit.recording import NO_BATCH_SIZE
from tb_memplugin.fit.search import bisected, largest
from tb_memplugin.fit.segments import (
    SegmentSearch,
    Units,
    inside,
    recompute_sentence,
    units_of,
    unsuitable_recording,
)
from tb_memplugin.fit.simulation import NO_LIMIT
from tb_memplugin.fit.trained import Tried, trained_options
from tb_memplugin.schema import (
    LedgerRow,
    Run,
    counted,
    format_bytes,
    is_gpu,
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
_OF_OPTION = (
    "segments",
    "batch_size",
    "accumulation",
    "peak_source",
    "extra_time",
    "time_source",
    *PEAK,
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
    recorded = predictor.predict(Conditions(batch_size), always=True)
    limit = recorded.capacity_bytes or 0
    budget = budget or limit
    # A budget above the limit is that of a larger device.
    same = Conditions(recorded.batch_size, max(budget, limit))
    withheld = _withheld(predictor, recorded, same, budget)
    if withheld and (measure is None or not predictor.steps):
        peak = recorded.peak_bytes
        return Plan(device, budget, None, unchanged_peak_bytes=peak, sentences=withheld)
    is_recorded = same.batch_size in (None, *predictor.batch_sizes)
    how = "as recorded" if is_recorded else f"with batch size {same.batch_size}"
    if withheld:
        units = Units(sentences=withheld)
        options = [Tried(_unsimulated(recorded, how), None)]
    else:
        asks = predictor.answers.are_possible
        units = units_of(run, predictor.steps[-1], predictor.layers, asks)
    if compiled_with(run) == "tf_keras" and len(units):
        units = Units(sentences=("Recomputation takes a model of Keras 3.",))
    changes = _Changes(predictor, units, budget, same)
    if not withheld:
        options = changes.options(how)
    other = predictor.evidence.other_failure
    if other is not None and options[0].option.fits:
        return _failed_elsewhere(options[0].option, other, device, budget)
    trained: list[str] = []
    if measure is not None and not options[0].option.fits:
        has_room = is_gpu(device) or _has_room(predictor, same, bool(withheld))
        options, trained = trained_options(predictor, options, budget, has_room, measure)
    chosen = next((one for one in options if one.option.fits), None)
    least = chosen or min(options, key=lambda one: one.option.high_bytes or NO_LIMIT)
    # Of trained steps the peak is known, and nothing else.
    parts = None if least.conditions is None else predictor.peaks(least.conditions)
    ledger = () if parts is None else parts.ledger
    sentences = [*units.sentences, *trained]
    code = ""
    if chosen is not None:
        table = next((one for one in reversed(run.layer_tables) if one.optimizer), None)
        optimizer = "Optimizer" if table is None else str(table.optimizer)
        is_xla = changes.is_compiled
        code = code_of(chosen.option, optimizer, predictor.layers, is_xla, compiled_with(run))
        sentences = [*besides_memory(chosen.option, predictor.layers), *sentences]
    elif not withheld:
        unnamed = () if predictor.batch_size else (NO_BATCH_SIZE,)
        sentences = [_smallest(least.option, ledger), *unnamed, *sentences]
    fits = None if withheld and chosen is None else chosen is not None
    if other is not None:
        sentences, fits = [other.sentence, *sentences], None if fits else fits
    return Plan(
        device=device,
        budget_bytes=budget,
        fits=fits,
        **{name: getattr(least.option, name) for name in _OF_OPTION},
        unchanged_peak_bytes=options[0].option.peak_bytes,
        demand_bytes=None if parts is None else parts.demand_bytes,
        code=code,
        options=tuple(one.option for one in options),
        curve=changes.curve(options[0].option),
        ledger=ledger,
        sentences=tuple(sentences),
        model=changes.root.rstrip("/"),
    )


def _failed_elsewhere(same: PlanOption, failure: OtherFailure, device: str, budget: int) -> Plan:
    """Where training steps fit and the run does not, no change of training is a plan."""
    sentence = "no change: training steps fit as recorded, the run does not"
    option = dataclasses.replace(same, sentence=sentence, fits=False)
    return Plan(
        device=device,
        budget_bytes=budget,
        fits=failure.fits(same.batch_size, budget),
        batch_size=same.batch_size,
        **values_of(same, "peak_source", *PEAK),
        unchanged_peak_bytes=same.peak_bytes,
        options=(option,),
        sentences=(failure.sentence,),
    )


def _withheld(
    predictor: Predictor, recorded: Prediction, same: Conditions, budget: int
) -> tuple[str, ...]:
    """Why no change can be simulated, as sentences; empty if changes can, or need not."""
    if recorded.peak_bytes is None:
        return recorded.assumptions
    there = predictor.predict(Conditions(same.batch_size, same.capacity_bytes), always=True)
    fits = there.fits and there.high_bytes is not None and there.high_bytes <= budget
    reason = None if fits else predictor.reason_against(RECORDED)
    if reason is None:
        return ()
    size, most = format_bytes(recorded.peak_bytes), format_bytes(recorded.high_bytes)
    needed = f"As recorded, the training needs {size}, at most {most}."
    # Otherwise it would be recorded the same way again.
    steps, layers = predictor.steps, predictor.layers
    unsuitable = unsuitable_recording(steps[-1], layers) if steps else None
    return (needed, reason, *filter(None, [unsuitable]))


def _unsimulated(recorded: Prediction, how: str) -> PlanOption:
    """The training as it is, where nothing can be simulated."""
    return PlanOption(
        kind="none",
        sentence=f"no change: {how}",
        segments=(),
        batch_size=recorded.batch_size,
        accumulation=1,
        **values_of(recorded, *PEAK),
        fits=None if recorded.peak_bytes is None else False,
        extra_time=0.0,
        peak_source="measured" if recorded.method == "recorded" else "predicted",
    )


def _has_room(predictor: Predictor, same: Conditions, is_withheld: bool) -> bool:
    """Whether this device has the memory for the training as it is."""
    if not is_withheld:
        return predictor.fits(Conditions(same.batch_size))
    larger = max(1.0, (same.batch_size or 1) / (predictor.batch_size or 1))
    needed = (predictor.measured_bytes or NO_LIMIT) * larger
    return needed <= (predictor.capacity_bytes or 0)


def _smallest(least: PlanOption, ledger: Sequence[LedgerRow]) -> str:
    """A sentence on the smallest peak that was found, and what holds most of it."""
    largest = [
        f"{name.replace('_', ' ')} {format_bytes(size)}"
        for name, size in by_category(ledger).most_common(NAMED_CATEGORIES)
    ]
    held = f": {', '.join(largest)}" if largest else ""
    found = f"{format_bytes(least.peak_bytes)}, at most {format_bytes(least.high_bytes)}"
    return f"The smallest peak that was found is {found} ({least.sentence}){held}."


class _Change(NamedTuple):
    """A change to try, and over how many batches it accumulates gradients."""

    kind: Kind
    sentence: str
    conditions: Conditions
    parts: int = 1
    extra_time: float | None = None


class _Changes:
    """Tries changes of the training `same`, whose capacity the training must fit into as well."""

    def __init__(self, predictor: Predictor, units: Units, budget: int, same: Conditions) -> None:
        self._predictor, self._layers = predictor, predictor.layers
        self._units, self._budget, self._same = units, budget, same
        self._searches: dict[Conditions, SegmentSearch] = {}
        self.is_compiled = predictor.steps[-1].mode == "xla"
        self.root = f"{self._layers[0].path}/" if self._layers else ""

    def options(self, how: str) -> list[Tried]:
        """The training as it is, and if it does not fit, changes in order of preference.

        The first trains the same. Accumulation keeps the effective batch, but batch norm then sees
        smaller batches. The others change the training: a smaller batch, an optimizer without
        slots, half precision, and frozen layers, which no longer learn. Combinations follow where
        no single change is enough."""
        same = self._described(_Change("none", f"no change: {how}", self._same, extra_time=0.0))
        if same.option.fits:
            option = dataclasses.replace(same.option, sentence=f"no change: fits {how}")
            return [same._replace(option=option)]
        batch = self._same.batch_size
        alone = self._first([_Change("recompute", "", self._same)], recompute=True)
        if batch is None:
            return [same, *alone]
        parts = [
            _Change(
                "accumulate",
                f"gradient accumulation over {count} batches of {batch // count}",
                self._with(batch_size=batch // count, accumulate=True),
                count,
            )
            for count in range(2, MOST_PARTS + 1)
            if batch % count == 0
        ]
        found = [*alone, *self._first(parts)]
        fits = _one_fits(found)
        if not fits:
            searched = [one for one in parts if one.parts in SEARCHED_PARTS]
            found += self._first(searched, recompute=True)
        sgd = []
        if any(layer.optimizer_bytes for layer in self._layers):
            sgd.append(_Change("optimizer", "SGD without momentum", self._with(optimizer="sgd")))
        changing = [*self._smaller(batch, asks=not fits), *self._first(sgd)]
        if recorded_precision(self._layers) in (None, "float32"):
            half = self._with(precision="mixed_float16")
            sentence = "mixed_float16, on a device that supports it"
            changing += self._first([_Change("precision", sentence, half)])
        changing += self._freezing()
        if not fits and not _one_fits(changing):
            changing += self._first(sgd, recompute=True)
            changing += self._smaller(batch, recompute=True)
        return [same, *found, *changing]

    def _with(self, **changes: Any) -> Conditions:
        return dataclasses.replace(self._same, **changes)

    def _first(self, changes: Sequence[_Change], recompute: bool = False) -> list[Tried]:
        """The first change that fits; else the last one, if it can be simulated."""
        for change in changes:
            tried = self._recomputing(change) if recompute else change
            if tried is None or self._predictor.reason_against(tried.conditions) is not None:
                continue
            is_last = change is changes[-1]
            if is_last or self._predictor.is_within(self._budget, tried.conditions):
                return [self._described(tried)]
        return []

    def _recomputing(self, change: _Change) -> _Change | None:
        """The change with the segments that fit at the least time, those of the smallest peak if
        none fit; None if none save anything."""
        search = self._search(change.conditions)
        found = None if search is None else search.cheapest(self._budget)
        if found is None:
            return None
        sentence = recompute_sentence(found.segments)
        if change.kind == "recompute":
            time = None if self.is_compiled else found.extra_time
            return change._replace(sentence=sentence, conditions=found.conditions, extra_time=time)
        return change._replace(
            kind=cast(Kind, f"recompute_and_{change.kind}"),
            sentence=f"{sentence}; {change.sentence}",
            conditions=found.conditions,
        )

    def _smaller(self, batch: int, recompute: bool = False, asks: bool = False) -> list[Tried]:
        """The largest smaller batch that fits, else one example. With `asks`, a compiler plans what
        is found."""

        def tried(size: int) -> list[Tried]:
            sentence = f"batch size {size} instead of {batch}"
            change = _Change("batch_size", sentence, self._with(batch_size=size))
            return self._first([change], recompute)

        def least(size: int) -> int:
            sized = self._with(batch_size=size)
            search = self._search(sized) if recompute else None
            return search.smallest_bytes if search else self._predictor.peak_in_one_piece(sized)

        if batch < 2 or (recompute and not len(self._units)):
            return []
        for _ in range(1 + MOST_ASKED * asks):
            size = largest(
                0,
                batch,
                possible=lambda size: least(size) <= self._budget,
                passes=lambda size: _one_fits(tried(size)),
            )
            if not (asks and size and self._predictor.ask(self._with(batch_size=size))):
                break
        return tried(max(1, size))

    def _freezing(self) -> list[Tried]:
        """Freezing as few layers as needed, from the model's first on; all but the last if that is
        not enough."""
        trained = tuple(layer.path for layer in self._layers if layer.trainable_weight_bytes)
        most = len(trained) - 1
        if most < 1:
            return []
        counts = [-(-most * part // FREEZING_PARTS) for part in range(1, FREEZING_PARTS + 1)]

        def frozen(at: int) -> list[Tried]:
            sentence = f"freeze the first {counted(counts[at], 'trainable layer')}"
            conditions = self._with(frozen=trained[: counts[at]])
            return self._first([_Change("freeze", sentence, conditions)])

        last = FREEZING_PARTS - 1
        if not _one_fits(frozen(last)):
            return frozen(last)
        return frozen(bisected(last, -1, lambda at: _one_fits(frozen(at))))

    def _described(self, change: _Change) -> Tried:
        wanted = change.conditions
        fits = self._predictor.is_within(self._budget, wanted)  # it may ask a compiler
        parts, first = self._predictor.peaks(wanted), self._predictor.first_bytes(wanted)
        high, is_same = parts.peak.high_bytes, change.kind == "none"
        is_known = fits or is_same or not parts.peak.says_little
        may_fit, reason = not is_known or parts.peak.low_bytes <= self._budget, None
        if not is_known:
            reason = " ".join([TOO_LITTLE, *parts.sentences])
        elif high < first and (is_same or high <= self._budget < first):
            may_fit = first <= self._budget
            needed = format_bytes(first)
            reason = f"The first step needs {needed}, as it makes the optimizer's slots."
        option = PlanOption(
            kind=change.kind,
            sentence=change.sentence,
            segments=inside(self.root, wanted.recompute),
            batch_size=wanted.batch_size,
            accumulation=change.parts,
            **(parts.peak.as_peak() if is_known else dict.fromkeys(PEAK)),
            fits=fits or (None if may_fit else False),
            extra_time=change.extra_time,
            peak_source=parts.source,
            time_source=self._units.time_source,
            frozen=tuple(path.removeprefix(self.root) for path in wanted.frozen),
            reason=reason,
        )
        return Tried(option, wanted)

    def _search(self, conditions: Conditions) -> SegmentSearch | None:
        if not len(self._units):
            return None
        if conditions not in self._searches:
            search = SegmentSearch(self._predictor, self._units, conditions)
            self._searches[conditions] = search
        return self._searches[conditions]

    def curve(self, same: PlanOption) -> tuple[PlanPoint, ...]:
        """The curve at the recorded batch size, which ends with the training as recorded; empty if
        nothing saves."""
        search = self._search(self._same)
        if search is None or self.is_compiled:  # each point would ask the compiler
            return ()
        points = [
            PlanPoint(
                **one.parts.peak.as_peak(), extra_time=one.extra_time, segments=len(one.segments)
            )
            for one in search.curve(CURVE_POINTS)
            if one.parts.peak.typical_bytes < (same.peak_bytes or 0) and one.extra_time > 0
        ]
        recorded = PlanPoint(**values_of(same, *PEAK), extra_time=0.0, segments=0)
        return (*points, recorded) if points else ()


def _one_fits(tried: Sequence[Tried]) -> bool:
    return any(one.option.fits for one in tried)
