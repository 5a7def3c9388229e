"""`StepAnalysis`: turns the profile of a traced step into snapshots, memory maps, timelines and
requests."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

from tb_memplugin.allocator import TraceReplay, between_maps, would_fit
from tb_memplugin.attribution import (
    Ages,
    AttributedStep,
    ModuleContents,
    StepChunks,
    ages_after,
    peak_event,
)
from tb_memplugin.importers import Request, read_dump, read_traces
from tb_memplugin.recorder.base import Faults
from tb_memplugin.recorder.helper.history import ChunkHistory
from tb_memplugin.recorder.helper.kept import KeptRequests, KeptTimelines
from tb_memplugin.recorder.helper.recent_steps import OwnedMap, RecentSteps, is_forward
from tb_memplugin.schema import (
    AllocationTrace,
    BatchFacts,
    Counters,
    LayerActivations,
    LayerTable,
    MemoryMap,
    Oom,
    Phase,
    Samples,
    SessionInfo,
    Snapshot,
    StepRequests,
    Timeline,
    TraceFacts,
    WorkerSummary,
    fields_of,
)
from tb_memplugin.storage.write import PackedRecord, TracedRecord, pack

TRACING = "step tracing"
MAPS = "memory maps of traced steps"
TIMELINES = "step timelines"
REQUESTS = "requests of traced steps"
RECORDS = "records of traced steps"
_MISSED_EVENTS = (
    "The memory map of this step is unknown: the trace misses events, so it does not lead from the "
    "map at step start to the map at step end."
)


def _read_fields(*records: Any) -> None:
    for record in records:
        _read_fields(*(one.record for one in fields_of(record) if one.record is not None))


# Now: what the first look at a type's fields leaves could start a garbage collection on the
# background thread, which would run destructors of the program there.
_read_fields(
    Counters,
    LayerActivations,
    LayerTable,
    MemoryMap,
    Oom,
    Samples,
    SessionInfo,
    Snapshot,
    StepRequests,
    Timeline,
    WorkerSummary,
)

# device to its serialized memory map, None if it cannot be read
Dumps: TypeAlias = Mapping[str, bytes | None]


@dataclasses.dataclass(frozen=True)
class TracedStep:
    """A traced step before its analysis; facts and maps are by device."""

    step: int
    phase: Phase
    wall_time: float
    profile: str  # path of the serialized XSpace
    facts: Mapping[str, TraceFacts]
    start: Dumps
    end: Dumps
    only_learn: bool  # whether the step only updates the history of chunks and gets no snapshot
    compiled: bool = False  # whether the step traced a function
    observed: bool = True  # whether the facts are of the program's layers, variables and tensors
    # whether a failed allocation ended it, so that it does not show all that a step requests
    interrupted: bool = False
    # where the analysis ends
    at_failure: Mapping[str, MemoryMap] = dataclasses.field(default_factory=dict)


class StepAnalysis(RecentSteps):
    """What follows from the traced steps of one recorder, step by step: ledgers, and the owners at
    a failure.

    Needs neither TensorFlow nor any object of the program: its arguments and results are plain
    data. One thread at a time calls the methods, in the order of the steps.

    Args:
        capacities: Device to its allocator's limit in bytes, None if unknown.
        handle_bytes: Device to the requested bytes of the chunk of each variable's resource handle,
            None without.
        faults: Takes the faults of parts of a step."""

    def __init__(
        self,
        capacities: Mapping[str, int | None],
        handle_bytes: Mapping[str, int | None],
        faults: Faults,
    ) -> None:
        super().__init__()
        self._capacities, self._faults = capacities, faults
        self._history = {device: ChunkHistory(handle_bytes.get(device)) for device in capacities}
        self._ages: dict[str, Ages] = {}
        self._kept_timelines = KeptTimelines()
        self._kept_requests = KeptRequests()
        # with the facts behind the owners in its post-mortem
        self._failed: TracedStep | None = None

    def first_batches(self, before: Dumps, after: Dumps) -> None:
        """Note the chunks that only the later maps have as batches."""
        for device, history in self._history.items():
            first, second = (_parse(dumps.get(device)) for dumps in (before, after))
            if first is not None and second is not None:
                history.first_batches(first, second)

    def records(self, traced: TracedStep) -> list[PackedRecord]:
        """The step's records, in the order in which they are written: of each device snapshot,
        memory map, timeline and requests; only a snapshot if the trace misses events. After
        `failed_step`, the same step is one that a failed allocation interrupted."""
        failed, self._failed = self._failed, None
        result: list[TracedRecord] = []
        same = failed is not None and (failed.step, failed.phase) == (traced.step, traced.phase)
        self._analyze(failed if failed is not None and same else traced, result)
        packed = (self._faults.run_step(RECORDS, traced.step, pack, record) for record in result)
        return [record for record in packed if record is not None]

    def _analyze(self, traced: TracedStep, result: list[TracedRecord]) -> None:
        analyzed = [
            self._analyze_device(traced, trace, result)
            for trace in _traces(traced)
            if trace.device in traced.facts
        ]
        for one in analyzed:
            self._faults.run_step(REQUESTS, traced.step, self._add_requests, traced, one, result)

    def _parse_both(
        self, traced: TracedStep, device: str
    ) -> tuple[MemoryMap | None, MemoryMap | None]:
        start, end = traced.start.get(device), traced.end.get(device)
        when, capacity = traced.wall_time, self._capacities[device]
        return _parse(start, when, capacity), _parse(end, when, capacity)

    def _analyze_device(
        self,
        traced: TracedStep,
        profiled: AllocationTrace,
        result: list[TracedRecord],
    ) -> AttributedStep:
        device = profiled.device
        start, end = self._parse_both(traced, device)
        whole = between_maps(profiled, start, end)
        failure = traced.at_failure.get(device)
        trace = whole if failure is None else between_maps(profiled, start, failure)
        history, facts = self._history[device], traced.facts[device]
        if trace.start_map is None and traced.start.get(device) is not None:
            facts = dataclasses.replace(facts, notes=(*facts.notes, _MISSED_EVENTS))
        if traced.observed:
            facts = history.add_to(facts, trace)
        step = self._attributed(traced, trace, facts)
        if traced.observed and not trace.missed:
            history.remember(whole, step.input_sizes, facts.arguments)
        if traced.only_learn:
            return step
        batch = step.facts.batch.size
        result.append(dataclasses.replace(step.snapshot, batch_size=step.facts.batch.whole))
        if step.chunks is not None:
            self.add(device, step.chunks, step.facts, step.module_chunk(batch))
            memory_map = self._faults.run_step(
                MAPS, traced.step, self._map, step, step.chunks, traced.interrupted
            )
            result += [] if memory_map is None else [memory_map]
        if self._kept_timelines.wants(device, traced.phase, step.snapshot.in_use_bytes):
            kept = self._faults.run_step(TIMELINES, traced.step, step.timeline)
            result += [] if kept is None else [kept]
        return step

    def _attributed(
        self, traced: TracedStep, trace: AllocationTrace, facts: TraceFacts
    ) -> AttributedStep:
        own = {name: getattr(traced, name) for name in ("step", "phase", "wall_time")}
        return AttributedStep(trace, facts, capacity_bytes=self._capacities[trace.device], **own)

    def _add_requests(
        self,
        traced: TracedStep,
        step: AttributedStep,
        result: list[TracedRecord],
    ) -> None:
        batch = step.facts.batch.size
        # The chunks of a compilation for another batch size are those of no other step.
        other = (
            step.chunks is None or traced.interrupted or (traced.compiled and not traced.only_learn)
        )
        peak = step.snapshot.in_use_bytes
        if other or not self._kept_requests.wants(
            step.trace.device, traced.phase, batch, peak, traced.only_learn
        ):
            return
        requests = step.requests(first=traced.only_learn, batch_size=batch)
        if requests is not None:
            result.append(requests)
            self.keep_requests(requests)

    def _map(self, step: AttributedStep, chunks: StepChunks, interrupted: bool) -> MemoryMap | None:
        device = step.trace.device
        ages = self._ages.get(device, {})
        after = ages_after(ages, chunks)
        # Most of what an interrupted step allocated is freed before the next one.
        self._ages[device] = (
            {key: after[key] for key in after if key in ages} if interrupted else after
        )
        return step.map(ages)

    def failed_step(
        self,
        traced: TracedStep,
        device: str,
        memory_map: MemoryMap | None,
        request: Request,
        now: TraceFacts,
        given: BatchFacts | None,
    ) -> OwnedMap | None:
        """The memory map at the failed allocation that ended a step, with owners from the step's
        trace. `records` then analyzes the step with the facts behind these owners, so that its
        timeline has the same ones. None if its trace does not lead to a known map: the post-mortem
        takes the owners from earlier steps, and the step is only learned from.

        Without a memory map, the failure is assumed at the step's peak; the request must fail in
        the replay as well. `now` has the variables that the step may have made, such as the
        optimizer's slots; `given` is the batch of the failed call, None if unknown."""
        traced = dataclasses.replace(
            traced, facts=_facts_at_failure(traced, device, request, now), interrupted=True
        )
        only_learn = traced.only_learn or memory_map is not None
        self._failed = dataclasses.replace(traced, only_learn=only_learn)
        trace = next((trace for trace in _traces(traced) if trace.device == device), None)
        if trace is None:
            return None
        start, end = self._parse_both(traced, device)
        at_failure = _map_at_peak(trace, start, end, request) if memory_map is None else memory_map
        trace = between_maps(trace, start, at_failure)
        if at_failure is None or trace.start_map is None or trace.missed:
            return None
        self._failed = traced = dataclasses.replace(traced, at_failure={device: at_failure})
        facts = self._history[device].add_to(traced.facts[device], trace)
        step, about = self._attributed(traced, trace, facts), request.requested_bytes
        owned = step.map(self._ages.get(device, {}), len(trace) - 1)
        compiled = request.compiled and about
        inside = (
            step.module_contents(about, request.uncertain_bytes) if compiled else ModuleContents()
        )
        if owned is None:
            return None
        batch, requests = (given or facts.batch).size, None
        if about and not self.has_requests(device, traced.phase):
            of_request = about, request.uncertain_bytes, request.compiled
            requests = self._faults.run_step(
                REQUESTS, traced.step, step.failed_requests, batch, *of_request
            )
        tensors, running = step.largest_tensors(len(trace) - 1), step.module_contents()
        batch = batch and batch * facts.batch.replicas
        return OwnedMap(owned, batch, inside, tensors, requests, running)


def _traces(traced: TracedStep) -> tuple[AllocationTrace, ...]:
    with open(traced.profile, "rb") as file:
        return read_traces(file.read())


def _parse(
    dump: bytes | None, wall_time: float = 0.0, capacity_bytes: int | None = None
) -> MemoryMap | None:
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


def _facts_at_failure(
    traced: TracedStep, device: str, request: Request, now: TraceFacts
) -> Mapping[str, TraceFacts]:
    """The facts of an interrupted step by device, including the variables that it made on the
    failing one."""
    before_backward = is_forward(request.op, now.graphs)
    facts = {
        name: dataclasses.replace(
            one, interrupted=traced.phase == "train", before_backward=before_backward
        )
        for name, one in traced.facts.items()
    }
    known = {variable.name for variable in facts[device].variables}
    made = [
        dataclasses.replace(one, start_address=None)
        for one in now.variables
        if one.name not in known
    ]
    facts[device] = dataclasses.replace(facts[device], variables=(*facts[device].variables, *made))
    return facts
