"""The batch size of a `tf.data` pipeline, as far as its own datasets state it."""

from typing import Any

MAX_DATASETS = 64
"""Most datasets below one dataset that are examined."""
OTHER_LENGTH = ("Unbatch", "FlatMap", "Interleave", "Filter", "Window", "GroupBy", "Sample", "Choose", "Rebatch")
"""In the names of datasets whose elements are not a fixed number of their input's."""


def batch_size(dataset: Any) -> int | None:
    """Examples in the batches that a dataset makes itself; None if it makes none or its size is unknown."""
    size = getattr(dataset, "_batch_size", None)
    if size is None:  # a data set of batches that is cut into those of the replicas
        sizes = getattr(dataset, "_batch_sizes", None)
        parts = {int(part) for part in sizes.numpy().flat} if sizes is not None else set()
        return parts.pop() if len(parts) == 1 else None
    return int(size)


def batch_below(dataset: Any) -> int | None:
    """Size of the full batches that a dataset makes or takes over from those below it; None if these differ."""
    sizes: set[int | None] = set()
    pending = [dataset]
    for _ in range(MAX_DATASETS):
        if not pending:
            break
        one = pending.pop()
        size, inputs = batch_size(one), one._inputs()
        if size is not None or not inputs or any(part in type(one).__name__ for part in OTHER_LENGTH):
            sizes.add(size)
        else:
            pending.extend(inputs)
    return sizes.pop() if len(sizes) == 1 else None
