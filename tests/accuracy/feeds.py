"""What the trainings of `train.py` are fed with."""

from collections.abc import Iterator
from typing import Any

EXAMPLES = 384
"""Examples of arrays: an epoch is no shorter than 12 batches of 32."""
LENGTH = 64
"""Tokens of inputs of any length."""


def fed(model: Any, kind: str, steps: int, examples: int, batch: int) -> dict[str, Any]:
    """Arguments of ``fit``.

    Args:
        model: The model.
        kind: As in `Training.feed`.
        steps: Steps of an epoch.
        examples: Length of arrays.
        batch: Batch size.
    """
    import tensorflow as tf

    if kind == "generator":
        return {"x": batches_without_end(model, batch), "steps_per_epoch": steps}
    x, y = _arrays(model, examples)
    if kind == "arrays":
        return {"x": x, "y": y, "batch_size": batch, "steps_per_epoch": steps, "shuffle": True}
    slices = (
        tf.data.Dataset.from_tensor_slices((x, y))
        .shuffle(examples)
        .batch(batch)
        .prefetch(tf.data.AUTOTUNE)
    )
    return {"x": slices.repeat(), "steps_per_epoch": steps}


def _arrays(model: Any, examples: int) -> tuple[Any, Any]:
    """Examples, also for models whose inputs are a dictionary, and a label for each of their
    outputs."""
    import numpy as np

    random = np.random.default_rng(0)

    def values(name: str, tensor: Any) -> Any:
        shape = (examples, *(size or LENGTH for size in tensor.shape[1:]))
        if "mask" in name:
            return np.ones(shape, "int32")
        if "segment" in name:
            return np.zeros(shape, "int32")
        return (
            random.random(shape, np.float32)
            if tensor.dtype == "float32"
            else random.integers(0, 1000, shape, "int32")
        )

    inputs = model.input
    x = (
        {name: values(name, one) for name, one in inputs.items()}
        if isinstance(inputs, dict)
        else values("", inputs)
    )
    labels = (examples, *(size or LENGTH for size in model.output_shape[1:-1]))
    return x, random.integers(0, model.output_shape[-1], labels)


def batches_without_end(model: Any, batch: int) -> Any:
    """Batches without end that the model can train on, made one by one."""
    import numpy as np
    import tensorflow as tf

    shape, words = model.input_shape[1:], model.inputs[0].dtype == "int32"
    random = np.random.default_rng(0)

    def batches() -> Iterator[Any]:
        while True:
            x = (
                random.integers(0, 1000, (batch, *shape))
                if words
                else random.random((batch, *shape))
            )
            yield x.astype("int32" if words else "float32"), random.integers(0, 10, (batch,))

    kind = tf.int32 if words else tf.float32
    signature = (tf.TensorSpec((None, *shape), kind), tf.TensorSpec((None,), tf.int64))
    return tf.data.Dataset.from_generator(batches, output_signature=signature)
