"""Finds, by tracing a segment once, which variables it reads and whether a second pass would repeat the first."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from keras.src.backend.common import global_state

from tb_memplugin.recomputation.exact_pass import Passed, Run, call_in_context, exact_pass, refuse

REPEATABLE = {
    *("Assert", "PrintV2", "StringFormat"),
    *("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"),  # Keras leaves dropout to its own layers
}
"""Ops that TensorFlow marks as stateful although they return the same when they run again."""
OWN_SEGMENTS = "Leave it out: pass an object whose `segments` do not name it."


def variables_of(run: Run, layers: Sequence[Any], tensors: Sequence[Any], masks: Sequence[Any]) -> list[Any]:
    """The Keras variables that a segment reads.

    Traces the segment with `training=True` into a graph that is thrown away.

    Raises:
        RecomputationError: the segment cannot be recomputed exactly.
    """
    for layer in layers:
        for sub in layer._flatten_layers():
            if getattr(sub, "_remat_mode", None) is not None:
                raise refuse(sub.name, "it was created in a keras.RematScope", "Create it without the scope.")
            if not sub.built:
                raise refuse(sub.name, "it is not built", "Call the model on a batch first.")
    variables = {id(variable): variable for layer in layers for variable in layer.variables}
    for _ in range(3):
        unknown = _trace(run, layers, tensors, masks, list(variables.values()))
        if not unknown:
            return list(variables.values())
        variables.update((id(variable), variable) for variable in unknown)
    raise refuse(layers[0].name, f"each call reads a new variable, {unknown[0].name}", OWN_SEGMENTS)


@contextlib.contextmanager
def _outside_of_calls() -> Iterator[None]:
    """Hide the call of the model that is under way: a layer's call would change its `training` argument."""
    under_way = global_state.get_global_attribute("current_call_ctx")
    global_state.set_global_attribute("current_call_ctx", None)
    try:
        yield
    finally:
        global_state.set_global_attribute("current_call_ctx", under_way)


def _trace(
    run: Run, layers: Sequence[Any], tensors: Sequence[Any], masks: Sequence[Any], variables: list[Any]
) -> list[Any]:
    """Check one trace; return variables that it read and that are not among `variables`."""
    passes: list[Passed] = []
    stateful: list[tuple[str, str]] = []
    present = [mask for mask in masks if mask is not None]

    def traced(*arguments: Any) -> None:
        stateful.clear()
        graph = tf.compat.v1.get_default_graph()
        values = list(zip(variables, arguments[len(tensors) + len(present) :], strict=True))
        given = iter(arguments[len(tensors) :])
        its_masks = [None if mask is None else next(given) for mask in masks]
        checked = {op.name for op in graph.get_operations()}

        def after(name: str) -> None:
            for op in graph.get_operations():
                if op.name not in checked and op.op_def.is_stateful and op.type not in REPEATABLE:
                    stateful.append((name, op.type))
                checked.add(op.name)

        def function(inputs: list[Any], training: Any) -> tuple[()]:
            passes.append(exact_pass(run, layers, inputs, its_masks, values, after))
            return ()

        call_in_context(function, arguments[: len(tensors)], training=True)

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in (*tensors, *present)]
    specs += [tf.TensorSpec(variable.shape, variable.dtype) for variable in variables]
    with tf.init_scope(), _outside_of_calls():
        tf.function(traced, autograph=False).get_concrete_function(*specs)
    passed = passes[-1]  # TensorFlow traces again if the first trace has created a variable
    if passed.unknown:
        return passed.unknown
    for name, kind in stateful:
        raise refuse(name, f"a second run of its {kind} op may return something else", OWN_SEGMENTS)
    for variable, _ in passed.updates:
        if variable.trainable:
            owner = next(
                (layer.name for layer in layers if any(each is variable for each in layer.variables)), layers[0].name
            )
            raise refuse(owner, f"it changes its trainable weight {variable.name} in the forward pass", OWN_SEGMENTS)
    return []
