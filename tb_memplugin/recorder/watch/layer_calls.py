"""Wrappers of the calls that are observed: layers, ``Optimizer.apply`` and tapes' gradients.

A function that runs from its graph calls none of these, so observing costs nothing then. Each call has a span: a range
of ops in the graph, or in eager mode a span on the profile's timeline. `enter` and `leave`, which begin and end it,
never raise: they run inside the user's training code.
"""

import logging
import threading
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

from tb_memplugin.attribution.owners import BACKWARD, DIFFERENTIATED_BACKWARD, KEEPING_BACKWARD
from tb_memplugin.recorder.base import changes
from tb_memplugin.recorder.watch.batches import batch_notes, tape_records
from tb_memplugin.recorder.watch.call_notes import CallKind, Span, call_notes
from tb_memplugin.recorder.watch.inputs import input_notes
from tb_memplugin.recorder.watch.layers import tensor_address, tensor_size
from tb_memplugin.recorder.watch.program_counters import program_counters
from tb_memplugin.schema import LAYER_PREFIX, LINE_MARK


class OpenCall(NamedTuple):
    """A call that has begun."""

    graph: Any  # the function graph that is being traced; None in eager mode
    start: int  # number of its first op
    kind: CallKind
    layer: Any  # a strong reference
    trace: Any  # the profiler's span in eager mode


def enter(kind: CallKind, layer: Any, tape: Any = None) -> OpenCall | None:
    """Note where a call begins; return None if there is nothing to note. A backward pass has a `tape`."""
    try:
        if not call_notes.active:
            return None
        import tensorflow as tf

        if tf.executing_eagerly():
            return _enter_eager(tf, kind, layer, tape)
        graph = tf.compat.v1.get_default_graph()
        if None not in call_notes.of_thread.stack:  # a recomputation has a tape of its own
            call_notes.of_thread.again.clear()
        elif kind == "layer":
            call_notes.of_thread.again.add(id(layer))
            call_notes.recomputed[layer] = _without_effect()
        call_notes.of_thread.stack.append(layer)
        return OpenCall(graph, graph.version, kind, layer, None)
    except Exception:
        logger.debug("a %s call could not be observed", kind, exc_info=True)
        return None


def _enter_eager(tf: Any, kind: CallKind, layer: Any, tape: Any) -> OpenCall | None:
    paths = call_notes.eager_paths
    if paths is None:
        return None
    name = paths.get(id(layer)) if kind == "layer" else f"({kind})"
    if tape is not None:
        name = KEEPING_BACKWARD if tape._persistent else BACKWARD
        if not tape._recording and tape_records():
            name = DIFFERENTIATED_BACKWARD
    if name is None:
        return None
    lines = call_notes.eager_lines
    line = None if lines is None else lines.calling(layer)
    trace = tf.profiler.experimental.Trace(LAYER_PREFIX + name + ("" if line is None else LINE_MARK + line))
    trace.__enter__()
    return OpenCall(None, 0, kind, layer, trace)


def _without_effect() -> bool:
    """Whether a call of a Keras layer that begins now changes no variables: statistics and seeds."""
    import keras

    return bool(keras.src.backend.common.stateless_scope.in_stateless_scope())


def _forget_others(graph: Any) -> None:
    """Forget that layers of a graph are recomputed which its backward pass has not called again."""
    for span in call_notes.notes(graph).spans:
        layer = None if span.layer is None else span.layer()
        if layer is not None and id(layer) not in call_notes.of_thread.again:
            call_notes.recomputed.pop(layer, None)


def is_outermost(layer: Any) -> bool:
    """Whether no other layer called a layer that is traced, or that is the last one on this thread's stack."""
    return next(caller for caller in (*call_notes.of_thread.stack, layer) if caller is not None) is layer


def leave(call: OpenCall, target: Any = None) -> None:
    """Note where a call ends; `target` is what a backward pass differentiates."""
    try:
        if call.trace is not None:
            call.trace.__exit__(None, None, None)
            return
        call_notes.traced_calls += 1
        changes.note()
        stack = call_notes.of_thread.stack
        stack.pop()
        if call.kind == "backward":
            batch_notes.backward_passes += 1
            if None not in stack:
                _forget_others(call.graph)
        if call.layer is not None and is_outermost(call.layer):
            call_notes.outermost_layers.add(call.layer)
        layer = None if call.layer is None else weakref.ref(call.layer)
        targets = tuple(one.op.name for one in _flat(target) if getattr(one, "graph", None) is call.graph)
        recorded = call.kind == "backward" and tape_records()
        ends, thread = (call.start, call.graph.version), threading.get_ident()
        span = Span(*ends, len(stack), thread, call.kind, layer, targets, recorded)
        call_notes.notes(call.graph).spans.append(span)
    except Exception:
        logger.debug("a %s call could not be observed", call.kind, exc_info=True)


