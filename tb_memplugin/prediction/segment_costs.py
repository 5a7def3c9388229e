"""What it takes to keep, and what to recompute, the layers between the cut points of a model. Pure."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import Floats, Integers, StepRequests
from tb_memplugin.prediction.recomputation import Part, Parts
from tb_memplugin.prediction.sized_steps import SizedStep, in_use, rounded_sizes


@dataclasses.dataclass(frozen=True)
class Unit:
    """Layers between two neighboring cut points, which are recomputed together or not at all.

    Attributes:
        first, last: Numbers: a unit whose first number follows another one's last can form a segment with it.
        layers: Paths of the layers, in order.
        output_bytes: Recorded bytes of the last layer's output, None if unknown.
    """

    first: int
    last: int
    layers: tuple[str, ...]
    output_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class UnitCosts:
    """Bytes and time of each unit of a step, in order; columns of shape [units].

    Attributes:
        backward: Most bytes in use while the backward pass of a unit runs.
        start: Bytes in use when it begins.
        held: Bytes that the unit saves for the backward pass.
        kept: The part of them that stays if the unit is the last one of a recomputed segment: its output.
        working: Most bytes of the unit's own results and temporaries at once in its forward pass.
        seconds: Time of its forward pass.
        joins: Whether it can be recomputed together with the unit before.
        after: Most bytes in use between the last unit's forward and its backward pass.
    """

    backward: Integers
    start: Integers
    held: Integers
    kept: Integers
    working: Integers
    seconds: Floats
    joins: npt.NDArray[np.bool_]
    after: int

    def __len__(self) -> int:
        return len(self.held)


def requesting_units(requests: StepRequests, units: Sequence[Unit]) -> list[tuple[Unit, Part]]:
    """The units that save something for the backward pass, in the order of the forward pass.

    Layers that request nothing belong to the following unit, if both can form a segment.
    """
    parts = Parts(requests)
    found: list[tuple[Unit, Part]] = []
    waiting: Unit | None = None
    for unit in units:
        if waiting is not None and waiting.last + 1 == unit.first:
            unit = Unit(waiting.first, unit.last, waiting.layers + unit.layers, unit.output_bytes)
        part = parts.of(unit.layers, unit.output_bytes)
        if part is None or not len(part.saved):
            waiting = unit
        else:
            found.append((unit, part))
            waiting = None
    # Where a layer begins is no order: random ops have no inputs and may run first.
    return sorted(found, key=lambda one: one[1].end)


def unit_costs(step: SizedStep, found: Sequence[tuple[Unit, Part]], seconds: Sequence[float]) -> UnitCosts:
    """The costs of units.

    Args:
        step: The step with its sizes, in which nothing is recomputed.
        found: Result of `requesting_units`.
        seconds: Time of each one's forward pass.
    """
    requests = step.requests
    sized = rounded_sizes(step.sizes)
    level = in_use(requests, sized)[1:]  # after each event
    backs = [part.back for _, part in found]
    ends = [min((back for back in backs[:row] if back > own), default=requests.events) for row, own in enumerate(backs)]
    forward_end = max((part.end for _, part in found), default=0)
    last_back = max(min(backs, default=0), forward_end)
    return UnitCosts(
        backward=np.asarray([int(level[back:end].max()) for back, end in zip(backs, ends, strict=True)], np.int64),
        start=np.asarray([int(level[back - 1]) for back in backs], np.int64),
        held=np.asarray([int(sized[part.saved].sum()) for _, part in found], np.int64),
        kept=np.asarray([0 if part.output is None else int(sized[part.output]) for _, part in found], np.int64),
        working=np.asarray([_most(requests, sized, part) for _, part in found], np.int64),
        seconds=np.asarray(seconds, np.float64),
        joins=np.asarray(
            [row > 0 and found[row - 1][0].last + 1 == unit.first for row, (unit, _) in enumerate(found)], bool
        ),
        after=int(level[forward_end : last_back + 1].max(initial=0)),
    )


def _most(requests: StepRequests, sized: Integers, part: Part) -> int:
    """Most bytes at once of a part's rows in its forward pass."""
    rows = part.forward
    changes = np.zeros(part.end - part.begin + 2, np.int64)
    np.add.at(changes, requests.birth[rows] - part.begin, sized[rows])
    freed = rows[requests.death[rows] <= part.end]
    np.subtract.at(changes, requests.death[freed] - part.begin, sized[freed])
    return int(np.cumsum(changes).max())
