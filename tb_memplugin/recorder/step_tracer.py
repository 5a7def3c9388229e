"""Traces the steps that the schedule wants, and turns what the profiler recorded into snapshots."""

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence

from tb_memplugin.analysis.allocator_map import Ages, ages_after, allocator_map
from tb_memplugin.analysis.attribution import attribute, peak_event
from tb_memplugin.analysis.batch import Traced, batch_size
from tb_memplugin.analysis.categories import Classifier
from tb_memplugin.analysis.lifetimes import chunks
from tb_memplugin.analysis.seen_step import SeenStep, seen_step
from tb_memplugin.analysis.timeline import timeline
from tb_memplugin.importers.xplane import read_traces
from tb_memplugin.model import AllocatorMap, Phase, Snapshot, Timeline
from tb_memplugin.recorder.devices import Device
from tb_memplugin.recorder.faults import Faults
from tb_memplugin.recorder.kept_timelines import KeptTimelines
from tb_memplugin.recorder.layer_watch import OBSERVING, LayerWatch
from tb_memplugin.recorder.oom import OomWatch
from tb_memplugin.recorder.profiler import ProfilerBusyError, ProfilerWindow
from tb_memplugin.recorder.schedule import TraceSchedule
from tb_memplugin.recorder.settings import Settings
from tb_memplugin.trace import AllocationTrace, TraceFacts

TRACING = "tracing of steps"
MAPS = "allocator maps"
TIMELINES = "timelines of steps"
MAX_WAITING = 2
"""Profiles that may wait to be worked through; while so many wait, no step is traced."""


@dataclasses.dataclass(frozen=True)
class TracedStep:
    """A traced step before it is worked through."""

    step: int
    phase: Phase
    wall_time: float
    profile: bytes
    facts: Mapping[str, TraceFacts]
    only_learn: bool


@dataclasses.dataclass
class Worked:
    """What a traced step says, one of each for a device; no map and no timeline where the trace does not close."""

    snapshots: list[Snapshot] = dataclasses.field(default_factory=list)
    maps: list[AllocatorMap] = dataclasses.field(default_factory=list)
    timelines: list[Timeline] = dataclasses.field(default_factory=list)


