"""When to trace: a pure policy over what was seen, so that it can be tested without a profiler."""

import dataclasses
from collections.abc import Collection
from typing import Literal, TypeAlias

Wish: TypeAlias = Literal["learn", "trace"]
"""``learn``: trace the step to see what it makes that stays, such as the optimizer's slots; ``trace``: for its
ledger."""

PEAK_GROWTH = 1.01
"""A step whose peak exceeds the last traced one by this factor asks for a new trace."""
FIRST_ESTIMATE_SECONDS = 0.05
"""Assumed cost of a trace before one was measured."""


@dataclasses.dataclass
class _PhaseState:
    steps_since_change: int = 0
    traced_since_change: bool = False
    traced_peak_bytes: int = 0
    highest_peak_bytes: int = 0


class TraceSchedule:
    """Decides at the start of each step whether it is traced.

    A phase's second step after a change (of the layer table, or a new compilation) is always traced; the first one
    compiles, tunes and makes what stays, so of training it is traced to learn that. Further traces wait until the time
    spent on all traces is below `overhead` of the time run, those after a new highest peak before those that only
    spread over the run.

    Args:
        overhead: Share of run time that tracing may cost, 0 to trace nothing.
        trace_steps: If given, exactly these steps of training are traced, at any cost.
    """

    def __init__(self, overhead: float, trace_steps: Collection[int] | None = None) -> None:
        self._overhead = overhead
        self._trace_steps = None if trace_steps is None else frozenset(trace_steps)
        self._phases: dict[str, _PhaseState] = {}
        self._spent_seconds = 0.0
        self._last_cost_seconds = FIRST_ESTIMATE_SECONDS
        self._last_traced_at = 0.0

    def changed(self) -> None:
        """The layer table changed or a function was compiled anew: what was traced no longer holds."""
        for state in self._phases.values():
            state.steps_since_change = 0
            state.traced_since_change = False

    def compiled(self, phase: str) -> None:
        """The step that just ended compiled its function."""
        state = self._phases.setdefault(phase, _PhaseState())
        state.steps_since_change = 1
        state.traced_since_change = False

    def wants(self, phase: str, step: int, elapsed_seconds: float) -> Wish | None:
        """What is to be done with the step that begins now; `elapsed_seconds` counts from the recorder's start."""
        if self._trace_steps is not None:
            return "trace" if phase == "train" and step in self._trace_steps else None
        if self._overhead <= 0:
            return None
        return "trace" if self._due(phase, elapsed_seconds) else self._learning(phase)

    def _learning(self, phase: str) -> Wish | None:
        state = self._phases.setdefault(phase, _PhaseState())
        return "learn" if phase == "train" and not state.traced_since_change and not state.steps_since_change else None

    def _due(self, phase: str, elapsed_seconds: float) -> bool:
        state = self._phases.setdefault(phase, _PhaseState())
        if not state.traced_since_change:
            return state.steps_since_change >= 1
        if state.highest_peak_bytes > state.traced_peak_bytes * PEAK_GROWTH:
            return self._affordable(elapsed_seconds)
        # Others may still need their turn: a trace that only spreads waits until two would fit.
        return self._affordable(elapsed_seconds, reserve=1)

    def learned(self, phase: str, cost_seconds: float) -> None:
        """A step ended that was traced for what it makes; the next one is traced for the ledger."""
        self.compiled(phase)
        self.cost(cost_seconds)

    def step_done(self, phase: str, peak_bytes: int) -> None:
        """A step that was not traced ended with this peak."""
        state = self._phases.setdefault(phase, _PhaseState())
        state.steps_since_change += 1
        state.highest_peak_bytes = max(state.highest_peak_bytes, peak_bytes)

    def traced(self, phase: str, peak_bytes: int, cost_seconds: float) -> None:
        """A traced step ended; `cost_seconds` is what the trace took from the training's time."""
        state = self._phases.setdefault(phase, _PhaseState())
        state.steps_since_change += 1
        state.traced_since_change = True
        # The highest peak seen so far has had its chance: only a still higher one asks again.
        state.traced_peak_bytes = max(peak_bytes, state.highest_peak_bytes)
        state.highest_peak_bytes = state.traced_peak_bytes
        self.cost(cost_seconds)
        self._last_cost_seconds = cost_seconds

    def cost(self, seconds: float) -> None:
        """Time that a trace took from the training afterwards, such as parsing in a thread."""
        self._spent_seconds += seconds

    def _affordable(self, elapsed_seconds: float, reserve: int = 0) -> bool:
        after = self._spent_seconds + self._last_cost_seconds * (1 + reserve)
        return after <= self._overhead * elapsed_seconds
