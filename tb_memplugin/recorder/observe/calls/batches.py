"""The batch size of a step: the recorder is told it, or the step's calls show it.

Only calls that take gradients count, if any does: a policy may act on one observation before it learns from many. Each
names candidates: the first dimensions of its tensors, as far as they agree with what the model is called with. Where an
iterator leaves the number of examples open, Keras counts it, or the data set states it. If candidates disagree, the
batch size is unknown.

Nothing is noted outside of profiler windows, except while a function is traced, and from a call that failed.
"""

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Set
from typing import Any, NamedTuple

from tb_memplugin.model.trace import BatchFacts, TensorSpec
from tb_memplugin.recorder.observe.calls.datasets import batch_below
from tb_memplugin.recorder.observe.calls.given_tensors import (
    candidates,
    components_of,
    dataset_of,
    first_dimensions,
    leaves,
    outer_values,
)
from tb_memplugin.recorder.observe.graph.frames import module_of, running_functions

logger = logging.getLogger("tb_memplugin")

MAX_CALLS = 100
"""Most calls of a window that are examined."""


class GivenCall(NamedTuple):
    """An outermost call.

    Attributes:
        components: The tensors that it was given, without scalars; those of an iterator's elements.
        sizes: Candidates for its batch size; empty if they are left open.
        trains: Whether it takes gradients.
    """

    components: tuple[TensorSpec, ...]
    sizes: Set[int]
    trains: bool


class FunctionInputs:
    """What a ``tf.function`` showed while it was traced: whether it takes gradients, and the shapes of what its
    outermost layer calls were given."""

    def __init__(self) -> None:
        self.trains = False
        self.model_inputs: set[tuple[int, ...]] = set()


class BatchNotes:
    """Process-wide notes on the batch of the step in a profiler window. The training's thread calls `begin` and `end`,
    any thread the other methods; none raises.

    Attributes:
        active: Whether a window is open.
        failed: The batch of the last outermost call that failed; None without one.
        backward_passes: Number of backward passes that were traced so far.
    """

    def __init__(self) -> None:
        self.active = False
        self.failed: BatchFacts | None = None
        self.backward_passes = 0
        self._calls: list[GivenCall] = []
        self._stated: set[int | None] = set()  # by the data of the window's calls
        self._counts: dict[int, float] = {}
        self._models: list[Callable[[], Any]] = []  # weak references: the program may drop a model in the window
        self._traced: list[tuple[int, ...]] = []
        self._functions: weakref.WeakKeyDictionary[Any, FunctionInputs] = weakref.WeakKeyDictionary()
        self._iterator: Any = None

    def begin(self, models: Iterable[Any]) -> None:
        """Begin a window in which some of these models may run."""
        found = list(models)
        self._models = [weakref.ref(model) for model in found]
        self._calls, self._stated, self._counts = [], set(), _counts(found)
        self.active = True

    def end(self, named: int | None = None) -> BatchFacts:
        """End the window; return what is known of its batch. A batch size that the program names is believed."""
        self.active = False
        models = [model for model in (reference() for reference in self._models) if model is not None]
        self._models = []
        calls = [call for call in self._calls if call.trains] or self._calls
        components = next((call.components for call in calls if call.components), ())
        sizes = frozenset[int]().union(*(call.sizes for call in calls))
        size = named or _only(sizes)
        if size is None:
            size = _believed(sizes, _counted(models, self._counts, max(1, sum(not call.sizes for call in calls))))
        if size is None:
            size = _believed(sizes, _only(self._stated))
        return BatchFacts(size, components)

    # --- calls --------------------------------------------------------------------------------------------------------

    def iterated(self, iterator: Any) -> None:
        """Note the iterator that the program takes data from."""
        self._iterator = weakref.ref(iterator)

    def model_called(self, args: Any, kwargs: Any) -> None:
        """Note what a layer is given that no other layer calls, while a function is traced."""
        try:
            tensors = components_of(args[:1] or list(kwargs.values()))
            self._traced += [shape for shape, _ in tensors[:1]]
            del self._traced[: -10 * MAX_CALLS]
        except Exception:
            logger.debug("the input of a model could not be read", exc_info=True)

    def tracing(self) -> tuple[int, int]:
        """A mark before a function is called, for `function_called`."""
        return self.backward_passes, len(self._traced)

    def function_called(self, function: Any, before: tuple[int, int]) -> FunctionInputs | None:
        """What is known of a function that was called, None if nothing is."""
        try:
            known = self._functions.get(function)
            if (self.backward_passes, len(self._traced)) == before:
                return known
            if known is None:
                known = self._functions[function] = FunctionInputs()
            known.trains |= self.backward_passes != before[0]
            known.model_inputs.update(self._traced[before[1] :])
            return known
        except Exception:
            logger.debug("a function could not be noted", exc_info=True)
            return None

    def given(self, values: Any, function: Any = None, known: FunctionInputs | None = None) -> None:
        """Note what an outermost call was given.

        Args:
            values: Its arguments; of a layer, the first one is its input.
            function: The ``tf.function``, None if a layer was called.
            known: What is known of the function.
        """
        if not self.active or len(self._calls) >= MAX_CALLS:
            return
        try:
            call = self._call(values, function, known)
            self._calls.append(call)
            self._stated.add(self._of_data(call, values, function))
        except Exception:
            logger.debug("the batch of a call could not be read", exc_info=True)

    def call_failed(self, values: Any, function: Any = None, known: FunctionInputs | None = None) -> None:
        """Note what a call was given that raised an exception."""
        try:
            call = self._call(values, function, known)
            size = _only(call.sizes)
            if size is None:
                size = _believed(call.sizes, self._of_data(call, values, function))
            self.failed = BatchFacts(size, call.components)
        except Exception:
            logger.debug("the batch of a failed call could not be read", exc_info=True)

    def _call(self, values: Any, function: Any, known: FunctionInputs | None) -> GivenCall:
        if function is None:
            components = components_of(values)
            first = components_of(values[0][:1]) or components
            return GivenCall(components, first_dimensions(first), tape_records())
        components = components_of(values) or components_of(outer_values(function))
        inputs = known.model_inputs if known is not None else set()
        trains = (known is not None and known.trains) or tape_records()
        return GivenCall(components, candidates(components, inputs), trains)

    def _of_data(self, call: GivenCall, values: Any, function: Any) -> int | None:
        """The batch size of Keras's data, of a data set that a call is given, or of that which its tensors are from."""
        says, size = _of_trainer(threading.get_ident())
        if says:
            return size
        sources = [one for one in leaves([values, outer_values(function)]) if dataset_of(one) is not None]
        if not sources and call.sizes and self._iterator is not None:
            sources = [self._iterator()]
        return _only({batch_below(one) for one in map(dataset_of, sources) if one is not None})


