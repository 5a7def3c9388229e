"""`Windows`: opens a profiler window for each step that the schedule selects, and has the profiles
that wait for their analysis."""

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from tb_memplugin.recorder.base import Due, Faults, Settings, background
from tb_memplugin.recorder.devices import Device, MemoryMaps, PassedSteps, resource_handle_bytes
from tb_memplugin.recorder.helper import TRACING, Dumps, Helper, TracedStep
from tb_memplugin.recorder.tracing.profiler import ProfilerBusyError, ProfilerWindow
from tb_memplugin.recorder.tracing.schedule import TraceSchedule, Wish
from tb_memplugin.recorder.watch import OBSERVING, LayerWatch, note_running_fit
from tb_memplugin.schema import Phase, TraceFacts, is_cpu

MAX_WAITING = 16
MAX_WAITING_BYTES = 32 << 20
"""Most profiles that wait for analysis, and their bytes. While as many or more wait, no step is
traced; explicitly requested steps wait."""
RECENT_SHARE = 0.2  # weight of the last step in the mean time of untraced steps


class _Window(NamedTuple):
    """An open window: the maps at its start, and how long it took to open."""

    profiler: ProfilerWindow
    start: Dumps
    only_learn: bool
    opening_seconds: float


class Windows:
    """For the training's thread, except `release`, which the background thread calls when a profile
    was analyzed."""

    def __init__(
        self,
        settings: Settings,
        devices: Sequence[Device],
        watch: LayerWatch,
        faults: Faults,
        maps: MemoryMaps,
    ) -> None:
        self.schedule = TraceSchedule(settings.overhead, settings.trace_steps)
        self._settings = settings
        self._devices = tuple(device.name for device in devices)
        self._watch = watch
        self._faults = faults
        self._maps = maps
        self._window: _Window | None = None
        self._before_data: Dumps | None = None
        self._phases_with_data: set[Phase] = set()
        self._untraced_seconds: dict[Phase, float] = {}
        self._began = time.perf_counter()
        self._last_began = self._began  # of the last step that ended
        self._traces_before = 0
        self._refused = False  # whether a step was, because the replicas had not met
        self._waiting: dict[str, tuple[ProfilerWindow, int]] = {}
        """Path of each profile that waits, to its window and bytes."""
        handle_bytes = {
            device: faults.run(OBSERVING, resource_handle_bytes, maps, device)
            for device in self._devices
            if is_cpu(device) and maps.available(device) and settings.traces
        }
        capacities = {device.name: device.capacity_bytes for device in devices}
        self.helper = Helper(capacities, handle_bytes, faults)

    @property
    def _elapsed(self) -> float:
        return time.perf_counter() - self._began

    def before_data(self, phase: Phase) -> None:
        """Read the memory maps before a phase requests its first batch: always for its first run,
        later as the budget allows. What is in use now is no batch of the phase."""
        if not self._settings.traces:
            return
        self._faults.run(OBSERVING, note_running_fit)
        if phase not in self._phases_with_data or self.schedule.affordable(self._elapsed):
            self._phases_with_data.add(phase)
            self._before_data = self._read_maps_at_cost()

    def first_batches(self) -> tuple[Dumps, Dumps] | None:
        """The memory maps before and after the first batches of a phase, once after
        `before_data`."""
        before, self._before_data = self._before_data, None
        return None if before is None else (before, self._read_maps_at_cost())

    def _read_maps(self) -> Dumps:
        return {device: self._maps.read(device) for device in self._devices}

    def _read_maps_at_cost(self) -> Dumps:
        began = time.perf_counter()
        dumps = self._read_maps()
        self.schedule.add_cost(time.perf_counter() - began)
        return dumps

    @property
    def tracing(self) -> bool:
        return self._window is not None

    @property
    def compiled(self) -> bool:
        """Whether a function was traced since the step began."""
        return self._watch.traces != self._traces_before

    def due(self, step: int, phase: Phase) -> Due:
        """Until when no later step of the phase is traced, after `begin` of an untraced one."""
        if not self._devices or self._faults.stopped(TRACING):
            return Due()
        return self.schedule.due(phase, step, self._elapsed)

    def passed(self, phase: Phase, passed: PassedSteps) -> None:
        """Note the end of steps that were not traced and compiled nothing."""
        mean = passed.seconds / passed.steps
        before = self._untraced_seconds.get(phase, mean)
        self._untraced_seconds[phase] = mean + (1 - RECENT_SHARE) ** passed.steps * (before - mean)
        self.schedule.step_done(phase, passed.peak_bytes)

    def begin(self, step: int, phase: Phase) -> None:
        self._traces_before = self._watch.traces
        if not self._devices or self._faults.stopped(TRACING):
            return
        wish = self.schedule.wants(phase, step, self._elapsed)
        if wish is not None and (self._settings.follows or self._watch.replicas > 1):
            wish = self._wish_beside_replicas(step, phase)
        if wish is None or (wish == "learn" and self._watch.was_recorded):
            return  # the first step of its function, which made what stays, is over
        requested = self._settings.trace_steps is not None
        if requested and not background.while_it_works(self._has_room):
            self._faults.warn(f"step {step} was not traced: earlier profiles took too long")
        elif requested or self._has_room(0.0):
            self._faults.run(TRACING, self._open, wish)

    def _has_room(self, seconds: float) -> bool:
        """Whether one more profile may wait; sleep for so many seconds if not."""
        sizes = [size for _, size in list(self._waiting.values())]
        if len(sizes) < MAX_WAITING and sum(sizes) < MAX_WAITING_BYTES:
            return True
        time.sleep(seconds)
        return False

    def _wish_beside_replicas(self, step: int, phase: Phase) -> Wish | None:
        """How to trace the next step of replicas: not the first one, in which they meet, and none
        of a worker that is not the first one, except those that were asked for. See
        `watch.collectives`."""
        if self._settings.follows and self.schedule.learns and self._settings.trace_steps is None:
            self.schedule.only_requested()
            self._faults.warn(
                "no step of this worker is traced: TensorFlow's profiler can crash all but the "
                "first of several workers. Its weights and optimizer state are inferred from the "
                "layer table. trace_steps=[10, 100] traces these steps all the same"
            )
        self.schedule.learns = False
        wish = self.schedule.wants(phase, step, self._elapsed)
        if wish is None or self._settings.follows or self._watch.replicas_met(phase == "train"):
            return wish
        if not self._refused:
            self._refused = True
            self._faults.warn(
                f"step {step} was not traced: TensorFlow's profiler can crash as replicas meet for "
                "the first time. Steps are traced after one with an unconditional all-reduce"
            )
        return None

    def _open(self, wish: Wish) -> None:
        began = time.perf_counter()
        self._faults.run(OBSERVING, self._watch.begin_window, self._last_began)
        try:
            profiler = ProfilerWindow()
        except ProfilerBusyError:
            self._leave_to_user()
            return
        # Read just after the profiler starts and just before it stops, so that no event between
        # them is missed.
        start = self._read_maps()
        self._window = _Window(profiler, start, wish == "learn", time.perf_counter() - began)

    def _leave_to_user(self) -> None:
        """Give up a window: the user profiles this step. Later steps are traced again."""
        for device in self._devices[:1]:
            self._faults.run(OBSERVING, self._watch.end_window, device)
        self._watch.close_window()
        self._faults.stop(
            "step tracing while another profiler runs",
            "only one profiler can run in a process, so these steps are not traced",
        )

    def end(
        self, step: int, phase: Phase, wall_time: float, seconds: float, peak_bytes: int
    ) -> TracedStep | None:
        """Close the window, if one is open, and return the traced step, which took `seconds`."""
        window, self._window = self._window, None
        self._last_began = time.perf_counter() - seconds
        if window is not None and window.profiler.gave_way:
            self._leave_to_user()
            window = None
        if window is None:
            if self.compiled:
                self.schedule.compiled(phase)  # its duration says nothing about later steps
            else:
                self.passed(phase, PassedSteps(1, seconds, peak_bytes))
            return None

        began = time.perf_counter()
        maps = self._read_maps()
        profile = self._stop(window.profiler)
        facts = {
            device: self._faults.run(OBSERVING, self._watch.end_window, device) or TraceFacts()
            for device in self._devices
        }
        self._watch.close_window()
        for one in facts.values():
            self._faults.run(TRACING, self.helper.prepare, one.graphs)
        cost = window.opening_seconds + time.perf_counter() - began
        if window.only_learn:
            self.schedule.compiled(phase)
            self.schedule.add_cost(cost)
        else:
            slower = max(0.0, seconds - self._untraced_seconds.get(phase, seconds))
            self.schedule.traced(phase, peak_bytes, cost + slower)
        if profile is None:
            return None
        self._waiting[profile] = window.profiler, os.path.getsize(profile)
        return TracedStep(
            step,
            phase,
            wall_time,
            profile,
            facts,
            window.start,
            maps,
            window.only_learn,
            self.compiled,
            observed=not self._faults.stopped(OBSERVING),
        )

    def _stop(self, profiler: ProfilerWindow) -> str | None:
        # not a part: an open window must be closed even if the background thread stopped tracing
        # meanwhile
        try:
            return profiler.stop()
        except ProfilerBusyError:  # it gave way just now
            self._leave_to_user()
        except Exception as error:
            self._faults.stop(TRACING, error)
        return None

    def release(self, traced: TracedStep) -> None:
        """Remove the profile of a step that was analyzed."""
        profiler, _ = self._waiting.pop(traced.profile)
        profiler.remove()
