"""The steps of a model that a plan is simulated with."""

from typing import Any

import tensorflow as tf

from tb_memplugin.commands.recorded_run import RecordedRun
from tb_memplugin.recorder.probing.examples import Examples
from tb_memplugin.recorder.probing.probe import checked_sizes, probe

SIZES = (4, 8)
"""Recorded batch sizes, those that are not larger than the training's."""
DEFAULT_SIZE = 32
"""What `fit` takes for arrays."""
_MOST = 1 << 20


def recorded_steps(model: Any, data: Any, batch_size: int | None) -> tuple[RecordedRun, int]:
    """A probing run of a model, and the batch size of its training.

    Args:
        model: Compiled Keras model with weights.
        data: What it is trained on, as for `probe`.
        batch_size: Examples in a batch; None for those of the dataset, or Keras's default.

    Raises:
        RecordingError: An argument is invalid, or nothing could be recorded.
    """
    if batch_size is not None:
        (size,) = checked_sizes([batch_size])
    elif isinstance(data, tf.data.Dataset):
        size = len(tf.nest.flatten(Examples(data.take(1), _MOST).batch(_MOST))[0])
    else:
        size = DEFAULT_SIZE
    return probe(model, data, [one for one in SIZES if one <= size] or [size]), size
