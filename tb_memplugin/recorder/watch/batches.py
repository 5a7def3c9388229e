"""The batch size of a step, which the recorder is told or the step's calls show, and facts about
`tf.data` pipelines.

Only calls that take gradients count, if any does: a policy may act on one observation before it
learns from many. Each names candidates: the first dimensions of its tensors that agree with the
model's inputs. Where an iterator leaves the number of examples open, Keras counts it, or the data
set states it. If candidates disagree, the batch size is unknown.

TensorFlow keeps a model of each pipeline for its autotuning: each buffer and cache in memory counts
the elements in it. A pipeline without autotuning has no model, and iterators over several devices
do not return theirs."""

import contextlib
import dataclasses
import logging
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, NamedTuple, TypeVar

from tb_memplugin.recorder.base import changes
from tb_memplugin.recorder.heap import module_of, running_functions
from tb_memplugin.schema import DTYPE_BYTES, BatchFacts, TensorSpec

logger = logging.getLogger("tb_memplugin")

MAX_CALLS = 100  # most calls of a window that are examined
MAX_COMPONENTS = 100  # most tensors of a batch that are examined
MAX_DATASETS = 64  # most datasets below one dataset that are examined
MAX_ITERATORS = 64  # more live iterators are not read
OPEN = -1
_T = TypeVar("_T")
_OTHER_LENGTH = (
    "Unbatch",
    "FlatMap",
    "Interleave",
    "Filter",
    "Window",
    "GroupBy",
    "Sample",
    "Choose",
    "Rebatch",
)
"""In the names of datasets whose elements are not a fixed number of their input's."""


class GivenCall(NamedTuple):
    # that an outermost call was given, or of an iterator's elements; no scalars
    components: tuple[TensorSpec, ...]
    sizes: Set[int]  # candidates for the batch size, none if they are left open
    trains: bool  # whether it takes gradients


@dataclasses.dataclass
class FunctionInputs:
    """What a ``tf.function`` showed while it was traced; `model_inputs` are shapes given to
    outermost layer calls."""

    trains: bool = False  # whether it takes gradients
    model_inputs: set[tuple[int, ...]] = dataclasses.field(default_factory=set)


class BatchNotes:
    """Process-wide notes on the batch of the step in a profiler window, and of the last outermost
    call that `failed`. The training's thread calls `begin` and `end`, any thread the other methods;
    none raises."""

    def __init__(self) -> None:
        self.active = False
        self.failed: BatchFacts | None = None
        self.backward_passes = 0
        self._calls: list[GivenCall] = []
        self._stated: set[int | None] = set()  # by the data of the window's calls
        self._counts: dict[int, float] = {}
        # weak references: the program may drop a model in the window
        self._models: list[Callable[[], Any]] = []
        self._traced: list[tuple[int, ...]] = []
        self._functions: weakref.WeakKeyDictionary[Any, FunctionInputs] = (
            weakref.WeakKeyDictionary()
        )
        self._iterator: Any = None

    def begin(self, models: Iterable[Any]) -> None:
        self._models = [weakref.ref(model) for model in models]
        self._calls, self._stated, self._counts = [], set(), _counts(self._alive())
        self.failed = None
        self.active = True

    def end(self, named: int | None = None) -> BatchFacts:
        """End the window; return what is known of its batch. A batch size that the program names is
        believed."""
        self.active = False
        models, self._models = self._alive(), []
        if self.failed is not None and not self._calls:  # the window's only call
            return dataclasses.replace(self.failed, size=named or self.failed.size)
        calls = [call for call in self._calls if call.trains] or self._calls
        components = next((call.components for call in calls if call.components), ())
        sizes = frozenset[int]().union(*(call.sizes for call in calls))
        size = named or _only(sizes)
        size = size or _believed(
            sizes, _counted(models, self._counts, max(1, sum(not call.sizes for call in calls)))
        )
        return BatchFacts(size or _believed(sizes, _only(self._stated)), components)

    def _alive(self) -> list[Any]:
        return [model for reference in self._models if (model := reference()) is not None]

    def iterated(self, iterator: Any) -> None:
        self._iterator = weakref.ref(iterator)

    def model_called(self, args: Any, kwargs: Any) -> None:
        """Note what a layer is given that no other layer calls, while a function is traced."""
        tensors = components_of(args[:1] or list(kwargs.values()))
        self._traced += [shape for shape, _ in tensors[:1]]
        del self._traced[: -10 * MAX_CALLS]

    def tracing(self) -> tuple[int, int]:
        return self.backward_passes, len(self._traced)

    def function_called(self, function: Any, before: tuple[int, int]) -> FunctionInputs | None:
        try:
            known = self._functions.get(function)
            if self.tracing() != before:
                known = self._functions.setdefault(function, FunctionInputs())
                known.trains |= self.backward_passes != before[0]
                known.model_inputs.update(self._traced[before[1] :])
            return known
        except Exception:
            logger.debug("a function could not be noted", exc_info=True)
            return None

    def given(
        self,
        values: Any,
        function: Any = None,
        known: FunctionInputs | None = None,
        failed: bool = False,
    ) -> None:
        """Note what an outermost call was given: a ``tf.function``, or a layer, whose first
        argument is its input."""
        if not failed and (not self.active or len(self._calls) >= MAX_CALLS):
            return
        try:
            call = self._call(values, function, known)
            if failed:
                size = _only(call.sizes) or _believed(
                    call.sizes, self._of_data(call, values, function)
                )
                self.failed = BatchFacts(size, call.components)
            else:
                self._calls.append(call)
                self._stated.add(self._of_data(call, values, function))
        except Exception:
            logger.debug("the batch of a call could not be read", exc_info=True)

    def _call(self, values: Any, function: Any, known: FunctionInputs | None) -> GivenCall:
        components = components_of(values)
        if function is None:
            return GivenCall(
                components,
                first_dimensions(components_of(values[0][:1]) or components),
                tape_records(),
            )
        components, known = (
            components or components_of(outer_values(function)),
            known or FunctionInputs(),
        )
        return GivenCall(
            components, candidates(components, known.model_inputs), known.trains or tape_records()
        )

    def _of_data(self, call: GivenCall, values: Any, function: Any) -> int | None:
        """The batch size of Keras's data, of a data set that a call is given, or of that which its
        tensors are from."""
        says, size = _of_trainer(threading.get_ident())
        if says:
            return size
        sources = [
            one for one in leaves([values, outer_values(function)]) if dataset_of(one) is not None
        ]
        if not sources and call.sizes and self._iterator is not None:
            sources = [self._iterator()]
        return _only({batch_below(one) for one in map(dataset_of, sources) if one is not None})


