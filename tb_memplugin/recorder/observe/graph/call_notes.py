"""Notes on calls of layers, tapes and optimizers, taken while TensorFlow traces functions.

Name scopes do not identify layers, so names are used only where nothing better can be observed. The notes stay with the
process, weakly keyed by graph, so that a later observer knows functions that were traced before it was installed.
"""

import threading
import weakref
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

CallKind: TypeAlias = Literal["layer", "backward", "update"]
"""A layer's call, a call of a tape for gradients, or ``Optimizer.apply``."""


class CallingLine(Protocol):
    """Finds the user's line on this thread's stack."""

    def calling(self, layer: Any = None) -> str | None: ...


class Span(NamedTuple):
    """A range of ops of one graph, by their numbers, that one call made.

    Attributes:
        depth: Number of enclosing calls on the thread.
        thread: The thread's identifier. Each replica of a distributed step is traced on a thread of its own, while the
            optimizer calls of the replicas before it wait.
        layer: Weak reference to the layer; None for other kinds.
        targets: Names of the ops whose results a backward pass differentiates.
        recorded: Whether a tape recorded the backward pass, which another one may then differentiate.
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
    """Notes on one function graph.

    Attributes:
        spans: Calls that made its ops.
        gradients: (op name, index of the op's output, weak reference to the variable that it is the gradient of).
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.gradients: list[tuple[str, int, Any]] = []


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.again: set[int] = set()


class CallNotes:
    """Process-wide notes. Any thread may trace a function and so take notes.

    Attributes:
        active: Whether notes are taken.
        outermost_layers: Layers that no other layer called.
        recomputed: Layer that the backward pass traced last called again, to whether that call left all variables as
            they were.
        optimizers: Those with a traced update.
        eager_paths: id of a layer to its path while a profiler window is open, else None.
        eager_lines: Finds the user's lines in such a window; None if they are not recorded.
        eager_gradients: (address, requested bytes, weak reference to the variable) of the gradients of eager backward
            passes in the window; None if there was no window.
    """

    def __init__(self) -> None:
        self.active = False
        self.graphs: weakref.WeakKeyDictionary[Any, GraphNotes] = weakref.WeakKeyDictionary()
        self.outermost_layers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.recomputed: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.traced_calls = 0
        self.eager_paths: Mapping[int, str] | None = None
        self.eager_lines: CallingLine | None = None
        self.eager_gradients: list[tuple[int, int, Any]] | None = None
        self._lock = threading.Lock()
        self._local = _OfThread()

    @property
    def stack(self) -> list[Any]:
        """Calls that this thread is in: the layer, or None for another kind of call."""
        return self._local.stack

    @property
    def again(self) -> set[int]:
        """Identities of the layers that the backward pass which this thread is in called again."""
        return self._local.again

    def notes(self, graph: Any) -> GraphNotes:
        """The notes of a graph, new ones if there are none."""
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
