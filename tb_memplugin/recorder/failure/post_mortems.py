"""`OomWatch`: writes a post-mortem when a step runs out of memory; `RecentSteps` finds the owners of its chunks. Costs
nothing while no allocation fails."""

import dataclasses
import itertools
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tb_memplugin.attribution import (
    ModuleChunk,
    ModuleContents,
    OomEvent,
    OwnerMatching,
    StepChunks,
    largest_tensors,
    observed_batch,
    post_mortem,
    running_module,
    tensors_of_map,
    unmoved,
    with_module,
    without_gradients,
)
from tb_memplugin.fit import SizedStep, peak_in_one_piece, sizes_for
from tb_memplugin.importers import Request
from tb_memplugin.recorder.base import changes
from tb_memplugin.recorder.failure.failed_allocations import FailureMaps, RaisedError, causes, dump_files
from tb_memplugin.recorder.watch import LayerWatch, batch_in, batch_notes, output_bytes, running_batch
from tb_memplugin.schema import (
    BatchFacts,
    FailedDuring,
    GraphFacts,
    Layer,
    MemoryMap,
    Oom,
    OpFact,
    Phase,
    StepRequests,
    TensorGroup,
    TraceFacts,
)

NO_MODULE = ModuleContents()
RECENT_STEPS = 3  # traced steps that are kept per device and phase


class RecentSteps:
    """The chunks of the last traced steps. The background thread adds steps; any thread may read."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, Phase], list[StepChunks]] = {}
        self._facts: dict[str, TraceFacts] = {}
        self._requests: dict[tuple[str, Phase], StepRequests] = {}
        self._modules: dict[tuple[str, Phase], ModuleChunk] = {}

    def add(self, device: str, chunks: StepChunks, facts: TraceFacts, module: ModuleChunk | None = None) -> None:
        """Add a step; `module` is the largest chunk of a compiled module."""
        if module is not None:
            self._modules[device, chunks.phase] = module
        steps = self._steps.get((device, chunks.phase), [])
        self._steps[device, chunks.phase] = [chunks, *steps[: RECENT_STEPS - 1]]
        self._facts[device] = facts

    def keep_requests(self, requests: StepRequests) -> None:
        if not requests.first:
            self._requests[requests.device, requests.phase] = requests

    def has_requests(self, device: str, phase: Phase) -> bool:
        return (device, phase) in self._requests

    def needed_bytes(self, event: OomEvent, batch_size: int | None) -> int | None:
        """What a failed step needs at least at once, even if free memory is in one piece; None if unknown."""
        requests = None if event.phase is None else self._requests.get((event.device, event.phase))
        if requests is None or not batch_size:
            return None
        return peak_in_one_piece(SizedStep(requests, sizes_for(requests, batch_size).low))

    def facts(self, device: str) -> TraceFacts:
        return self._facts.get(device, TraceFacts())

    def exact_bytes(self, request: Request, device: str) -> tuple[int | None, int]:
        """(requested bytes, uncertainty in bytes). XLA's message rounds the size; it is exact if traced chunks have
        only one size within the uncertainty."""
        about, uncertain = request.requested_bytes, request.uncertain_bytes
        if about is None or not uncertain:
            return about, 0
        sizes = {
            int(size)
            for (step_device, _), steps in self._steps.items()
            for step in steps
            if step_device == device
            for size in step.requested[(step.birth >= 0) & (abs(step.requested - about) <= uncertain)]
        }
        return (sizes.pop(), 0) if len(sizes) == 1 else (about, uncertain)

    def post_mortem(
        self,
        event: OomEvent,
        memory_map: MemoryMap | None,
        facts: TraceFacts,
        layers: Sequence[Layer],
        traced_batch: int | None,
        given_batch: int | None = None,
    ) -> Oom:
        """The post-mortem of an untraced step: owners by comparison with the recent steps. `facts` are of now; the
        batches are sizes, of the traced and of the failed step."""
        steps = self._comparable(event, facts)
        layer = next((one for one in layers if one.path == event.layer), None)
        batch = given_batch or observed_batch(steps, event, layer, traced_batch)
        module = self._modules.get((event.device, event.phase or "train"))
        if event.compiled and event.phase is not None:
            event = with_module(event, module, batch)
        if memory_map is None:
            return post_mortem(event, None, batch)
        matching = OwnerMatching(memory_map, steps, event)
        matching.variables(facts.variables)
        # In graph mode, Python holds no results of the step's ops: a tensor that it holds has no other owner.
        if facts.mode == "eager":
            matching.same_place()
        matching.tensors(facts.tensors)
        matching.same_place()
        scale = batch / traced_batch if batch and traced_batch else 1.0
        matching.same_size(scale)
        matching.results(layers, batch)
        owned = matching.result()
        tensors = largest_tensors(tensors_of_map(owned, [step.shapes for step in steps], scale))
        event = dataclasses.replace(event, largest_tensors=tensors)
        running = None if module is None else running_module(owned, module, batch)
        return post_mortem(event, owned, batch, self.needed_bytes(event, batch), running)

    def _comparable(self, event: OomEvent, facts: TraceFacts) -> list[StepChunks]:
        """Recent steps of the device, those of the event's phase first; without gradients for a forward op."""
        keys = sorted((key for key in self._steps if key[0] == event.device), key=lambda key: key[1] != event.phase)
        steps = [step for key in keys for step in self._steps[key]]
        if event.during in ("building", "between_steps") or is_forward(event.op, facts.graphs):
            return [without_gradients(step) for step in steps]
        return steps


