"""Finds the change that makes a recorded training fit into a budget at the least cost. Pure."""

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tb_memplugin.fit.conditions import RECORDED, Conditions
from tb_memplugin.fit.plan_answer import Kind, Plan, PlanOption, PlanPoint, code_of
from tb_memplugin.fit.segment_search import Recomputing, SegmentSearch, Units, units_of, unsuitable_recording
from tb_memplugin.fit.what_if import RunPredictor
from tb_memplugin.schema import Category, LedgerRow, Run, counted, format_bytes, recorded_precision

MOST_PARTS = 16
"""Most batches that gradients are accumulated over."""
SEARCHED_PARTS = (2, 4, 8, 16)
"""Numbers of batches that are tried together with recomputation, which takes a search for each."""
CURVE_POINTS = 4
"""Points of the curve that are simulated beside those that the search simulates."""
FREEZING_TRIES = 5
"""Numbers of frozen layers that are simulated."""
NAMED_CATEGORIES = 4
"""Categories that a sentence on the smallest peak names."""
_BYTES = ("peak_bytes", "low_bytes", "high_bytes")
_OF_OPTION = ("fits", "segments", "batch_size", "accumulation", "extra_time", *_BYTES)
"""What a plan has of its option."""


def plan_for(run: Run, device: str, budget: int | None = None, batch_size: int | None = None) -> Plan:
    """The cheapest change with which a run, with its requests, fits into a budget, and into its allocator.

    The budget is by default the allocator's limit, the batch size the recorded one.
    """
    predictor = RunPredictor(run, device)
    recorded = predictor.predict(Conditions(batch_size=batch_size))
    limit = recorded.capacity_bytes or 0
    budget = budget or limit
    if recorded.peak_bytes is None:
        return Plan(device, budget, None, sentences=recorded.assumptions)
    # A budget above the limit is that of a larger device.
    capacity = max(budget, limit)
    there = predictor.predict(Conditions(batch_size, capacity))
    fits = there.fits and there.high_bytes is not None and there.high_bytes <= budget
    withheld = None if fits else predictor.predictor.reason_against(RECORDED)
    if withheld is None:
        return _Planner(predictor, run, device, budget, Conditions(recorded.batch_size, capacity)).plan()
    size, most = format_bytes(recorded.peak_bytes), format_bytes(recorded.high_bytes)
    # Otherwise it would be recorded the same way again.
    unsuitable = unsuitable_recording(predictor.steps[-1], predictor.layers) if predictor.steps else None
    needed = f"As recorded, the training needs {size}, at most {most}."
    sentences = (needed, withheld, *([] if unsuitable is None else [unsuitable]))
    return Plan(device, budget, None, recorded_peak_bytes=recorded.peak_bytes, sentences=sentences)


class _Change(NamedTuple):
    """A change to try, and over how many batches it accumulates gradients."""

    kind: Kind
    sentence: str
    conditions: Conditions
    parts: int = 1


_WITH_RECOMPUTATION: dict[Kind, Kind] = {
    "recompute": "recompute",
    "accumulate": "recompute_and_accumulate",
    "optimizer": "recompute_and_optimizer",
    "batch_size": "recompute_and_batch_size",
}


