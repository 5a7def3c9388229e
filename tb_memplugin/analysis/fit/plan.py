"""Finds the change that makes a recorded training fit into a budget at the least cost. Pure."""

import collections
import dataclasses
from collections.abc import Iterator, Sequence

from tb_memplugin.analysis.fit.plan_answer import Kind, Plan, PlanOption, PlanPoint
from tb_memplugin.analysis.fit.plan_code import code_of
from tb_memplugin.analysis.fit.segment_search import (
    Recomputing,
    SegmentSearch,
    Units,
    units_of,
    unsuitable_recording,
)
from tb_memplugin.analysis.fit.what_if import RunPredictor
from tb_memplugin.model import Category, LedgerRow, Run
from tb_memplugin.model.layers import recorded_precision
from tb_memplugin.model.units import counted, format_bytes
from tb_memplugin.prediction.conditions import RECORDED, Conditions
from tb_memplugin.prediction.peak_ledger import PeakParts

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


def plan_for(run: Run, device: str, budget: int | None = None, batch_size: int | None = None) -> Plan:
    """The cheapest change with which a run fits into a budget, and into its allocator.

    Args:
        run: A run with its requests.
        device: One of its devices.
        budget: The bytes that the peak may have; the allocator's limit if None.
        batch_size: Examples in a batch; as recorded if None.
    """
    predictor = RunPredictor(run, device)
    recorded = predictor.predict(Conditions(batch_size=batch_size))
    limit = recorded.capacity_bytes or 0
    budget = budget or limit
    if recorded.peak_bytes is None:
        return Plan(device, budget, None, sentences=recorded.assumptions)
    # A budget above the limit is that of a larger device.
    capacity = max(budget, limit)
    fits = predictor.predict(Conditions(batch_size, capacity)).fits_within(budget)
    withheld = None if fits else predictor.predictor.reason_against(RECORDED)
    if withheld is None:
        return _Planner(predictor, run, device, budget, Conditions(recorded.batch_size, capacity)).plan()
    size, most = format_bytes(recorded.peak_bytes), format_bytes(recorded.high_bytes)
    # Otherwise it would be recorded the same way again.
    unsuitable = unsuitable_recording(predictor.steps[-1], predictor.layers) if predictor.steps else None
    needed = f"As recorded, the training needs {size}, at most {most}."
    sentences = (needed, withheld, *([] if unsuitable is None else [unsuitable]))
    return Plan(device, budget, None, recorded_peak_bytes=recorded.peak_bytes, sentences=sentences)


