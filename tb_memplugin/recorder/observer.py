"""What one recorder learns of the program: whose the ops and the variables are, now and from window to window."""

import collections
import dataclasses
import weakref
from collections.abc import Mapping
from typing import Any

from tb_memplugin.recorder.held_tensors import HeldTensors
from tb_memplugin.recorder.observe import hooks, seen
from tb_memplugin.recorder.observe_graphs import graph_facts
from tb_memplugin.recorder.observe_variables import Window, bytes_beside_variables
from tb_memplugin.recorder.window_memory import WindowMemory
from tb_memplugin.trace import AllocationTrace, GraphFacts, KnownRemainders, TraceFacts


class ModelObserver:
    """Learns, for one recorder, whose ops and whose variables the program's are."""

    def __init__(self) -> None:
        self._installed = False
        self._watched: list[tuple[Any, Any]] = []  # weak references to model and optimizer
        self._window: Any = None
        self._held = HeldTensors()
        self._graphs: tuple[Any, tuple[GraphFacts, ...]] | None = None  # with what they were made from
        self._memory: dict[str, WindowMemory] = collections.defaultdict(WindowMemory)  # by device
        self._windows = 0
        self._quiet: Mapping[str, int] = {}

    def install(self) -> None:
        """Begins observing; functions that are traced from now on are known. Once is enough, twice does no harm."""
        if not self._installed:
            hooks.acquire()
            self._installed = True

    def remove(self) -> None:
        """Ends observing and puts everything back as it was."""
        if self._installed:
            self._installed = False
            self._window = None
            hooks.tracing = None
            seen.eager_gradients = None
            hooks.release()

    def watch(self, model: Any, optimizer: Any = None) -> None:
        """Names a model that is trained, and its optimizer.

        The model's tree gives the layers' paths. May be called again.
        """
        self._watched = [pair for pair in self._watched if pair[0]() is not None and pair[0]() is not model]
        self._watched.append((weakref.ref(model), None if optimizer is None else weakref.ref(optimizer)))

    @property
    def traces(self) -> int:
        """A number that grows whenever a function is traced: a step during which it grew was a compiling one."""
        return seen.calls_in_graphs

    def needs_retrace(self, model: Any) -> bool:
        """Whether the model holds a compiled training step that was traced unseen.

        Setting ``model.train_function = None`` remakes it.
        """
        if getattr(model, "train_function", None) is None:
            return False
        return not any(
            span.layer() is model
            for notes in list(seen.graphs.values())
            for span in notes.spans
            if span.layer is not None
        )

    def before_data(self) -> None:
        """No batch has been asked for yet: notes what is in use now, so that later batches in waiting can be told."""

        self._quiet = bytes_beside_variables(self._models())

    def begin_window(self) -> None:
        """A profiler window is about to open.

        Notes where variables are now and, in eager mode, marks layers on the profile's time line.
        """

        window = Window(self._models(), list(seen.optimizers), self._held)
        self._windows += 1
        seen.eager_gradients = []
        hooks.tracing = window.paths
        self._window = window

    def end_window(self, device: str) -> TraceFacts:
        """The profiler window has closed: what is known about it on `device`. May be called for several devices."""

        hooks.tracing = None
        window, gradients = self._window, seen.eager_gradients or ()
        if window is None:
            raise RuntimeError("end_window() before begin_window()")
        graphs = [(notes, graph.version, len(notes.spans)) for graph, notes in list(seen.graphs.items())]
        if self._graphs is None or self._graphs[0] != (window.signature(), graphs):
            self._graphs = (window.signature(), graphs), graph_facts(window.paths, window.owner_of)
        facts: TraceFacts = window.facts(device, self._graphs[1], gradients)
        return dataclasses.replace(facts, window=self._windows, quiet_bytes=self._quiet.get(device))

    def recall(self, device: str, facts: TraceFacts) -> TraceFacts:
        """The facts of a window, with what the windows before it taught.

        To be called for each window in their order, when all earlier ones are remembered; on any one thread.
        """
        return self._memory[device].add_to(facts)

    def look(self, device: str) -> tuple[TraceFacts, Mapping[int, str]]:
        """What is known of the program at this moment, and the paths of its layers by their id; no window is needed."""

        window = Window(self._models(), list(seen.optimizers))
        return window.facts(device, graph_facts(window.paths, window.owner_of), ()), window.paths

    def remember(
        self, trace: AllocationTrace, facts: TraceFacts, remainders: tuple[KnownRemainders, ...] | None = None
    ) -> None:
        """Notes what a window's trace saw, of which these are the facts, for the ledgers of later windows.

        Best given the trace of the first step, in which the optimizer makes its slots. On the thread of `recall`.
        """
        self._memory[trace.device].remember(trace, facts.window, remainders)

    def _models(self) -> list[tuple[Any, Any]]:
        """Watched models with their optimizers, then other models whose layers were called or that Python holds."""
        pairs = [(model(), optimizer() if optimizer is not None else None) for model, optimizer in self._watched]
        models = [(model, optimizer) for model, optimizer in pairs if model is not None]
        others = {id(model): model for model in (*seen.outermost, *self._held.models())}
        for model, _ in models:
            others.pop(id(model), None)
        return models + [(model, None) for model in others.values()]
