"""Post-mortems: what the run says of a step that died because an allocation failed. Costs nothing while none does."""

import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tb_memplugin.analysis.batch import batch_of, observed_batch
from tb_memplugin.analysis.owner_join import OwnerJoin
from tb_memplugin.analysis.post_mortem import Death, post_mortem
from tb_memplugin.analysis.seen_step import SeenStep
from tb_memplugin.importers.bfc_dump import read_dump
from tb_memplugin.importers.oom_log import Request, read_message
from tb_memplugin.importers.xplane import device_name
from tb_memplugin.model import AllocatorMap, Oom, Phase
from tb_memplugin.recorder.devices import Device
from tb_memplugin.recorder.dump_files import DumpFile, dump_files, last_words
from tb_memplugin.recorder.layer_watch import LayerWatch
from tb_memplugin.trace import GraphFacts, TraceFacts

SEEN_STEPS = 3
"""Traced steps of a phase and device that are remembered for the owners of chunks."""

_COPY_FAILED = "Dst tensor is not initialized"
"""What TensorFlow says, as an InternalError, where it found no memory on a GPU for a copy from the host."""


class OomWatch:
    """Makes the post-mortems of one recorder.

    `died` and `step_ended` are called on the training's thread, the rest on the background thread.

    Args:
        devices: The devices that are recorded.
        watch: The model that is trained.
        write: Writes a post-mortem to the run and flushes it; waits until that is done if its second argument is True.
    """

    def __init__(self, devices: Sequence[Device], watch: LayerWatch, write: Callable[[Oom, bool], None]) -> None:
        self._capacities = {device.name: device.capacity_bytes for device in devices}
        self._watch = watch
        self._write = write
        self._seen: dict[tuple[str, Phase], list[SeenStep]] = {}
        self._facts: dict[str, TraceFacts] = {}
        self._pending: Oom | None = None
        self._idle_since = time.time()  # no step was open before, or the last one had ended
        self._failures = 0
        self._lock = threading.Lock()
        # Weak: the exception's frames hold the tensors of the step that died.
        self._last_error: Callable[[], Any] = lambda: None

    def install(self) -> None:
        """From now on TensorFlow writes dumps when an allocation fails."""
        dump_files.acquire()

    def remove(self) -> None:
        """Undoes `install`."""
        dump_files.release()

    def remember(self, device: str, seen: SeenStep, facts: TraceFacts) -> None:
        """Keeps what a traced step taught about owners."""
        steps = self._seen.get((device, seen.phase), [])
        self._seen[device, seen.phase] = [seen, *steps[: SEEN_STEPS - 1]]
        self._facts[device] = facts

    # --- a failure that may be tolerated ------------------------------------------------------------------------------

    def tick(self, step: int | None, phase: Phase | None) -> None:
        """Looks for a failure that TensorFlow is still waiting about, and notes it: the process may be killed."""
        with self._lock:
            dump_files.remove_before(self._idle_since)  # those of failures that were tolerated
            if step is None or self._pending is not None:
                return
            dumps = self._dumps(None)
            if not dumps:
                return
            device = self._device(dumps[-1]) or ""
            taken = self._read(dumps[-1], device)
            if taken is not None:
                facts = self._facts.get(device, TraceFacts())
                death = Death(self._next_identifier(), "failing", device, dumps[-1].wall_time, step, phase)
                self._pending = self._post_mortem(death, taken, facts)
                self._write(self._pending, False)

    def step_ended(self) -> None:
        """The step ended without an error: a failure in it was tolerated."""
        self._idle_since = time.time()
        if self._pending is None:
            return
        with self._lock:
            pending, self._pending = self._pending, None
        if pending is not None:
            self._write(_taken_back(pending), False)

    # --- death --------------------------------------------------------------------------------------------------------

    def died(self, error: BaseException, step: int | None, phase: Phase | None) -> bool:
        """An exception passes: if an allocation that failed is its reason, writes the post-mortem before it goes on."""
        request = _memory_request(error)
        if request is None or error is self._last_error():
            return request is not None
        self._last_error = weakref.ref(error)
        with self._lock:
            dumps = self._dumps(request.allocator)
            pending, self._pending = self._pending, None
            self._idle_since = time.time()
        device = request.device or (self._device(dumps[-1]) if dumps else None) or (pending.device if pending else None)
        device = device or next(iter(self._capacities), "unknown")
        notes: list[str] = []
        taken = self._read(last_words(dumps), device) if dumps else None
        if taken is None:
            notes.append(
                "The chunks are not available, because TensorFlow wrote no memory dump: the allocator of this device "
                "does not write any, or its directory could not be written."
            )
        facts, paths = self._look(device, notes)
        requested, uncertain = self._exact(request, device)
        death = Death(
            identifier=pending.identifier if pending is not None else self._next_identifier(),
            status="died",
            device=device,
            wall_time=taken.wall_time if taken is not None else time.time(),
            step=step,
            phase=phase,
            requested_bytes=requested,
            op=request.op,
            layer=None if request.compiled else _layer_of(request.op, facts.graphs) or _layer_in(error, paths),
            shape=request.shape,
            uncertain_bytes=uncertain,
            compiled=request.compiled,
            notes=tuple(notes),
        )
        self._write(self._post_mortem(death, taken, facts), True)
        return True

    def _exact(self, request: Request, device: str) -> tuple[int | None, int]:
        """The bytes of the request, and by how much they may differ: a block that was traced tells what XLA rounds."""
        about, uncertain = request.requested_bytes, request.uncertain_bytes
        if about is None or not uncertain:
            return about, 0
        sizes = {
            int(size)
            for (where, _), steps in self._seen.items()
            for step in steps
            if where == device
            for size in step.requested[(step.birth >= 0) & (abs(step.requested - about) <= uncertain)]
        }
        return (sizes.pop(), 0) if len(sizes) == 1 else (about, uncertain)

    def _look(self, device: str, notes: list[str]) -> tuple[TraceFacts, Mapping[int, str]]:
        try:
            return self._watch.observer.look(device)
        except Exception as error:
            notes.append(f"The addresses of variables are not available, because {type(error).__name__} was raised.")
            return self._facts.get(device, TraceFacts()), {}

    def _post_mortem(self, death: Death, taken: AllocatorMap | None, facts: TraceFacts) -> Oom:
        table = self._watch.table
        layers = table.layers if table is not None else ()
        phases: list[Phase] = sorted(
            {phase for where, phase in self._seen if where == death.device}, key=lambda phase: phase != death.phase
        )
        seen = [step for phase in phases for step in self._seen[death.device, phase]]
        layer = next((layer for layer in layers if layer.path == death.layer), None)
        request = (death.phase, death.op, death.requested_bytes)
        traced_batch = self._watch.batch_size
        if taken is None:
            batch = observed_batch(seen, *request, death.shape, layer, traced_batch, 1.0)
            return post_mortem(death, None, layers, batch)
        join = OwnerJoin(taken)
        join.variables(facts.variables)
        # In graph mode Python holds no result of an op of the step: what it holds is its own, wherever it lies.
        if facts.mode == "eager":
            join.same_place(seen, *request)
        join.tensors(facts.tensors)
        join.same_place(seen, *request)
        told = batch_of(death.shape, layer)
        scale = told / traced_batch if told and traced_batch else join.batch_scale(seen, *request, traced_batch)
        join.same_size(seen, *request, scale)
        batch = observed_batch(seen, *request, death.shape, layer, traced_batch, scale)
        join.results(layers, batch, death.phase)
        return post_mortem(death, join.result(), layers, batch)

    def _read(self, dump: DumpFile, device: str) -> AllocatorMap | None:
        for _ in range(20):
            with open(dump.path, "rb") as file:
                data = file.read()
            if data:  # else TensorFlow has the file open and writes it at once
                return read_dump(data, dump.wall_time, self._capacities.get(device))
            time.sleep(0.01)
        return None

    def _dumps(self, allocator: str | None) -> list[DumpFile]:
        """The dumps of recorded devices since the last step ended, in order of time."""
        dumps = dump_files.since(self._idle_since)
        return [dump for dump in dumps if allocator in (None, dump.allocator) and self._device(dump) is not None]

    def _device(self, dump: DumpFile) -> str | None:
        """The recorded device whose allocator wrote the dump, None for any other."""
        name = device_name(dump.allocator)
        return name if name in self._capacities else None

    def _next_identifier(self) -> str:
        self._failures += 1
        return str(self._failures)


def _taken_back(oom: Oom) -> Oom:
    death = Death(oom.identifier, "tolerated", oom.device, oom.wall_time, oom.step, oom.phase)
    return post_mortem(death, None)


def _memory_request(error: BaseException) -> Request | None:
    """What the error says of the allocation that failed, None if it is about something else."""
    import tensorflow as tf

    if not isinstance(error, tf.errors.OpError):
        return None
    message = str(error)
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return read_message(message)
    return Request() if _COPY_FAILED in message else None


def _layer_of(op: str | None, graphs: Sequence[GraphFacts]) -> str | None:
    """The layer that made an op of a graph; the newest graph that knows it counts."""
    if op is None:
        return None
    for graph in reversed(graphs):
        for name in (op, op.partition("/")[2]):
            fact = graph.ops.get(name)
            if fact is not None and fact.layer is not None:
                return fact.layer
    return None


def _layer_in(error: BaseException, paths: Mapping[int, str]) -> str | None:
    """The innermost layer whose call the exception came from (in eager mode)."""
    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        path = paths.get(id(frame.f_locals.get("self")))
        found = path if path is not None else found
    return found
