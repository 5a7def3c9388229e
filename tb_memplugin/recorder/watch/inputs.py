"""Notes which eager tensors are input data of the program.

A tensor is input data if a tf.data iterator returned it, or if it was passed to the outermost layer call, to a traced
function that calls layers, or to one of Keras's training methods. A tensor that such a call returned is a result, and
stays one if it is passed on. A batch is input data only for a while: each note has the time of its last use. All notes
are weak: they keep no tensor alive.
"""

import logging
import math
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

from tb_memplugin.recorder.watch.batches import batch_notes
from tb_memplugin.recorder.watch.call_notes import call_notes
from tb_memplugin.recorder.watch.frames import DATASET_METHODS, is_trainer, running_functions
from tb_memplugin.recorder.watch.program_counters import program_counters, traces_of

logger = logging.getLogger("tb_memplugin")

MAX_ITEMS = 1000
"""Most values in the arguments of one call that are examined."""
_DATA_ARGUMENTS = ("x", "y", "sample_weight", "validation_data")


class _Note(weakref.ref[Any]):
    """A weak reference to a tensor, with the time of its last use as input data, by `time.perf_counter`."""

    __slots__ = ("key", "used_at")
    key: int
    used_at: float


class InputNotes:
    """Process-wide notes, by id of the tensor, taken while `active`. Any thread may call a method; none raises."""

    def __init__(self) -> None:
        self.active = False
        self._inputs: dict[int, _Note] = {}
        self._results: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._functions: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._local = threading.local()
        self._kinds: Any = None

    def tensors(self) -> list[Any]:
        tensors = (note() for note in list(self._inputs.values()))
        return [tensor for tensor in tensors if tensor is not None]

    def is_input(self, tensor: Any, since: float = -math.inf) -> bool:
        """Whether the tensor is noted input data that was used at a time or later."""
        note = self._inputs.get(id(tensor))
        return note is not None and note() is tensor and note.used_at >= since

    def data(self, values: Any) -> None:
        self._note_inputs(values, time.perf_counter())

    def dataset(self, values: Any) -> None:
        """Note a data set, which is in use until it is noted as a batch."""
        self._note_inputs(values, math.inf)

    def arguments(self, values: Any) -> None:
        """Note the arguments of an outermost call: a batch, except what another such call returned."""
        self._note_inputs(values, time.perf_counter(), is_argument=True)

    def results(self, values: Any) -> None:
        for tensor in self._examined(values):
            if not self.is_input(tensor):
                self._results[id(tensor)] = tensor

    def function(self, function: Any) -> None:
        self._functions[id(function)] = function

    def calls_layers(self, function: Any) -> bool:
        return self._functions.get(id(function)) is function

    def begin(self) -> bool | None:
        """Begin a call. Return whether it is the outermost one of its thread, None if it is traced into a graph."""
        try:
            if not self.active or not self._tensorflow()[0]():
                return None
            depth: int = getattr(self._local, "depth", 0)
            self._local.depth = depth + 1
            return not depth
        except Exception:
            logger.debug("a call could not be noted", exc_info=True)
            return None

    def end(self, outermost: bool | None) -> None:
        if outermost is not None:
            self._local.depth -= 1

    def _note_inputs(self, values: Any, used_at: float, is_argument: bool = False) -> None:
        for tensor in self._examined(values):
            key = id(tensor)
            if is_argument and self._results.get(key) is tensor:
                continue
            note = self._inputs.get(key)
            if note is None or note() is not tensor:
                note = self._inputs[key] = _Note(tensor, self._gone)
                note.key, note.used_at = key, used_at
            elif not is_argument or note.used_at != math.inf:  # a call inside of `fit` does not end the use of its data
                note.used_at = used_at

    def _gone(self, note: _Note) -> None:
        if self._inputs.get(note.key) is note:
            del self._inputs[note.key]

    def _examined(self, values: Any) -> list[Any]:
        """The tensors among values; none while no notes are taken, or if that fails."""
        if not self.active:
            return []
        try:
            return list(self._eager_tensors(values))
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
                pending.extend(part for part in flatten(value, expand_composites=True) if part is not value)

    def _tensorflow(self) -> Any:
        if self._kinds is None:
            import tensorflow as tf

            composite = (tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices, tf.distribute.DistributedValues)
            self._kinds = tf.executing_eagerly, tf.__internal__.EagerTensor, composite, tf.nest.flatten
        return self._kinds


input_notes = InputNotes()


def note_running_fit() -> None:
    """Note the data of the Keras method that runs on this thread, called before its callbacks began. Never raises."""
    try:
        for frame, variables in running_functions():
            if is_trainer(frame):
                note = input_notes.dataset if frame.f_code.co_name in DATASET_METHODS else input_notes.data
                note([variables.get(name) for name in _DATA_ARGUMENTS])
    except Exception:
        logger.debug("the data of a running training could not be noted", exc_info=True)


def returns_data(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> Any:
    result = original(self, *args, **kwargs)
    input_notes.data(result)
    return result


def next_element(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> Any:
    if input_notes.active:
        program_counters.datasets.iterated(self)
        batch_notes.iterated(self)
    return returns_data(original, self, *args, **kwargs)


def makes_model(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    if input_notes.active:
        program_counters.models.note(self)


def takes_data(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> Any:
    if input_notes.active:
        program_counters.models.note(self)
    values = [*args, *(kwargs.get(name) for name in _DATA_ARGUMENTS)]
    note = input_notes.dataset if original.__name__ in DATASET_METHODS else input_notes.data
    note(values)
    try:
        result = original(self, *args, **kwargs)
    finally:
        input_notes.data(values)
    program_counters.models.used(self)
    return result


def function_call(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> Any:
    outermost = input_notes.begin()
    if outermost is None:
        return original(self, *args, **kwargs)
    calls_before, traces_before, tracing = call_notes.traced_calls, traces_of(self), batch_notes.tracing()
    try:
        result = original(self, *args, **kwargs)
    except BaseException:
        if outermost:
            batch_notes.call_failed([args, kwargs], self, batch_notes.function_called(self, tracing))
        raise
    finally:
        input_notes.end(outermost)
    if input_notes.active:
        program_counters.functions.called(self, traces_before, args, kwargs)
        for arg in args:
            if hasattr(arg, "_iterator_resource"):
                program_counters.datasets.iterated(arg)
    if call_notes.traced_calls != calls_before:
        input_notes.function(self)
    known = batch_notes.function_called(self, tracing)
    if outermost and (input_notes.calls_layers(self) or (known is not None and known.trains)):
        batch_notes.given([args, kwargs], self, known)
    if outermost and input_notes.calls_layers(self):
        input_notes.arguments([args, kwargs])
        input_notes.results(result)
    return result
