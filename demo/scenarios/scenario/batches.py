"""Random images for trainings of the scenarios."""

from typing import Any

import numpy as np
import tensorflow as tf


def image_batches(steps: int, batch_size: int, side: int, classes: int) -> Any:
    """A dataset of `steps` batches of square RGB images with integer labels, which stay in host
    memory."""
    random = np.random.default_rng(1)
    images = random.random((steps, batch_size, side, side, 3), "float32")
    labels = random.integers(0, classes, (steps, batch_size))
    return tf.data.Dataset.from_generator(
        lambda: zip(images, labels, strict=True),
        output_signature=(
            tf.TensorSpec(images.shape[1:], tf.float32),
            tf.TensorSpec(labels.shape[1:], tf.int64),
        ),
    ).apply(tf.data.experimental.assert_cardinality(steps))
