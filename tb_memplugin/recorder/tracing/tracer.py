"""`StepTracer`: opens a profiler window for each step that the schedule selects, and turns the profile of such a step
into snapshots, memory maps, timelines and requests."""

import dataclasses
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tb_memplugin.allocator import TraceReplay, between_maps, would_fit
from tb_memplugin.attribution import Ages, AttributedStep, ModuleContents, StepChunks, ages_after, peak_event
from tb_memplugin.importers import Request, read_dump, read_traces
from tb_memplugin.recorder.base import Due, Faults, Settings, background, uncounted
from tb_memplugin.recorder.devices import Device, MemoryMaps, PassedSteps, resource_handle_bytes
from tb_memplugin.recorder.failure import OwnedMap, RecentSteps, is_forward
from tb_memplugin.recorder.tracing.profiler import ProfilerBusyError, ProfilerWindow
from tb_memplugin.recorder.tracing.schedule import KeptRequests, KeptTimelines, TraceSchedule
from tb_memplugin.recorder.watch import OBSERVING, LayerWatch, batch_notes, note_running_fit
from tb_memplugin.schema import (
    AllocationTrace,
    BatchFacts,
    MemoryMap,
    Phase,
    Snapshot,
    StepRequests,
    Timeline,
    TraceFacts,
    is_cpu,
)

TRACING = "step tracing"
MAPS = "memory maps of traced steps"
TIMELINES = "step timelines"
REQUESTS = "requests of traced steps"
PROFILES = "keeping raw profiles"
_MISSED_EVENTS = (
    "The memory map of this step is unknown: the trace misses events, so it does not lead from the map at step start "
    "to the map at step end."
)
MAX_WAITING = 2
"""Most profiles that wait for analysis. While this many wait, no step is traced; explicitly requested steps wait."""
RECENT_SHARE = 0.2  # weight of the last step in the mean time of untraced steps

Records: TypeAlias = list[Snapshot | MemoryMap | Timeline | StepRequests]
"""Of a traced step, one of each per device; only a snapshot if the trace misses events."""
Dumps: TypeAlias = Mapping[str, bytes | None]  # device to its serialized memory map, None if it cannot be read


@dataclasses.dataclass(frozen=True)
class TracedStep:
    """A traced step before its analysis; facts and maps are by device."""

    step: int
    phase: Phase
    wall_time: float
    profile: bytes  # the serialized XSpace
    facts: Mapping[str, TraceFacts]
    start: Dumps
    end: Dumps
    only_learn: bool  # whether the step only updates the history of chunks and gets no snapshot
    compiled: bool = False  # whether the step traced a function
    interrupted: bool = False  # whether a failed allocation ended it, so that it does not show all that a step requests
    at_failure: Mapping[str, MemoryMap] = dataclasses.field(default_factory=dict)  # where the analysis ends


