"""The tensors that a call is given, and which of their dimensions may be the batch."""

import collections
import contextlib
import itertools
import logging
import operator
from collections.abc import Iterable, Iterator, Set
from typing import Any

from tb_memplugin.model.trace import TensorSpec

logger = logging.getLogger("tb_memplugin")

MAX_COMPONENTS = 100
"""Most tensors of a batch that are examined."""
OPEN = -1


def candidates(components: Iterable[TensorSpec], model_inputs: Set[tuple[int, ...]]) -> Set[int]:
    """Candidates for the batch size of a function.

    Those first dimensions of its tensors count that the model's inputs begin with, if there are any. If the model is
    given the first dimensions of all tensors joined into one, as those of steps and of environments, each of these may
    be the batch.
    """
    shapes = [shape for shape, _ in components]
    sizes = first_dimensions(components)
    begins = {shape[0] for shape in model_inputs}
    if sizes & begins:
        return sizes & begins
    long = [shape for shape in shapes if len(shape) > 1 and shape[0] in sizes]
    if long and len(long) == len(shapes):
        joined = {
            count + 1
            for shape in model_inputs
            for count, size in enumerate(itertools.accumulate(long[0], operator.mul))
            if count and size == shape[0] and len({one[: count + 1] for one in long}) == 1
        }
        if joined:
            return frozenset(long[0][: max(joined)])
    return sizes


def first_dimensions(components: Iterable[TensorSpec]) -> Set[int]:
    """First dimensions of tensors; none if any is open: then others are no number of examples."""
    sizes = frozenset(shape[0] for shape, _ in components if shape[0])
    return frozenset() if OPEN in sizes else sizes


def components_of(values: Any) -> tuple[TensorSpec, ...]:
    """Shape and dtype of each tensor in the arguments of a call; those of an iterator's elements."""
    found: list[TensorSpec] = []
    try:
        import tensorflow as tf

        for value in leaves(values):
            if dataset_of(value) is not None or isinstance(value, (tf.data.Dataset, tf.data.Iterator)):
                found += _specs(_element_specs(value))
            elif not hasattr(value, "assign"):  # no variable
                found += _specs([value])
            if len(found) >= MAX_COMPONENTS:
                break
    except Exception:
        logger.debug("the batch of a call could not be read", exc_info=True)
    return tuple(found[:MAX_COMPONENTS])


def leaves(values: Any) -> Iterator[Any]:
    """The values in nested lists, tuples and dicts, replicas' values one by one; the first ones of very many."""
    import tensorflow as tf

    pending = collections.deque([values])
    for _ in range(10 * MAX_COMPONENTS):
        if not pending:
            return
        value = pending.popleft()
        if isinstance(value, dict):
            pending.extendleft(reversed(list(value.values())))
        elif isinstance(value, (list, tuple)):
            pending.extendleft(reversed(value))
        elif isinstance(value, tf.distribute.DistributedValues) and not hasattr(value, "assign"):
            pending.extendleft(reversed(value.values))
        else:
            yield value


def dataset_of(value: Any) -> Any:
    """The `tf.data` data set that a value is, or takes elements from, that of its first worker if it has several;
    None if it is something else."""
    import tensorflow as tf

    if isinstance(value, tf.data.Dataset):
        return value
    if not hasattr(value, "element_spec"):
        return None
    for parts in ("_iterators", "_cloned_datasets"):
        value = next(iter(getattr(value, parts, None) or ()), value)
    return value if isinstance(value, tf.data.Dataset) else getattr(value, "_dataset", None)


def _element_specs(data: Any) -> Iterator[Any]:
    """The specification of each tensor in a data set's elements, of one replica."""
    import tensorflow as tf

    for spec in tf.nest.flatten(data.element_spec):
        yield next(iter(getattr(spec, "_value_specs", ())), spec)


def _specs(tensors: Iterable[Any]) -> Iterator[TensorSpec]:
    for tensor in tensors:
        shape, dtype = getattr(tensor, "shape", None), getattr(tensor, "dtype", None)
        sizes = shape if isinstance(shape, tuple) or getattr(shape, "rank", None) is not None else None
        if sizes is not None and dtype is not None and len(sizes):
            yield tuple(OPEN if size is None else int(size) for size in sizes), getattr(dtype, "name", str(dtype))


def outer_values(function: Any) -> list[Any]:
    """Data sets and iterators that a function takes from around it instead of from its arguments."""
    python: Any = getattr(function, "_python_function", None)
    code = getattr(python, "__code__", None)
    if code is None:
        return []
    values = [python.__globals__.get(name) for name in code.co_names]
    for cell in python.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            values.append(cell.cell_contents)
    return [value for value in values if hasattr(type(value), "element_spec")]