class StepTracer:
    """Owns the profiler window of the step that runs, on the training's thread; `work_through` runs on another."""

    def __init__(
        self, settings: Settings, devices: Sequence[Device], watch: LayerWatch, faults: Faults, oom: OomWatch
    ) -> None:
        self.schedule = TraceSchedule(settings.overhead, settings.trace_steps)
        self._settings = settings
        self._devices = tuple(device.name for device in devices)
        self._capacities = {device.name: device.capacity_bytes for device in devices}
        self._grows = {device.name: device.grows for device in devices}
        self._watch = watch
        self._faults = faults
        self._oom = oom
        self._ages: dict[str, Ages] = {}
        self._kept = KeptTimelines()
        self._window: ProfilerWindow | None = None
        self._untraced_seconds: dict[Phase, float] = {}
        self._began = time.perf_counter()
        self._learning = False
        self._opening_seconds = 0.0
        self._waiting = 0
        self._traces = 0

    def begin(self, step: int, phase: Phase) -> None:
        """Opens a window if this step is to be traced."""
        self._traces = self._watch.observer.traces
        if not self._devices or self._faults.stopped(TRACING) or self._waiting >= MAX_WAITING:
            return
        wish = self.schedule.wants(phase, step, time.perf_counter() - self._began)
        if wish is not None:
            self._learning = wish == "learn"
            self._faults.run(TRACING, self._open)

    def _open(self) -> None:
        began = time.perf_counter()
        try:
            self._faults.run(OBSERVING, self._watch.observer.begin_window)
            self._window = ProfilerWindow()
            self._opening_seconds = time.perf_counter() - began
        except ProfilerBusyError:
            # Not a fault: the user profiles this step. Later steps are traced again.
            for device in self._devices[:1]:
                self._faults.run(OBSERVING, self._watch.observer.end_window, device)
            self._faults.stop(
                "tracing while another profiler runs",
                "only one profiler can run in a process; such steps are not traced",
            )

    def end(self, step: int, phase: Phase, wall_time: float, seconds: float, peak_bytes: int) -> TracedStep | None:
        """Closes the window, if one is open, and returns what it recorded."""
        window, self._window = self._window, None
        if window is None:
            self._note_untraced(phase, seconds, peak_bytes)
            return None
        began = time.perf_counter()
        profile = self._close(window)
        facts = {
            device: self._faults.run(OBSERVING, self._watch.observer.end_window, device) or TraceFacts()
            for device in self._devices
        }
        cost = self._opening_seconds + time.perf_counter() - began
        if self._learning:
            self.schedule.learned(phase, cost)
        else:
            slower = max(0.0, seconds - self._untraced_seconds.get(phase, seconds))
            self.schedule.traced(phase, peak_bytes, cost + slower)
        if profile is None:
            return None
        self._waiting += 1
        return TracedStep(step, phase, wall_time, profile, facts, self._learning)

    def _close(self, window: ProfilerWindow) -> bytes | None:
        # Not through Faults.run: a window that is open is closed even if tracing was stopped meanwhile by the
        # other thread.
        try:
            return window.stop()
        except Exception as error:
            self._faults.stop(TRACING, f"{type(error).__name__}: {error}")
            return None

    @property
    def compiled(self) -> bool:
        """Whether a function was traced since the step began."""
        return self._watch.observer.traces != self._traces

    def _note_untraced(self, phase: Phase, seconds: float, peak_bytes: int) -> None:
        if self.compiled:
            self.schedule.compiled(phase)  # its duration says nothing about later steps
            return
        before = self._untraced_seconds.get(phase, seconds)
        self._untraced_seconds[phase] = before + 0.2 * (seconds - before)
        self.schedule.step_done(phase, peak_bytes)

    def work_through(self, traced: TracedStep) -> Worked:
        """Snapshots, allocator maps and timelines of every recorded device; takes tens of milliseconds."""
        began = time.thread_time()
        worked = Worked()
        self._faults.run(TRACING, self._work, traced, worked)
        if self._settings.keep_profile and not traced.only_learn:
            self._faults.run("keeping raw profiles", self._keep, traced)
        self.schedule.cost(time.thread_time() - began)
        self._waiting -= 1
        return worked

    def _work(self, traced: TracedStep, worked: Worked) -> None:
        traces = read_traces(traced.profile)
        known: list[Traced] = []
        for trace in traces:
            if trace.device not in traced.facts:
                continue
            facts = traced.facts[trace.device]
            facts = self._faults.run(OBSERVING, self._watch.observer.recall, trace.device, facts) or facts
            if not traced.only_learn:
                known.append(self._work_device(traced, trace, facts, worked))
                continue
            known.append(Traced(trace, None))
            if not trace.missed:
                self._faults.run(OBSERVING, self._watch.observer.remember, trace, facts)
        if traced.phase == "train" and self._watch.table is not None:
            self._watch.batch_size = batch_size(known, self._watch.table) or self._watch.batch_size

    def _work_device(self, traced: TracedStep, trace: AllocationTrace, facts: TraceFacts, worked: Worked) -> Traced:
        """Works through one device's trace; returns what it taught about owners."""
        classifier = Classifier(trace, facts, chunks(trace))
        snapshot = attribute(
            trace,
            facts,
            step=traced.step,
            phase=traced.phase,
            wall_time=traced.wall_time,
            capacity_bytes=self._capacities[trace.device],
            grows=self._grows[trace.device],
            classifier=classifier,
        )
        worked.snapshots.append(snapshot)
        if not trace.missed:
            proven = classifier.start().remainders
            self._faults.run(OBSERVING, self._watch.observer.remember, trace, facts, proven)
        seen = None if trace.missed else seen_step(trace, classifier, traced.step, traced.phase)
        taken = None if seen is None else self._faults.run(MAPS, self._map, traced, trace, snapshot, seen)
        if taken is not None:
            worked.maps.append(taken)
        if self._kept.wants(trace.device, traced.phase, snapshot.in_use_bytes):
            inside = self._faults.run(TIMELINES, timeline, trace, facts, classifier, snapshot)
            if inside is not None:
                worked.timelines.append(inside)
        return Traced(trace, seen, classifier.plans)

    def _map(self, traced: TracedStep, trace: AllocationTrace, snapshot: Snapshot, seen: SeenStep) -> AllocatorMap:
        """The map at the step's peak; also keeps what the step taught about owners, for a failure to come."""
        ages = self._ages.get(trace.device, {})
        self._ages[trace.device] = ages_after(ages, seen)
        self._oom.remember(trace.device, seen, traced.facts[trace.device])
        return allocator_map(
            seen,
            peak_event(trace),
            device=trace.device,
            wall_time=traced.wall_time,
            in_use_bytes=snapshot.in_use_bytes,
            pool_bytes=snapshot.pool_bytes,
            capacity_bytes=snapshot.capacity_bytes,
            ages=ages,
        )

    def _keep(self, traced: TracedStep) -> None:
        import tensorflow as tf

        # Where TensorBoard's profiler tab looks; the usual file name would tell this machine's name.
        directory = os.path.join(
            self._settings.log_dir, "plugins", "profile", f"memory_{traced.phase}_step_{traced.step:08d}"
        )
        tf.io.gfile.makedirs(directory)
        with tf.io.gfile.GFile(os.path.join(directory, "memory.xplane.pb"), "wb") as file:
            file.write(traced.profile)
