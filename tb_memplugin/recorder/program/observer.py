"""`ModelObserver`: observes the program for one recorder, now and from window to window."""

import collections
import dataclasses
import math
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Any, Literal

import numpy as np

from tb_memplugin.attribution.trace import chunks, input_events
from tb_memplugin.recorder.heap import DeviceFacts, HeldTensors, ReadChunks
from tb_memplugin.recorder.watch import (
    SourceLines,
    Variables,
    batch_notes,
    bytes_in_use,
    call_notes,
    former_variables,
    graph_facts,
    hooks,
    short_device,
)
from tb_memplugin.schema import (
    IN_USE,
    AllocationTrace,
    BatchFacts,
    Earlier,
    GraphFacts,
    KnownChunk,
    MemoryMap,
    TraceFacts,
    VariableFact,
)


class ChunkHistory:
    """Remembers chunks of one device, where each resource handle of a variable requested `handle_bytes`, None without.

    Call its methods for each window in order, when all earlier ones are remembered, from one thread at a time, except
    `ownable`, which any thread may call.
    """

    def __init__(self, handle_bytes: int | None = None) -> None:
        self.handle_bytes = handle_bytes
        self._known: dict[int, KnownChunk] = {}
        self._input_sizes: set[int] = set()

    def first_batches(self, before: MemoryMap, after: MemoryMap) -> None:
        """Note the chunks that only the second map has as inputs: only the input pipeline ran between the maps."""
        for address, allocated, requested in _chunks_in_use(after) - _chunks_in_use(before):
            if requested == self.handle_bytes:  # the iterator's handle
                continue
            self._known.setdefault(address, KnownChunk(allocated, requested, "inputs"))
            self._input_sizes.add(requested)

    def ownable(self, memory_map: MemoryMap) -> set[int]:
        """Addresses of the chunks in use that a variable or a tensor may own: all but variables' resource handles."""
        chunks = _chunks_in_use(memory_map)
        return {address for address, _, requested in chunks if requested != self.handle_bytes}

    def add_to(self, facts: TraceFacts, trace: AllocationTrace) -> TraceFacts:
        """The facts of a window with the known chunks from before it."""
        if trace.start_map is not None:
            in_use = _chunks_in_use(trace.start_map)
            self._known = {
                address: chunk
                for address, chunk in self._known.items()
                if (address, chunk.allocated, chunk.requested) in in_use
            }
            facts = dataclasses.replace(facts, variables=self._with_addresses(facts, trace.start_map))
        earlier = Earlier(dict(self._known), frozenset(self._input_sizes), self.handle_bytes)
        return dataclasses.replace(facts, earlier=earlier)

    def _with_addresses(self, facts: TraceFacts, start: MemoryMap) -> tuple[VariableFact, ...]:
        """The variables with the addresses of copy-on-read variables corrected.

        A sparse update, such as an embedding's, makes a variable copy-on-read for good. Python then sees no address, or
        that of a copy that no longer exists when the map is read; the value is in a chunk of its size with unknown
        contents. Variables of one size are matched only if there are as many such chunks as variables.
        """
        in_use = {address: requested for address, _, requested in _chunks_in_use(start)}
        places = ((fact, in_use.get(fact.start_address or 0)) for fact in facts.variables)
        unmatched = [fact for fact, size in places if fact.start_address is None or size != fact.requested_bytes]
        if not unmatched:
            return facts.variables
        counts = Counter(fact.requested_bytes for fact in unmatched)
        known = {fact.start_address for fact in facts.variables} | {fact.address for fact in facts.tensors}
        known -= {fact.start_address for fact in unmatched}
        known |= {address for address, chunk in self._known.items() if chunk.category == "inputs"}
        candidates: dict[int, list[int]] = defaultdict(list)
        for address, requested in sorted(in_use.items()):
            if requested in counts and address not in known:
                candidates[requested].append(address)
        sizes = {size for size, count in counts.items() if len(candidates[size]) == count}
        addresses = {
            id(fact): candidates[fact.requested_bytes].pop() for fact in unmatched if fact.requested_bytes in sizes
        }
        return tuple(
            dataclasses.replace(fact, start_address=addresses[id(fact)]) if id(fact) in addresses else fact
            for fact in facts.variables
        )

    def remember(
        self, trace: AllocationTrace, input_sizes: Collection[int] = (), arguments: Collection[str] = ()
    ) -> None:
        """Note the chunks that a window left behind, given the requested bytes of its batches."""
        made = chunks(trace)
        is_input = input_events(trace, arguments)
        for address in made.address[made.birth == -1].tolist():
            self._known.pop(address, None)
        self._input_sizes.update(trace.requested[is_input].tolist())
        self._input_sizes.update(input_sizes)
        for row in np.flatnonzero((made.birth >= 0) & (made.death == len(trace))).tolist():
            category: Literal["inputs", "other_state"] = "inputs" if is_input[made.birth[row]] else "other_state"
            chunk = KnownChunk(int(made.allocated[row]), int(made.requested[row]), category)
            self._known[int(made.address[row])] = chunk