batch_notes = BatchNotes()


def _only(sizes: Set[int | None] | Set[int]) -> int | None:
    return next(iter(sizes)) if len(sizes) == 1 else None


def _believed(sizes: Set[int], size: int | None) -> int | None:
    return size if not sizes or size in sizes else None


def tape_records() -> bool:
    from tensorflow.python.eager import record

    return bool(record.could_possibly_record())


def running_batch(thread: int) -> BatchFacts:
    """The batch of the Keras method that trains on a thread, given its identifier, now; any thread
    may ask."""
    return BatchFacts(_of_trainer(thread)[1])


def _counts(models: Iterable[Any]) -> dict[int, float]:
    """How many examples Keras has counted for the mean of each model's loss; a step of one's own
    may count batches."""
    found = {}
    for model in models:
        try:
            steps = (getattr(type(model), name, None) for name in ("train_step", "test_step"))
            if all(str(getattr(step, "__module__", "")).startswith("keras.") for step in steps):
                found[id(model)] = float(model._loss_tracker.count.numpy())
        except Exception:
            continue
    return found


def _counted(models: list[Any], before: dict[int, float], calls: int) -> int | None:
    """Examples in the batch of each replica by the counts before and after; None if that is no
    whole number. Any of the models may have run, and may have been given this many batches."""
    now = _counts(models)
    for model in models:
        try:
            examples = now.get(id(model), 0.0) - before.get(id(model), 0.0)
            parts = (
                int(model.steps_per_execution)
                * int(model.distribute_strategy.num_replicas_in_sync)
                * calls
            )
            if examples > 0 and examples % parts == 0:
                return int(examples) // parts
        except Exception:
            logger.debug("the examples of a step could not be counted", exc_info=True)
    return None


def _of_trainer(thread: int) -> tuple[bool, int | None]:
    """(whether the data of a Keras method on a thread's stack say something, the batch size of its
    step). The last batch of an epoch may be a smaller one, whose size only arrays tell."""
    for frame, variables in running_functions(thread):
        epoch = variables.get("epoch_iterator")
        adapter = getattr(epoch, "data_adapter", None)
        if adapter is None or not module_of(frame).startswith("keras."):
            continue
        end = variables.get("end_step")
        is_last = isinstance(end, int) and end + 1 == getattr(epoch, "num_batches", None)
        is_partial = is_last and getattr(adapter, "has_partial_batch", None) is not False
        size = getattr(adapter, "partial_batch_size" if is_partial else "batch_size", None)
        size = size if isinstance(size, int) and size > 0 else None
        if is_partial:
            return True, size
        if size is None:  # those batches that Keras takes from a generator to see their shapes
            batches = list(getattr(adapter, "_first_batches", ()))
            size = _only(first_dimensions(components_of(batches[:1])))
        return size is not None, size
    return False, None


