"""The moments of a timeline: its start, one after each event, and between these the positions of compiled modules."""

from collections.abc import Sequence

import numpy as np

from tb_memplugin.attribution.classifier import Classifier
from tb_memplugin.attribution.compiled_runs import ModuleRun, place_positions, run_marks
from tb_memplugin.attribution.ledger import peak_event
from tb_memplugin.attribution.passes import Marks, bands, measured_marks
from tb_memplugin.model import Band, CompiledSpan
from tb_memplugin.model.trace import AllocationTrace

_PS_PER_NS = 1000


class Moments:
    """The moments of one step; fills in those of the module runs.

    Attributes:
        count: Number of moments.
        time_ns, event: As in `Timeline`.
        peak: The moment of the peak.
        bands, compiled: As in `Timeline`, before any reduction.
        duration_ns: From the first to the last thing that the trace saw.
    """

    def __init__(self, trace: AllocationTrace, runs: Sequence[ModuleRun], classifier: Classifier) -> None:
        events, peak = len(trace), peak_event(trace) + 1
        first, last = _first_and_last(trace)
        measured = np.concatenate([[0], (trace.time_ps - first) // _PS_PER_NS])
        self.duration_ns = (last - first) // _PS_PER_NS
        placed = [place_positions(run, np.append(measured, self.duration_ns), peak) for run in runs]
        follows = np.concatenate([np.arange(events + 1), *(one.follows for one in placed)])
        times = np.concatenate([measured, *(one.times for one in placed)])
        side = np.concatenate([np.full(events + 1, -2), *(one.side for one in placed)])
        # Each event's moment comes before the positions that follow the event.
        order = np.lexsort((np.arange(len(times)), times, side, follows))
        where = np.empty(len(order), np.int64)
        where[order] = np.arange(len(order))
        self.count = len(order)
        self._measured = np.append(where[: events + 1], self.count)
        self.time_ns = np.maximum.accumulate(times[order].astype(np.int64))
        self.event = follows[order].astype(np.int64)
        at = events + 1
        for run in runs:
            run.moments = where[at : at + len(run.positions.positions)]
            at += len(run.positions.positions)
        at_peak = [run for run in runs if run.begin + 1 <= peak <= run.end]
        self.peak = max([int(self._measured[peak]), *(int(run.moments[run.positions.peak]) for run in at_peak)])
        self.compiled = [
            CompiledSpan(int(run.moments[0]), int(run.moments[-1]) + 1) for run in runs if len(run.moments)
        ]
        self.bands = self._bands(trace, runs, classifier)

    def moment(self, measured: int) -> int:
        """The moment after a number of events; `count` for numbers beyond the last event."""
        return int(self._measured[measured])

    def must_keep(self) -> list[int]:
        """Moments that no reduction may drop."""
        edges = [edge for band in self.bands for edge in (band.start, band.end)]
        edges += [edge for span in self.compiled for edge in (span.start, span.end)]
        return [0, self.count - 1, self.peak, *(edge for edge in edges if edge < self.count)]

    def _bands(self, trace: AllocationTrace, runs: Sequence[ModuleRun], classifier: Classifier) -> tuple[Band, ...]:
        marks: list[Marks] = []
        for mark in measured_marks(trace, classifier):
            ends = (mark.forward_end, mark.backward_end, mark.update_begin, mark.update_end)
            begin = self.moment(mark.begin) if marks else 0
            marks.append(Marks(begin, *(None if end is None else self.moment(end) for end in ends)))
        marks += [mark for mark in map(run_marks, runs) if mark is not None]
        return bands(sorted(marks, key=lambda mark: mark.begin), self.count)


def _first_and_last(trace: AllocationTrace) -> tuple[int, int]:
    """Times in picoseconds of the first and the last thing that the trace saw; zeros without events."""
    if not len(trace):
        return 0, 0
    spans = [part for part in (trace.ops, trace.layers) if len(part)]
    first = min([int(trace.time_ps[0]), *(int(part.start_ps.min()) for part in spans)])
    return first, max([int(trace.time_ps[-1]), *(int(part.end_ps.max()) for part in spans)])
