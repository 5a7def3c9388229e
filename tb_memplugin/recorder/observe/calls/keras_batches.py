"""The batch size of a step as Keras counts it, and as the data of its running method say it."""

import logging
from collections.abc import Iterable
from typing import Any

from tb_memplugin.recorder.observe.calls.given_tensors import components_of, first_dimensions
from tb_memplugin.recorder.observe.graph.frames import module_of, running_functions

logger = logging.getLogger("tb_memplugin")

_STEP_METHODS = ("train_step", "test_step")


def counts(models: Iterable[Any]) -> dict[int, float]:
    """How many examples Keras has counted for the mean of each model's loss."""
    found = {}
    for model in models:
        try:
            if all(_is_own(model, name) for name in _STEP_METHODS):  # other steps may count batches
                found[id(model)] = float(model._loss_tracker.count.numpy())
        except Exception:
            continue
    return found


def _is_own(model: Any, name: str) -> bool:
    return str(getattr(getattr(type(model), name, None), "__module__", "")).startswith("keras.")


def counted(models: list[Any], before: dict[int, float], calls: int) -> int | None:
    """Examples in the batch of each replica by the counts before and after; None if that is no whole number.

    Args:
        models: Models that may have run.
        before: Their counts before.
        calls: Number of batches that they may have been given.
    """
    for model in models:
        try:
            examples = counts([model]).get(id(model), 0.0) - before.get(id(model), 0.0)
            parts = int(model.steps_per_execution) * int(model.distribute_strategy.num_replicas_in_sync) * calls
            if examples > 0 and examples % parts == 0:
                return int(examples) // parts
        except Exception:
            logger.debug("the examples of a step could not be counted", exc_info=True)
    return None


def of_trainer(thread: int) -> tuple[bool, int | None]:
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
        size = _number(getattr(adapter, "batch_size", None)) or _of_first(getattr(adapter, "_first_batches", ()))
        return size is not None, size
    return False, None


def _of_first(batches: Any) -> int | None:
    """The batch size of the batches that Keras takes from a generator to see their shapes."""
    sizes = first_dimensions(components_of(list(batches)[:1]))
    return next(iter(sizes)) if len(sizes) == 1 else None


def _number(size: Any) -> int | None:
    return size if isinstance(size, int) and size > 0 else None