MAX_RAISED = 16  # most failures of which it is noted at the session's end whether the program went on, the newest ones


class OwnedMap(NamedTuple):
    """A memory map with owners from the trace of its own step, that step's batch size, what a compiled module's request
    holds, the largest tensors in the map, the step's requests, as in `Oom`, and what a compiled module's chunk in the
    map holds."""

    map: MemoryMap
    batch_size: int | None
    inside: ModuleContents = NO_MODULE
    largest_tensors: tuple[TensorGroup, ...] = ()
    requests: StepRequests | None = None
    running: ModuleContents = NO_MODULE


class Place(NamedTuple):
    """Where an allocation failed; fields as in `Oom`."""

    step: int | None
    phase: Phase | None
    during: FailedDuring


Replay: TypeAlias = Callable[[str, MemoryMap | None, Request, TraceFacts], OwnedMap | None]
"""Finds the owners at the failure of a traced step, from device, map, request and facts of now."""


class OomWatch:
    """The post-mortems of one recorder. The background thread adds to `recent` and calls `tick`, the training's thread
    all other methods; any thread may call `on_error` outside of steps. `write` writes a post-mortem and flushes the
    run; if its second argument is True, it waits until that is done."""

    def __init__(self, watch: LayerWatch, maps: FailureMaps, write: Callable[[Oom, bool], None]) -> None:
        self._maps = maps
        self.recent = RecentSteps()
        self._watch = watch
        self._write = write
        self._pending: Oom | None = None
        self._idle_since = time.time()  # when the last step ended
        self._numbers = map(str, itertools.count(1))  # the post-mortems' identifiers
        self._thread = threading.get_ident()  # the training's
        self._lock = threading.Lock()
        self._raised: list[tuple[Oom, RaisedError]] = []  # post-mortems without their maps
        self.fatal: Oom | None = None  # the failure that ended the program, once the session ends

    def look_back(self, since: float) -> None:
        self._idle_since = min(self._idle_since, since)

    def tick(self, step: int | None, phase: Phase | None, began: float = 0.0) -> None:
        """Write a preliminary post-mortem if TensorFlow waits for memory now: the process may be killed. The running
        step began at `began`, seconds since the epoch, if `step_ended` was not called for the previous one."""
        with self._lock:
            since = max(self._idle_since, began)
            dump_files.remove_before(since)  # of tolerated failures
            dumps = [] if step is None else self._maps.dumps(since)
            pending = self._pending
            # Another allocation may wait after a first failure that TensorFlow tolerated.
            if not dumps or (pending is not None and dumps[-1].wall_time < pending.wall_time + 1.0):
                return
            device = self._maps.device_of(dumps[-1]) or ""
            memory_map = self._maps.read(dumps[-1], device)
            if memory_map is not None:
                identifier = next(self._numbers) if pending is None else pending.identifier
                event = OomEvent(identifier, "failing", device, dumps[-1].wall_time, step, phase, during="step")
                facts = unmoved(self.recent.facts(device), memory_map)
                self._pending = self._of_untraced_step(event, memory_map, facts, running_batch(self._thread))
                self._write(self._pending, False)
                changes.note()

    @property
    def waits(self) -> bool:
        """Whether a preliminary post-mortem waits for the end of its step."""
        return self._pending is not None

    def steps_ended(self, wall_time: float) -> None:
        """Handle the end of steps in which no post-mortem waited."""
        self._idle_since = max(self._idle_since, wall_time)

    def step_ended(self) -> None:
        """Handle the end of a step without an error: any failed allocation in it was tolerated."""
        self._idle_since = time.time()
        self._maps.clear()
        if self._pending is None:
            return
        with self._lock:
            pending, self._pending = self._pending, None
        if pending is not None:
            fields = (pending.device, pending.wall_time, pending.step, pending.phase)
            event = OomEvent(pending.identifier, "tolerated", *fields, during=pending.during)
            self._write(post_mortem(event, None), False)

    def on_error(self, raised: RaisedError, place: Place, replay: Replay | None = None) -> None:
        """Write the post-mortem of a failed allocation; `replay` finds its chunks' owners if the step was traced."""
        request, in_step = raised.request, place.during == "step"
        with self._lock:
            dumps = self._maps.dumps(self._idle_since, request.allocator)
            pending, self._pending = self._pending, None
            dumped = self._maps.device_of(dumps[-1]) if dumps else None
            device = request.device or dumped or (pending.device if pending else None)
            device = device or next(iter(self._maps.devices), "unknown")
            requested, uncertain = self.recent.exact_bytes(request, device)
            memory_map = self._maps.at_failure(device, None if uncertain else requested, dumps)
            self._idle_since = time.time()  # from here on, `tick` deletes these dumps
        notes: list[str] = []
        paths: Mapping[int, str] = {}
        try:
            facts, paths = self._watch.look(device, place.during == "building")
        except Exception as error:
            notes.append(f"Addresses of variables are unknown: reading them raised {type(error).__name__}.")
            facts = self.recent.facts(device)  # those of the last traced step
        failed = batch_notes.failed
        if request.compiled and memory_map is not None and failed is not None and failed.size is None:
            # A compiled step's inputs are in memory as its module begins.
            variables = {one.end_address for one in facts.variables}
            pairs = zip(memory_map.address.tolist(), memory_map.requested_bytes.tolist(), strict=True)
            sizes = {size for address, size in pairs if size > 0 and address not in variables}
            batch_notes.failed = dataclasses.replace(failed, size=batch_in(sizes, failed.components))
        owned = None if replay is None else replay(device, memory_map, request, facts)
        memory_map = memory_map if owned is None else owned.map
        if memory_map is None:
            notes.append("Chunks are unknown: no memory map or dump was taken while the request waited for memory.")
        if request.trials:
            notes.append("No algorithm for the operation got the memory that it asked for.")
        elif requested is None and in_step:
            requested = output_bytes(request.op, None if owned is None else owned.batch_size or self._watch.batch_size)
        layer, line = _layer_and_line(raised, facts, paths, in_step)
        inside, tensors, _ = NO_MODULE if owned is None else owned.inside
        event = OomEvent(
            next(self._numbers) if pending is None else pending.identifier,
            "failed",
            device,
            time.time() if memory_map is None else memory_map.wall_time,
            **place._asdict(),
            requested_bytes=sum(row.bytes for row in inside) if inside else requested,
            op=request.op,
            layer=layer,
            shape=request.shape,
            line=line,
            uncertain_bytes=0 if inside else uncertain,
            compiled=request.compiled,
            request_ledger=inside,
            request_tensors=tensors,
            largest_tensors=() if owned is None else owned.largest_tensors,
            notes=tuple(notes),
        )
        if owned is None:
            oom = self._of_untraced_step(event, memory_map, facts, batch_notes.failed)
        else:
            batch = owned.batch_size or self._watch.batch_size
            oom = post_mortem(event, owned.map, batch, self.recent.needed_bytes(event, batch), owned.running)
            oom = dataclasses.replace(oom, requests=owned.requests)
        if not in_step:
            oom = dataclasses.replace(oom, batch_size=None)
        batch_notes.failed = None
        self._write(oom, True)
        self._raised = [
            *self._raised[1 - MAX_RAISED :],
            (dataclasses.replace(oom, map=None, ledger=(), requests=None), raised),
        ]

    def say_survived(self) -> None:
        """As the session ends, note which failures did not end the program: it caught their errors."""
        uncaught = list(causes(getattr(sys, "last_value", None), sys.exc_info()[1]))
        raised, self._raised = self._raised, []
        for oom, one in raised:
            if not one.is_among(uncaught):
                self._write(dataclasses.replace(oom, status="survived"), False)
            else:
                self.fatal = oom

    def is_behind(self, error: BaseException) -> bool:
        """Whether an exception reports one of the last failures."""
        return any(one.is_among(list(causes(error))) for _, one in self._raised)

    def _of_untraced_step(
        self, event: OomEvent, memory_map: MemoryMap | None, facts: TraceFacts, given: BatchFacts | None
    ) -> Oom:
        table, size = self._watch.table, None if given is None else given.size
        layers = () if table is None else table.layers
        return self.recent.post_mortem(event, memory_map, facts, layers, self._watch.batch_size, size)