class _Planner:
    """Plans for one run and one budget."""

    def __init__(self, predictor: RunPredictor, run: Run, device: str, budget: int, same: Conditions) -> None:
        self._predictor, self._device, self._budget = predictor, device, budget
        self._capacity = same.capacity_bytes
        self._same = self._described("none", "no change: as recorded", Conditions(same.batch_size))
        if self._same.fits:
            self._same = dataclasses.replace(self._same, sentence="no change: fits as recorded")
        self._units: Units = units_of(run, predictor.steps[-1], predictor.layers)
        table = next((one for one in reversed(run.layer_tables) if one.optimizer), None)
        self._optimizer = "Optimizer" if table is None else str(table.optimizer)
        self._root = f"{predictor.layers[0].path}/" if predictor.layers else ""
        self._searches: dict[Conditions, SegmentSearch] = {}

    def plan(self) -> Plan:
        """The plan."""
        options = [self._same] if self._same.fits else [self._same, *self._options()]
        chosen = next((option for option in options if option.fits), None)
        sentences = list(self._units.sentences)
        least = chosen or min(options, key=lambda option: option.high_bytes)
        peaks = self._peaks(self._conditions(least))
        if chosen is None:
            sentences.insert(
                0,
                f"The smallest peak that was found is {format_bytes(least.peak_bytes)}, at most "
                f"{format_bytes(least.high_bytes)} ({least.sentence}){_holding(peaks.ledger)}.",
            )
        return Plan(
            device=self._device,
            budget_bytes=self._budget,
            fits=least.fits,
            segments=least.segments,
            batch_size=least.batch_size,
            accumulation=least.accumulation,
            peak_bytes=least.peak_bytes,
            low_bytes=least.low_bytes,
            high_bytes=least.high_bytes,
            recorded_peak_bytes=self._same.peak_bytes,
            demand_bytes=peaks.demand_bytes,
            extra_time=least.extra_time,
            time_source=self._units.time_source,
            code=code_of(least, self._optimizer, self._predictor.layers) if least.fits else "",
            options=tuple(options),
            curve=self._curve(),
            ledger=peaks.ledger,
            sentences=tuple(sentences),
            model=self._root.rstrip("/"),
        )

    def _options(self) -> Iterator[PlanOption]:
        """Changes in order of preference.

        The first trains the same. Accumulation keeps the effective batch, but batch norm then sees smaller batches. The
        others change the training. Combinations follow where no single change is enough.
        """
        batch = self._same.batch_size
        conditions = Conditions(batch_size=batch)
        found = self._recomputing(conditions)
        if found is not None:
            yield self._recomputed("recompute", conditions, found)
        if batch is None:
            return
        parts = [count for count in range(2, MOST_PARTS + 1) if batch % count == 0]
        fits = found is not None and self._fits(conditions, found)
        for count in parts:
            sentence, last = _accumulating(count, batch), count == parts[-1]
            option = self._option("accumulate", sentence, _accumulated(batch, count), count, last)
            if option is not None and (option.fits or last):
                fits = fits or option.fits
                yield option
                break
        if not fits:
            yield from self._in_parts(batch, [count for count in parts if count in SEARCHED_PARTS])
        alone = list(self._changing(batch))
        yield from alone
        if not fits and not any(option.fits for option in alone):
            yield from self._together(batch)

    def _in_parts(self, batch: int, parts: Sequence[int]) -> Iterator[PlanOption]:
        for count in parts:
            conditions = _accumulated(batch, count)
            found = self._recomputing(conditions)
            if found is not None and (self._fits(conditions, found) or count == parts[-1]):
                kind: Kind = "recompute_and_accumulate"
                yield self._recomputed(kind, conditions, found, _accumulating(count, batch), count)
                return

    def _changing(self, batch: int) -> Iterator[PlanOption]:
        """What changes the training: a smaller batch, an optimizer without slots, half precision, and frozen layers,
        which no longer learn.
        """
        size = batch // 2
        while size:
            option = self._option("batch_size", _smaller(size, batch), Conditions(batch_size=size), last=size == 1)
            if option is not None and (option.fits or size == 1):
                yield option
                break
            size //= 2
        if self._has_slots():
            option = self._option("optimizer", _SGD, Conditions(batch, optimizer="sgd"))
            if option is not None:
                yield option
        if recorded_precision(self._predictor.layers) in (None, "float32"):
            half = Conditions(batch, precision="mixed_float16")
            option = self._option("precision", "mixed_float16, on a device that supports it", half)
            if option is not None:
                yield option
        frozen = self._freezing(batch)
        if frozen is not None:
            yield frozen

    def _freezing(self, batch: int) -> PlanOption | None:
        """Freezing as few layers as needed, from the model's first on; all but the last if that is not enough."""
        trained = [layer.path for layer in self._predictor.layers if layer.trainable_weight_bytes]
        failing, passing = 0, len(trained) - 1
        best = None if passing < 1 else self._frozen(batch, trained[:passing])
        if best is None or not best.fits:
            return best
        for _ in range(FREEZING_TRIES):
            if passing - failing <= 1:
                break
            middle = (failing + passing) // 2
            option = self._frozen(batch, trained[:middle], last=False)
            if option is not None and option.fits:
                best, passing = option, middle
            else:
                failing = middle
        return best

    def _frozen(self, batch: int, paths: Sequence[str], last: bool = True) -> PlanOption | None:
        sentence = f"freeze the first {counted(len(paths), 'trainable layer')}"
        return self._option("freeze", sentence, Conditions(batch, frozen=tuple(paths)), last=last)

    def _together(self, batch: int) -> Iterator[PlanOption]:
        """Recomputation together with changes of the training."""
        if self._has_slots():
            conditions = Conditions(batch, optimizer="sgd")
            found = self._recomputing(conditions)
            if found is not None:
                yield self._recomputed("recompute_and_optimizer", conditions, found, _SGD)
        size = batch // 2
        while size:
            conditions = Conditions(batch_size=size)
            found = self._recomputing(conditions)
            if found is not None and (self._fits(conditions, found) or size == 1):
                yield self._recomputed("recompute_and_batch_size", conditions, found, _smaller(size, batch))
                return
            size //= 2

    def _has_slots(self) -> bool:
        return any(layer.optimizer_bytes for layer in self._predictor.layers)

    def _option(
        self, kind: Kind, sentence: str, conditions: Conditions, parts: int = 1, last: bool = True
    ) -> PlanOption | None:
        """A change with what `what_if` predicts. Without `last` another one follows if it does not fit."""
        if self._predictor.predictor.reason_against(conditions) is not None or not (last or self._fits(conditions)):
            return None
        return self._described(kind, sentence, conditions, parts=parts)

    def _peaks(self, conditions: Conditions) -> PeakParts:
        return self._predictor.predictor.peaks(conditions)

    def _fits(self, conditions: Conditions, found: Recomputing | None = None) -> bool:
        """Whether the whole range of the peak is within the budget, and `what_if` says that it fits into the limit."""
        wanted = _with(conditions, found)
        within = dataclasses.replace(wanted, capacity_bytes=self._capacity)
        return self._peaks(wanted).high_bytes <= self._budget and self._predictor.predictor.fits(within)

    def _recomputed(
        self, kind: Kind, conditions: Conditions, found: Recomputing, also: str | None = None, parts: int = 1
    ) -> PlanOption:
        sentence = (
            recompute_sentence(found.segments) if also is None else f"{recompute_sentence(found.segments)}; {also}"
        )
        return self._described(kind, sentence, conditions, found, parts)

    def _described(
        self, kind: Kind, sentence: str, conditions: Conditions, found: Recomputing | None = None, parts: int = 1
    ) -> PlanOption:
        low, peak, high = self._peaks(_with(conditions, found)).span
        same_time = 0.0 if kind == "none" else None
        return PlanOption(
            kind=kind,
            sentence=sentence,
            segments=() if found is None else inside(self._root, found.segments),
            batch_size=conditions.batch_size,
            accumulation=parts,
            peak_bytes=peak,
            low_bytes=low,
            high_bytes=high,
            fits=self._fits(conditions, found),
            extra_time=found.extra_time if found is not None and kind == "recompute" else same_time,
            frozen=tuple(path.removeprefix(self._root) for path in conditions.frozen),
        )

    def _conditions(self, option: PlanOption) -> Conditions:
        """The conditions of an option."""
        kinds = option.kind.split("_and_")
        return Conditions(
            batch_size=option.batch_size,
            accumulate=option.accumulation > 1,
            optimizer="sgd" if "optimizer" in kinds else None,
            precision="mixed_float16" if "precision" in kinds else None,
            frozen=tuple(f"{self._root}{name}" for name in option.frozen),
            recompute=tuple(tuple(f"{self._root}{name}" for name in segment) for segment in option.segments),
        )

    def _recomputing(self, conditions: Conditions) -> Recomputing | None:
        """The segments that fit at the least time; those of the smallest peak if none fit; None if none saves."""
        search = self._search(conditions)
        return None if search is None else search.cheapest(self._budget)

    def _search(self, conditions: Conditions) -> SegmentSearch | None:
        if not len(self._units):
            return None
        if conditions not in self._searches:
            within = dataclasses.replace(conditions, capacity_bytes=self._capacity)
            self._searches[conditions] = SegmentSearch(self._predictor.predictor, self._units, within)
        return self._searches[conditions]

    def _curve(self) -> tuple[PlanPoint, ...]:
        """The curve at the recorded batch size, which ends with the training as recorded; empty if nothing saves."""
        search, same = self._search(Conditions(batch_size=self._same.batch_size)), self._same
        found = [] if search is None else search.curve(CURVE_POINTS)
        saving = [one for one in found if one.peaks.peak_bytes < same.peak_bytes and one.extra_time > 0]
        if not saving:
            return ()
        points = [
            PlanPoint(peak, low, high, one.extra_time, len(one.segments))
            for one in saving
            for low, peak, high in (one.peaks.span,)
        ]
        return (*points, PlanPoint(same.peak_bytes, same.low_bytes, same.high_bytes, 0.0, 0))


