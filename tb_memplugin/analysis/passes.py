"""Where inside a traced step the forward pass ends and the update begins. Pure.

The end of the forward pass is the moment at which what is held for the backward pass is counted. TensorFlow updates a
weight as soon as its gradient is there, so the update mostly begins within the backward pass.
"""

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from tb_memplugin.analysis.categories import Classifier, LayerRun
from tb_memplugin.model import Band, BandName
from tb_memplugin.trace import AllocationTrace

MAX_STEPS = 100
"""Most training steps in one window whose passes are told; of more, none are."""


@dataclasses.dataclass
class Marks:
    """Moments of one training step (of which a window may hold several); None for what it did not do.

    Attributes:
        begin: From which on the forward pass runs.
        forward_end: From which on it has ended.
        backward_end: From which on the backward pass has ended.
        update_begin: From which on weights are updated.
        update_end: From which on they all are.
    """

    begin: int
    forward_end: int | None = None
    backward_end: int | None = None
    update_begin: int | None = None
    update_end: int | None = None


def bands(marks: Iterable[Marks], moments: int) -> tuple[Band, ...]:
    """The parts of the steps, in order; `moments` is their number."""
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
    found = (
        Band(name, min(place, moments), min(end, moments))
        for (place, name), end in zip(edges, ends, strict=True)
        if name is not None
    )
    return tuple(band for band in found if band.start < band.end)


def measured_marks(trace: AllocationTrace, classifier: Classifier) -> list[Marks]:
    """The marks that the trace's own times give; moment n is the state after n events."""
    eager = classifier.eager_spans("(backward)")
    if eager:
        update = classifier.eager_spans("(update)")
        return _eager_marks(trace, eager, update) if len(eager) <= MAX_STEPS else []
    steps = list(_steps(classifier.layer_runs(), classifier.forward_ends().tolist()))
    if len(steps) > MAX_STEPS:
        return []
    times = _Moments(trace)
    return [_marks(step, classifier, times) for step in steps]


class _Moments:
    """Times to moments."""

    def __init__(self, trace: AllocationTrace) -> None:
        self._times = trace.time_ps

    def after(self, time: int) -> int:
        """The first moment that begins after a time."""
        return int(np.searchsorted(self._times, time, side="right")) + 1

    def at(self, time: int) -> int:
        """The first moment that begins at a time or after it."""
        return int(np.searchsorted(self._times, time, side="left")) + 1


def _eager_marks(trace: AllocationTrace, backward: list[tuple[int, int]], update: list[tuple[int, int]]) -> list[Marks]:
    times = _Moments(trace)
    marks: list[Marks] = []
    begin = 0
    for place, (start, end) in enumerate(backward):
        following = backward[place + 1][0] if place + 1 < len(backward) else None
        own = [span for span in update if span[0] >= start and (following is None or span[0] < following)]
        one = Marks(begin, times.at(start), times.after(end))
        if own:
            one.update_begin, one.update_end = times.at(own[0][0]), times.after(own[-1][1])
        marks.append(one)
        begin = one.update_end or one.backward_end or begin
    return marks


def _steps(runs: list[LayerRun], ends: list[int]) -> Iterator[tuple[list[LayerRun], list[int]]]:
    """Runs of one step after the other, with the ends of forward passes in them.

    A new one begins where an op of the forward pass runs again that ran before the last one's backward pass: what a
    backward pass computes again has other names.
    """
    step: list[LayerRun] = []
    before: set[int] = set()
    returned = False
    for run in runs:
        if run.phase == "forward" and returned and run.name in before:
            yield step, [end for end in ends if step[0].begin_ps <= end < run.begin_ps]
            ends = [end for end in ends if end >= run.begin_ps]
            step, before, returned = [], set(), False
        if run.phase == "forward" and not returned:
            before.add(run.name)
        returned = returned or run.phase == "backward"
        step.append(run)
    if step:
        yield step, ends


def _marks(found: tuple[list[LayerRun], list[int]], classifier: Classifier, times: _Moments) -> Marks:
    runs, ends = found
    marks = Marks(times.at(runs[0].begin_ps))
    if not ends:
        return marks
    end = max(ends, key=classifier.held_bytes)
    backward = [run.end_ps for run in runs if run.phase == "backward" and run.end_ps > end]
    marks.forward_end = times.after(end)
    marks.backward_end = times.after(max(backward)) if backward else None
    update = [run for run in runs if run.phase == "update" and run.begin_ps >= end]
    if update:
        marks.update_begin = times.at(min(run.begin_ps for run in update))
        marks.update_end = times.after(max(run.end_ps for run in update))
    return marks
