"""`OomWatch`: writes a post-mortem when a step runs out of memory. Costs nothing while no allocation fails."""

import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from tb_memplugin.attribution.oom.post_mortem import OomEvent, post_mortem
from tb_memplugin.attribution.owners.step_chunks import StepChunks
from tb_memplugin.attribution.results.memory_map import unmoved
from tb_memplugin.importers.allocator.oom_log import Request
from tb_memplugin.model import Layer, MemoryMap, Oom, Phase, StepRequests
from tb_memplugin.model.trace import BatchFacts, TraceFacts
from tb_memplugin.recorder.base.due import changes
from tb_memplugin.recorder.observe.calls.batches import batch_notes, running_batch
from tb_memplugin.recorder.observe.graph.graphs import output_bytes
from tb_memplugin.recorder.observe.layer_watch import LayerWatch
from tb_memplugin.recorder.oom.dump_files import DumpFile, dump_files
from tb_memplugin.recorder.oom.failure_maps import FailureMaps, StalledMaps
from tb_memplugin.recorder.oom.failures import (
    layer_in,
    layer_of,
    line_of,
    memory_request,
    request_in_autotuning,
)
from tb_memplugin.recorder.oom.recent_steps import RecentSteps
from tb_memplugin.recorder.sampling.devices import Device


class OwnedMap(NamedTuple):
    """A memory map with owners from the trace of its own step, and that step's batch size."""

    map: MemoryMap
    batch_size: int | None


Replay: TypeAlias = Callable[[str, MemoryMap | None, Request, TraceFacts], OwnedMap | None]
"""Finds the owners at the failure of a traced step: `StepAnalysis.failed_step` with the step bound."""


