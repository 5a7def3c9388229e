"""The counters of the program: models, traces and dataset caches, as rows of (kind, name) with their values."""

import logging
import math
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from tb_memplugin.model import MISSING, CounterKind
from tb_memplugin.recorder.base.due import changes
from tb_memplugin.recorder.observe.calls.dataset_batches import MAX_DATASETS, OTHER_LENGTH, batch_below, batch_size
from tb_memplugin.recorder.observe.graph.function_traces import FunctionTraces, TracedFunction
from tb_memplugin.recorder.observe.model.live_models import LiveModels

logger = logging.getLogger("tb_memplugin")


class CachedBatch(NamedTuple):
    """Datasets that cache in memory, and the bytes that they cache for one element of the iterators, if known."""

    caches: int
    bytes: int | None


class DatasetCaches:
    """The caches below the iterators of one process; no method raises.

    Attributes:
        changed: Whether an iterator over another cache was noted since this was set to False.
    """

    def __init__(self) -> None:
        self.changed = False
        self._iterators: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._caches: dict[int, tuple[Any, int | None]] = {}  # by id; weak reference and bytes

    def iterated(self, iterator: Any) -> None:
        """Note an iterator that is used."""
        if self._iterators.get(id(iterator)) is iterator:
            return
        try:
            self._iterators[id(iterator)] = iterator
            dataset = getattr(iterator, "_dataset", None)
            if dataset is not None:
                self._note(dataset)
        except Exception:
            logger.debug("a dataset could not be examined", exc_info=True)

    def now(self) -> CachedBatch:
        """The caches that exist."""
        self._caches = {key: one for key, one in self._caches.items() if one[0]() is not None}
        sizes = [size for _, size in self._caches.values()]
        known = [size for size in sizes if size is not None]
        return CachedBatch(len(sizes), sum(known) if len(known) == len(sizes) else None)

    def _note(self, dataset: Any) -> None:
        pending: list[tuple[Any, int | None]] = [(dataset, 1)]
        for _ in range(MAX_DATASETS):
            if not pending:
                return
            dataset, elements = pending.pop()
            if type(dataset).__name__ == "CacheDataset":
                if not bytes(dataset._filename.numpy()) and id(dataset) not in self._caches:
                    size = element_bytes(dataset)
                    size = None if size is None or elements is None else size * elements
                    self._caches[id(dataset)] = weakref.ref(dataset), size
                    self.changed = True
                    changes.note()
                continue  # a cache below this one is full when this one is
            if any(part in type(dataset).__name__ for part in OTHER_LENGTH):
                elements = None
            elif elements is not None:
                elements = elements * (batch_size(dataset) or 1)
            pending.extend((below, elements) for below in dataset._inputs())


def element_bytes(dataset: Any) -> int | None:
    """Bytes of one element of a dataset, each tensor rounded up as the allocator does; None if a shape is unknown."""
    import tensorflow as tf

    total = 0
    for spec in tf.nest.flatten(dataset.element_spec):
        if not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None or spec.dtype in (tf.string, tf.variant):
            return None
        sizes = spec.shape.as_list()
        if sizes and sizes[0] is None:
            sizes[0] = batch_below(dataset)
        if None in sizes:
            return None
        total += -(-max(1, math.prod(sizes) * spec.dtype.size) // 256) * 256
    return total


class CounterValue(NamedTuple):
    """The value of a counter; `value` is the count, other fields are as in `Counters`."""

    kind: CounterKind
    name: str | None
    value: int
    bytes: int = MISSING
    detail: str | None = None


class ProgramCounters:
    """Process-wide. Wrapped methods note what happens on any thread; the training's thread reads the values.

    Attributes:
        models, functions, datasets: Where the wrapped methods note.
    """

    def __init__(self) -> None:
        self.models = LiveModels()
        self.functions = FunctionTraces()
        self.datasets = DatasetCaches()

    def due_in(self) -> float:
        """Seconds until a value may have changed, unless a change is noted before."""
        return 0.0 if self.functions.changed or self.datasets.changed else self.models.due_in()

    def values(self) -> list[CounterValue]:
        """All values now. Takes as long as the models that are new have variables: about a microsecond for each."""
        self.functions.changed = self.datasets.changed = False
        return [*self._of_models(), *self._of_functions(), *self._of_datasets()]

    def _of_models(self) -> Iterator[CounterValue]:
        figures = self.models.figures()
        yield CounterValue("models_built", None, figures.built)
        by_kind: tuple[tuple[CounterKind, Any], ...] = (
            ("models_alive", figures.alive),
            ("models_unreachable", figures.unreachable),
            ("models_gone", figures.gone),
            ("slots_without_model", figures.slots_without_model),
        )
        for kind, by_device in by_kind:
            for device, (count, size) in by_device.items():
                yield CounterValue(kind, device, count, size)

    def _of_functions(self) -> Iterator[CounterValue]:
        by_name: dict[str, list[TracedFunction]] = {}
        for function in list(self.functions.functions.values()):
            by_name.setdefault(function.name, []).append(function)
        for name, functions in by_name.items():
            most = max(functions, key=lambda function: (function.traces, function.signatures))
            yield CounterValue("traces", name, sum(one.traces for one in functions), detail=most.retraced)
            signatures = sum(one.signatures for one in functions)
            if signatures:
                yield CounterValue("compiled_shapes", name, signatures, detail=most.reshaped)

    def _of_datasets(self) -> Iterator[CounterValue]:
        caches, size = self.datasets.now()
        if caches:
            yield CounterValue("dataset_caches", None, caches, MISSING if size is None else size)


program_counters = ProgramCounters()
