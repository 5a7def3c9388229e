"""Notes on calls of layers, tapes and optimizers while TensorFlow traces functions, and on which
eager tensors are data.

Name scopes do not identify layers, so names are used only where nothing better can be observed. The
notes stay with the process, weakly keyed by graph, so that a later observer knows functions that
were traced before it was installed.

A tensor is input data if a tf.data iterator returned it, or if it was passed to the outermost layer
call, to a traced function that calls layers, or to one of Keras's training methods. A tensor that
such a call returned is a result, and stays one if it is passed on. A batch is input data only for a
while: each note has the time of its last use. All notes are weak: they keep no tensor alive."""

import functools
import math
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from tb_memplugin.recorder.base import (
    ByIdentity,
    asked,
    contained,
    is_a,
    quiet,
)
from tb_memplugin.recorder.heap import (
    DATASET_METHODS,
    is_trainer,
    running_functions,
)

CallKind: TypeAlias = Literal["layer", "backward", "update"]
"""A layer's call, a call of a tape for gradients, or ``Optimizer.apply``."""
MAX_ITEMS = 1000  # most values in the arguments of one call that are examined
DATA_ARGUMENTS = ("x", "y", "sample_weight", "validation_data")


class Span(NamedTuple):
    """A range of ops of one graph, by their numbers, that one call made. Each replica of a
    distributed step is traced on a thread of its own, while the optimizer calls of the replicas
    before it wait."""

    start: int
    end: int
    depth: int
    thread: int
    kind: CallKind
    layer: Any
    targets: tuple[str, ...] = ()  # names of the ops whose results a backward pass differentiates
    recorded: bool = False  # another backward pass may then differentiate it


class GraphNotes:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        # op name, index of its output, weak reference to the variable
        self.gradients: list[tuple[str, int, Any]] = []


class _OfThread(threading.local):
    def __init__(self) -> None:
        # calls that the thread is in: the layer, or None for another kind of call
        self.stack: list[Any] = []
        # ids of the layers that the backward pass which it is in called again
        self.again: set[int] = set()
        self.depth = 0  # of the calls that may be given data


class CallNotes:
    """Process-wide notes, taken while `active`. Any thread may trace a function and so take notes.

    While a profiler window is open, `eager_paths` is the id of a layer to its path, `eager_lines` a
    `SourceLines`; `eager_gradients` are (address, requested bytes, weak reference to the variable)
    of the last window."""

    def __init__(self) -> None:
        self.active = False
        self.graphs: weakref.WeakKeyDictionary[Any, GraphNotes] = weakref.WeakKeyDictionary()
        self.outermost_layers = ByIdentity[bool]()  # that no other layer called
        # Layer that the backward pass traced last called again, to whether that call left all
        # variables as they were.
        self.recomputed = ByIdentity[bool]()
        self.optimizers = ByIdentity[bool]()  # with a traced update
        self.traced_calls = 0
        self.eager_paths: Mapping[int, str] | None = None
        self.eager_lines: Any = None
        self.eager_gradients: list[tuple[int, int, Any]] | None = None
        self._lock = threading.Lock()
        self.of_thread = _OfThread()

    def notes(self, graph: Any) -> GraphNotes:
        with self._lock:
            return self.graphs.setdefault(graph, GraphNotes())

    def end_window(self) -> None:
        self.eager_paths = self.eager_lines = self.eager_gradients = None

    def abandon(self) -> None:
        self._lock = threading.Lock()
        self.end_window()

    def forget(self, graph: Any) -> None:
        with self._lock:
            self.graphs.pop(graph, None)


class _Input(NamedTuple):
    used_at: float  # the last time as input data, by `time.perf_counter`
    line: str | None  # that took it from an iterator


_UNUSED = _Input(-math.inf, None)