class OomWatch:
    """Makes the post-mortems of one recorder.

    The training's thread calls `install`, `concerns`, `on_error` and `step_ended`; the background thread calls
    `remember`, `tick` and `remove`.

    Args:
        devices: The recorded devices.
        watch: The model that is trained.
        stalled: Memory maps of steps that wait for memory.
        write: Writes a post-mortem to the run and flushes it; waits until that is done if its second argument is True.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        watch: LayerWatch,
        stalled: StalledMaps,
        write: Callable[[Oom, bool], None],
    ) -> None:
        self._maps = FailureMaps(devices, stalled)
        self._recent = RecentSteps()
        self._watch = watch
        self._write = write
        self._pending: Oom | None = None
        self._idle_since = time.time()  # when the last step ended
        self._failures = 0
        self._installs = 0
        self._thread = threading.get_ident()  # the training's
        self._installing = threading.Lock()
        self._lock = threading.Lock()
        # A weak reference: the exception's frames hold the tensors of the failed step.
        self._last_error: Callable[[], Any] = lambda: None

    def install(self) -> None:
        """Make TensorFlow write a dump whenever an allocation fails."""
        dump_files.acquire()
        self._thread = threading.get_ident()
        with self._installing:
            self._installs += 1

    def remove(self) -> None:
        """Undo one `install`, if there is one to undo."""
        with self._installing:
            if not self._installs:
                return
            self._installs -= 1
        dump_files.release()

    def remember(self, device: str, chunks: StepChunks, facts: TraceFacts) -> None:
        """Keep the chunks of a traced step, for the owners of chunks at a later failure."""
        self._recent.add(device, chunks, facts)

    def remember_requests(self, requests: StepRequests) -> None:
        """Keep the requests of a traced step, for the verdict on a later failure."""
        self._recent.keep_requests(requests)

    # --- a failure that TensorFlow may tolerate -----------------------------------------------------------------------

    def tick(self, step: int | None, phase: Phase | None, began: float = 0.0) -> None:
        """Write a preliminary post-mortem if TensorFlow waits for memory now: the process may be killed.

        Args:
            step, phase: The running step.
            began: When it began, if `step_ended` was not called for the one before it; seconds since the epoch.
        """
        with self._lock:
            since = max(self._idle_since, began)
            dump_files.remove_before(since)  # of tolerated failures
            if step is None or self._pending is not None:
                return
            dumps = self._maps.dumps(since)
            if not dumps:
                return
            device = self._maps.device_of(dumps[-1]) or ""
            memory_map = self._maps.read(dumps[-1], device)
            if memory_map is not None:
                event = OomEvent(self._next_identifier(), "failing", device, dumps[-1].wall_time, step, phase)
                given = running_batch(self._thread)
                self._pending = self._of_untraced_step(
                    event, memory_map, unmoved(self._recent.facts(device), memory_map), given
                )
                self._write(self._pending, False)
                changes.note()

    @property
    def waits(self) -> bool:
        """Whether a preliminary post-mortem waits for the end of its step."""
        return self._pending is not None

    def steps_ended(self, wall_time: float) -> None:
        """Handle the end of steps in which no post-mortem waited; seconds since the epoch."""
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
            self._write(_tolerated(pending), False)

    # --- a step that runs out of memory -------------------------------------------------------------------------------

    def concerns(self, error: BaseException) -> bool:
        """Whether a failed allocation caused an exception that has no post-mortem yet."""
        return error is not self._last_error() and self._request(error) is not None

    def _request(self, error: BaseException) -> Request | None:
        """The failed request that caused an exception; None if none did."""
        request = memory_request(error)
        if request is None and self._maps.dumps(self._idle_since):
            request = request_in_autotuning(error)
        return request

    def on_error(
        self, error: BaseException, step: int | None, phase: Phase | None, replay: Replay | None = None
    ) -> bool:
        """Write the post-mortem if a failed allocation caused the exception; return whether it did.

        Args:
            error: The exception.
            step, phase: The step that it ends.
            replay: Finds the owners of chunks from the step's own trace, if the step was traced.
        """
        request = self._request(error)
        if request is None or error is self._last_error():
            return request is not None
        self._last_error = weakref.ref(error)
        with self._lock:
            dumps = self._maps.dumps(self._idle_since, request.allocator)
            pending, self._pending = self._pending, None
            device = self._device(request, dumps, pending)
            requested, uncertain = self._recent.exact_bytes(request, device)
            memory_map = self._maps.at_failure(device, None if uncertain else requested, dumps)
            self._idle_since = time.time()  # from here on, `tick` deletes these dumps
        notes: list[str] = []
        facts, paths = self._look(device, notes)
        owned = None if replay is None else replay(device, memory_map, request, facts)
        memory_map = memory_map if owned is None else owned.map
        if memory_map is None:
            notes.append("Chunks are unknown: no memory map or dump was taken while the request waited for memory.")
        if request.trials:
            notes.append("No algorithm for the operation got the memory that it asked for.")
        elif requested is None:
            requested = output_bytes(request.op, None if owned is None else owned.batch_size or self._watch.batch_size)
        event = OomEvent(
            identifier=pending.identifier if pending is not None else self._next_identifier(),
            status="failed",
            device=device,
            wall_time=memory_map.wall_time if memory_map is not None else time.time(),
            step=step,
            phase=phase,
            requested_bytes=requested,
            op=request.op,
            layer=None if request.compiled else layer_of(request.op, facts.graphs) or layer_in(error, paths),
            shape=request.shape,
            line=None if request.compiled else self._line(request, error, facts),
            uncertain_bytes=uncertain,
            compiled=request.compiled,
            notes=tuple(notes),
        )
        if owned is not None:
            oom = self._of_traced_step(event, owned)
        else:
            oom = self._of_untraced_step(event, memory_map, facts, batch_notes.failed)
        batch_notes.failed = None
        self._write(oom, True)
        return True

    def _line(self, request: Request, error: BaseException, facts: TraceFacts) -> str | None:
        """The user's line that made a failed request. In eager mode, the op ran on the exception's traceback."""
        line = line_of(request.op, facts.graphs)
        return self._watch.observer.line_of(error) if line is None and facts.mode == "eager" else line

    def _device(self, request: Request, dumps: list[DumpFile], pending: Oom | None) -> str:
        """The device with the failed allocation, by the surest source."""
        if request.device:
            return request.device
        device = self._maps.device_of(dumps[-1]) if dumps else None
        device = device or (pending.device if pending else None)
        return device or next(iter(self._maps.devices), "unknown")

    def _look(self, device: str, notes: list[str]) -> tuple[TraceFacts, Mapping[int, str]]:
        """Facts about the program now and paths of its layers, or else the facts of the last traced step."""
        try:
            return self._watch.observer.look(device)
        except Exception as error:
            notes.append(f"Addresses of variables are unknown: reading them raised {type(error).__name__}.")
            return self._recent.facts(device), {}

    def _of_traced_step(self, event: OomEvent, owned: OwnedMap) -> Oom:
        batch = owned.batch_size or self._watch.batch_size
        return post_mortem(event, owned.map, batch, self._recent.needed_bytes(event, batch))

    def _of_untraced_step(
        self, event: OomEvent, memory_map: MemoryMap | None, facts: TraceFacts, given: BatchFacts | None = None
    ) -> Oom:
        size = None if given is None else given.size
        return self._recent.post_mortem(event, memory_map, facts, self._layers(), self._watch.batch_size, size)

    def _layers(self) -> tuple[Layer, ...]:
        table = self._watch.table
        return table.layers if table is not None else ()

    def _next_identifier(self) -> str:
        self._failures += 1
        return str(self._failures)


def _tolerated(oom: Oom) -> Oom:
    """Replace a preliminary post-mortem of a failure that was tolerated."""
    event = OomEvent(oom.identifier, "tolerated", oom.device, oom.wall_time, oom.step, oom.phase)
    return post_mortem(event, None)
