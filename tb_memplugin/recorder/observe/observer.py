"""`ModelObserver`: observes the program for one recorder, now and from window to window."""

import collections
import dataclasses
import math
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Any

from tb_memplugin.model import MemoryMap
from tb_memplugin.model.trace import AllocationTrace, BatchFacts, GraphFacts, TraceFacts
from tb_memplugin.recorder.observe.calls.batches import batch_notes
from tb_memplugin.recorder.observe.calls.hooks import hooks
from tb_memplugin.recorder.observe.chunk_history import ChunkHistory
from tb_memplugin.recorder.observe.graph.call_notes import call_notes
from tb_memplugin.recorder.observe.graph.graphs import graph_facts
from tb_memplugin.recorder.observe.graph.source_lines import SourceLines
from tb_memplugin.recorder.observe.heap.held_tensors import DeviceFacts, HeldTensors, ReadChunks
from tb_memplugin.recorder.observe.model.addresses import short_device
from tb_memplugin.recorder.observe.model.variables import Variables, former_variables


class ObservedWindow:
    """Variables and held tensors at the start and end of a profiler window; for the training's thread.

    Args:
        models: Models with their optimizers; not kept alive.
        optimizers: Optimizers of other models.
        held: Tensors known from earlier windows; a new object searches all of Python's objects.
        graphs: Traced function graphs; tensors that they captured are constants.
        read_chunks, batches_since: As for `HeldTensors.find`.
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
        self._former = former_variables.facts(held.handles())
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
        """All facts about the window on one device.

        `gradients` are (address, requested bytes, weak reference to the variable) of eager gradients.
        """
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
    """Bytes in use by device, of allocators that keep statistics."""
    import tensorflow as tf

    in_use: dict[str, int] = {}
    for device in tf.config.list_logical_devices():
        name = short_device(device.name)
        try:
            in_use[name] = int(tf.config.experimental.get_memory_info(name)["current"])
        except Exception:  # an allocator without statistics, such as the plain CPU allocator
            continue
    return in_use


class ModelObserver:
    """Knows the owners of the program's ops, variables and tensors.

    The training's thread calls all methods except `first_batches`, `recall` and `remember`, which the background thread
    calls, for each window in order. (After a failed step the training's thread calls `recall`, once the background
    thread is idle.)

    Args:
        source_lines: Whether to read the user's lines that call layers and ops.

    Attributes:
        batch_size: The batch size of the current step as the program names it; None if it names none.
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
        self._history: dict[str, ChunkHistory] = collections.defaultdict(ChunkHistory)  # by device

    def install(self) -> None:
        """Start observing functions that are traced from now on. Calling it again does nothing."""
        if not self._installed:
            hooks.acquire()
            self._installed = True

    def remove(self) -> None:
        """Stop observing and restore the wrapped functions."""
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
        return any(
            span.layer() is model
            for notes in list(call_notes.graphs.values())
            for span in notes.spans
            if span.layer is not None
        )

    def begin_window(
        self,
        read_maps: Callable[[], Mapping[str, MemoryMap | None]] | None = None,
        batches_since: float = -math.inf,
    ) -> None:
        """Read the variables' addresses before a profiler window opens; in eager mode, start marking layer calls.

        Args:
            read_maps: Reads the devices' memory maps, None for a device without one.
            batches_since: As for `HeldTensors.find`.
        """

        def read_chunks() -> Mapping[str, Set[int] | None]:
            maps = {} if read_maps is None else read_maps()
            return {device: None if one is None else self._history[device].ownable(one) for device, one in maps.items()}

        self._held.watch()
        window = ObservedWindow(
            self._models(),
            list(call_notes.optimizers),
            self._held,
            list(call_notes.graphs),
            None if read_maps is None else read_chunks,
            batches_since,
        )
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
        others = self._held.captures.graphs()
        key = (variables.signature(), spans, [(graph.name, graph.version) for graph in others], self._batch.size)
        graphs = self._graphs  # a finalizer may drop them meanwhile
        if graphs is None or graphs[0] != key:
            paths, size = variables.paths, self._batch.size
            graphs = self._graphs = key, graph_facts(paths, variables.owner_of, self._lines, others, size)
        return dataclasses.replace(window.facts(device, graphs[1], gradients), batch=self._batch)

    def close_window(self) -> None:
        """Let go of the window's facts after `end_window` for each device."""
        self._window = None

    def note_handle_size(self, device: str, size: int | None) -> None:
        """Set the chunk size of variables' resource handles on a device; call it before any other method for it."""
        self._history[device] = ChunkHistory(size)

    def first_batches(self, device: str, before: MemoryMap, after: MemoryMap) -> None:
        """Note the chunks of a phase's first batches, given the memory maps before and after their allocation."""
        self._history[device].first_batches(before, after)

    def recall(self, facts: TraceFacts, trace: AllocationTrace) -> TraceFacts:
        """The facts of a window with the history of its chunks. All earlier windows must be remembered."""
        return self._history[trace.device].add_to(facts, trace)

    def remember(
        self, trace: AllocationTrace, input_sizes: Collection[int] = (), arguments: Collection[str] = ()
    ) -> None:
        """Note the chunks that a window left behind and the sizes of its batches, for the ledgers of later windows.

        Most useful for the first step, in which the optimizer makes its slots.
        """
        self._history[trace.device].remember(trace, input_sizes, arguments)

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