logger = logging.getLogger("tb_memplugin")


def layer_call(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> Any:
    opened, outermost = enter("layer", self), input_notes.begin()
    if opened is not None and opened.graph is not None and is_outermost(self):
        batch_notes.model_called(args, kwargs)
    if outermost:
        batch_notes.given([args, kwargs])
        input_notes.arguments([args, kwargs])
    try:
        result = original(self, *args, **kwargs)
    except BaseException:
        if outermost:
            batch_notes.call_failed([args, kwargs])
        raise
    finally:
        input_notes.end(outermost)
        if opened is not None:
            leave(opened)
    if outermost:
        input_notes.results(result)
    return result


def optimizer_apply(original: Any, self: Any, /, grads: Any, trainable_variables: Any = None) -> Any:
    opened = enter("update", None)
    if opened is not None:
        given = trainable_variables is not None
        variables = _listed(trainable_variables if given else getattr(self, "_trainable_variables", ()))
        grads, trainable_variables = _listed(grads), variables if given else None
        _note_gradients(variables, grads)
    return _update(self, opened, original, grads, trainable_variables)


def optimizer_apply_gradients(original: Any, self: Any, /, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
    """Of optimizers of Keras 2."""
    opened = enter("update", None)
    if opened is not None:
        grads_and_vars = _listed(grads_and_vars)
        _note_gradients([variable for _, variable in grads_and_vars], [gradient for gradient, _ in grads_and_vars])
    return _update(self, opened, original, grads_and_vars, *args, **kwargs)


def _update(optimizer: Any, opened: OpenCall | None, original: Any, /, *args: Any, **kwargs: Any) -> Any:
    try:
        if opened is not None:
            call_notes.optimizers.add(optimizer)
        result = original(optimizer, *args, **kwargs)
    finally:
        if opened is not None:
            leave(opened)
    if call_notes.active:
        program_counters.models.applied(optimizer)
    return result


def tape_gradient(original: Any, self: Any, /, target: Any, *args: Any, **kwargs: Any) -> Any:
    """Of ``gradient``, ``jacobian`` and ``batch_jacobian``, whose argument is called ``source``."""
    opened = enter("backward", None, self)
    try:
        result = original(self, target, *args, **kwargs)
    finally:
        if opened is not None:
            leave(opened, target)
    if opened is not None:
        _note_gradients(args[0] if args else kwargs.get("sources", kwargs.get("source")), result)
    return result


def _listed(values: Any) -> Any:
    # A generator can be read only once: the optimizer gets the list.
    return values if isinstance(values, (list, tuple)) else list(values)


def _note_gradients(sources: Any, gradients: Any) -> None:
    """Note which op made the gradient of which variable. Never raises."""
    try:
        import tensorflow as tf

        for variable, gradient in zip(_flat(sources), _flat(gradients), strict=False):
            handle = getattr(getattr(variable, "value", variable), "handle", None)
            handle = getattr(variable, "handle", None) if handle is None else handle
            if gradient is None or handle is None:
                continue
            reference = weakref.ref(variable)
            sparse = isinstance(gradient, tf.IndexedSlices)
            for tensor in (gradient.values, gradient.indices) if sparse else (gradient,):
                if tf.executing_eagerly():
                    noted = None if call_notes.eager_paths is None else call_notes.eager_gradients
                    address = None if noted is None else tensor_address(tensor)
                    if noted is not None and address is not None:
                        noted.append((address, tensor_size(tensor), reference))
                else:
                    notes = call_notes.notes(tensor.graph)
                    notes.gradients.append((tensor.op.name, tensor.value_index, reference))
    except Exception:
        logger.debug("gradients could not be observed", exc_info=True)


def _flat(values: Any) -> Iterable[Any]:
    import tensorflow as tf

    if isinstance(values, (list, tuple)):
        return (item for value in values for item in _flat(value))
    if isinstance(values, dict):
        return (item for key in sorted(values) for item in _flat(values[key]))
    return (values,) if not isinstance(values, tf.RaggedTensor) else (values.flat_values,)