def _chunks_in_use(memory_map: MemoryMap) -> set[tuple[int, int, int]]:
    """(address, allocated bytes, requested bytes) of the chunks in use."""
    used = memory_map.state == IN_USE
    columns = (memory_map.address[used], memory_map.bytes[used], memory_map.requested_bytes[used])
    return set(zip(*(column.tolist() for column in columns), strict=True))


class ObservedWindow:
    """Variables and held tensors at the start and end of a profiler window; for the training's thread.

    Keeps no model alive. `held` are the tensors known from earlier windows; a new object searches all of Python's
    objects. Tensors that the traced `graphs` captured are constants.
    """

    def __init__(
        self,
        models: list[tuple[Any, Any]],
        optimizers: list[Any],
        held: HeldTensors,
        graphs: Iterable[Any] = (),
        read_chunks: ReadChunks | None = None,
        batches_since: float = -math.inf,
    ) -> None:
        self.variables = variables = Variables(models, optimizers)
        self._start_in_use = _bytes_in_use()
        self._held = held
        self._tensors = held.find(
            self._start_in_use, variables.start_addresses(), graphs, variables.ids(), read_chunks, batches_since
        )
        variables.add_unowned(held.variables_of_no_model(), {fact.address for _, fact in self._tensors})
        self._former = former_variables.facts(list(held.handles.values()))
        self._tensors_at_end: DeviceFacts = ()
        self._finished = False

    def finish(self, graphs: Iterable[Any]) -> None:
        """Find new held tensors, and the holders of all, after the window has closed. Calling it again does nothing."""
        if not self._finished:
            self._finished = True
            self._tensors, self._tensors_at_end = self._held.finish(self.variables.addresses(), graphs)

    def facts(
        self, device: str, graphs: tuple[GraphFacts, ...], gradients: Iterable[tuple[int, int, Any]]
    ) -> TraceFacts:
        """All facts about the window on one device. Eager gradients are (address, bytes, weak reference to the
        variable)."""
        owners = [(address, size, self.variables.owner_of(reference())) for address, size, reference in gradients]
        return TraceFacts(
            mode="eager" if self.variables.eager or not graphs else "graph",
            trainable=self.variables.trainable,
            graphs=graphs,
            variables=(*self.variables.facts(device), *(fact for fact in self._former if fact.device == device)),
            tensors=tuple(fact for tensor_device, fact in self._tensors if tensor_device == device),
            tensors_at_end=tuple(fact for tensor_device, fact in self._tensors_at_end if tensor_device == device),
            start_in_use=self._start_in_use.get(device),
            gradients=tuple((address, size, owner[1] if owner else None) for address, size, owner in owners),
        )


def _bytes_in_use() -> dict[str, int]:
    import tensorflow as tf

    names = {short_device(device.name) for device in tf.config.list_logical_devices()}
    return {name: size for name in sorted(names) if (size := bytes_in_use(name)) is not None}


