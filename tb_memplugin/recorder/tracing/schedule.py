"""`TraceSchedule`: selects the steps to trace, as the overhead budget allows."""

import collections
import dataclasses
import math
from collections.abc import Collection
from typing import Literal, TypeAlias

from tb_memplugin.recorder.base import Due

Wish: TypeAlias = Literal["learn", "trace"]
"""``learn``: trace the step for the chunks that it leaves behind, such as the optimizer's slots;
``trace``: for its ledger."""

PEAK_GROWTH = 1.01  # A peak above the last traced one by this factor requests a new trace
EARLY_SECONDS = (0.25, 0.5, 1.0, 2.0)
"""Times after its first trace from which the first phase of a run is traced again beyond the
budget, so that a short training has five breakdowns as well."""
EARLY_SHARE = 0.25
"""Most of the time since the recorder's start that all traces may have cost by then. Traces of 20
ms still come at the times above; slower ones come later, so that a short training is not mostly
tracing."""
FIRST_ESTIMATE_SECONDS = 0.05  # assumed cost of a trace before the first measurement


@dataclasses.dataclass
class _PhaseState:
    learned: bool = False  # whether a step ended since the last change
    traced: bool = False  # whether one was traced for its ledger since then
    traced_peak_bytes: int = 0
    highest_peak_bytes: int = 0

    @property
    def grown(self) -> bool:
        return self.highest_peak_bytes > self.traced_peak_bytes * PEAK_GROWTH


class TraceSchedule:
    """Decides at the start of each step whether to trace it.

    After a change (of the layer table, or a new compilation), a phase's first step compiles,
    autotunes and makes long-lived chunks; it is traced to learn these. The second one is always
    traced, and in the phase that is traced first also steps from `EARLY_SECONDS` on. Further traces
    must fit into the budget of `overhead` × run time, to which all traces so far count; those after
    a new highest peak come before those that only spread over the run.

    The training's thread calls all methods except `add_cost`, which any thread may call.

    With `trace_steps`, exactly these training steps are traced, at any cost, and the first one to
    learn."""

    def __init__(self, overhead: float, trace_steps: Collection[int] | None = None) -> None:
        self._overhead = overhead
        self._trace_steps = None if trace_steps is None else frozenset(trace_steps)
        self.learns = True  # whether steps are traced that were not requested
        self._phases: dict[str, _PhaseState] = collections.defaultdict(_PhaseState)
        self._spent_seconds = self._elapsed_seconds = 0.0
        self._last_cost_seconds = FIRST_ESTIMATE_SECONDS
        self._early_phase: str | None = None  # the one that was traced first
        self._early_times: list[float] = []  # that are left, since the recorder's start

    def changed(self) -> None:
        """Handle a change of the layer table: earlier traces no longer hold."""
        for state in self._phases.values():
            state.learned = state.traced = False

    def compiled(self, phase: str) -> None:
        """Handle the end of a step that traced a function, or was traced to learn: the next one is
        traced."""
        state = self._phases[phase]
        state.learned, state.traced = True, False

    def only_requested(self) -> None:
        """From now on trace the steps of `trace_steps` only, and none to learn."""
        self.learns = False
        self._trace_steps = self._trace_steps or frozenset()

    def _may_trace(self, phase: str) -> bool:
        if self._trace_steps is None:
            return self._overhead > 0
        return phase == "train" and bool(self._trace_steps)

    def wants(self, phase: str, step: int, elapsed_seconds: float) -> Wish | None:
        """How to trace the next step; `elapsed_seconds` counts from the recorder's start."""
        self._elapsed_seconds = elapsed_seconds
        if not self._may_trace(phase):
            return None
        state = self._phases[phase]
        if self._trace_steps is not None:
            traces = step in self._trace_steps
        elif state.traced:
            traces = elapsed_seconds >= self._next_at(phase)
        else:
            traces = state.learned
        return "trace" if traces else self._learning(phase)

    def due(self, phase: str, step: int, elapsed_seconds: float) -> Due:
        """Until when `wants` gives None for the steps of a phase after an untraced one; arguments
        as for `wants`."""
        if not self._may_trace(phase):
            return Due()
        state = self._phases[phase]
        if self._trace_steps is not None and not self._learning(phase):
            return Due(step=min((one for one in self._trace_steps if one > step), default=math.inf))
        if self._trace_steps is not None or not state.traced:
            return Due(seconds=0.0)
        highest = math.inf if state.grown else state.traced_peak_bytes * PEAK_GROWTH
        return Due(seconds=self._next_at(phase) - elapsed_seconds, peak_bytes=highest)

    def _next_at(self, phase: str) -> float:
        """When the next trace of a phase is due that was traced since the last change."""
        # A trace that only spreads over the run leaves room for one after a new peak.
        affordable = self._affordable_at(traces=1 if self._phases[phase].grown else 2)
        if phase != self._early_phase or not self._early_times:
            return affordable
        cheap = (self._spent_seconds + self._last_cost_seconds) / EARLY_SHARE
        return min(affordable, max(self._early_times[0], cheap))

    def _learning(self, phase: str) -> Wish | None:
        state = self._phases[phase]
        return "learn" if self.learns and not state.traced and not state.learned else None

    def step_done(self, phase: str, peak_bytes: int) -> None:
        state = self._phases[phase]
        state.learned = True
        state.highest_peak_bytes = max(state.highest_peak_bytes, peak_bytes)

    def traced(self, phase: str, peak_bytes: int, cost_seconds: float) -> None:
        if self._early_phase is None:
            self._early_phase = phase
            self._early_times = [self._elapsed_seconds + seconds for seconds in EARLY_SECONDS]
        elif (
            phase == self._early_phase
            and self._early_times
            and self._elapsed_seconds >= self._early_times[0]
        ):
            del self._early_times[0]
        self.step_done(phase, peak_bytes)
        state = self._phases[phase]
        state.traced = True
        # only a still higher peak requests another trace
        state.traced_peak_bytes = state.highest_peak_bytes
        self.add_cost(cost_seconds)
        self._last_cost_seconds = cost_seconds

    def add_cost(self, seconds: float) -> None:
        """Add recording time outside of a trace."""
        self._spent_seconds += seconds

    def affordable(self, elapsed_seconds: float) -> bool:
        """Whether one trace fits into the budget."""
        return elapsed_seconds >= self._affordable_at(traces=1)

    def _affordable_at(self, traces: int) -> float:
        after = self._spent_seconds + self._last_cost_seconds * traces
        return after / self._overhead if self._overhead else math.inf
