"""`StepAnalysis`: turns the profile of a traced step into snapshots, memory maps and timelines."""

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tb_memplugin.allocator import TraceReplay, between_maps, would_fit
from tb_memplugin.attribution import Ages, AttributedStep, StepChunks, ages_after, peak_event
from tb_memplugin.importers import Request, read_dump, read_traces
from tb_memplugin.recorder.base import Faults, Settings
from tb_memplugin.recorder.devices import Device, MemoryMaps
from tb_memplugin.recorder.failure import OomWatch, OwnedMap, is_forward
from tb_memplugin.recorder.tracing.schedule import KeptRequests, KeptTimelines
from tb_memplugin.recorder.watch import OBSERVING, LayerWatch, batch_notes
from tb_memplugin.schema import (
    AllocationTrace,
    BatchFacts,
    MemoryMap,
    Phase,
    Snapshot,
    StepRequests,
    Timeline,
    TraceFacts,
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


@dataclasses.dataclass
class TraceResult:
    """Results of a traced step, one of each per device; only a snapshot if the trace misses events."""

    snapshots: list[Snapshot] = dataclasses.field(default_factory=list)
    maps: list[MemoryMap] = dataclasses.field(default_factory=list)
    timelines: list[Timeline] = dataclasses.field(default_factory=list)
    requests: list[StepRequests] = dataclasses.field(default_factory=list)


class StepAnalysis:
    """Analyzes traced steps in order. The background thread calls `note_first_batches` and `analyze`. The training's
    thread calls `failed_step`, once the background thread has analyzed all earlier steps."""

    def __init__(
        self,
        settings: Settings,
        devices: Sequence[Device],
        watch: LayerWatch,
        faults: Faults,
        oom: OomWatch,
        maps: MemoryMaps,
    ) -> None:
        self._settings = settings
        self._capacities = {device.name: device.capacity_bytes for device in devices}
        self._watch = watch
        self._faults = faults
        self._oom = oom
        self._maps = maps
        self._ages: dict[str, Ages] = {}
        self._kept = KeptTimelines()
        self._kept_requests = KeptRequests()

    def note_first_batches(self, before: Dumps, after: Dumps) -> None:
        """Note the chunks that only the later maps have as batches."""
        for device in self._capacities:
            maps = [self._parse(dumps.get(device), device, time.time()) for dumps in (before, after)]
            if maps[0] is not None and maps[1] is not None:
                self._watch.observer.history[device].first_batches(maps[0], maps[1])

    def analyze(self, traced: TracedStep) -> TraceResult:
        """Snapshots, memory maps and timelines of every recorded device. Takes tens of milliseconds; never raises."""
        result = TraceResult()
        self._faults.run_step(TRACING, traced.step, self._analyze, traced, result)
        if self._settings.keep_profile and not traced.only_learn:
            self._faults.run(PROFILES, self._keep_profile, traced)
        return result

    def _analyze(self, traced: TracedStep, result: TraceResult) -> None:
        analyzed: list[AttributedStep] = []
        for trace in read_traces(traced.profile):
            if trace.device in traced.facts:
                analyzed.append(self._analyze_device(traced, trace, result))
        batch = next((facts.batch for facts in traced.facts.values()), BatchFacts()).size
        if traced.phase == "train":
            self._watch.batch_size = batch or self._watch.batch_size
        result.snapshots[:] = [dataclasses.replace(one, batch_size=batch) for one in result.snapshots]
        for one in analyzed:
            self._faults.run_step(REQUESTS, traced.step, self._add_requests, traced, one, batch, result)

    def _parse_both(self, traced: TracedStep, device: str) -> tuple[MemoryMap | None, MemoryMap | None]:
        start, end = traced.start.get(device), traced.end.get(device)
        return self._parse(start, device, traced.wall_time), self._parse(end, device, traced.wall_time)

    def _parse(self, dump: bytes | None, device: str, wall_time: float) -> MemoryMap | None:
        return None if dump is None else read_dump(dump, wall_time, self._capacities[device])

    def _analyze_device(self, traced: TracedStep, profiled: AllocationTrace, result: TraceResult) -> AttributedStep:
        start, end = self._parse_both(traced, profiled.device)
        whole = between_maps(profiled, start, end)
        failure = traced.at_failure.get(profiled.device)
        trace = whole if failure is None else between_maps(profiled, start, failure)
        history = self._watch.observer.history[profiled.device]
        facts = traced.facts[trace.device]
        if trace.start_map is None and self._maps.available(trace.device):
            facts = dataclasses.replace(facts, notes=(*facts.notes, _MISSED_EVENTS))
        observes = not self._faults.stopped(OBSERVING)
        if observes:
            facts = history.add_to(facts, trace)
        step = self._attributed(traced, trace, facts)
        if observes and not trace.missed:
            history.remember(whole, step.input_sizes, facts.arguments)
        chunks = step.chunks
        if traced.only_learn:
            return step
        result.snapshots.append(step.snapshot)
        if chunks is not None:
            self._oom.recent.add(trace.device, chunks, facts)
            self._faults.run_step(MAPS, traced.step, self._add_map, step, chunks, traced.interrupted, result)
        if self._kept.wants(trace.device, traced.phase, step.snapshot.in_use_bytes):
            kept = self._faults.run_step(TIMELINES, traced.step, step.timeline)
            if kept is not None:
                result.timelines.append(kept)
        return step

    def _attributed(self, traced: TracedStep, trace: AllocationTrace, facts: TraceFacts) -> AttributedStep:
        return AttributedStep(
            trace,
            facts,
            step=traced.step,
            phase=traced.phase,
            wall_time=traced.wall_time,
            capacity_bytes=self._capacities[trace.device],
        )

    def _add_requests(self, traced: TracedStep, step: AttributedStep, batch: int | None, result: TraceResult) -> None:
        if traced.interrupted:
            return
        if traced.compiled and not traced.only_learn:
            return  # a compilation for another batch size: its own chunks are those of no other step
        device = step.trace.device
        if step.chunks is None or not self._kept_requests.wants(device, traced.phase, batch, traced.only_learn):
            return
        requests = step.requests(first=traced.only_learn, batch_size=batch)
        if requests is not None:
            result.requests.append(requests)
            self._oom.recent.keep_requests(requests)

    def _add_map(self, step: AttributedStep, chunks: StepChunks, interrupted: bool, result: TraceResult) -> None:
        device = step.trace.device
        ages = self._ages.get(device, {})
        after = ages_after(ages, chunks)
        # Most of what an interrupted step allocated is freed before the next one.
        self._ages[device] = {key: after[key] for key in after if key in ages} if interrupted else after
        memory_map = step.map(ages)
        if memory_map is not None:
            result.maps.append(memory_map)

    def failed_step(
        self, traced: TracedStep, device: str, memory_map: MemoryMap | None, request: Request, now: TraceFacts
    ) -> tuple[TracedStep, OwnedMap | None]:
        """A step that a failed allocation ended, and the memory map at the failure with owners from the step's trace.

        The step is returned with the facts behind these owners, so that `analyze` gives its timeline the same ones. If
        its trace does not lead to a known map, the post-mortem takes the owners from earlier steps, and the step is
        only learned from.

        Args:
            memory_map: The memory map at the failure. Without it, the failure is assumed at the step's peak.
            request: The failed allocation; it must fail in the replay as well.
            now: Facts about the program now: the step may have made variables, such as the optimizer's slots.
        """
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
        facts = self._watch.observer.history[device].add_to(traced.facts[device], trace)
        owned = self._attributed(traced, trace, facts).map(self._ages.get(device, {}), len(trace) - 1)
        batch = (batch_notes.failed or facts.batch).size
        return traced, None if owned is None else OwnedMap(owned, batch)

    def _keep_profile(self, traced: TracedStep) -> None:
        """Write the profile into the run, for TensorBoard's profiler tab."""
        import tensorflow as tf

        # The usual file name contains this machine's name.
        directory = os.path.join(
            self._settings.log_dir, "plugins", "profile", f"memory_{traced.phase}_step_{traced.step:08d}"
        )
        tf.io.gfile.makedirs(directory)
        with tf.io.gfile.GFile(os.path.join(directory, "memory.xplane.pb"), "wb") as file:
            file.write(traced.profile)


def _map_at_peak(
    trace: AllocationTrace, start: MemoryMap | None, end: MemoryMap | None, request: Request
) -> MemoryMap | None:
    """The memory map at a step's peak, if the request fails there."""
    whole = between_maps(trace, start, end)
    if whole.start_map is None or whole.missed or not request.requested_bytes:
        return None
    at_peak = TraceReplay(whole, peak_event(whole)).map
    return None if would_fit(at_peak, request.requested_bytes).fits else at_peak


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
