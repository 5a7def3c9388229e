"""Notes on calls of layers, tapes and optimizers while TensorFlow traces functions, and on which
eager tensors are data.

Name scopes do not identify layers, so names are used only where nothing better can be observed. The
notes stay with the process, weakly keyed by graph, so that a later observer knows functions that
were traced before it was installed.

A tensor is input data if a tf.data iterator returned it, or if it was passed to the outermost layer
call, to a traced function that calls layers, or to one of Keras's training methods. A tensor that
such a call returned is a result, and stays one if it is passed on. A batch is input data only for a
while: each note has the time of its last use. All notes are weak: they keep no tensor alive."""

import logging
import math
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from tb_memplugin.recorder.heap import DATASET_METHODS, is_trainer, running_functions
from tb_memplugin.recorder.watch.asking import ByIdentity

logger = logging.getLogger("tb_memplugin")

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


class _Note(weakref.ref[Any]):
    """A weak reference to a tensor, with the time of its last use as input data, by
    `time.perf_counter`."""

    __slots__ = ("key", "used_at")
    key: int
    used_at: float


class InputNotes:
    """Process-wide notes, by id of the tensor, taken while `active`. Any thread may call a method;
    none raises."""

    def __init__(self) -> None:
        self.active = False
        self._inputs: dict[int, _Note] = {}
        self._results: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._functions: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._iterators: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._of_thread = _OfThread()
        self._kinds: Any = None

    def tensors(self) -> list[Any]:
        """Inputs and results that are alive."""
        inputs = [tensor for note in list(self._inputs.values()) if (tensor := note()) is not None]
        return inputs + list(self._results.values())

    def iterator(self, iterator: Any) -> None:
        self._iterators[id(iterator)] = iterator

    def roots(self) -> list[Any]:
        """Traced functions and iterators that were used: what they refer to is found through
        them."""
        return [*self._functions.values(), *self._iterators.values()]

    def is_input(self, tensor: Any, since: float = -math.inf) -> bool:
        note = self._inputs.get(id(tensor))
        return note is not None and note() is tensor and note.used_at >= since

    def results(self, values: Any) -> None:
        for tensor in self._examined(values):
            if not self.is_input(tensor):
                self._results[id(tensor)] = tensor

    def function(self, function: Any) -> None:
        self._functions[id(function)] = function

    def calls_layers(self, function: Any) -> bool:
        return self._functions.get(id(function)) is function

    def begin(self) -> bool | None:
        """Begin a call. Return whether it is the outermost one of its thread, None if it is traced
        into a graph."""
        try:
            if not self.active or not self._tensorflow()[0]():
                return None
            self._of_thread.depth += 1
            return self._of_thread.depth == 1
        except Exception:
            logger.debug("a call could not be noted", exc_info=True)
            return None

    def end(self, outermost: bool | None) -> None:
        if outermost is not None:
            self._of_thread.depth -= 1

    def data(self, values: Any, used_at: float | None = None, is_argument: bool = False) -> None:
        """Note a batch that is used now, or a data set, which is in use (`math.inf`) until it is
        noted as a batch. An argument of an outermost call is no batch if another such call returned
        it."""
        used_at = time.perf_counter() if used_at is None else used_at
        for tensor in self._examined(values):
            key = id(tensor)
            if is_argument and self._results.get(key) is tensor:
                continue
            note = self._inputs.get(key)
            if note is None or note() is not tensor:
                note = self._inputs[key] = _Note(tensor, self._gone)
                note.key, note.used_at = key, used_at
            # a call inside of `fit` does not end the use of its data
            elif not is_argument or note.used_at != math.inf:
                note.used_at = used_at

    def _gone(self, note: _Note) -> None:
        if self._inputs.get(note.key) is note:
            del self._inputs[note.key]

    def _examined(self, values: Any) -> list[Any]:
        try:
            return list(self._eager_tensors(values)) if self.active else []
        except Exception:
            logger.debug("tensors could not be noted", exc_info=True)
            return []

    def _eager_tensors(self, values: Any) -> Iterator[Any]:
        _, eager, composite, flatten = self._tensorflow()
        pending, left = [values], MAX_ITEMS
        while pending and left:
            value = pending.pop()
            left -= 1
            if type(value) is eager:
                yield value
            elif isinstance(value, (list, tuple)):
                pending.extend(value[:left])
            elif isinstance(value, dict):
                pending.extend(list(value.values())[:left])
            elif isinstance(value, composite):
                pending.extend(
                    part for part in flatten(value, expand_composites=True) if part is not value
                )

    def _tensorflow(self) -> Any:
        if self._kinds is None:
            import tensorflow as tf

            composite = (
                tf.RaggedTensor,
                tf.SparseTensor,
                tf.IndexedSlices,
                tf.distribute.DistributedValues,
            )
            self._kinds = (
                tf.executing_eagerly,
                tf.__internal__.EagerTensor,
                composite,
                tf.nest.flatten,
            )
        return self._kinds


call_notes = CallNotes()
input_notes = InputNotes()


def note_running_fit() -> None:
    """Note the data of the Keras method that runs on this thread, called before its callbacks
    began. Never raises."""
    try:
        for frame, variables in running_functions():
            if is_trainer(frame):
                used_at = math.inf if frame.f_code.co_name in DATASET_METHODS else None
                input_notes.data([variables.get(name) for name in DATA_ARGUMENTS], used_at)
    except Exception:
        logger.debug("the data of a running training could not be noted", exc_info=True)