class InputNotes:
    """Process-wide notes on tensors, taken while `active`. Any thread may call a method; none
    raises."""

    def __init__(self) -> None:
        self.active = False
        self._inputs = ByIdentity[_Input]()
        self._results = ByIdentity[bool]()
        self._functions = ByIdentity[bool]()
        self._iterators = ByIdentity[bool]()
        self.lines: Any = None  # a `SourceLines` while lines are recorded
        self._of_thread = _OfThread()

    def tensors(self) -> list[Any]:
        """Inputs and results that are alive."""
        return [*self._inputs, *self._results]

    def iterator(self, iterator: Any) -> None:
        self._iterators.add(iterator)

    def roots(self) -> list[Any]:
        """Traced functions and iterators that were used: what they refer to is found through
        them."""
        return [*self._functions, *self._iterators]

    def line(self, tensor: Any) -> str | None:
        """The line that took a tensor from an iterator; None if unknown."""
        noted = self._inputs.get(tensor)
        return None if noted is None else noted.line

    def is_input(self, tensor: Any, since: float = -math.inf) -> bool:
        noted = self._inputs.get(tensor)
        return noted is not None and noted.used_at >= since

    def results(self, values: Any) -> None:
        for tensor in self._examined(values) or ():
            if tensor not in self._inputs:
                self._results.add(tensor)

    def function(self, function: Any) -> None:
        self._functions.add(function)

    def calls_layers(self, function: Any) -> bool:
        return function in self._functions

    @quiet
    def begin(self) -> bool | None:
        """Begin a call. Return whether it is the outermost one of its thread, None if it is traced
        into a graph."""
        import tensorflow as tf

        if not self.active or not tf.executing_eagerly():
            return None
        self._of_thread.depth += 1
        return self._of_thread.depth == 1

    def end(self, outermost: bool | None) -> None:
        if outermost is not None:
            self._of_thread.depth -= 1

    def data(
        self,
        values: Any,
        used_at: float | None = None,
        is_argument: bool = False,
        line: str | None = None,
    ) -> None:
        """Note a batch that is used now, or a data set, which is in use (`math.inf`) until it is
        noted as a batch. An argument of an outermost call is no batch if another such call returned
        it. `line` is the user's that took the batch from an iterator."""
        used_at = time.perf_counter() if used_at is None else used_at
        for tensor in self._examined(values) or ():
            if is_argument and tensor in self._results:
                continue
            before = self._inputs.get(tensor, _UNUSED)
            # a call inside of `fit` does not end the use of its data
            if not is_argument or before.used_at != math.inf:
                self._inputs[tensor] = _Input(used_at, line or before.line)

    @quiet
    def drawing_line(self) -> str | None:
        """The user's line that takes a batch now; None if lines are not recorded."""
        return None if self.lines is None else self.lines.calling()

    @quiet
    def _examined(self, values: Any) -> list[Any]:
        """The eager tensors among values and in what TensorFlow makes of several."""
        if not self.active:
            return []
        flatten, eager, several = _tensorflow()
        found, pending = list[Any](), [values]
        for _ in range(MAX_ITEMS):
            if not pending:
                break
            value = pending.pop()
            if type(value) is eager:  # first: each step comes here
                found.append(value)
            elif (items := contained(value, MAX_ITEMS)) is not None:
                pending += items
            elif is_a(value, *several):
                parts = asked(value, flatten, True) or []
                found += [part for part in parts if type(part) is eager]
        return found


@functools.cache
def _tensorflow() -> tuple[Any, type, tuple[type, ...]]:
    """The function that flattens, the class of eager tensors, and those of several tensors."""
    import tensorflow as tf

    several = tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices, tf.distribute.DistributedValues
    return tf.nest.flatten, tf.__internal__.EagerTensor, several


call_notes = CallNotes()
input_notes = InputNotes()


@quiet
def note_running_fit() -> None:
    """Note the data of the Keras method that runs on this thread, called before its callbacks
    began."""
    for frame, variables in running_functions():
        if is_trainer(frame):
            used_at = math.inf if frame.f_code.co_name in DATASET_METHODS else None
            input_notes.data([variables.get(name) for name in DATA_ARGUMENTS], used_at)