def candidates(components: Iterable[TensorSpec], model_inputs: Set[tuple[int, ...]]) -> Set[int]:
    """Candidates for the batch size of a function. Those first dimensions of its tensors count that
    the model's inputs begin with, if there are any. If the model is given the first dimensions of
    all tensors joined into one, as those of steps and of environments, each of these may be the
    batch."""
    shapes = [shape for shape, _ in components]
    sizes = first_dimensions(components)
    begins = {shape[0] for shape in model_inputs}
    if sizes & begins:
        return sizes & begins
    if shapes and all(len(shape) > 1 and shape[0] in sizes for shape in shapes):
        for count in range(len(shapes[0]), 1, -1):
            if math.prod(shapes[0][:count]) in begins and len({one[:count] for one in shapes}) == 1:
                return frozenset(shapes[0][:count])
    return sizes


def first_dimensions(components: Iterable[TensorSpec]) -> Set[int]:
    """First dimensions of tensors; none if any is open: then others are no number of examples."""
    sizes = frozenset(shape[0] for shape, _ in components if shape[0])
    return frozenset() if OPEN in sizes else sizes


def batch_in(requested: Iterable[int], components: Iterable[TensorSpec]) -> int | None:
    """The only number of examples with which each tensor of a batch is one of the requested sizes,
    in bytes; None if there are several or none, or if the bytes of an example are unknown."""
    each = {
        DTYPE_BYTES.get(dtype, 0) * (0 if OPEN in shape[1:] else math.prod(shape[1:]))
        for shape, dtype in components
    }
    counts = [
        frozenset(size // one for size in requested if size % one == 0) for one in each if one
    ]
    return _only(frozenset.intersection(*counts)) if counts and 0 not in each else None


def components_of(values: Any) -> tuple[TensorSpec, ...]:
    found: list[TensorSpec] = []
    try:
        import tensorflow as tf

        for value in leaves(values):
            tensors = [] if hasattr(value, "assign") else [value]  # no variable
            if dataset_of(value) is not None or isinstance(
                value, (tf.data.Dataset, tf.data.Iterator)
            ):
                specs = tf.nest.flatten(value.element_spec)  # of one replica
                tensors = [next(iter(getattr(spec, "_value_specs", ())), spec) for spec in specs]
            for tensor in tensors:
                shape, dtype = getattr(tensor, "shape", None), getattr(tensor, "dtype", None)
                sizes = (
                    shape
                    if isinstance(shape, tuple) or getattr(shape, "rank", None) is not None
                    else None
                )
                if sizes is not None and dtype is not None and len(sizes):
                    shape = tuple(OPEN if size is None else int(size) for size in sizes)
                    found.append((shape, getattr(dtype, "name", str(dtype))))
            if len(found) >= MAX_COMPONENTS:
                break
    except Exception:
        logger.debug("the batch of a call could not be read", exc_info=True)
    return tuple(found[:MAX_COMPONENTS])


def _popped(pending: list[_T], most: int) -> Iterator[_T]:
    for _ in range(most):
        if not pending:
            return
        yield pending.pop()


def leaves(values: Any) -> Iterator[Any]:
    import tensorflow as tf

    pending = [values]
    for value in _popped(pending, 10 * MAX_COMPONENTS):
        if isinstance(value, tf.distribute.DistributedValues) and not hasattr(value, "assign"):
            value = value.values
        if isinstance(value, (dict, list, tuple)):
            pending.extend(reversed(list(value.values()) if isinstance(value, dict) else value))
        else:
            yield value


def dataset_of(value: Any) -> Any:
    """The `tf.data` data set that a value is, or takes elements from (of its first worker); None
    for others."""
    import tensorflow as tf

    if isinstance(value, tf.data.Dataset):
        return value
    if not hasattr(value, "element_spec"):
        return None
    for parts in ("_iterators", "_cloned_datasets"):
        value = next(iter(getattr(value, parts, None) or ()), value)
    return value if isinstance(value, tf.data.Dataset) else getattr(value, "_dataset", None)


def outer_values(function: Any) -> list[Any]:
    """Data sets and iterators that a function takes from around it instead of from its
    arguments."""
    python: Any = getattr(function, "_python_function", None)
    if not hasattr(python, "__code__"):
        return []
    values = [python.__globals__.get(name) for name in python.__code__.co_names]
    for cell in python.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            values.append(cell.cell_contents)
    return [value for value in values if hasattr(type(value), "element_spec")]


def batch_size(dataset: Any) -> int | None:
    """Examples in the batches that a dataset makes itself; None if it makes none or its size is
    unknown."""
    if (size := getattr(dataset, "_batch_size", None)) is not None:
        return int(size)
    # of a data set of batches that is cut into those of the replicas
    sizes = getattr(dataset, "_batch_sizes", None)
    return None if sizes is None else _only({int(part) for part in sizes.numpy().flat})


def batch_below(dataset: Any) -> int | None:
    """Size of the full batches that a dataset makes or takes over from those below it; None if
    these differ."""
    sizes: set[int | None] = set()
    pending = [dataset]
    for one in _popped(pending, MAX_DATASETS):
        size, inputs = batch_size(one), one._inputs()
        if size is not None or not inputs or _has_other_length(one):
            sizes.add(size)
        else:
            pending.extend(inputs)
    return _only(sizes)


def _has_other_length(dataset: Any) -> bool:
    return any(part in type(dataset).__name__ for part in _OTHER_LENGTH)


class DatasetCaches:
    """The caches below the iterators of one process; no method raises. A new one sets `changed`."""

    def __init__(self) -> None:
        self.changed = False
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        # to the bytes when full
        self._caches: weakref.WeakKeyDictionary[Any, int | None] = weakref.WeakKeyDictionary()

    def iterated(self, iterator: Any) -> None:
        try:
            if iterator not in self._iterators:
                self._iterators.add(iterator)
                self._note(getattr(iterator, "_dataset", None))
        except Exception:
            logger.debug("a dataset could not be examined", exc_info=True)

    def now(self) -> tuple[int, int | None]:
        """Number of the datasets that cache in memory, and the bytes that they hold when full, if
        known."""
        sizes = list(self._caches.values())
        return len(sizes), None if None in sizes else sum(size or 0 for size in sizes)

    def _note(self, dataset: Any) -> None:
        pending: list[tuple[Any, int | None]] = [] if dataset is None else [(dataset, 1)]
        for dataset, elements in _popped(pending, MAX_DATASETS):
            if type(dataset).__name__ == "CacheDataset":
                if not bytes(dataset._filename.numpy()) and dataset not in self._caches:
                    size = element_bytes(dataset)
                    self._caches[dataset] = (
                        None if size is None or elements is None else size * elements
                    )
                    self.changed = True
                    changes.note()
                continue  # a cache below this one is full when this one is
            elements = (
                None
                if elements is None or _has_other_length(dataset)
                else elements * (batch_size(dataset) or 1)
            )
            pending.extend((below, elements) for below in dataset._inputs())


def element_bytes(dataset: Any) -> int | None:
    """Bytes of one element of a dataset, each tensor rounded up as the allocator does; None if a
    shape is unknown."""
    import tensorflow as tf

    total = 0
    for spec in tf.nest.flatten(dataset.element_spec):
        if (
            not isinstance(spec, tf.TensorSpec)
            or spec.shape.rank is None
            or spec.dtype in (tf.string, tf.variant)
        ):
            return None
        sizes: list[Any] = spec.shape.as_list()
        sizes[:1] = [batch_below(dataset) if one is None else one for one in sizes[:1]]
        if None in sizes:
            return None
        total += -(-max(1, math.prod(sizes) * spec.dtype.size) // 256) * 256
    return total


class DataPipelines:
    """Notes iterators weakly, while it is `active`. Any thread may call a method."""

    def __init__(self) -> None:
        self.active = False
        self._prepared = False
        self._iterators: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def note(self, iterator: Any) -> None:
        """Note an iterator that was made eagerly. The first one is read, so that no step waits for
        what that loads."""
        import tensorflow as tf

        resource = getattr(iterator, "_iterator_resource", None)
        if self.active and (resource is None or isinstance(resource, tf.__internal__.EagerTensor)):
            self._iterators[id(iterator)] = iterator
            if not self._prepared:
                self._prepared = True
                _nodes(iterator)

    def buffered_bytes(self) -> int | None:
        """Bytes in buffers and caches; None if unknown. Takes some 0.05 ms per iterator."""
        import tensorflow as tf

        iterators = list(self._iterators.values())
        if not iterators or len(iterators) > MAX_ITERATORS or not tf.executing_eagerly():
            return None
        pipelines = [_nodes(iterator) for iterator in iterators]
        nodes = [node for pipeline in pipelines for node in pipeline or ()]
        buffers = [node.buffered_bytes for node in nodes if "MemoryCache" not in node.name]
        # Iterators over the same cached dataset share the cache.
        caches = {
            (one.buffered_elements, one.buffered_bytes)
            for one in nodes
            if "MemoryCache" in one.name
        }
        return None if None in pipelines else int(sum(buffers) + sum(size for _, size in caches))


data_pipelines = DataPipelines()


def _nodes(iterator: Any) -> list[Any] | None:
    """The nodes of an iterator's pipeline; None if TensorFlow has no model of it."""
    import tensorflow as tf
    from tensorflow.core.framework import model_pb2

    resource = getattr(iterator, "_iterator_resource", None)
    if resource is None:
        return None
    try:
        serialized = tf.raw_ops.IteratorGetModelProto(iterator=resource).numpy()
    except (tf.errors.OpError, AttributeError):
        return None
    return list(model_pb2.ModelProto.FromString(serialized).nodes.values())
