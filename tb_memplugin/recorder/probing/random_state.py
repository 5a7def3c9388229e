"""Saves and restores the state of random generators that belong to the process, not to a model."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

Restore = Callable[[], None]
"""Restores what was saved."""


def save_random_state() -> list[Restore]:
    """Save the generators of Python, NumPy, TensorFlow and Keras.

    Variables of `tf.random.get_global_generator` and of Keras's global seed generator are among `global_generators`.
    """
    of_python, of_numpy = random.getstate(), np.random.get_state()
    return [
        lambda: random.setstate(of_python),
        lambda: np.random.set_state(of_numpy),
        *_of_tensorflow(),
        *_of_keras(),
    ]


def global_generators() -> list[Any]:
    """Variables of the global generators that exist."""
    from tensorflow.python.ops import stateful_random_ops  # the public getter creates a generator

    keras_state = _keras_state()
    of_tensorflow = stateful_random_ops.global_generator
    of_keras = keras_state.get("global_seed_generator")
    return [
        *([] if of_tensorflow is None else [of_tensorflow.state]),
        *([] if of_keras is None else [of_keras.state]),
    ]


def _of_tensorflow() -> list[Restore]:
    from tensorflow.python.eager import context  # the seeds of ops that `tf.random.set_seed` determines
    from tensorflow.python.ops import stateful_random_ops

    eager, generator = context.context(), stateful_random_ops.global_generator
    seeds = getattr(eager, "_rng", None)  # exists only once a seed was set
    state = None if seeds is None else seeds.getstate()
    seed = eager._seed

    def restore() -> None:
        eager._seed = seed
        if seeds is None:
            vars(eager).pop("_rng", None)
        else:
            eager._rng = seeds
            seeds.setstate(state)
        stateful_random_ops.global_generator = generator

    return [restore]


def _of_keras() -> list[Restore]:
    """Keras's global seed generator, if it was made meanwhile, and the numbers in the names of new objects."""
    state = _keras_state()
    generator, names = state.get("global_seed_generator"), state.get("object_name_uids")
    numbers = None if names is None else dict(names)

    def restore() -> None:
        state["global_seed_generator"] = generator
        if names is not None and numbers is not None:
            names.clear()
            names.update(numbers)
            state["object_name_uids"] = names

    return [restore]


def _keras_state() -> dict[str, Any]:
    """Keras's global attributes by name."""
    from keras.src.backend.common import global_state  # there is no public way that does not make a generator

    attributes: dict[str, Any] = vars(global_state.GLOBAL_STATE_TRACKER)
    return attributes