batch_notes = BatchNotes()


def _only(sizes: Set[int | None] | Set[int]) -> int | None:
    return next(iter(sizes)) if len(sizes) == 1 else None


def _believed(sizes: Set[int], size: int | None) -> int | None:
    """A batch size that another source states, unless the calls' candidates are others."""
    return size if not sizes or size in sizes else None


def tape_records() -> bool:
    """Whether a gradient tape records what this thread runs now."""
    from tensorflow.python.eager import record

    return bool(record.could_possibly_record())


def running_batch(thread: int) -> BatchFacts:
    """The batch of the Keras method that trains on a thread, given its identifier, now; any thread may ask."""
    return BatchFacts(_of_trainer(thread)[1])


# --- Keras ------------------------------------------------------------------------------------------------------------


def _counts(models: Iterable[Any]) -> dict[int, float]:
    """How many examples Keras has counted for the mean of each model's loss."""
    found = {}
    for model in models:
        try:
            steps = [
                getattr(getattr(type(model), name, None), "__module__", "") for name in ("train_step", "test_step")
            ]
            if all(str(module).startswith("keras.") for module in steps):  # other steps may count batches
                found[id(model)] = float(model._loss_tracker.count.numpy())
        except Exception:
            continue
    return found


def _counted(models: list[Any], before: dict[int, float], calls: int) -> int | None:
    """Examples in the batch of each replica by the counts before and after; None if that is no whole number.

    Args:
        models: Models that may have run.
        before: Their counts before.
        calls: Number of batches that they may have been given.
    """
    for model in models:
        try:
            examples = _counts([model]).get(id(model), 0.0) - before.get(id(model), 0.0)
            parts = int(model.steps_per_execution) * int(model.distribute_strategy.num_replicas_in_sync) * calls
            if examples > 0 and examples % parts == 0:
                return int(examples) // parts
        except Exception:
            logger.debug("the examples of a step could not be counted", exc_info=True)
    return None


def _of_trainer(thread: int) -> tuple[bool, int | None]:
    """(whether a Keras method trains on a thread's stack and its data say something, the batch size of its step).

    The last batch of an epoch may be a smaller one, whose size only arrays tell.
    """
    for frame, variables in running_functions(thread):
        epoch = variables.get("epoch_iterator")
        adapter = getattr(epoch, "data_adapter", None)
        if adapter is None or not module_of(frame).startswith("keras."):
            continue
        end = variables.get("end_step")
        is_last = isinstance(end, int) and end + 1 == getattr(epoch, "num_batches", None)
        if is_last and getattr(adapter, "has_partial_batch", None) is not False:
            return True, _number(getattr(adapter, "partial_batch_size", None))
        size = _number(getattr(adapter, "batch_size", None))
        if size is None:  # those batches that Keras takes from a generator to see their shapes
            batches = list(getattr(adapter, "_first_batches", ()))
            size = _only(first_dimensions(components_of(batches[:1])))
        return size is not None, size
    return False, None


def _number(size: Any) -> int | None:
    return size if isinstance(size, int) and size > 0 else None