class StepTracer:
    """The training's thread opens and closes windows, the background thread analyzes them in order. That one calls
    `note_first_batches` and `work_through`, the training's thread all other methods; `failed_step` once the background
    thread has analyzed all earlier steps."""

    def __init__(
        self,
        settings: Settings,
        devices: Sequence[Device],
        watch: LayerWatch,
        faults: Faults,
        recent: RecentSteps,
        maps: MemoryMaps,
    ) -> None:
        self.schedule = TraceSchedule(settings.overhead, settings.trace_steps)
        self._only_requested = False
        self._settings = settings
        self._capacities = {device.name: device.capacity_bytes for device in devices}
        self._devices = tuple(self._capacities)
        self._watch = watch
        self._faults = faults
        self._recent = recent
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
        self._traces_before = 0
        self._ages: dict[str, Ages] = {}
        self._kept_timelines = KeptTimelines()
        self._kept_requests = KeptRequests()
        for device in self._devices:
            if is_cpu(device) and maps.available(device) and settings.traces:
                size = self._faults.run(OBSERVING, resource_handle_bytes, maps, device)
                self._watch.history[device].handle_bytes = size

    @property
    def _elapsed(self) -> float:
        return time.perf_counter() - self._began

    @uncounted
    def before_data(self, phase: Phase) -> None:
        """Read the memory maps before a phase requests its first batch: always for its first run, later as the budget
        allows. What is in use now is no batch of the phase."""
        if not self._settings.traces:
            return
        self._faults.run(OBSERVING, note_running_fit)
        if phase not in self._phases_with_data or self.schedule.affordable(self._elapsed):
            self._phases_with_data.add(phase)
            self._before_data = self._read_maps_at_cost()

    def first_batches(self) -> tuple[Dumps, Dumps] | None:
        """The memory maps before and after the first batches of a phase, once after `before_data`."""
        before, self._before_data = self._before_data, None
        return None if before is None else (before, self._read_maps_at_cost())

    def _read_maps(self) -> Dumps:
        return {device: self._maps.read(device) for device in self._devices}

    def _parsed_maps(self) -> Mapping[str, MemoryMap | None]:
        return {device: _parse(dump) for device, dump in self._read_maps().items()}

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
        if wish is not None and not self._only_requested and (self._settings.in_cluster or self._watch.replicated):
            self._trace_only_requested()
            wish = self.schedule.wants(phase, step, elapsed)
        if wish is None:
            return
        room, requested = self._room, self._settings.trace_steps is not None
        if requested and not background.while_it_works(lambda seconds: room.acquire(timeout=seconds)):
            self._faults.warn(f"step {step} was not traced: earlier profiles took too long")
        elif requested or room.acquire(blocking=False):
            self._only_learn = wish == "learn"
            self._faults.run(TRACING, self._open)
            if self._window is None:
                room.release()

    def _trace_only_requested(self) -> None:
        """Beside other replicas every trace is a risk: make none that was not asked for.

        TensorFlow's profiler sometimes crashes a process as it stops, with and without a recorder. A collective
        operation may end on another thread than it began on, and TensorFlow 2.21 joins both events through a pointer to
        an event that it has copied and freed meanwhile (`SplitEventTracker` in traceme_recorder.cc)."""
        self._only_requested = True
        self.schedule.only_requested()
        if self._settings.trace_steps is None:
            self._faults.warn(
                "no step is traced: TensorFlow's profiler can crash a process in which replicas train together. "
                "trace_steps=[10, 100] traces these steps all the same"
            )

    @uncounted
    def _open(self) -> None:
        began = time.perf_counter()
        try:
            self._faults.run(OBSERVING, self._watch.begin_window, self._parsed_maps, self._last_began)
            self._window = ProfilerWindow()
            # Read just after the profiler starts and just before it stops, so that no event between them is missed.
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

    def end(self, step: int, phase: Phase, wall_time: float, seconds: float, peak_bytes: int) -> TracedStep | None:
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
        try:  # not a part: an open window must be closed even if the background thread stopped tracing meanwhile
            profile = window.stop()
        except ProfilerBusyError:  # it gave way just now
            self._leave_to_user()
        except Exception as error:
            self._faults.stop(TRACING, error)
        end_window = self._watch.end_window
        facts = {device: self._faults.run(OBSERVING, end_window, device) or TraceFacts() for device in self._devices}
        self._watch.close_window()
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
        return TracedStep(step, phase, wall_time, profile, facts, start, end, self._only_learn, self.compiled)

    # --- on the background thread

    def note_first_batches(self, before: Dumps, after: Dumps) -> None:
        """Note the chunks that only the later maps have as batches."""
        for device in self._capacities:
            first, second = (_parse(dumps.get(device)) for dumps in (before, after))
            if first is not None and second is not None:
                self._watch.history[device].first_batches(first, second)

    def work_through(self, traced: TracedStep) -> Records:
        """The step's records, in tens of milliseconds, which count as overhead; never raises."""
        began = time.thread_time()
        result: Records = []
        try:
            self._faults.run_step(TRACING, traced.step, self._analyze, traced, result)
            if self._settings.keep_profile and not traced.only_learn:
                self._faults.run(PROFILES, self._keep_profile, traced)
            return result
        finally:
            self.schedule.add_cost(time.thread_time() - began)
            self._room.release()

    def _analyze(self, traced: TracedStep, result: Records) -> None:
        batch = next((facts.batch for facts in traced.facts.values()), BatchFacts()).size
        analyzed = [
            self._analyze_device(traced, trace, batch, result)
            for trace in read_traces(traced.profile)
            if trace.device in traced.facts
        ]
        if traced.phase == "train":
            self._watch.batch_size = batch or self._watch.batch_size
        for one in analyzed:
            self._faults.run_step(REQUESTS, traced.step, self._add_requests, traced, one, batch, result)

    def _parse_both(self, traced: TracedStep, device: str) -> tuple[MemoryMap | None, MemoryMap | None]:
        start, end = traced.start.get(device), traced.end.get(device)
        when, capacity = traced.wall_time, self._capacities[device]
        return _parse(start, when, capacity), _parse(end, when, capacity)

    def _analyze_device(
        self, traced: TracedStep, profiled: AllocationTrace, batch: int | None, result: Records
    ) -> AttributedStep:
        device = profiled.device
        start, end = self._parse_both(traced, device)
        whole = between_maps(profiled, start, end)
        failure = traced.at_failure.get(device)
        trace = whole if failure is None else between_maps(profiled, start, failure)
        history, facts = self._watch.history[device], traced.facts[device]
        if trace.start_map is None and self._maps.available(device):
            facts = dataclasses.replace(facts, notes=(*facts.notes, _MISSED_EVENTS))
        observes = not self._faults.stopped(OBSERVING)
        if observes:
            facts = history.add_to(facts, trace)
        step = self._attributed(traced, trace, facts)
        if observes and not trace.missed:
            history.remember(whole, step.input_sizes, facts.arguments)
        if traced.only_learn:
            return step
        result.append(dataclasses.replace(step.snapshot, batch_size=batch))
        if step.chunks is not None:
            self._recent.add(device, step.chunks, facts, step.module_chunk(facts.batch.size))
            memory_map = self._faults.run_step(MAPS, traced.step, self._map, step, step.chunks, traced.interrupted)
            result += [] if memory_map is None else [memory_map]
        if self._kept_timelines.wants(device, traced.phase, step.snapshot.in_use_bytes):
            kept = self._faults.run_step(TIMELINES, traced.step, step.timeline)
            result += [] if kept is None else [kept]
        return step

    def _attributed(self, traced: TracedStep, trace: AllocationTrace, facts: TraceFacts) -> AttributedStep:
        own = {name: getattr(traced, name) for name in ("step", "phase", "wall_time")}
        return AttributedStep(trace, facts, capacity_bytes=self._capacities[trace.device], **own)

    def _add_requests(self, traced: TracedStep, step: AttributedStep, batch: int | None, result: Records) -> None:
        # The chunks of a compilation for another batch size are those of no other step.
        other = step.chunks is None or traced.interrupted or (traced.compiled and not traced.only_learn)
        if other or not self._kept_requests.wants(step.trace.device, traced.phase, batch, traced.only_learn):
            return
        requests = step.requests(first=traced.only_learn, batch_size=batch)
        if requests is not None:
            result.append(requests)
            self._recent.keep_requests(requests)

    def _map(self, step: AttributedStep, chunks: StepChunks, interrupted: bool) -> MemoryMap | None:
        device = step.trace.device
        ages = self._ages.get(device, {})
        after = ages_after(ages, chunks)
        # Most of what an interrupted step allocated is freed before the next one.
        self._ages[device] = {key: after[key] for key in after if key in ages} if interrupted else after
        return step.map(ages)

    def failed_step(
        self, traced: TracedStep, device: str, memory_map: MemoryMap | None, request: Request, now: TraceFacts
    ) -> tuple[TracedStep, OwnedMap | None]:
        """A step that a failed allocation ended, and the memory map at the failure with owners from the step's trace.
        The step gets the facts behind these owners, so that its timeline has the same ones. If its trace does not lead
        to a known map, the post-mortem takes the owners from earlier steps, and the step is only learned from.

        Without a memory map, the failure is assumed at the step's peak; the request must fail in the replay as well.
        `now` has the variables that the step may have made, such as the optimizer's slots."""
        traced = dataclasses.replace(traced, facts=_facts_at_failure(traced, device, request, now), interrupted=True)
        unmatched = dataclasses.replace(traced, only_learn=traced.only_learn or memory_map is not None)
        trace = next((trace for trace in read_traces(traced.profile) if trace.device == device), None)
        if trace is None:
            return unmatched, None
        start, end = self._parse_both(traced, device)
        at_failure = _map_at_peak(trace, start, end, request) if memory_map is None else memory_map
        trace = between_maps(trace, start, at_failure)
        if at_failure is None or trace.start_map is None or trace.missed:
            return unmatched, None
        traced = dataclasses.replace(traced, at_failure={device: at_failure})
        facts = self._watch.history[device].add_to(traced.facts[device], trace)
        step, about = self._attributed(traced, trace, facts), request.requested_bytes
        owned = step.map(self._ages.get(device, {}), len(trace) - 1)
        compiled = request.compiled and about
        inside = step.module_contents(about, request.uncertain_bytes) if compiled else ModuleContents()
        if owned is None:
            return traced, None
        batch, requests = (batch_notes.failed or facts.batch).size, None
        if about and not self._recent.has_requests(device, traced.phase):
            of_request = about, request.uncertain_bytes, request.compiled
            requests = self._faults.run_step(REQUESTS, traced.step, step.failed_requests, batch, *of_request)
        tensors, running = step.largest_tensors(len(trace) - 1), step.module_contents()
        return traced, OwnedMap(owned, batch, inside, tensors, requests, running)

    def _keep_profile(self, traced: TracedStep) -> None:
        """Write the profile into the run, for TensorBoard's profiler tab."""
        import tensorflow as tf

        # The usual file name contains this machine's name.
        step = f"memory_{traced.phase}_step_{traced.step:08d}"
        directory = os.path.join(self._settings.log_dir, "plugins", "profile", step)
        tf.io.gfile.makedirs(directory)
        with tf.io.gfile.GFile(os.path.join(directory, "memory.xplane.pb"), "wb") as file:
            file.write(traced.profile)


