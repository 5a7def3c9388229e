"""The batch size of a step, which the recorder is told or the step's calls show.

Only calls that take gradients count, if any does: a policy may act on one observation before it
learns from many. Each names candidates: the first dimensions of its tensors that agree with the
model's inputs. Where an iterator leaves the number of examples open, Keras counts it, or the data
set states it. If candidates disagree, the batch size is unknown."""

import dataclasses
import math
import threading
import types
import weakref
from collections.abc import Iterable, Set
from typing import Any, NamedTuple

from tb_memplugin.recorder.base import (
    ByIdentity,
    asked,
    attribute,
    closure,
    is_a,
    leaves,
    own,
    own_list,
    quiet,
)
from tb_memplugin.recorder.heap import (
    module_of,
    running_functions,
)
from tb_memplugin.recorder.watch.datasets import batch_below, dataset_of, only
from tb_memplugin.schema import DTYPE_BYTES, BatchFacts, TensorSpec

MAX_CALLS = 100  # most calls of a window that are examined
MAX_COMPONENTS = 100  # most tensors of a batch that are examined
MAX_LEAVES = 10 * MAX_COMPONENTS  # most values in the arguments of a call that are examined
OPEN = -1


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
        self._counts = ByIdentity[float]()  # model to its examples before the window
        self._traced: list[tuple[int, ...]] = []
        self._functions = ByIdentity[FunctionInputs]()
        self._iterator: Any = None

    def begin(self, models: Iterable[Any]) -> None:
        self._calls, self._stated, self._counts = [], set(), ByIdentity()
        for model in models:
            self._counts[model] = asked(model, _examples) or 0.0
        self.failed = None
        self.active = True

    def end(self, named: int | None = None) -> BatchFacts:
        """End the window; return what is known of its batch. A batch size that the program names is
        believed."""
        self.active = False
        counts, self._counts = self._counts.items(), ByIdentity()
        if self.failed is not None and not self._calls:  # the window's only call
            size = named or self.failed.size
            return dataclasses.replace(self.failed, size=size, named=bool(named))
        calls = [call for call in self._calls if call.trains] or self._calls
        components = next((call.components for call in calls if call.components), ())
        sizes = frozenset[int]().union(*(call.sizes for call in calls))
        opened = max(1, sum(not call.sizes for call in calls))
        each = (asked(model, _counted, before, opened) for model, before in counts)
        counted = next((size for size in each if size), None)
        size = named or only(sizes) or _believed(sizes, counted)
        size = size or _believed(sizes, only(self._stated))
        return BatchFacts(size, components, named=bool(named))

    def iterated(self, iterator: Any) -> None:
        self._iterator = weakref.ref(iterator)

    @quiet
    def model_called(self, args: Any, kwargs: Any) -> None:
        """Note what a layer is given that no other layer calls, while a function is traced."""
        tensors = components_of(args[:1] or list(kwargs.values()))
        self._traced += [shape for shape, _ in tensors[:1]]
        del self._traced[: -10 * MAX_CALLS]

    def tracing(self) -> tuple[int, int]:
        return self.backward_passes, len(self._traced)

    @quiet
    def function_called(self, function: Any, before: tuple[int, int]) -> FunctionInputs | None:
        if self.tracing() != before:
            known: FunctionInputs = self._functions.setdefault(function, FunctionInputs())
            known.trains |= self.backward_passes != before[0]
            known.model_inputs.update(self._traced[before[1] :])
        found: FunctionInputs | None = self._functions.get(function)
        return found

    @quiet
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
        components = components_of(values)
        outside = [] if function is None else outer_values(function)
        if function is None:
            first = components_of(values[0][:1])
            sizes = first_dimensions(first or components)
        else:
            known = known or FunctionInputs()
            components = components or components_of(outside)
            sizes = candidates(components, known.model_inputs)
        trains = tape_records() or (known is not None and known.trains)
        call = GivenCall(components, sizes, trains)
        stated = self._of_data(call, [values, outside])
        if failed:
            self.failed = BatchFacts(only(sizes) or _believed(sizes, stated), components)
        else:
            self._calls.append(call)
            self._stated.add(stated)

    def _of_data(self, call: GivenCall, values: Any) -> int | None:
        """The batch size of Keras's data, of a data set that a call is given, or of that which its
        tensors are from."""
        says, size = _of_trainer(threading.get_ident())
        if says:
            return size
        datasets = [dataset_of(one) for one in leaves(values, MAX_LEAVES)]
        sources = [one for one in datasets if one is not None]
        if not sources and call.sizes and self._iterator is not None:
            last = dataset_of(self._iterator())
            sources = [] if last is None else [last]
        return only(map(batch_below, sources))


batch_notes = BatchNotes()


def _believed(sizes: Set[int], size: int | None) -> int | None:
    return size if not sizes or size in sizes else None


def tape_records() -> bool:
    from tensorflow.python.eager import record

    return bool(record.could_possibly_record())


def running_batch(thread: int) -> BatchFacts:
    """The batch of the Keras method that trains on a thread, given its identifier, now; any thread
    may ask."""
    return BatchFacts(_of_trainer(thread)[1])


