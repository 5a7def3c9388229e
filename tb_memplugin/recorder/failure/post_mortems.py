"""`OomWatch`: writes a post-mortem when a step runs out of memory. Costs nothing while no
allocation fails."""

import collections
import dataclasses
import itertools
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from tb_memplugin.attribution import OomEvent, post_mortem
from tb_memplugin.importers import Request
from tb_memplugin.recorder.base import changes
from tb_memplugin.recorder.failure.dumps import FailureMaps, dump_files
from tb_memplugin.recorder.failure.raised import RaisedError, causes
from tb_memplugin.recorder.helper import NO_MODULE, Helper, OwnedMap, fact_of
from tb_memplugin.recorder.watch import (
    LayerWatch,
    batch_in,
    batch_notes,
    output_bytes,
    running_batch,
)
from tb_memplugin.schema import BatchFacts, FailedDuring, MemoryMap, Oom, Phase, TraceFacts

# most failures of which it is noted at the session's end whether the program went on, the newest
# ones
MAX_RAISED = 16


class Place(NamedTuple):
    """Where an allocation failed; fields as in `Oom`."""

    step: int | None
    phase: Phase | None
    during: FailedDuring


Replay: TypeAlias = Callable[
    [str, MemoryMap | None, Request, TraceFacts, BatchFacts | None], OwnedMap | None
]
"""Finds the owners at the failure of a traced step, from device, map, request, facts of now and the
step's batch."""


class OomWatch:
    """The post-mortems of one recorder. The background thread calls `tick`, the training's thread
    all other methods; any thread may call `on_error` outside of steps. `write` writes a post-mortem
    and flushes the run; if its second argument is True, it waits until that is done."""

    def __init__(
        self,
        watch: LayerWatch,
        maps: FailureMaps,
        helper: Helper,
        write: Callable[[Oom, bool], None],
    ) -> None:
        self._maps = maps
        self._helper = helper
        self._watch = watch
        self._write = write
        self._pending: Oom | None = None
        self._idle_since = time.time()  # when the last step ended
        self._numbers = map(str, itertools.count(1))  # the post-mortems' identifiers
        self._thread = threading.get_ident()  # the training's
        self._lock = threading.Lock()
        # post-mortems without their maps
        self._raised: collections.deque[tuple[Oom, RaisedError]] = collections.deque(
            maxlen=MAX_RAISED
        )
        self.fatal: Oom | None = None  # the failure that ended the program, once the session ends

    def look_back(self, since: float) -> None:
        self._idle_since = min(self._idle_since, since)

    def tick(self, step: int | None, phase: Phase | None, began: float = 0.0) -> None:
        """Write a preliminary post-mortem if TensorFlow waits for memory now: the process may be
        killed. The running step began at `began`, seconds since the epoch, if `step_ended` was not
        called for the previous one."""
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
                event = OomEvent(
                    identifier, "failing", device, dumps[-1].wall_time, step, phase, during="step"
                )
                self._pending = self._of_untraced_step(
                    event, memory_map, None, running_batch(self._thread)
                )
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
        """Write the post-mortem of a failed allocation; `replay` finds its chunks' owners if the
        step was traced."""
        request, in_step = raised.request, place.during == "step"
        with self._lock:
            dumps = self._maps.dumps(self._idle_since, request.allocator)
            pending, self._pending = self._pending, None
            dumped = self._maps.device_of(dumps[-1]) if dumps else None
            device = request.device or dumped or (pending.device if pending else None)
            device = device or next(iter(self._maps.devices), "unknown")
            requested, uncertain = self._helper.exact_bytes(request, device)
            memory_map = self._maps.at_failure(device, None if uncertain else requested, dumps)
            self._idle_since = time.time()  # from here on, `tick` deletes these dumps
        notes: list[str] = []
        paths: Mapping[int, str] = {}
        try:
            facts, paths = self._watch.look(device, place.during == "building")
        except Exception as error:
            kind = type(error).__name__
            notes.append(f"Addresses of variables are unknown: reading them raised {kind}.")
            facts = self._helper.last_facts(device)

        given, batch_notes.failed = batch_notes.failed, None
        if request.compiled and memory_map is not None:
            given = _batch_in_memory(given, facts, memory_map)
        owned = None if replay is None else replay(device, memory_map, request, facts, given)
        replicas = self._watch.replicas
        noted = self._watch.batch_size and self._watch.batch_size * replicas
        batch = None if owned is None else owned.batch_size or noted
        memory_map = memory_map if owned is None else owned.map
        if memory_map is None:
            notes.append(
                "Chunks are unknown: no memory map or dump was taken while the request waited for "
                "memory."
            )
        if request.trials:
            notes.append("No algorithm for the operation got the memory that it asked for.")
        elif requested is None and in_step and request.library is None:
            requested = output_bytes(request.op, batch and batch // replicas)
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
            library=request.library,
            request_ledger=inside,
            request_tensors=tensors,
            largest_tensors=() if owned is None else owned.largest_tensors,
            notes=tuple(notes),
        )

        if owned is None:
            oom = self._of_untraced_step(event, memory_map, facts, given)
        else:
            needed = self._helper.needed_bytes(event, batch)
            oom = post_mortem(event, owned.map, batch, needed, owned.running)
            oom = dataclasses.replace(oom, requests=owned.requests)
        if not in_step:
            oom = dataclasses.replace(oom, batch_size=None)
        self._write(oom, True)
        kept = dataclasses.replace(oom, map=None, ledger=(), requests=None)
        self._raised.append((kept, raised))

    def say_survived(self) -> None:
        """As the session ends, note which failures did not end the program: it caught their
        errors."""
        uncaught = list(causes(getattr(sys, "last_value", None), sys.exc_info()[1]))
        while self._raised:
            oom, one = self._raised.popleft()
            if not one.is_among(uncaught):
                self._write(dataclasses.replace(oom, status="survived"), False)
            else:
                self.fatal = oom

    def is_behind(self, error: BaseException) -> bool:
        """Whether an exception reports one of the last failures."""
        return any(one.is_among(list(causes(error))) for _, one in self._raised)

    def _of_untraced_step(
        self,
        event: OomEvent,
        memory_map: MemoryMap | None,
        facts: TraceFacts | None,
        given: BatchFacts | None,
    ) -> Oom:
        table, size = self._watch.table, None if given is None else given.size
        layers = () if table is None else table.layers
        replicas = self._watch.replicas
        sizes = (one and one * replicas for one in (self._watch.batch_size, size))
        return self._helper.post_mortem(event, memory_map, facts, layers, *sizes)


def _batch_in_memory(
    given: BatchFacts | None, facts: TraceFacts, memory_map: MemoryMap
) -> BatchFacts | None:
    """The batch of a compiled step, whose inputs are in memory as its module begins, with its size
    if that was unknown."""
    if given is None or given.size is not None:
        return given
    variables = {one.end_address for one in facts.variables}
    chunks = zip(memory_map.address.tolist(), memory_map.requested_bytes.tolist(), strict=True)
    sizes = {size for address, size in chunks if size > 0 and address not in variables}
    return dataclasses.replace(given, size=batch_in(sizes, given.components))


def _layer_and_line(
    raised: RaisedError, facts: TraceFacts, paths: Mapping[int, str], in_step: bool
) -> tuple[str | None, str | None]:
    """The layer and the user's line that made a failed request. An input pipeline's ops, and those
    of a compiled module, are no layer's. The line is that on the stack, if Python ran the op or
    called its function."""
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