class ModelObserver:
    """Knows the owners of the program's ops, variables and tensors, and the user's lines that call layers and ops.

    The training's thread calls the methods; the background thread uses the `history` of each device. (After a failed
    step the training's thread does, once the background thread is idle.) The program may name the `batch_size` of the
    current step.
    """

    def __init__(self, source_lines: bool = True) -> None:
        self.batch_size: int | None = None
        self._installed = False
        self._lines = SourceLines() if source_lines else None
        self._watched: list[tuple[Any, Any]] = []  # weak references to model and optimizer
        self._window: ObservedWindow | None = None
        self._batch: BatchFacts | None = None  # of the window that has ended
        self._held = HeldTensors()
        self._graphs: tuple[Any, tuple[GraphFacts, ...]] | None = None  # the key that they depend on, and the facts
        self.history: dict[str, ChunkHistory] = collections.defaultdict(ChunkHistory)  # by device

    def install(self) -> None:
        """Start observing functions that are traced from now on. Calling it again does nothing."""
        if not self._installed:
            hooks.acquire()
            self._installed = True

    def remove(self) -> None:
        if self._installed:
            self._installed = False
            window, self._window = self._window, None
            if window is not None and call_notes.eager_paths is window.variables.paths:  # not another observer's window
                call_notes.eager_paths = call_notes.eager_lines = None
                call_notes.eager_gradients = None
            hooks.release()
        self._graphs = None
        self._held.unwatch()

    def abandon(self) -> None:
        """Stop observing in a forked child; `hooks` restores the wrapped functions there."""
        self._installed, self._window = False, None
        self._held.unwatch()

    def watch(self, model: Any, optimizer: Any = None) -> None:
        """Set the layers' paths from a model that is trained, and its optimizer. Call it for each model."""
        self._watched = [pair for pair in self._watched if pair[0]() is not None and pair[0]() is not model]
        self._watched.append((weakref.ref(model), None if optimizer is None else weakref.ref(optimizer)))

    @property
    def traces(self) -> int:
        """A number that grows whenever a function is traced: if it grew during a step, that step compiled."""
        return call_notes.traced_calls

    def has_seen(self, model: Any) -> bool:
        """Whether any observer of the process saw a function that calls the model being traced."""
        spans = (span for notes in list(call_notes.graphs.values()) for span in notes.spans)
        return any(span.layer is not None and span.layer() is model for span in spans)

    def begin_window(
        self, read_maps: Callable[[], Mapping[str, MemoryMap | None]] | None = None, batches_since: float = -math.inf
    ) -> None:
        """Read the variables' addresses before a profiler window opens; in eager mode, start marking layer calls.

        `read_maps` reads the devices' memory maps, None for a device without one.
        """

        def read_chunks() -> Mapping[str, Set[int] | None]:
            maps = {} if read_maps is None else read_maps()
            return {device: None if one is None else self.history[device].ownable(one) for device, one in maps.items()}

        self._held.watch()
        optimizers, graphs = list(call_notes.optimizers), list(call_notes.graphs)
        read = None if read_maps is None else read_chunks
        window = ObservedWindow(self._models(), optimizers, self._held, graphs, read, batches_since)
        call_notes.eager_gradients = []
        call_notes.eager_paths, call_notes.eager_lines = window.variables.paths, self._lines
        self._window, self._batch = window, None
        batch_notes.begin(model for model, _ in self._models())

    def end_window(self, device: str) -> TraceFacts:
        """Facts about `device` after the profiler window has closed. Call it for each device."""
        call_notes.eager_paths = call_notes.eager_lines = None
        window, gradients = self._window, call_notes.eager_gradients or ()
        if window is None:
            raise RuntimeError("end_window() was called before begin_window()")
        if self._batch is None:
            self._batch = batch_notes.end(self.batch_size)
        window.finish(list(call_notes.graphs))
        spans = [(notes, graph.version, len(notes.spans)) for graph, notes in list(call_notes.graphs.items())]
        variables = window.variables
        others = list(self._held.captures.graphs)
        key = (variables.signature(), spans, [(graph.name, graph.version) for graph in others], self._batch.size)
        graphs = self._graphs  # a finalizer may drop them meanwhile
        if graphs is None or graphs[0] != key:
            paths, size = variables.paths, self._batch.size
            graphs = self._graphs = key, graph_facts(paths, variables.owner_of, self._lines, others, size)
        return dataclasses.replace(window.facts(device, graphs[1], gradients), batch=self._batch)

    def close_window(self) -> None:
        self._window = None

    def look(self, device: str) -> tuple[TraceFacts, Mapping[int, str]]:
        """Facts about the program now, without a window, and the paths of its layers by their id."""
        graphs = list(call_notes.graphs)
        window = ObservedWindow(self._models(), list(call_notes.optimizers), HeldTensors(), graphs)
        variables = window.variables
        facts = window.facts(device, graph_facts(variables.paths, variables.owner_of, self._lines), ())
        return facts, variables.paths

    def calling_line(self, layer: Any = None) -> str | None:
        """The user's line on this thread's stack, given the running layer; None if lines are not recorded."""
        return None if self._lines is None else self._lines.calling(layer)

    def _models(self) -> list[tuple[Any, Any]]:
        """Watched models with their optimizers, then other models: called outermost or found among Python's objects."""
        pairs = [(model(), optimizer() if optimizer is not None else None) for model, optimizer in self._watched]
        models = [(model, optimizer) for model, optimizer in pairs if model is not None]
        others = {id(model): model for model in (*call_notes.outermost_layers, *self._held.models())}
        for model, _ in models:
            others.pop(id(model), None)
        return models + [(model, None) for model in others.values()]
