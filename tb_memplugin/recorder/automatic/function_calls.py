"""Finds the training steps of custom loops: calls of a `tf.function` that takes gradients and changes variables.

Whether a function does so is known once its first call has traced it. That call is step 0 and not recorded; it is
observed, so that the steps after it know which layer makes which operation.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from tb_memplugin.recorder.automatic.recording import AutomaticRecording

_UPDATES = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")
"""Beginnings of the types of ops that change variables."""


def places(recording: AutomaticRecording) -> Iterator[tuple[type, str, Callable[[Any], Any]]]:
    import tensorflow as tf
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    yield Function, "__call__", functools.partial(_function_call, recording)
    yield tf.GradientTape, "gradient", functools.partial(_tape_gradient, recording)


def _function_call(recording: AutomaticRecording, original: Any) -> Any:
    import tensorflow as tf

    trains: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()

    @functools.wraps(original)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        known = trains.get(self)
        if known is False or recording.is_inside or tf.inside_function():
            return original(self, *arguments, **named)
        loop = first = None
        try:
            if recording.records():
                loop, first = (recording.loop_for(self, None), None) if known else (None, _FirstCall())
        except Exception:
            recording.failed()
        with recording.inside(), contextlib.nullcontext() if loop is None else loop.step():
            if first is None:
                return original(self, *arguments, **named)
            try:
                result = original(self, *arguments, **named)
            except BaseException:
                _ended(recording, self, first, failed=True)
                raise
            trains[self] = _ended(recording, self, first)
            return result

    return call


def _ended(recording: AutomaticRecording, function: Any, first: "_FirstCall", failed: bool = False) -> bool:
    """Look at what the first call traced; whether the function is a training step."""
    try:
        if not first.trains():
            return False
        if not failed or recording.has_failure_run:
            recording.loop_for(function, first.model(), first_step=1)
        return True
    except Exception:
        recording.failed()
        return False


class _FirstCall:
    """The call that traces a function: observes it from construction to `trains`."""

    def __init__(self) -> None:
        from tb_memplugin.recorder.observe.calls.hooks import hooks
        from tb_memplugin.recorder.observe.graph.call_notes import call_notes

        self._hooks, self._notes = hooks, call_notes
        hooks.acquire()
        self._before = {id(graph): len(notes.spans) for graph, notes in list(call_notes.graphs.items())}
        self._traced: list[tuple[Any, list[Any]]] = []

    def trains(self) -> bool:
        """End the observation; whether the function takes gradients and changes variables."""
        self._hooks.release()
        for graph, notes in list(self._notes.graphs.items()):
            spans = notes.spans[self._before.get(id(graph), 0) :]
            if spans:
                self._traced.append((graph, spans))
        kinds = {span.kind for _, spans in self._traced for span in spans}
        if "backward" not in kinds:
            return "update" in kinds
        return "update" in kinds or any(
            op.type.startswith(_UPDATES) for graph, _ in self._traced for op in graph.get_operations()
        )

    def model(self) -> Any:
        """The layer with most weights that no other layer called; None without layers."""
        layers = [span.layer() for _, spans in self._traced for span in spans if span.layer is not None]
        outermost = [layer for layer in layers if layer is not None and layer in self._notes.outermost_layers]
        return max(outermost, key=_weights, default=None)


def _weights(layer: Any) -> int:
    try:
        return int(layer.count_params())
    except Exception:
        return 0


def _tape_gradient(recording: AutomaticRecording, original: Any) -> Any:
    """Wrap ``GradientTape.gradient``: count the calls that belong to no step."""
    import tensorflow as tf

    @functools.wraps(original)
    def gradient(self: Any, *arguments: Any, **named: Any) -> Any:
        if not recording.is_inside and tf.executing_eagerly() and recording.records():
            recording.unseen += 1
        return original(self, *arguments, **named)

    return gradient
