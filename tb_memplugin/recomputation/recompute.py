"""Runs a segment of layers so that its results are computed again in the backward pass instead of being saved."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tb_memplugin.recomputation.checks import variables_of
from tb_memplugin.recomputation.exact_pass import Passed, Run, call_in_context, exact_pass, is_floating, refuse


class Segment:
    """Layers that are recomputed together. Knows the variables that they read after the first call."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self.layers = layers
        self._variables: list[Any] | None = None

    def check(self, run: Run, tensors: Sequence[Any], masks: Sequence[Any] | None = None) -> list[Any]:
        """The variables that the segment reads; raises `RecomputationError` if it cannot be recomputed exactly."""
        if self._variables is None:
            self._variables = variables_of(run, self.layers, tensors, masks or [None] * len(tensors))
        return self._variables

    def recompute(self, run: Run, tensors: Sequence[Any]) -> list[Any]:
        """The outputs of the segment. Variables change, and losses are added, as in an ordinary call."""
        for tensor in tensors:
            if not isinstance(tensor, tf.Tensor):
                raise refuse(self.layers[0].name, f"it takes a {type(tensor).__name__}", "Only dense tensors can be.")
        masks = [getattr(tensor, "_keras_mask", None) for tensor in tensors]
        variables = self.check(run, tensors, masks)

        def function(inputs: list[Any], training: Any) -> list[Any]:
            passed, connected = _connect(self.layers, run, inputs, masks, variables, training)
            results = iter(connected)
            outputs = [next(results) if is_floating(output) else output for output in passed.outputs]
            for (layer, loss), result in zip(passed.losses, results, strict=True):
                del loss
                layer.add_loss(result)
            for variable, value in passed.updates:
                variable.assign(value)
            for output, first in zip(outputs, passed.outputs, strict=True):
                mask = getattr(first, "_keras_mask", None)
                if mask is not None:
                    output._keras_mask = mask
            return outputs

        return list(call_in_context(function, tensors))


def _compiled_by_xla() -> bool:
    """Whether the function that is traced now is compiled by XLA."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def _dependent(tensors: Sequence[Any], upstream: Sequence[Any]) -> list[Any]:
    """The same tensors, which XLA cannot compute before the gradients from behind: it ignores control dependencies.

    XLA would merge a second pass over the same values with the first one. It cannot simplify the comparison, as
    `tf.recompute_grad` relies on, too.
    """
    gradient = upstream[0].values if isinstance(upstream[0], tf.IndexedSlices) else upstream[0]
    flag = tf.cast(tf.reduce_max(tf.reshape(gradient, [-1])[:1]), tf.bool)
    return [tf.where(tf.equal(flag, flag), tensor, tf.zeros((), tensor.dtype)) for tensor in tensors]


def _connect(
    layers: Sequence[Any], run: Run, tensors: list[Any], masks: list[Any], variables: list[Any], training: Any
) -> tuple[Passed, list[Any]]:
    """The first pass, and its differentiable results with a gradient that makes a second pass.

    The values of variables are read here, before the first pass, and are arguments of the gradient like the inputs: the
    second pass starts from the same random seeds and sees the same weights, whatever has changed them meanwhile.
    """
    values = [tf.convert_to_tensor(variable.value) for variable in variables]
    first: list[Passed] = []
    needs = [is_floating(tensor) for tensor in tensors]
    needs += [bool(variable.trainable) and is_floating(variable.value) for variable in variables]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def through(*arguments: Any) -> tuple[list[Any], Any]:
        inputs, states = arguments[: len(tensors)], arguments[len(tensors) :]
        # A tape outside must not keep what this pass computes.
        unwatched = [tf.stop_gradient(tensor) for tensor in arguments]
        passed = exact_pass(
            *(run, layers, unwatched[: len(tensors)], masks),
            zip(variables, unwatched[len(tensors) :], strict=True),
        )
        first.append(passed)

        def gradient(*upstream: Any) -> list[Any]:
            # Without the control dependencies, TensorFlow would run the second pass right after the first.
            with tf.control_dependencies([tensor for tensor in upstream if isinstance(tensor, tf.Tensor)]):
                copies = [tf.identity(tensor) for tensor in inputs]
            if _compiled_by_xla():
                copies = _dependent(copies, upstream)
            sources = [*copies, *states]
            watched = [source for source, need in zip(sources, needs, strict=True) if need]

            def again(repeated: list[Any], training: Any) -> list[Any]:
                return exact_pass(run, layers, repeated, masks, zip(variables, states, strict=True)).differentiable()

            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(watched)
                results = call_in_context(again, copies, training=training)
            gradients = iter(tape.gradient(results, watched, output_gradients=list(upstream)))
            return [next(gradients) if need else None for need in needs]

        return passed.differentiable(), gradient

    if not any(needs):
        passed = exact_pass(run, layers, tensors, masks, zip(variables, values, strict=True))
        return passed, passed.differentiable()
    connected = through(*tensors, *values)
    return first[0], list(connected)
