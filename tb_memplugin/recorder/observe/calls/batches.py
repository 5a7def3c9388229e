"""The batch that a step is given: from the arguments of the called function, the specification of the iterator that it
reads, and, where that leaves the number of examples open, Keras's own count of them.

Nothing is noted outside of profiler windows, except from a call that failed.
"""

import collections
import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from tb_memplugin.model.trace import BatchFacts, TensorSpec
from tb_memplugin.recorder.observe.graph.frames import module_of, running_functions

logger = logging.getLogger("tb_memplugin")

MAX_COMPONENTS = 100
"""Most tensors of a batch that are examined."""
_STEP_METHODS = ("train_step", "test_step")
OPEN = -1


class BatchNotes:
    """Process-wide notes on the batch of the step in a profiler window. The training's thread calls all methods;
    none raises.

    Attributes:
        active: Whether a window is open.
        failed: The batch of the last outermost call that failed; None without one.
    """

    def __init__(self) -> None:
        self.active = False
        self.failed: BatchFacts | None = None
        self._components: tuple[TensorSpec, ...] = ()
        self._counts: dict[int, float] = {}
        self._models: list[Any] = []

    def begin(self, models: Iterable[Any]) -> None:
        """Begin a window in which some of these models may run."""
        self._models = list(models)
        self._components, self._counts = (), _counts(self._models)
        self.active = True

    def given(self, values: Any) -> None:
        """Note what the first outermost call of the window was given."""
        if self.active and not self._components:
            self._components = _components(values)

    def end(self) -> BatchFacts:
        """End the window; return what is known of its batch."""
        self.active = False
        models, self._models = self._models, []
        size = _size(self._components)
        return BatchFacts(_counted(models, self._counts) if size is None else size, self._components)

    def call_failed(self, values: Any) -> None:
        """Note what a call was given that raised an exception."""
        components = _components(values)
        size = _size(components)
        self.failed = BatchFacts(_of_trainer(threading.get_ident()) if size is None else size, components)


batch_notes = BatchNotes()


def _components(values: Any) -> tuple[TensorSpec, ...]:
    """Shape and dtype of each tensor in the arguments of a call; those of an iterator's elements."""
    found: list[TensorSpec] = []
    try:
        import tensorflow as tf

        pending = collections.deque([values])
        for _ in range(10 * MAX_COMPONENTS):
            if not pending or len(found) >= MAX_COMPONENTS:
                break
            value = pending.popleft()
            if isinstance(value, (tf.data.Dataset, tf.data.Iterator)):
                found += _specs(tf.nest.flatten(value.element_spec))
            elif isinstance(value, dict):
                pending.extendleft(reversed(list(value.values())))
            elif isinstance(value, (list, tuple)):
                pending.extendleft(reversed(value))
            elif not hasattr(value, "assign"):  # no variable
                found += _specs([value])
    except Exception:
        logger.debug("the batch of a call could not be read", exc_info=True)
    return tuple(found)


def _specs(tensors: Iterable[Any]) -> Iterator[TensorSpec]:
    for tensor in tensors:
        shape, dtype = getattr(tensor, "shape", None), getattr(tensor, "dtype", None)
        sizes = shape if isinstance(shape, tuple) or getattr(shape, "rank", None) is not None else None
        if sizes is not None and dtype is not None and len(sizes):
            yield tuple(OPEN if size is None else int(size) for size in sizes), getattr(dtype, "name", str(dtype))


def _size(components: Iterable[TensorSpec]) -> int | None:
    """The first dimension that most tensors of a batch have; None if that is open."""
    counts = collections.Counter(shape[0] for shape, _ in components)
    size = max(counts, key=lambda one: counts[one], default=OPEN)
    return size if size > 0 else None


def _counts(models: Iterable[Any]) -> dict[int, float]:
    """How many examples Keras has counted for the mean of each model's loss."""
    counts = {}
    for model in models:
        try:
            if all(_is_own(model, name) for name in _STEP_METHODS):  # other steps may count batches
                counts[id(model)] = float(model._loss_tracker.count.numpy())
        except Exception:
            continue
    return counts


def _is_own(model: Any, name: str) -> bool:
    return str(getattr(getattr(type(model), name, None), "__module__", "")).startswith("keras.")


def _counted(models: list[Any], before: dict[int, float]) -> int | None:
    """Examples in the batch of each replica by the counts before and after; None if that is no whole number."""
    for model in models:
        try:
            examples = _counts([model]).get(id(model), 0.0) - before.get(id(model), 0.0)
            parts = int(model.steps_per_execution) * int(model.distribute_strategy.num_replicas_in_sync)
            if examples > 0 and examples % parts == 0:
                return int(examples) // parts
        except Exception:
            logger.debug("the examples of a step could not be counted", exc_info=True)
    return None


def running_batch(thread: int) -> BatchFacts:
    """The batch of the Keras method that trains on a thread now; any thread may ask.

    Args:
        thread: Identifier of the thread, as from `threading.get_ident`.
    """
    return BatchFacts(_of_trainer(thread))


def _of_trainer(thread: int) -> int | None:
    """The batch size of the data that the Keras method on a thread's stack trains on; None if that is unknown."""
    for frame, variables in running_functions(thread):
        adapter = getattr(variables.get("epoch_iterator"), "data_adapter", None)
        if adapter is not None and module_of(frame).startswith("keras."):
            size = getattr(adapter, "batch_size", None)
            return size if isinstance(size, int) and size > 0 else None
    return None