def _with(conditions: Conditions, found: Recomputing | None) -> Conditions:
    """The conditions with segments to recompute."""
    return conditions if found is None else dataclasses.replace(conditions, recompute=found.segments)


def inside(root: str, segments: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Segments with the layers' names inside the model, as `remat` takes them."""
    return tuple(tuple(path.removeprefix(root) for path in segment) for segment in segments)


def recompute_sentence(segments: Sequence[Sequence[str]]) -> str:
    """What is recomputed, in few words."""
    layers = sum(len(segment) for segment in segments)
    return f"recompute {counted(len(segments), 'segment')} with {counted(layers, 'layer')}"


def _accumulated(batch: int, parts: int) -> Conditions:
    return Conditions(batch_size=batch // parts, accumulate=True)


def _accumulating(parts: int, batch: int) -> str:
    return f"gradient accumulation over {parts} batches of {batch // parts}"


def _smaller(size: int, batch: int) -> str:
    return f"batch size {size} instead of {batch}"


_SGD = "SGD without momentum"


def _holding(ledger: Sequence[LedgerRow]) -> str:
    """The largest categories of a peak as the end of a sentence."""
    sums: collections.Counter[Category] = collections.Counter()
    for row in ledger:
        sums[row.category] += row.bytes
    largest = [f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in sums.most_common(NAMED_CATEGORIES)]
    return f": {', '.join(largest)}" if largest else ""
