"""`probe`: records a few training steps with small batches on a model that is restored afterwards."""

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from tb_memplugin.environment import absolute
from tb_memplugin.errors import RecordingError
from tb_memplugin.export import RecordedRun, Runs
from tb_memplugin.progress import Progress
from tb_memplugin.recorder.base import PrivateDirectory, remove_abandoned
from tb_memplugin.recorder.devices import Device, MemoryMaps, choose_devices
from tb_memplugin.recorder.failure import memory_request
from tb_memplugin.recorder.loop import MemoryCallback
from tb_memplugin.training.examples import Examples
from tb_memplugin.training.saved_state import SavedState, saved_variables


class SharedValues(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Refers to the values of all variables during the first step, which therefore needs room for a second copy.

    Later steps need no more than the first one, so they do not fail. From `batch`, metrics and the optimizer make their
    variables before the first step.
    """

    def __init__(self, batch: Any) -> None:
        super().__init__()
        self._batch = batch
        self._values: list[Any] = []

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        first, self._batch = self._batch, None
        self._values = []
        if first is not None and self.model.jit_compile:
            self.model._symbolic_build(data_batch=first)  # Keras does so itself under other backends than TensorFlow's
            self._values = [variable.read_value() for variable in saved_variables(self.model)]

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._values = []


TRACED_STEPS = 3  # traced steps of each batch size, after one that compiles: ops run in another order in each


class OutOfMemoryError(Exception): ...


def probe(
    model: Any, data: Any, batch_sizes: Sequence[int] = (4, 8), log_dir: str | os.PathLike[str] | None = None
) -> RecordedRun:
    """Record a few training steps with small batches, to predict what others need.

    ```python
    run = tb_memplugin.probe(model, dataset)
    print(tb_memplugin.what_if(run, batch_size=256))
    ```

    Each batch size takes four steps of `model.fit`: one that compiles and three traced ones. The model, its optimizer
    and metrics, and the random generators of Python, NumPy, TensorFlow and Keras are restored bit for bit: a following
    training has the same losses as without the probe.

    Args:
        model: Compiled Keras model with weights.
        data: A `tf.data.Dataset` of batches, a tuple (x, y) or (x, y, sample_weight) of arrays or tensors, or a batch
            of inputs. Examples repeat if there are too few.
        batch_sizes: Distinct batch sizes. Two are enough for compiled steps; one is enough for others.
        log_dir: Directory that keeps the run; by default a temporary one, which is removed.

    Returns:
        The recorded run, for `tb_memplugin.what_if`.

    Raises:
        RecordingError: An argument is invalid, the model is not compiled or has no weights, the allocator cannot be
            read, nothing could be recorded, or memory ran out. Everything is restored then as well.
    """
    sizes = checked_sizes(batch_sizes)
    directory = None if log_dir is None else absolute(os.fspath(log_dir))
    (device, *_) = checked_devices(model)
    examples = Examples(data, max(sizes))
    with restored(model), Progress("probe", len(sizes)) as progress:
        return record(model, examples, sizes, device, directory, progress)


def checked_sizes(batch_sizes: Any) -> tuple[int, ...]:
    """The batch sizes, in ascending order."""
    try:
        given = list(batch_sizes)
    except TypeError:
        given = []
    valid = all(hasattr(one, "__index__") and not isinstance(one, bool) and int(one) > 0 for one in given)
    if not given or not valid or len({int(one) for one in given}) < len(given):
        raise RecordingError(
            f"batch_sizes must be distinct positive integers, such as (4, 8). Received: {batch_sizes!r:.80}"
        )
    return tuple(sorted(int(one) for one in given))


def checked_devices(model: Any) -> list[Device]:
    """The devices to record, if the model can be probed on them."""
    if not isinstance(model, keras.Model):
        raise RecordingError(f"model must be a Keras model. Received: {type(model).__name__}")
    if not model.compiled or model.optimizer is None:
        raise RecordingError(f"model {model.name!r} is not compiled. Call model.compile with an optimizer first.")
    if not model.built:
        raise RecordingError(f"model {model.name!r} has no weights yet. Call it once, or model.build, first.")
    devices, sentences = choose_devices(None)
    if devices:
        maps = MemoryMaps([device.name for device in devices], sentences.append)
        readable = [device for device in devices if maps.available(device.name)]
        if readable:
            return readable
    raise RecordingError(" ".join(["The probe needs an allocator that can be read.", *sentences]))


@contextmanager
def restored(model: Any) -> Iterator[None]:
    """Restore the model and the random generators at the end of the block."""
    state = SavedState(model)
    try:
        state.forget_step_functions()
        yield
    finally:
        state.restore()
        gc.collect()  # functions that the steps were traced to refer to each other in cycles


@contextmanager
def _directory(directory: str | None) -> Iterator[str]:
    """The directory of a run: the given one, or a temporary one."""
    if directory is not None:
        yield directory
        return
    remove_abandoned()
    private = PrivateDirectory("probe")
    try:
        yield private.path
    finally:
        private.remove()


def record(
    model: Any, examples: Examples, sizes: Sequence[int], device: Device, directory: str | None, progress: Progress
) -> RecordedRun:
    """Record steps of each batch size. Changes the model."""
    each = 1 + TRACED_STEPS
    start = int(model.optimizer.iterations)
    traced = [start + number * each + step for number in range(len(sizes)) for step in range(1, each)]
    with _directory(directory) as run_directory:
        callback = MemoryCallback(run_directory, trace_steps=traced, devices=[device.name])
        try:
            for size in sizes:
                progress.part(f"steps with batch size {size:,}")
                train(model, examples, size, each, callback)
        except OutOfMemoryError as error:
            raise RecordingError(
                f"Memory ran out in the probe's steps with batch size {size}. Pass smaller batch_sizes than "
                f"{tuple(sizes)}, or free memory first. The model is as before."
            ) from error
        finally:
            callback.close()
        run = Runs(run_directory)["."]
        if all(one.first for one in run.requests):
            raise RecordingError(" ".join(["The probe's steps could not be recorded.", *run.notes]))
        return run


def train(model: Any, examples: Examples, size: int, steps: int, callback: Any) -> None:
    """Train steps with batches of a size. Changes the model. Raises `OutOfMemoryError`."""
    batches, executions = examples.batches(size), steps * model.steps_per_execution
    callbacks = [callback, SharedValues(examples.batch(1))]
    try:
        model.fit(batches, steps_per_epoch=executions, epochs=1, verbose=0, shuffle=False, callbacks=callbacks)
    except tf.errors.OpError as error:
        if memory_request(error) is None:
            raise
        message = str(error)
    else:
        return
    # Raised here, without the first exception: its frames hold the step's tensors.
    callbacks.clear()
    gc.collect()
    raise OutOfMemoryError(message)


SIZES = (4, 8)  # recorded batch sizes, those that are not larger than the training's
DEFAULT_SIZE = 32  # what `fit` takes for arrays
_MOST = 1 << 20


def recorded_steps(model: Any, data: Any, batch_size: int | None) -> tuple[RecordedRun, int]:
    """A probing run of a model, and the batch size of its training: by default the dataset's, or Keras's."""
    if batch_size is not None:
        (size,) = checked_sizes([batch_size])
    elif isinstance(data, tf.data.Dataset):
        size = len(tf.nest.flatten(Examples(data.take(1), _MOST).batch(_MOST))[0])
    else:
        size = DEFAULT_SIZE
    return probe(model, data, [one for one in SIZES if one <= size] or [size]), size
