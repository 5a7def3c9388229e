"""The layers of a run that can be recomputed, with the time of their forward pass. Pure."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from tb_memplugin.analysis.plan_answer import TimeSource
from tb_memplugin.model import Layer, Run, StepRequests, Timeline
from tb_memplugin.model.layers import example_bytes
from tb_memplugin.prediction.recomputation import Part
from tb_memplugin.prediction.segment_costs import Unit, requesting_units

FORWARD_SHARE = 1 / 3
"""Share of a step's time that the forward pass is taken to have where no time was recorded: a backward pass does about
twice the work."""

COMPILED = (
    "XLA compiled the recorded step, and XLA's memory for recomputed layers cannot be simulated, so no segments are "
    "planned: record a step with jit_compile=False for a plan with recomputation."
)


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


def units_of(run: Run, requests: StepRequests, layers: Sequence[Layer]) -> Units:
    """The units of a recorded step.

    Args:
        run: The run of the step, with its timelines.
        requests: The step.
        layers: The model's layers.
    """
    if requests.mode == "xla":
        return Units(sentences=(COMPILED,))
    if any(layer.recomputed is not None for layer in layers):
        return Units(sentences=("The recorded step recomputes layers already. Record it without that to plan anew.",))
    numbered = sorted((layer for layer in layers if layer.unit is not None), key=lambda layer: layer.unit or 0)
    units = []
    for number, group in itertools.groupby(numbered, key=lambda layer: layer.unit or 0):
        members = list(group)
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
