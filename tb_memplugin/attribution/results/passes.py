"""The passes of a traced step: where the forward pass ends and the update begins. Pure.

The bytes saved for the backward pass are counted at the end of the forward pass. TensorFlow updates a weight as soon as
its gradient is computed, so the update mostly begins within the backward pass.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator

import numpy as np

from tb_memplugin.attribution.owners import BACKWARD, UPDATE, Classifier, LayerRun
from tb_memplugin.schema import AllocationTrace, Band, BandName

MAX_STEPS = 100
"""Most training steps of a window with known passes; with more, all passes are unknown."""


@dataclasses.dataclass
class Marks:
    """Moments of one training step, of several that a window may hold; None for a pass that did not run.

    Each is the first moment of its pass, or the first one after it.
    """

    begin: int
    forward_end: int | None = None
    backward_end: int | None = None
    update_begin: int | None = None
    update_end: int | None = None


def bands(marks: Iterable[Marks], moments: int) -> tuple[Band, ...]:
    """The bands of the steps, in order; `moments` is the number of moments."""
    edges: list[tuple[int, BandName | None]] = []
    for step in marks:
        edges.append((step.begin, "forward"))
        if step.forward_end is None or step.backward_end is None:
            continue
        edges.append((step.forward_end, "backward"))
        if step.update_begin is None or step.update_end is None:
            edges.append((step.backward_end, None))
            continue
        begin = max(step.update_begin, step.forward_end)
        if begin < step.backward_end:
            edges.append((begin, "backward_and_update"))
        edges.append((max(begin, step.backward_end), "update"))
        edges.append((max(step.update_end, step.backward_end), None))
    ends = [place for place, _ in edges[1:]] + [moments] * bool(edges)
    all_bands = (
        Band(name, min(place, moments), min(end, moments))
        for (place, name), end in zip(edges, ends, strict=True)
        if name is not None
    )
    return tuple(band for band in all_bands if band.start < band.end)


def measured_marks(classifier: Classifier) -> list[Marks]:
    """The marks by the trace's own times; moment n is the state after n events."""
    times = _EventTimes(classifier.window.trace)
    backward, update = classifier.spans.named(BACKWARD), classifier.spans.named(UPDATE)
    if backward:
        return list(_eager_marks(times, backward, update)) if len(backward) <= MAX_STEPS else []
    steps = list(_steps(classifier.execution.layer_runs(), classifier.execution.forward_ends))
    return [_marks(*step, classifier, times) for step in steps] if len(steps) <= MAX_STEPS else []


class _EventTimes:
    def __init__(self, trace: AllocationTrace) -> None:
        self._times = trace.time_ps

    def after(self, time: int) -> int:
        """The first moment that begins after a time."""
        return int(np.searchsorted(self._times, time, side="right")) + 1

    def at(self, time: int) -> int:
        """The first moment that begins at a time or after it."""
        return int(np.searchsorted(self._times, time, side="left")) + 1


def _eager_marks(times: _EventTimes, backward: list[tuple[int, int]], update: list[tuple[int, int]]) -> Iterator[Marks]:
    begin = 0
    for place, (start, end) in enumerate(backward):
        following = backward[place + 1][0] if place + 1 < len(backward) else math.inf
        own = [span for span in update if start <= span[0] < following]
        step = Marks(begin, times.at(start), times.after(end))
        if own:
            step.update_begin, step.update_end = times.at(own[0][0]), times.after(own[-1][1])
        yield step
        begin = step.update_end or step.backward_end or begin


def _steps(runs: list[LayerRun], ends: list[int]) -> Iterator[tuple[list[LayerRun], list[int]]]:
    """Runs of each step, with the ends of its forward passes.

    A new step begins when a forward op runs again that ran before the current step's backward pass. Recomputation in
    the backward pass does not count: those ops have other names.
    """
    step: list[LayerRun] = []
    before: set[int] = set()
    returned = False
    for run in runs:
        if run.pass_name == "forward" and returned and run.name in before:
            yield step, [end for end in ends if step[0].begin_ps <= end < run.begin_ps]
            ends = [end for end in ends if end >= run.begin_ps]
            step, before, returned = [], set(), False
        if run.pass_name == "forward" and not returned:
            before.add(run.name)
        returned = returned or run.pass_name == "backward"
        step.append(run)
    if step:
        yield step, ends


def _marks(runs: list[LayerRun], ends: list[int], classifier: Classifier, times: _EventTimes) -> Marks:
    marks = Marks(times.at(runs[0].begin_ps))
    if not ends:
        return marks
    end = max(ends, key=lambda end: int(classifier.chunks.requested[classifier.saved.at(end)].sum()))
    backward = [run.end_ps for run in runs if run.pass_name == "backward" and run.end_ps > end]
    marks.forward_end = times.after(end)
    marks.backward_end = times.after(max(backward)) if backward else None
    update = [run for run in runs if run.pass_name == "update" and run.begin_ps >= end]
    if update:
        marks.update_begin = times.at(min(run.begin_ps for run in update))
        marks.update_end = times.after(max(run.end_ps for run in update))
    return marks
