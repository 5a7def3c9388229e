"""Notes on calls of layers, tapes and optimizers, taken while TensorFlow traces functions.

Name scopes do not identify layers, so names are used only where nothing better can be observed. The notes stay with the
process, weakly keyed by graph, so that a later observer knows functions that were traced before it was installed.
"""

import threading
import weakref
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

CallKind: TypeAlias = Literal["layer", "backward", "update"]
"""A layer's call, a call of a tape for gradients, or ``Optimizer.apply``."""


class Span(NamedTuple):
    """A range of ops of one graph, by their numbers, that one call made.

    Each replica of a distributed step is traced on a thread of its own, while the optimizer calls of the replicas
    before it wait. Of a backward pass, `targets` are the names of the ops whose results it differentiates, and another
    one may then differentiate a `recorded` one.
    """

    start: int
    end: int
    depth: int
    thread: int
    kind: CallKind
    layer: Any
    targets: tuple[str, ...] = ()
    recorded: bool = False


class GraphNotes:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.gradients: list[tuple[str, int, Any]] = []  # op name, index of its output, weak reference to the variable


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.stack: list[Any] = []  # calls that the thread is in: the layer, or None for another kind of call
        self.again: set[int] = set()  # ids of the layers that the backward pass which it is in called again


class CallNotes:
    """Process-wide notes, taken while `active`. Any thread may trace a function and so take notes.

    Attributes:
        outermost_layers: Layers that no other layer called.
        recomputed: Layer that the backward pass traced last called again, to whether that call left all variables as
            they were.
        optimizers: Those with a traced update.
        eager_paths, eager_lines: While a profiler window is open, id of a layer to its path, and `SourceLines`.
        eager_gradients: (address, requested bytes, weak reference to the variable) of those of the last window.
    """

    def __init__(self) -> None:
        self.active = False
        self.graphs: weakref.WeakKeyDictionary[Any, GraphNotes] = weakref.WeakKeyDictionary()
        self.outermost_layers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.recomputed: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.traced_calls = 0
        self.eager_paths: Mapping[int, str] | None = None
        self.eager_lines: Any = None
        self.eager_gradients: list[tuple[int, int, Any]] | None = None
        self._lock = threading.Lock()
        self.of_thread = _OfThread()

    def notes(self, graph: Any) -> GraphNotes:
        with self._lock:
            return self.graphs.setdefault(graph, GraphNotes())

    def abandon(self) -> None:
        """Take no more notes in a forked child."""
        self._lock = threading.Lock()
        self.eager_paths = self.eager_lines = self.eager_gradients = None

    def forget(self, graph: Any) -> None:
        with self._lock:
            self.graphs.pop(graph, None)


call_notes = CallNotes()
