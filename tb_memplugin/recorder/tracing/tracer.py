"""`StepTracer`: opens a profiler window for each step that the schedule selects, and has its
profile analyzed."""

import os
import threading
import time
from collections.abc import Sequence

from tb_memplugin.recorder.base import Due, Faults, Settings, background
from tb_memplugin.recorder.devices import Device, MemoryMaps, PassedSteps, resource_handle_bytes
from tb_memplugin.recorder.helper import TRACING, Dumps, Helper, TracedStep
from tb_memplugin.recorder.tracing.profiler import ProfilerBusyError, ProfilerWindow
from tb_memplugin.recorder.tracing.schedule import TraceSchedule
from tb_memplugin.recorder.watch import OBSERVING, LayerWatch, note_running_fit
from tb_memplugin.schema import Phase, TraceFacts, is_cpu
from tb_memplugin.storage.write import PackedRecord

PROFILES = "keeping raw profiles"
MAX_WAITING = 16
MAX_WAITING_BYTES = 32 << 20
"""Most profiles that wait for analysis, and their bytes. While as many or more wait, no step is
traced; explicitly requested steps wait."""
RECENT_SHARE = 0.2  # weight of the last step in the mean time of untraced steps


class StepTracer:
    """The training's thread opens and closes windows, the background thread has them analyzed in
    order: it calls `work_through`, the training's thread all other methods."""

    def __init__(
        self,
        settings: Settings,
        devices: Sequence[Device],
        watch: LayerWatch,
        faults: Faults,
        maps: MemoryMaps,
    ) -> None:
        self.schedule = TraceSchedule(settings.overhead, settings.trace_steps)
        self._only_requested = False
        self._settings = settings
        self._devices = tuple(device.name for device in devices)
        self._watch = watch
        self._faults = faults
        self._maps = maps
        self._window: ProfilerWindow | None = None
        self._start: Dumps = {}
        self._before_data: Dumps | None = None
        self._phases_with_data: set[Phase] = set()
        self._untraced_seconds: dict[Phase, float] = {}
        self._began = time.perf_counter()
        self._last_began = self._began  # of the last step that ended
        self._only_learn = False
        self._opening_seconds = 0.0
        self._room = threading.Semaphore(MAX_WAITING)
        self._waiting: dict[str, tuple[ProfilerWindow, int]] = {}
        """Path of each profile that waits, to its window and bytes."""
        self._traces_before = 0
        handle_bytes = {
            device: faults.run(OBSERVING, resource_handle_bytes, maps, device)
            for device in self._devices
            if is_cpu(device) and maps.available(device) and settings.traces
        }
        self.helper = Helper(
            {device.name: device.capacity_bytes for device in devices}, handle_bytes, faults
        )

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
        self.schedule.step_done(phase, passed.peak_bytes, passed.steps)

    def begin(self, step: int, phase: Phase) -> None:
        self._traces_before = self._watch.traces
        if not self._devices or self._faults.stopped(TRACING):
            return
        elapsed = self._elapsed
        wish = self.schedule.wants(phase, step, elapsed)
        if (
            wish is not None
            and not self._only_requested
            and (self._settings.in_cluster or self._watch.replicated)
        ):
            self._trace_only_requested()
            wish = self.schedule.wants(phase, step, elapsed)
        if wish is None:
            return
        requested = self._settings.trace_steps is not None
        if requested and not background.while_it_works(self._finds_room):
            self._faults.warn(f"step {step} was not traced: earlier profiles took too long")
        elif requested or self._finds_room(0.0):
            self._only_learn = wish == "learn"
            self._faults.run(TRACING, self._open)
            if self._window is None:
                self._room.release()

    def _finds_room(self, seconds: float) -> bool:
        """Take the place of one more profile, if there is one within so many seconds."""
        if sum(size for _, size in list(self._waiting.values())) >= MAX_WAITING_BYTES:
            time.sleep(seconds)
            return False
        return self._room.acquire(timeout=seconds)

    def _trace_only_requested(self) -> None:
        """Beside other replicas every trace is a risk: make none that was not asked for.

        TensorFlow's profiler sometimes crashes a process as it stops, with and without a recorder.
        A collective operation may end on another thread than it began on, and TensorFlow 2.21 joins
        both events through a pointer to an event that it has copied and freed meanwhile
        (`SplitEventTracker` in traceme_recorder.cc)."""
        self._only_requested = True
        self.schedule.only_requested()
        if self._settings.trace_steps is None:
            self._faults.warn(
                "no step is traced: TensorFlow's profiler can crash a process in which replicas "
                "train together. trace_steps=[10, 100] traces these steps all the same"
            )

    def _open(self) -> None:
        began = time.perf_counter()
        try:
            self._faults.run(OBSERVING, self._watch.begin_window, self._last_began)
            self._window = ProfilerWindow()
            # Read just after the profiler starts and just before it stops, so that no event between
            # them is missed.
            self._start = self._read_maps()
            self._opening_seconds = time.perf_counter() - began
        except ProfilerBusyError:
            self._leave_to_user()

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
        if window is not None and window.gave_way:
            self._leave_to_user()
            self._room.release()
            window = None
        if window is None:
            if self.compiled:
                self.schedule.compiled(phase)  # its duration says nothing about later steps
            else:
                self.passed(phase, PassedSteps(1, seconds, peak_bytes))
            return None
        began = time.perf_counter()
        start, end = self._start, self._read_maps()
        profile = None
        # not a part: an open window must be closed even if the background thread stopped tracing
        # meanwhile
        try:
            profile = window.stop()
        except ProfilerBusyError:  # it gave way just now
            self._leave_to_user()
        except Exception as error:
            self._faults.stop(TRACING, error)
        end_window = self._watch.end_window
        facts = {
            device: self._faults.run(OBSERVING, end_window, device) or TraceFacts()
            for device in self._devices
        }
        self._watch.close_window()
        for one in facts.values():
            self._faults.run(TRACING, self.helper.prepare, one.graphs)
        cost = self._opening_seconds + time.perf_counter() - began
        if self._only_learn:
            self.schedule.compiled(phase)
            self.schedule.add_cost(cost)
        else:
            slower = max(0.0, seconds - self._untraced_seconds.get(phase, seconds))
            self.schedule.traced(phase, peak_bytes, cost + slower)
        if profile is None:
            self._room.release()
            return None
        observed = not self._faults.stopped(OBSERVING)
        self._waiting[profile] = window, os.path.getsize(profile)
        return TracedStep(
            step,
            phase,
            wall_time,
            profile,
            facts,
            start,
            end,
            self._only_learn,
            self.compiled,
            observed,
        )

    # --- on the background thread

    def work_through(self, traced: TracedStep) -> list[PackedRecord]:
        """The step's records. What their analysis costs counts as overhead; never raises."""
        before = self.helper.cost_seconds
        try:
            records = self._faults.run_step(TRACING, traced.step, self.helper.records, traced) or []
            if traced.phase == "train":
                sizes = (facts.batch.size for facts in traced.facts.values())
                self._watch.batch_size = next(sizes, None) or self._watch.batch_size
            if self._settings.keep_profile and not traced.only_learn:
                self._faults.run(PROFILES, self._keep_profile, traced)
            return records
        finally:
            self.schedule.add_cost(self.helper.cost_seconds - before)
            window, _ = self._waiting.pop(traced.profile)
            window.remove()
            self._room.release()

    def _keep_profile(self, traced: TracedStep) -> None:
        """Write the profile into the run, for TensorBoard's profiler tab."""
        import tensorflow as tf

        # The usual file name contains this machine's name.
        step = f"memory_{traced.phase}_step_{traced.step:08d}"
        directory = os.path.join(self._settings.log_dir, "plugins", "profile", step)
        tf.io.gfile.makedirs(directory)
        with (
            open(traced.profile, "rb") as profile,
            tf.io.gfile.GFile(f"{directory}/memory.xplane.pb", "wb") as file,
        ):
            file.write(profile.read())
