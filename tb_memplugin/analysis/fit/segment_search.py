"""The layers of a run that can be recomputed, and which of them to recompute, found by simulation. Pure."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from tb_memplugin.analysis.fit.plan_answer import TimeSource
from tb_memplugin.model import Layer, Run, StepRequests, Timeline
from tb_memplugin.model.layers import example_bytes
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.prediction.peak_ledger import PeakParts
from tb_memplugin.prediction.predictor import Predictor
from tb_memplugin.prediction.recomputation import Part
from tb_memplugin.prediction.segment_choice import Choice, SegmentChoices, Unit, requesting_units, unit_costs
from tb_memplugin.prediction.sized_steps import peak_in_one_piece

FORWARD_SHARE = 1 / 3
"""Share of a step's time that the forward pass is taken to have where no time was recorded: a backward pass does about
twice the work."""

COMPILED = (
    "XLA compiled the recorded step, and XLA's memory for recomputed layers cannot be simulated, so no segments are "
    "planned: record a step with jit_compile=False for a plan with recomputation."
)

RECOMPUTED = "The recorded step recomputes layers already. Record it without that to plan anew."
MOST_TRIES = 5
"""Choices of segments that are simulated for one question: they halve the span from the smallest peak four times."""


@dataclasses.dataclass(frozen=True)
class Units:
    """Layers between neighboring cut points, in the order of the forward pass.

    Attributes:
        found: The units that save something, and what they request.
        seconds: Time of each one's forward pass.
        step_seconds: Time of the step.
        time_source: Whether times are measured.
        outputs: Layer path to the recorded bytes of its output, for the last layer of each unit.
        sentences: Why there are none, or what is assumed.
    """

    found: tuple[tuple[Unit, Part], ...] = ()
    seconds: tuple[float, ...] = ()
    step_seconds: float = 1.0
    time_source: TimeSource = "estimated"
    outputs: dict[str, int] = dataclasses.field(default_factory=dict)
    sentences: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.found)


def unsuitable_recording(requests: StepRequests, layers: Sequence[Layer]) -> str | None:
    """Why no segments can be planned from a recorded step, and what to record instead; None if they can."""
    if requests.mode == "xla":
        return COMPILED
    return RECOMPUTED if any(layer.recomputed is not None for layer in layers) else None


def units_of(run: Run, requests: StepRequests, layers: Sequence[Layer]) -> Units:
    """The units of a recorded step.

    Args:
        run: The run of the step, with its timelines.
        requests: The step.
        layers: The model's layers.
    """
    unsuitable = unsuitable_recording(requests, layers)
    if unsuitable is not None:
        return Units(sentences=(unsuitable,))
    numbered = sorted((layer for layer in layers if layer.unit is not None), key=lambda layer: layer.unit or 0)
    units = []
    for number, group in itertools.groupby(numbered, key=lambda layer: layer.unit or 0):
        members = list(group)
        if any(_contains(layer.path, path) for layer in members for path in requests.unrepeatable):
            continue
        units.append(Unit(number, number, tuple(layer.path for layer in members), _output(members[-1], requests)))
    if not units:
        return Units(sentences=("Recomputation is unknown: the model's layer graph was not recorded.",))
    found = tuple(requesting_units(requests, units))
    if not found:
        return Units(sentences=("No layer between two cut points saves anything that could be recomputed.",))
    outputs = {unit.layers[-1]: unit.output_bytes for unit, _ in found if unit.output_bytes is not None}
    timed = [one for line in run.timelines if (one := _measured(line, requests, found)) is not None]
    if timed:
        seconds, total = timed[-1]
        return Units(found, seconds, total, "measured", outputs)
    held = [float(requests.requested[part.saved].sum()) for _, part in found]
    shares = tuple(FORWARD_SHARE * one / max(1.0, sum(held)) for one in held)
    sentence = "The time is an estimate: a forward pass takes a third of a step, and each layer its share of the bytes."
    return Units(found, shares, 1.0, "estimated", outputs, (sentence,))


def _contains(layer: str, path: str) -> bool:
    """Whether a path is of a layer or of one inside it."""
    return f"{path}/".startswith(f"{layer}/")


def _output(layer: Layer, requests: StepRequests) -> int | None:
    size = example_bytes(layer)
    return None if size is None or not requests.batch_size else size * requests.batch_size


def _measured(
    line: Timeline, requests: StepRequests, found: Sequence[tuple[Unit, Part]]
) -> tuple[tuple[float, ...], float] | None:
    """(seconds of each unit's forward pass, seconds of the step) by the times of its allocations; None if unknown."""
    if (line.step, line.phase, line.device) != (requests.step, requests.phase, requests.device):
        return None
    total = line.duration_ns * 1e-9
    if total <= 0 or len(line.event) < 2:
        return None
    times = line.seconds_at(np.asarray([found[0][1].begin] + [part.end + 1 for _, part in found]))
    return tuple(np.maximum(np.diff(times), 0.0).tolist()), total


@dataclasses.dataclass(frozen=True)
class Recomputing:
    """Segments of a step, and what they need.

    Attributes:
        segments: The paths of each segment's layers.
        extra_time: Additional time of a step as a share of the recorded one.
        peaks: The peaks with them.
    """

    segments: tuple[tuple[str, ...], ...]
    extra_time: float
    peaks: PeakParts


class SegmentSearch:
    """Chooses segments under some conditions, which include the batch size, and simulates them.

    Args:
        predictor: Predicts for the recorded program.
        units: The layers that can be recomputed.
        conditions: The conditions, whose capacity is the one to fit into.
    """

    def __init__(self, predictor: Predictor, units: Units, conditions: Conditions) -> None:
        self._predictor, self._units, self._conditions = predictor, units, conditions
        step = predictor.sized_step(conditions)
        self._choices = SegmentChoices(unit_costs(step, units.found, units.seconds))
        self._found: dict[tuple[tuple[int, int], ...], Recomputing | None] = {}
        self.smallest_bytes = self._choices.smallest()
        self.demand_bytes = peak_in_one_piece(step)

    def cheapest(self, budget: int) -> Recomputing | None:
        """The segments that fit within a peak at the least time; those of the smallest peak if none do; None if none
        save.

        A choice counts requested bytes; its simulation adds what the allocator keeps unsplit.
        """
        fitting, failing = self.smallest_bytes, self.demand_bytes
        best = self._simulated(self._choices.choose(fitting))
        if best is None or not self.fits(best, budget):
            return best
        for _ in range(MOST_TRIES - 1):
            limit = (fitting + failing) // 2
            found = self._simulated(self._choices.choose(limit))
            if found is not None and self.fits(found, budget):
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
        found = sorted(filter(None, self._found.values()), key=lambda one: (one.peaks.high_bytes, one.extra_time))
        for one in found:
            if not kept or one.extra_time < kept[-1].extra_time:
                kept.append(one)
        return kept

    def _simulated(self, choice: Choice | None) -> Recomputing | None:
        """A choice with its peaks; None without segments, or if it cannot be simulated."""
        if choice is None or not choice.spans:
            return None
        if choice.spans not in self._found:
            found = self._units.found
            segments = tuple(
                tuple(path for unit, _ in found[first:end] for path in unit.layers) for first, end in choice.spans
            )
            self._found[choice.spans] = self._predicted(segments, choice.seconds / self._units.step_seconds)
        return self._found[choice.spans]

    def fits(self, found: Recomputing, budget: int) -> bool:
        """Whether segments fit into the capacity with a peak within a budget."""
        return found.peaks.high_bytes <= budget and self._predictor.fits(self._with(found.segments))

    def _with(self, segments: tuple[tuple[str, ...], ...]) -> Conditions:
        return dataclasses.replace(self._conditions, recompute=segments)

    def _predicted(self, segments: tuple[tuple[str, ...], ...], extra_time: float) -> Recomputing | None:
        conditions = self._with(segments)
        if self._predictor.reason_against(conditions) is not None:
            return None
        return Recomputing(segments, extra_time, self._predictor.peaks(conditions))