def _parse(dump: bytes | None, wall_time: float = 0.0, capacity_bytes: int | None = None) -> MemoryMap | None:
    return None if dump is None else read_dump(dump, wall_time, capacity_bytes)


def _map_at_peak(
    trace: AllocationTrace, start: MemoryMap | None, end: MemoryMap | None, request: Request
) -> MemoryMap | None:
    """The memory map at a step's peak, if the request fails there."""
    whole = between_maps(trace, start, end)
    if whole.start_map is None or whole.missed or not request.requested_bytes:
        return None
    at_peak = TraceReplay(whole, peak_event(whole)).map
    return None if would_fit(at_peak, request.requested_bytes) else at_peak


def _facts_at_failure(traced: TracedStep, device: str, request: Request, now: TraceFacts) -> Mapping[str, TraceFacts]:
    """The facts of an interrupted step by device, including the variables that it made on the failing one."""
    before_backward = is_forward(request.op, now.graphs)
    facts = {
        name: dataclasses.replace(one, interrupted=traced.phase == "train", before_backward=before_backward)
        for name, one in traced.facts.items()
    }
    known = {variable.name for variable in facts[device].variables}
    made = [dataclasses.replace(one, start_address=None) for one in now.variables if one.name not in known]
    facts[device] = dataclasses.replace(facts[device], variables=(*facts[device].variables, *made))
    return facts