class _Planner:
    def __init__(self, predictor: RunPredictor, run: Run, device: str, budget: int, same: Conditions) -> None:
        self._predictor, self._layers = predictor.predictor, predictor.layers
        self._device, self._budget = device, budget
        self._capacity = same.capacity_bytes
        self._units: Units = units_of(run, predictor.steps[-1], self._layers)
        table = next((one for one in reversed(run.layer_tables) if one.optimizer), None)
        self._optimizer = "Optimizer" if table is None else str(table.optimizer)
        self._root = f"{self._layers[0].path}/" if self._layers else ""
        self._searches: dict[Conditions, SegmentSearch] = {}
        self._conditions: dict[PlanOption, Conditions] = {}
        recorded = Conditions(same.batch_size)
        fits = "fits " if self._fits(recorded) else ""
        self._same = self._described(_Change("none", f"no change: {fits}as recorded", recorded))

    def plan(self) -> Plan:
        options = [self._same, *([] if self._same.fits else self._options())]
        chosen = next((option for option in options if option.fits), None)
        sentences = list(self._units.sentences)
        least = chosen or min(options, key=lambda option: option.high_bytes)
        peaks = self._predictor.peaks(self._conditions[least])
        if chosen is None:
            sentences.insert(
                0,
                f"The smallest peak that was found is {format_bytes(least.peak_bytes)}, at most "
                f"{format_bytes(least.high_bytes)} ({least.sentence}){_holding(peaks.ledger)}.",
            )
        return Plan(
            device=self._device,
            budget_bytes=self._budget,
            **{name: getattr(least, name) for name in _OF_OPTION},
            recorded_peak_bytes=self._same.peak_bytes,
            demand_bytes=peaks.demand_bytes,
            time_source=self._units.time_source,
            code=code_of(least, self._optimizer, self._layers) if least.fits else "",
            options=tuple(options),
            curve=self._curve(),
            ledger=peaks.ledger,
            sentences=tuple(sentences),
            model=self._root.rstrip("/"),
        )

    def _options(self) -> Iterator[PlanOption]:
        """Changes in order of preference.

        The first trains the same. Accumulation keeps the effective batch, but batch norm then sees smaller batches. The
        others change the training: a smaller batch, an optimizer without slots, half precision, and frozen layers,
        which no longer learn. Combinations follow where no single change is enough.
        """
        batch = self._same.batch_size
        alone = self._first([_Change("recompute", "", Conditions(batch))], recompute=True)
        found = [alone]
        if batch is not None:
            parts = [
                _Change(
                    "accumulate",
                    f"gradient accumulation over {count} batches of {batch // count}",
                    Conditions(batch // count, accumulate=True),
                    count,
                )
                for count in range(2, MOST_PARTS + 1)
                if batch % count == 0
            ]
            sizes = [batch >> halvings for halvings in range(1, batch.bit_length())]
            smaller = [
                _Change("batch_size", f"batch size {size} instead of {batch}", Conditions(size)) for size in sizes
            ]
            has_slots = any(layer.optimizer_bytes for layer in self._layers)
            sgd = (
                [_Change("optimizer", "SGD without momentum", Conditions(batch, optimizer="sgd"))] if has_slots else []
            )
            found.append(self._first(parts))
            fits = any(one is not None and one.fits for one in found)
            if not fits:
                found.append(self._first([one for one in parts if one.parts in SEARCHED_PARTS], recompute=True))
            changing = [self._first(smaller), self._first(sgd)]
            if recorded_precision(self._layers) in (None, "float32"):
                half = Conditions(batch, precision="mixed_float16")
                changing.append(
                    self._first([_Change("precision", "mixed_float16, on a device that supports it", half)])
                )
            changing.append(self._freezing(batch))
            found += changing
            if not fits and not any(one is not None and one.fits for one in changing):
                found += [self._first(sgd, recompute=True), self._first(smaller, recompute=True)]
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

    def _freezing(self, batch: int) -> PlanOption | None:
        """Freezing as few layers as needed, from the model's first on; all but the last if that is not enough."""
        trained = [layer.path for layer in self._layers if layer.trainable_weight_bytes]

        def frozen(count: int) -> PlanOption | None:
            sentence = f"freeze the first {counted(count, 'trainable layer')}"
            return self._first([_Change("freeze", sentence, Conditions(batch, frozen=tuple(trained[:count])))])

        failing, passing = 0, len(trained) - 1
        best = None if passing < 1 else frozen(passing)
        if best is None or not best.fits:
            return best
        for _ in range(FREEZING_TRIES):
            if passing - failing <= 1:
                break
            middle = (failing + passing) // 2
            option = frozen(middle)
            if option is not None and option.fits:
                best, passing = option, middle
            else:
                failing = middle
        return best

    def _fits(self, wanted: Conditions) -> bool:
        """Whether the whole range of the peak is within the budget, and `what_if` says that it fits into the limit."""
        within = dataclasses.replace(wanted, capacity_bytes=self._capacity)
        return self._predictor.peaks(wanted).high_bytes <= self._budget and self._predictor.fits(within)

    def _described(self, change: _Change, found: Recomputing | None = None) -> PlanOption:
        wanted = _with(change.conditions, found)
        low, peak, high = self._predictor.peaks(wanted).span
        again = [] if found is None else [recompute_sentence(found.segments)]
        same_time = 0.0 if change.kind == "none" else None
        option = PlanOption(
            kind=change.kind if found is None else _WITH_RECOMPUTATION[change.kind],
            sentence="; ".join([*again, *filter(None, [change.sentence])]),
            segments=() if found is None else inside(self._root, found.segments),
            batch_size=wanted.batch_size,
            accumulation=change.parts,
            peak_bytes=peak,
            low_bytes=low,
            high_bytes=high,
            fits=self._fits(wanted),
            extra_time=found.extra_time if found is not None and change.kind == "recompute" else same_time,
            frozen=tuple(path.removeprefix(self._root) for path in wanted.frozen),
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
        """The curve at the recorded batch size, which ends with the training as recorded; empty if nothing saves."""
        search, same = self._search(Conditions(self._same.batch_size)), self._same
        found = [] if search is None else search.curve(CURVE_POINTS)
        saving = [one for one in found if one.peaks.peak_bytes < same.peak_bytes and one.extra_time > 0]
        if not saving:
            return ()
        points = [
            PlanPoint(
                one.peaks.peak_bytes, one.peaks.low_bytes, one.peaks.high_bytes, one.extra_time, len(one.segments)
            )
            for one in saving
        ]
        return (*points, PlanPoint(same.peak_bytes, same.low_bytes, same.high_bytes, 0.0, 0))


def _with(conditions: Conditions, found: Recomputing | None) -> Conditions:
    return conditions if found is None else dataclasses.replace(conditions, recompute=found.segments)


def inside(root: str, segments: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(path.removeprefix(root) for path in segment) for segment in segments)


def recompute_sentence(segments: Sequence[Sequence[str]]) -> str:
    layers = sum(len(segment) for segment in segments)
    return f"recompute {counted(len(segments), 'segment')} with {counted(layers, 'layer')}"


def _holding(ledger: Sequence[LedgerRow]) -> str:
    sums: collections.Counter[Category] = collections.Counter()
    for row in ledger:
        sums[row.category] += row.bytes
    largest = [f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in sums.most_common(NAMED_CATEGORIES)]
    return f": {', '.join(largest)}" if largest else ""
