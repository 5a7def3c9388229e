"""Wrappers of the calls that are observed: layers, ``Optimizer.apply`` and ``GradientTape.gradient``.

A function that runs from its graph calls none of these, so observing costs nothing then.
"""

import functools
import logging
import weakref
from collections.abc import Iterable
from typing import Any

from tb_memplugin.recorder.observe.addresses import tensor_address
from tb_memplugin.recorder.observe.batches import batch_notes
from tb_memplugin.recorder.observe.call_notes import call_notes
from tb_memplugin.recorder.observe.call_spans import enter, leave
from tb_memplugin.recorder.observe.inputs import input_notes
from tb_memplugin.recorder.observe.program_counters import program_counters

logger = logging.getLogger("tb_memplugin")


def layer_call(original: Any) -> Any:
    """Wrap ``keras.layers.Layer.__call__``."""

    # functools.wraps keeps Keras's module name; AutoGraph does not convert functions of that module.
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        opened, outermost = enter("layer", self), input_notes.begin()
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

    return call


def optimizer_apply(original: Any) -> Any:
    """Wrap ``Optimizer.apply``."""

    @functools.wraps(original)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        opened = enter("update", None)
        if opened is not None:
            call_notes.optimizers.add(self)
            variables = (
                trainable_variables if trainable_variables is not None else getattr(self, "_trainable_variables", ())
            )
            grads, variables = _listed(grads), _listed(variables)
            trainable_variables = None if trainable_variables is None else variables
            _note_gradients(variables, grads)
        try:
            result = original(self, grads, trainable_variables)
        finally:
            if opened is not None:
                leave(opened)
        if call_notes.active:
            program_counters.models.applied(self)
        return result

    return apply


def optimizer_apply_gradients(original: Any) -> Any:
    """Wrap ``Optimizer.apply_gradients`` of Keras 2."""

    @functools.wraps(original)
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        opened = enter("update", None)
        if opened is not None:
            call_notes.optimizers.add(self)
            grads_and_vars = _listed(grads_and_vars)
            _note_gradients([variable for _, variable in grads_and_vars], [gradient for gradient, _ in grads_and_vars])
        try:
            result = original(self, grads_and_vars, *args, **kwargs)
        finally:
            if opened is not None:
                leave(opened)
        if call_notes.active:
            program_counters.models.applied(self)
        return result

    return apply_gradients


def tape_gradient(original: Any) -> Any:
    """Wrap ``GradientTape.gradient``."""

    @functools.wraps(original)
    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        opened = enter("backward", None, persistent=bool(getattr(self, "_persistent", False)))
        try:
            result = original(self, target, sources, *args, **kwargs)
        finally:
            if opened is not None:
                leave(opened)
        if opened is not None:
            _note_gradients(sources, result)
        return result

    return gradient


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
                    _note_eager_gradient(tensor, reference)
                else:
                    notes = call_notes.notes(tensor.graph)
                    notes.gradients.append((tensor.op.name, tensor.value_index, reference))
    except Exception:
        logger.debug("gradients could not be observed", exc_info=True)


def _note_eager_gradient(tensor: Any, variable: Any) -> None:
    if call_notes.eager_paths is None or call_notes.eager_gradients is None:
        return
    address = tensor_address(tensor)
    if address is not None:
        size = tensor.shape.num_elements() * tensor.dtype.size
        call_notes.eager_gradients.append((address, size, variable))


def _flat(values: Any) -> Iterable[Any]:
    import tensorflow as tf

    if isinstance(values, (list, tuple)):
        return (item for value in values for item in _flat(value))
    if isinstance(values, dict):
        return (item for key in sorted(values) for item in _flat(values[key]))
    return (values,) if not isinstance(values, tf.RaggedTensor) else (values.flat_values,)