def _layer_and_line(
    raised: RaisedError, facts: TraceFacts, paths: Mapping[int, str], in_step: bool
) -> tuple[str | None, str | None]:
    """The layer and the user's line that made a failed request. An input pipeline's ops, and those of a compiled
    module, are no layer's. The line is that on the stack, if Python ran the op or called its function."""
    request = raised.request
    if request.compiled:
        return None, None
    fact = None if request.eager or request.pipeline else fact_of(request.op, facts.graphs)
    line = None if fact is None else fact.line
    if line is None and (request.eager or facts.mode == "eager" or not in_step):
        line = raised.line
    if request.pipeline:
        return None, line
    running = next((paths[layer] for layer in raised.layers if layer in paths), raised.layer_name)
    return (fact.layer if fact is not None else None) or running, line


def fact_of(op: str | None, graphs: Sequence[GraphFacts]) -> OpFact | None:
    """The fact about an op that a layer made, from the newest graph that has it."""
    names = () if op is None else (op, op.partition("/")[2])
    facts = (graph.ops.get(name) for graph in reversed(graphs) for name in names)
    return next((fact for fact in facts if fact is not None and fact.layer is not None), None)


def is_forward(op: str | None, graphs: Sequence[GraphFacts]) -> bool:
    """Whether an op is known to be one of a layer's forward pass."""
    fact = fact_of(op, graphs)
    return fact is not None and fact.pass_name == "forward"
