"""Finds the change that makes a recorded training fit into a budget at the least cost. Pure."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from tb_memplugin.analysis.plan_answer import Kind, Plan, PlanOption, PlanPoint
from tb_memplugin.analysis.plan_units import Units, units_of
from tb_memplugin.analysis.what_if import RunPredictor
from tb_memplugin.model import Run
from tb_memplugin.model.layers import recorded_precision
from tb_memplugin.model.units import counted, format_bytes
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.prediction.recomputation import recomputed
from tb_memplugin.prediction.segment_choice import Choice, SegmentChoices
from tb_memplugin.prediction.segment_costs import unit_costs
from tb_memplugin.prediction.sized_steps import SizedStep, peak_in_one_piece

MOST_TRIES = 6
"""Choices of segments that are simulated for one batch size: they halve the span from the smallest peak five times."""
ACCUMULATED = (2, 4, 8, 16)
"""Numbers of batches that gradients are accumulated over."""
CURVE_POINTS = 8
"""Points of the curve."""


@dataclasses.dataclass(frozen=True)
class _Recomputing:
    """Segments of a step, and what they need."""

    choice: Choice
    segments: tuple[tuple[str, ...], ...]
    range: tuple[int, int, int]


def plan_for(run: Run, device: str, budget: int) -> Plan:
    """The cheapest change with which a run fits into a budget.

    Args:
        run: A run with its requests.
        device: One of its devices.
        budget: The bytes that the peak may have.
    """
    predictor = RunPredictor(run, device)
    recorded = predictor.predict(Conditions())
    peak, low, high = recorded.peak_bytes, recorded.low_bytes, recorded.high_bytes
    if peak is None or low is None or high is None:
        return Plan(device, budget, None, sentences=recorded.assumptions)
    same = PlanOption(
        "none", "no change: fits as recorded", (), recorded.batch_size, 1, peak, low, high, high <= budget, 0.0
    )
    if same.fits:
        return Plan(
            device, budget, True, (), recorded.batch_size, 1, peak, low, high, peak, extra_time=0.0, options=(same,)
        )
    same = dataclasses.replace(same, sentence="no change: as recorded")
    return _Planner(predictor, run, device, budget, same).plan()


class _Planner:
    """Plans for one run and one budget."""

    def __init__(self, predictor: RunPredictor, run: Run, device: str, budget: int, same: PlanOption) -> None:
        self._predictor, self._device, self._budget, self._same = predictor, device, budget, same
        self._units: Units = units_of(run, predictor.steps[-1], predictor.layers)
        table = next((one for one in reversed(run.layer_tables) if one.optimizer), None)
        self._optimizer = "Optimizer" if table is None else str(table.optimizer)
        self._root = f"{predictor.layers[0].path}/" if predictor.layers else ""

    def plan(self) -> Plan:
        """The plan."""
        options = [self._same, *self._options()]
        chosen = next((option for option in options if option.fits), None)
        sentences = list(self._units.sentences)
        smallest = None
        curve: tuple[PlanPoint, ...] = ()
        batch = self._same.batch_size
        if len(self._units):
            smallest, curve = self._curve(self._step(Conditions(batch_size=batch)))
        if chosen is None:
            least = min(options, key=lambda option: option.high_bytes)
            sentences.insert(
                0,
                f"The smallest peak that was found is {format_bytes(least.peak_bytes)}, at most "
                f"{format_bytes(least.high_bytes)} ({least.sentence}). {self._floor()}",
            )
            chosen = dataclasses.replace(least, fits=False)
        return Plan(
            device=self._device,
            budget_bytes=self._budget,
            fits=chosen.fits,
            segments=chosen.segments,
            batch_size=chosen.batch_size,
            accumulation=chosen.accumulation,
            peak_bytes=chosen.peak_bytes,
            low_bytes=chosen.low_bytes,
            high_bytes=chosen.high_bytes,
            recorded_peak_bytes=self._same.peak_bytes,
            demand_bytes=self._demand(chosen),
            extra_time=chosen.extra_time,
            time_source=self._units.time_source,
            code=_code(chosen, self._optimizer) if chosen.fits else "",
            options=tuple(options),
            curve=curve,
            smallest_bytes=smallest,
            sentences=tuple(sentences),
        )

    def _options(self) -> Iterator[PlanOption]:
        """Changes in order of preference.

        The first trains the same. Accumulation keeps the effective batch, but batch norm then sees smaller batches. The
        others change the training.
        """
        batch = self._same.batch_size
        found = self._recomputing(Conditions(batch_size=batch))
        if found is not None:
            yield self._described("recompute", _recompute_sentence(found), Conditions(batch), found.range, found)
        if batch is None:
            return
        parts = [count for count in ACCUMULATED if batch % count == 0 and batch // count >= 1]
        fitting = False
        for count in parts:
            conditions = Conditions(batch_size=batch // count, accumulate=True)
            option = self._option("accumulate", f"{_accumulating(count)} {batch // count}", conditions, parts=count)
            if option is not None and (option.fits or count == parts[-1]):
                fitting = option.fits
                yield option
                break
        if not fitting and (found is None or found.range[-1] > self._budget):
            yield from self._both(batch, parts)
        yield from self._changing(batch)

    def _both(self, batch: int, parts: Sequence[int]) -> Iterator[PlanOption]:
        for count in parts:
            conditions = Conditions(batch_size=batch // count, accumulate=True)
            found = self._recomputing(conditions)
            if found is not None and (found.range[-1] <= self._budget or count == parts[-1]):
                sentence = f"{_recompute_sentence(found)}; {_accumulating(count)} {batch // count}"
                yield self._described("recompute_and_accumulate", sentence, conditions, found.range, found, count)
                return

    def _changing(self, batch: int) -> Iterator[PlanOption]:
        """What changes the training: a smaller batch, an optimizer without slots, half precision."""
        size = batch // 2
        while size:
            option = self._option("batch_size", f"batch size {size} instead of {batch}", Conditions(batch_size=size))
            if option is not None and (option.fits or size == 1):
                yield option
                break
            size //= 2
        if any(layer.optimizer_bytes for layer in self._predictor.layers):
            option = self._option("optimizer", "SGD without momentum", Conditions(batch, optimizer="sgd"))
            if option is not None:
                yield option
        if recorded_precision(self._predictor.layers) in (None, "float32"):
            half = Conditions(batch, precision="mixed_float16")
            option = self._option("precision", "mixed_float16, on a device that supports it", half)
            if option is not None:
                yield option

    def _option(self, kind: Kind, sentence: str, conditions: Conditions, parts: int = 1) -> PlanOption | None:
        span = self._predictor.range_at(conditions)
        return None if span is None else self._described(kind, sentence, conditions, span, parts=parts)

    def _described(
        self,
        kind: Kind,
        sentence: str,
        conditions: Conditions,
        span: tuple[int, int, int],
        found: _Recomputing | None = None,
        parts: int = 1,
    ) -> PlanOption:
        low, peak, high = span
        segments = () if found is None else found.segments
        return PlanOption(
            kind=kind,
            sentence=sentence,
            segments=tuple(tuple(path.removeprefix(self._root) for path in segment) for segment in segments),
            batch_size=conditions.batch_size,
            accumulation=parts,
            peak_bytes=peak,
            low_bytes=low,
            high_bytes=high,
            fits=high <= self._budget,
            extra_time=self._again(found) if found is not None and parts == 1 else None,
        )

    # --- recomputation ------------------------------------------------------------------------------------------------

    def _step(self, conditions: Conditions) -> SizedStep:
        return self._predictor.sized_step(conditions)

    def _choices(self, step: SizedStep) -> SegmentChoices:
        return SegmentChoices(unit_costs(step, self._units.found, self._units.seconds))

    def _again(self, found: _Recomputing) -> float:
        """Additional time of a step as a share of the recorded one."""
        return found.choice.seconds / self._units.step_seconds

    def _named(self, choice: Choice) -> tuple[tuple[str, ...], ...]:
        found = self._units.found
        return tuple(tuple(path for unit, _ in found[first:end] for path in unit.layers) for first, end in choice.spans)

    def _recomputing(self, conditions: Conditions) -> _Recomputing | None:
        """The segments that fit at the least time; those of the smallest peak if none fit; None if none saves anything.

        The choice counts requested bytes; its simulation adds what the allocator keeps unsplit.
        """
        if not len(self._units):
            return None
        choices = self._choices(self._step(conditions))
        fitting, failing = choices.smallest(), self._demanded(conditions)
        best = self._simulated(choices.choose(fitting), conditions)
        if best is None or best.range[-1] > self._budget:
            return best
        for _ in range(MOST_TRIES - 1):
            limit = (fitting + failing) // 2
            found = self._simulated(choices.choose(limit), conditions)
            if found is not None and found.range[-1] <= self._budget:
                fitting = limit
                best = min(best, found, key=lambda one: one.choice.seconds)
            else:
                failing = limit
        return best

    def _simulated(self, choice: Choice | None, conditions: Conditions) -> _Recomputing | None:
        """A choice with its range; None without segments, or if it cannot be simulated."""
        if choice is None or not choice.spans:
            return None
        segments = self._named(choice)
        span = self._predictor.range_at(dataclasses.replace(conditions, recompute=segments))
        return None if span is None else _Recomputing(choice, segments, span)

    def _demanded(self, conditions: Conditions) -> int:
        return peak_in_one_piece(self._step(conditions))

    def _demand(self, option: PlanOption) -> int | None:
        """Most bytes of its step that are live at once; None for an option whose step is not simulated by sizes."""
        if option.kind in ("optimizer", "precision"):
            return None
        conditions = Conditions(
            batch_size=option.batch_size,
            accumulate=option.accumulation > 1,
            recompute=tuple(tuple(f"{self._root}{name}" for name in segment) for segment in option.segments),
        )
        return peak_in_one_piece(self._step(conditions))

    def _curve(self, step: SizedStep) -> tuple[int, tuple[PlanPoint, ...]]:
        """(smallest peak, curve), from requested bytes and what the allocator takes in addition as recorded."""
        choices = self._choices(step)
        smallest, demand = choices.smallest(), peak_in_one_piece(step)
        factor = self._same.peak_bytes / demand
        points: dict[int, PlanPoint] = {}
        for limit in np.linspace(smallest, demand, CURVE_POINTS).astype(int).tolist():
            choice = choices.choose(limit)
            if choice is None:
                continue
            segments = self._named(choice)
            needed = peak_in_one_piece(recomputed(step, segments, self._units.outputs)) if segments else demand
            share = choice.seconds / self._units.step_seconds
            points[needed] = PlanPoint(round(needed * factor), share, len(segments))
        ordered = [points[needed] for needed in sorted(points)]
        # Recomputation that saves nothing gives no curve.
        return round(smallest * factor), tuple(ordered) if len(ordered) > 1 else ()

    def _floor(self) -> str:
        """Why recomputation does not go lower, as a sentence."""
        lasting = sum(layer.weight_bytes + layer.optimizer_bytes for layer in self._predictor.layers)
        return (
            f"Weights and optimizer state take {format_bytes(lasting)} of it; the gradients and the results of the "
            "largest segment must be there at once."
        )


def _recompute_sentence(found: _Recomputing) -> str:
    layers = sum(len(segment) for segment in found.segments)
    return f"recompute {counted(len(found.segments), 'segment')} with {counted(layers, 'layer')}"


def _accumulating(parts: int) -> str:
    return f"gradient accumulation over {parts} batches of"


def _code(option: PlanOption, optimizer: str) -> str:
    """The lines that apply an option."""
    lines = []
    if option.segments:
        lines.append("model = tb_memplugin.remat(model, plan)")
    if option.accumulation > 1:
        arguments = f"gradient_accumulation_steps={option.accumulation}, ..."
        lines.append(f"optimizer = keras.optimizers.{optimizer}({arguments})  # the other arguments as before")
    if option.kind == "optimizer":
        lines.append("optimizer = keras.optimizers.SGD()")
    if option.kind == "precision":
        lines.append('keras.mixed_precision.set_global_policy("mixed_float16")  # before the model is made')
    if option.segments or option.accumulation > 1 or option.kind == "optimizer":
        lines.append("model.compile(optimizer, ...)  # the other arguments as before")
    if option.accumulation > 1 or option.kind == "batch_size":
        lines.append(f"batch_size = {option.batch_size}")
    return "\n".join(lines)
