"""Selects the steps to trace (`TraceSchedule`), what is kept of them, and the steps after which
more is measured than a sample as the overhead budget allows: `StepEnds`, the pool and its largest
free chunk; `HostBuffers`."""

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import Literal, TypeAlias

from tb_memplugin.importers import summarize_dump
from tb_memplugin.recorder.base import Due
from tb_memplugin.recorder.devices import PINNED, MemoryMaps, SampleBuffer
from tb_memplugin.recorder.watch import data_pipelines
from tb_memplugin.schema import MISSING

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
    steps_since_change: int = 0
    traced_since_change: bool = False
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
        self._learns = True
        self._phases: dict[str, _PhaseState] = collections.defaultdict(_PhaseState)
        self._spent_seconds = self._elapsed_seconds = 0.0
        self._last_cost_seconds = FIRST_ESTIMATE_SECONDS
        self._early_phase: str | None = None  # the one that was traced first
        self._early_times: list[float] = []  # that are left, since the recorder's start

    def changed(self) -> None:
        """Handle a change of the layer table: earlier traces no longer hold."""
        for state in self._phases.values():
            state.steps_since_change, state.traced_since_change = 0, False

    def compiled(self, phase: str) -> None:
        """Handle the end of a step that traced a function, or was traced to learn: the next one is
        traced."""
        state = self._phases[phase]
        state.steps_since_change, state.traced_since_change = 1, False

    def only_requested(self) -> None:
        """From now on trace the steps of `trace_steps` only, and none to learn."""
        self._learns = False
        self._trace_steps = self._trace_steps or frozenset()

    def wants(self, phase: str, step: int, elapsed_seconds: float) -> Wish | None:
        """How to trace the next step; `elapsed_seconds` counts from the recorder's start."""
        if self._trace_steps is not None:
            if phase != "train" or not self._trace_steps:
                return None
            return "trace" if step in self._trace_steps else self._learning(phase)
        if self._overhead <= 0:
            return None
        self._elapsed_seconds = elapsed_seconds
        state = self._phases[phase]
        due = (
            elapsed_seconds >= self._next_at(phase)
            if state.traced_since_change
            else state.steps_since_change >= 1
        )
        return "trace" if due else self._learning(phase)

    def due(self, phase: str, step: int, elapsed_seconds: float) -> Due:
        """Until when `wants` gives None for the steps of a phase after an untraced one; arguments
        as for `wants`."""
        wanted = self._trace_steps
        if self._overhead <= 0 if wanted is None else phase != "train" or not wanted:
            return Due()
        if wanted and not self._learning(phase):
            return Due(step=min((one for one in wanted if one > step), default=math.inf))
        state = self._phases[phase]
        if wanted or not state.traced_since_change:
            return Due(seconds=0.0)
        highest = math.inf if state.grown else state.traced_peak_bytes * PEAK_GROWTH
        return Due(seconds=self._next_at(phase) - elapsed_seconds, peak_bytes=highest)

    def _next_at(self, phase: str) -> float:
        """When the next trace of a phase is due that was traced since the last change."""
        # A trace that only spreads over the run leaves room for one after a new peak.
        affordable = self._affordable_at(traces=1 if self._phases[phase].grown else 2)
        cheap = (self._spent_seconds + self._last_cost_seconds) / EARLY_SHARE
        return min(
            [
                affordable,
                *(max(at, cheap) for at in self._early_times[: phase == self._early_phase]),
            ]
        )

    def _learning(self, phase: str) -> Wish | None:
        state = self._phases[phase]
        return (
            "learn"
            if self._learns and not state.traced_since_change and not state.steps_since_change
            else None
        )

    def step_done(self, phase: str, peak_bytes: int, steps: int = 1) -> None:
        state = self._phases[phase]
        state.steps_since_change += steps
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
        state.traced_since_change = True
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


SHARE = 0.2  # share of the overhead budget that each of the two may cost
# most maps that wait to be measured, for example while the background thread cannot write its files
MAX_WAITING = 16
LOOK_SECONDS = 0.1  # time after which to look again whether they wait
HOST_SECONDS = 0.2  # least time between two reads of `HostBuffers`


class _Budgeted:
    """Measures for a share of the run time. `spend` is called with each cost, which reduces the
    budget for traces."""

    def __init__(self, maps: MemoryMaps, overhead: float, spend: Callable[[float], None]) -> None:
        self._maps = maps
        self._share = SHARE * overhead
        self._spend = spend
        self._began = time.perf_counter()
        self._spent_seconds = 0.0

    def due_in(self) -> float:
        """Seconds until all costs so far are at most their share of the run time; infinite without
        a budget."""
        if self._share <= 0:
            return math.inf
        return self._began + self._spent_seconds / self._share - time.perf_counter()

    def count(self, seconds: float) -> None:
        self._spent_seconds += seconds
        self._spend(seconds)


class StepEnds(_Budgeted):
    """Reads maps at the end of some steps and adds their figures to the samples. The training's
    thread calls `due_in` and `read`, the background thread the other methods."""

    def __init__(
        self,
        maps: MemoryMaps,
        buffer: SampleBuffer,
        overhead: float,
        spend: Callable[[float], None],
    ) -> None:
        super().__init__(maps, overhead, spend)
        self._devices = [device for device in buffer.devices if maps.available(device)]
        self._buffer = buffer
        self._read = self._measured = 0  # each is counted by one thread only

    def due_in(self) -> float:
        """Seconds until the budget allows a map, and few of them wait to be measured; infinite if
        none can be read."""
        seconds = super().due_in() if self._devices else math.inf
        return max(seconds, LOOK_SECONDS) if self._read - self._measured >= MAX_WAITING else seconds

    def read(self) -> Mapping[str, bytes | None]:
        began = time.perf_counter()
        dumps = {device: self._maps.read(device) for device in self._devices}
        self.count(time.perf_counter() - began)
        self._read += 1
        return dumps

    def measure(
        self,
        row: int,
        in_use: Mapping[str, int],
        dumps: Mapping[str, bytes | None],
        waited: bool = False,
    ) -> None:
        """Add the figures of maps to a step's sample. Maps with other bytes in use are of another
        moment; those from `read` `waited`."""
        self._measured += waited
        began = time.thread_time()
        for device, dump in dumps.items():
            summary = None if dump is None else summarize_dump(dump)
            if summary is not None and summary.in_use_bytes == in_use[device]:
                self._buffer.measure(row, device, summary.pool_bytes, summary.largest_free_bytes)
        self.count(time.thread_time() - began)


class HostBuffers(_Budgeted):
    """Reads the buffers of ``tf.data`` and the pool of pinned memory on the training's thread,
    after some steps."""

    _next = -math.inf

    def due_in(self) -> float:
        return max(super().due_in(), self._next - time.perf_counter())

    def read(self) -> tuple[int, int]:
        """Bytes that ``tf.data`` buffers, and bytes of the pool of pinned memory; `MISSING` if
        unknown."""
        began = time.perf_counter()
        buffered = data_pipelines.buffered_bytes()
        dump = self._maps.read(PINNED) if self._maps.available(PINNED) else None
        pinned = MISSING if dump is None else summarize_dump(dump).pool_bytes
        self.count(time.perf_counter() - began)
        self._next = began + HOST_SECONDS
        return MISSING if buffered is None else buffered, pinned
