"""Saves what training steps change, and restores it bit for bit: a model's and its optimizer's
state, and random generators that belong to the process."""

import contextlib
import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tb_memplugin.schema import is_cpu
from tb_memplugin.training.attributes import optimizers, same_attributes


def _keras_state() -> dict[str, Any]:
    # there is no public way that does not make a generator
    from keras.src.backend.common import global_state

    attributes: dict[str, Any] = vars(global_state.GLOBAL_STATE_TRACKER)
    return attributes


def global_generators() -> list[Any]:
    from tensorflow.python.ops import stateful_random_ops  # the public getter creates a generator

    generators = (stateful_random_ops.global_generator, _keras_state().get("global_seed_generator"))
    return [one.state for one in generators if one is not None]


def saved_random_state() -> Callable[[], None]:
    """Save the generators of Python, NumPy, TensorFlow and Keras, and the numbers in the names of
    Keras's new objects; returns what restores them. Variables of global generators are among
    `global_generators`."""
    # the seeds of ops that `tf.random.set_seed` determines
    from tensorflow.python.eager import context
    from tensorflow.python.ops import stateful_random_ops

    of_python, of_numpy = random.getstate(), np.random.get_state()
    eager, generator = context.context(), stateful_random_ops.global_generator
    seed, seeds = eager._seed, getattr(eager, "_rng", None)  # exists only once a seed was set
    drawn = None if seeds is None else seeds.getstate()
    keras_state = _keras_state()
    of_keras, names = keras_state.get("global_seed_generator"), keras_state.get("object_name_uids")
    numbers = dict(names or {})

    def restore() -> None:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        eager._seed = seed
        if seeds is None:
            vars(eager).pop("_rng", None)
        else:
            eager._rng = seeds
            seeds.setstate(drawn)
        stateful_random_ops.global_generator = generator
        keras_state["global_seed_generator"] = of_keras
        if names is not None:
            names.clear()
            names.update(numbers)
            keras_state["object_name_uids"] = names

    return restore


@contextlib.contextmanager
def restored(model: Any, trains: bool = True) -> Iterator[None]:
    """Restore a compiled model, its optimizer and the process's random generators at the end of the
    block, also what training made: the slots of an optimizer that was not built, metrics, step
    functions and the history. With `trains` false, for a block that changes no variable, those that
    were there stay where they are in memory."""
    restore_random_state = saved_random_state()
    before = saved_variables(model)
    values = [(variable, np.array(variable.numpy())) for variable in before] if trains else []
    attributes = contextlib.ExitStack()
    attributes.enter_context(same_attributes(model))
    try:
        yield
    finally:
        known = {id(variable) for variable in before}
        for variable in saved_variables(model):
            if id(variable) not in known:
                # Nothing uses it any more, but TensorFlow keeps graphs with custom gradients, and
                # with them their variables, until the process ends: free its memory.
                with tf.device(variable.device):
                    nothing = tf.zeros([0], variable.dtype)
                    tf.raw_ops.AssignVariableOp(
                        resource=variable.handle, value=nothing, validate_shape=False
                    )
        for variable, value in values:
            with tf.device(variable.device):
                constant = tf.constant(value, variable.dtype)
                # On a CPU the variable would use NumPy's memory, not the allocator's.
                variable.assign(
                    tf.raw_ops.DeepCopy(x=constant) if is_cpu(variable.device) else constant
                )
        attributes.close()
        restore_random_state()
        gc.collect()  # functions that the steps were traced to refer to each other in cycles


def saved_variables(model: Any) -> list[Any]:
    """TensorFlow's variables of a model, its metrics, its optimizer and the random generators, each
    once."""
    known = [*model.variables, *model.metrics_variables]
    # Metrics that the model was compiled with; Keras lists them as the model's only once it has
    # built them.
    compiled = getattr(model, "_compile_metrics", None)
    given = tf.nest.flatten(
        [getattr(compiled, name, None) for name in ("_user_metrics", "_user_weighted_metrics")]
    )
    for one in (
        *optimizers(model),
        *(one for one in given if isinstance(one, keras.metrics.Metric)),
    ):
        known += one.variables
    # Variables that are no weights, such as those of a tf.Module in a layer.
    known += [
        one for one in tf.train.TrackableView(model).descendants() if isinstance(one, tf.Variable)
    ]
    known += global_generators()
    plain = [
        variable.value if isinstance(variable, keras.Variable) else variable for variable in known
    ]
    replicas = [getattr(variable, "values", None) for variable in plain]
    parts = [
        of if isinstance(of, tuple) else (variable,)
        for variable, of in zip(plain, replicas, strict=True)
    ]
    return list({id(part): part for of in parts for part in of}.values())
