"""`probe` and `largest_batch_size` where Keras runs on JAX: XLA plans a model's training step for
batch sizes, and no step runs."""

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import jax
import keras
from keras.src.backend.jax.trainer import JAXEpochIterator

from tb_memplugin.environment import absolute
from tb_memplugin.errors import RecordingError
from tb_memplugin.export import RecordedRun, Runs
from tb_memplugin.fit import Asked, Segments, checked_conditions
from tb_memplugin.progress import Progress
from tb_memplugin.recorder.base import PrivateDirectory, checked_settings, remove_abandoned
from tb_memplugin.recorder.devices import Device
from tb_memplugin.recorder.loop import Compiled, JaxSession, device_name, serialized
from tb_memplugin.training.asked_steps import (
    DEFAULT_SIZE,
    AskedSteps,
    changed_model,
    check_model,
    checked_sizes,
    sizes_below,
)
from tb_memplugin.training.attributes import same_attributes
from tb_memplugin.training.largest import BatchSizeAnswer, largest_of

_STATE = "trainable_variables", "non_trainable_variables", "optimizer", "metrics_variables"
_NOT_TRAINED = "XLA planned the step, and none was trained"


class PlannedSteps(AskedSteps):
    """For a model whose training step JAX compiles; the example is a batch of any size, as Keras
    passes it to the step."""

    def module(self, model: Any, batch_size: int) -> Compiled:
        """The compiled step. Makes the optimizer's slots and metrics."""

        def asked_step(state: Any, data: Any) -> Any:
            return model.train_step(state, data)

        def shaped(leaf: Any, *first: int) -> Any:
            shape = (*first, *leaf.shape[len(first) :])
            return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(leaf.dtype))

        batch = jax.tree.map(lambda leaf: shaped(leaf, batch_size), self._example)
        model._symbolic_build(data_batch=batch)
        state = []
        for name in _STATE:
            known = getattr(model, name)
            state.append([shaped(one) for one in getattr(known, "variables", known)])
        # as Keras compiles it, but for the name: recorders look for Keras's
        lowered = jax.jit(asked_step, donate_argnums=0).lower(tuple(state), batch)
        return serialized(lowered.compile().runtime_executable())

    def _plan(self, model: Any, batch_size: int, segments: Segments, accumulates: bool) -> int:
        if segments:
            raise NotImplementedError("remat takes TensorFlow")
        with same_attributes(model):
            changed = changed_model(model, (), True, 1 + accumulates)
            return self.module(changed, batch_size).totals.temporary_bytes

    def know(self, batch_size: int, temporary_bytes: int) -> None:
        said = f"XLA planned the step for batch size {batch_size:,}, without running it."
        self._answers[batch_size, (), False] = Asked(temporary_bytes, said)


def probe(
    model: Any,
    data: Any,
    batch_sizes: Sequence[int] = (4, 8),
    log_dir: str | os.PathLike[str] | None = None,
) -> RecordedRun:
    """As with TensorFlow, but XLA plans a step for each batch size instead of a training; `data`
    may be whatever `fit` takes, but an iterator."""
    sizes = checked_sizes(batch_sizes)
    _check(model)
    batch = _first_batch(data)
    directory = None if log_dir is None else absolute(os.fspath(log_dir))
    with contextlib.ExitStack() as stack:
        if directory is None:
            remove_abandoned()
            private = PrivateDirectory("probe")
            stack.callback(private.remove)
            directory = private.path
        ask = PlannedSteps(model, batch, device_name(jax.local_devices()[0]))
        session = JaxSession(checked_settings(directory, 0.0, None, None, False, None))
        stack.callback(session.close)
        progress = stack.enter_context(Progress("probe", len(sizes)))
        session.watch(model)
        session.start()
        stack.enter_context(same_attributes(model))
        for step, size in enumerate(sizes):
            progress.part(f"asking XLA at batch size {size:,}")
            try:
                module = ask.module(model, size)
            except Exception as error:  # whatever a user's step, or the compiler, raises
                text = f"{type(error).__name__}: {' '.join(str(error).split()):.200}"
                why = f"XLA could not compile the step with batch size {size:,}: {text}"
                raise RecordingError(why) from error
            session.check_layers()
            session.add_plans(step, [("train", module)])
            ask.know(size, module.totals.temporary_bytes)
        session.close()
        run = Runs(directory)["."]
        if not run.requests:
            raise RecordingError(" ".join(["The planned steps could not be read.", *run.notes]))
        return dataclasses.replace(run, ask=ask)


def _check(model: Any) -> None:
    check_model(model)
    if model.run_eagerly or not model.jit_compile:
        raise RecordingError(
            f"XLA does not compile model {model.name!r}. Call model.compile with jit_compile=True."
        )
    if keras.distribution.distribution() is not None:
        raise RecordingError("A model on several devices cannot be asked about so far.")


def _first_batch(data: Any) -> Any:
    """The first batch as Keras passes it to a step."""
    if data is None or isinstance(data, (str, bytes)) or hasattr(data, "__next__"):
        raise RecordingError(
            "data must be arrays, a tuple (x, y) or (x, y, sample_weight) of them, or a data set "
            f"that can be read again. Received: {type(data).__name__}"
        )
    if isinstance(data, tuple) and not 1 <= len(data) <= 3:
        raise RecordingError(f"data must be a tuple of 1 to 3. Received: {len(data)}")
    x, y, weight = (*data, None, None)[:3] if isinstance(data, tuple) else (data, None, None)
    try:
        iterator = JAXEpochIterator(x=x, y=y, sample_weight=weight, shuffle=False)
        return next(iter(iterator.data_adapter.get_jax_iterator()))
    except StopIteration:
        raise RecordingError("data is empty. Pass at least one batch.") from None
    except (TypeError, ValueError) as error:
        raise RecordingError(f"Keras cannot read data: {error!s:.200}") from error


def recorded_steps(model: Any, data: Any, batch_size: int | None) -> tuple[RecordedRun, int]:
    """A run of planned steps, and the batch size of the training: by default the data set's, or
    Keras's."""
    if batch_size is not None:
        (size,) = checked_sizes([batch_size])
    else:
        size = max(len(leaf) for leaf in jax.tree.leaves(_first_batch(data)))
        size = (
            DEFAULT_SIZE
            if isinstance(data, (tuple, list, dict)) or hasattr(data, "shape")
            else size
        )
    return probe(model, data, [*sizes_below(size - 1), size] if size > 1 else [1]), size


def largest_batch_size(
    model: Any, data: Any, capacity: int | str | None = None, batch_sizes: Sequence[int] = (4, 8)
) -> BatchSizeAnswer:
    """As with TensorFlow, from XLA's plans: no step runs, so nothing is verified. `capacity` is by
    default the device's ``bytes_limit``, which a CPU lacks."""
    limit = checked_conditions(capacity=capacity).capacity_bytes
    (device, *_) = jax.local_devices()
    name, own = device_name(device), (device.memory_stats() or {}).get("bytes_limit")
    limit = limit or own
    if limit is None:
        raise RecordingError(f"The capacity of {name} is unknown. Pass capacity, such as '24GiB'.")
    run = probe(model, data, batch_sizes)
    return largest_of(run, Device(name, own, None), limit, None, why=_NOT_TRAINED)