def _examples(model: Any) -> float:
    """How many examples Keras has counted for the mean of a model's loss; 0 for a step of one's
    own, which may count batches."""
    steps = (getattr(type(model), name, None) for name in ("train_step", "test_step"))
    of_keras = all(str(getattr(step, "__module__", "")).startswith("keras.") for step in steps)
    count = own(own(model, "_loss_tracker"), "count")
    return float(count.numpy()) if of_keras and count is not None else 0.0


def _counted(model: Any, before: float, calls: int) -> int | None:
    """Examples in the batch of each replica by those that a model counted before and now; None if
    that is no whole number. The model may not have run, and may have been given this many
    batches."""
    examples = _examples(model) - before
    if examples <= 0:
        return None
    replicas = int(model.distribute_strategy.num_replicas_in_sync)
    parts = int(model.steps_per_execution) * replicas * calls
    return None if examples % parts else int(examples) // parts


def _of_trainer(thread: int) -> tuple[bool, int | None]:
    """(whether the data of a Keras method on a thread's stack say something, the batch size of its
    step, for one replica). The last batch of an epoch may be a smaller one, whose size only arrays
    tell."""
    for frame, variables in running_functions(thread):
        epoch = variables.get("epoch_iterator")
        adapter = own(epoch, "data_adapter")
        if adapter is None or not module_of(frame).startswith("keras."):
            continue
        end = variables.get("end_step")
        is_last = isinstance(end, int) and end + 1 == attribute(epoch, "num_batches")
        is_partial = is_last and attribute(adapter, "has_partial_batch") is not False
        size = attribute(adapter, "partial_batch_size" if is_partial else "batch_size")
        size = size if isinstance(size, int) and size > 0 else None
        # those batches that Keras takes from a generator to see their shapes
        if size is None and not is_partial:
            batches = own_list(adapter, "_first_batches")
            size = only(first_dimensions(components_of(batches[:1])))
        strategy = attribute(variables.get("self"), "distribute_strategy")
        replicas = asked(strategy, getattr, "num_replicas_in_sync", 1) or 1
        return is_partial or size is not None, size and -(-size // replicas)
    return False, None


def candidates(components: Iterable[TensorSpec], model_inputs: Set[tuple[int, ...]]) -> Set[int]:
    """Candidates for the batch size of a function. Those first dimensions of its tensors count that
    the model's inputs begin with, if there are any. If the model is given the first dimensions of
    all tensors joined into one, as those of steps and of environments, each of these may be the
    batch. Of others, those of which the model is given a multiple, as of patches, and those that it
    is given of other axes."""
    shapes = [shape for shape, _ in components]
    sizes = first_dimensions(components)
    begins = {shape[0] for shape in model_inputs}
    if sizes & begins:
        return sizes & begins
    if shapes and all(len(shape) > 1 and shape[0] in sizes for shape in shapes):
        for count in range(len(shapes[0]), 1, -1):
            if math.prod(shapes[0][:count]) in begins and len({one[:count] for one in shapes}) == 1:
                return frozenset(shapes[0][:count])
    if not begins or OPEN in begins:
        return sizes
    parts = {size for size in sizes if any(begin % size == 0 for begin in begins)}
    return frozenset(parts | begins.intersection(*(shape[1:] for shape in shapes)))


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
    if not each or 0 in each:
        return None
    sizes = frozenset(requested)
    counts = (frozenset(size // one for size in sizes if size % one == 0) for one in each)
    return only(frozenset.intersection(*counts))


def components_of(values: Any) -> tuple[TensorSpec, ...]:
    """Shapes and dtypes of the tensors in a call's arguments, except scalars and variables; those
    of the elements of data sets and iterators."""
    found: list[TensorSpec] = []
    for value in leaves(values, MAX_LEAVES):
        found += asked(value, _specs) or []
        if len(found) >= MAX_COMPONENTS:
            break
    return tuple(found[:MAX_COMPONENTS])


def _specs(value: Any) -> list[TensorSpec]:
    import tensorflow as tf

    if hasattr(value, "assign"):  # a variable
        return []
    tensors = [value]
    if is_a(value, tf.distribute.DistributedValues):
        tensors = list(leaves(value.values, MAX_LEAVES))
    elif is_a(value, tf.data.Iterator) or dataset_of(value) is not None:
        specs = tf.nest.flatten(value.element_spec)
        tensors = [next(iter(getattr(spec, "_value_specs", ())), spec) for spec in specs]
    found = []
    for tensor in tensors:
        shape: Any = getattr(tensor, "shape", None)
        dtype = getattr(tensor, "dtype", None)
        is_shape = isinstance(shape, tuple) or getattr(shape, "rank", None) is not None
        if is_shape and dtype is not None and len(shape):
            sizes = tuple(OPEN if size is None else int(size) for size in shape)
            found.append((sizes, getattr(dtype, "name", str(dtype))))
    return found


def outer_values(function: Any) -> list[Any]:
    """Data sets and iterators that a function takes from around it instead of from its
    arguments."""
    python = own(function, "_python_function")
    python = python.__func__ if type(python) is types.MethodType else python
    if type(python) is not types.FunctionType:
        return []
    values = [python.__globals__.get(name) for name in python.__code__.co_names]
    return [
        value
        for value in (*values, *closure(python).values())
        if hasattr(type(value), "element_spec")
    ]
