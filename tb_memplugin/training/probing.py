"""`probe` records a few training steps with small batches on a model that is restored afterwards;
`largest_batch_size` predicts from them and trains with the largest batch to verify that."""

import contextlib
import copy
import dataclasses
import functools
import gc
import math
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tb_memplugin.environment import absolute
from tb_memplugin.errors import RecordingError
from tb_memplugin.export import RecordedRun, Runs
from tb_memplugin.fit import (
    Asked,
    checked_conditions,
    device_of,
    temporary_bytes,
)
from tb_memplugin.importers import read_dump
from tb_memplugin.progress import Progress
from tb_memplugin.recorder.base import PrivateDirectory, remove_abandoned
from tb_memplugin.recorder.devices import Device, MemoryMaps, choose_devices
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.recorder.failure import memory_request
from tb_memplugin.recorder.loop import MemoryCallback
from tb_memplugin.recorder.watch import variable_address
from tb_memplugin.schema import FREE, format_bytes
from tb_memplugin.training.asked_steps import (
    DEFAULT_SIZE,
    check_model,
    checked_sizes,
    sizes_below,
)
from tb_memplugin.training.compiled_steps import CompiledSteps
from tb_memplugin.training.largest import BatchSizeAnswer, Trial, largest_of
from tb_memplugin.training.saved_state import restored, saved_variables

_MOST = sys.maxsize  # examples
_KINDS = (
    "data must be a tf.data.Dataset of batches, a tuple (x, y) or (x, y, sample_weight) of "
    "arrays, or a batch of inputs"
)


class Examples:
    """The user's data, in host memory outside of TensorFlow's allocators: whole arrays, as `fit`
    puts all of them into the device's memory, and at most `count` examples of a dataset. Reads no
    more batches of it than these need, and does not change what later iterations yield.
    `RecordingError` if it is empty or of another kind."""

    def __init__(self, data: Any, count: int) -> None:
        if isinstance(data, tf.data.Dataset):
            try:
                with tf.device("/CPU:0"):
                    batches: Iterator[Any] = iter(copied(data))
            except (tf.errors.OpError, ValueError, RuntimeError) as error:
                why = (
                    "data cannot be copied, and iterating over it would change what it yields "
                    f"later ({error!s:.200})"
                )
                raise RecordingError(f"{why}. Pass a batch of arrays instead.") from error
        else:
            batches, count = iter([_single(data)]), _MOST
        parts: list[list[Any]] = []
        taken = 0
        for batch in batches:
            leaves = [_as_array(leaf) for leaf in tf.nest.flatten(batch)]
            size = _size(leaves)
            self._structure = tf.nest.map_structure(lambda _: None, batch)
            if size:
                parts.append([leaf[: count - taken] for leaf in leaves])
                taken += min(size, count - taken)
            if taken >= count:
                break
        if not parts:
            raise RecordingError("data is empty. Pass at least one batch with one example.")
        self._leaves = (
            parts[0]
            if len(parts) == 1
            else [np.concatenate(each) for each in zip(*parts, strict=True)]
        )

    def batch(self, size: int) -> Any:
        return tf.nest.pack_sequence_as(
            self._structure, [leaf[:size].copy() for leaf in self._leaves]
        )

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each array, the examples first."""
        return [leaf.shape for leaf in self._leaves]

    def resized(self, axes: Collection[tuple[int, int]], factor: float) -> "Examples | None":
        """The same with other lengths along axes, given as pairs of array and axis: values repeat
        or are left out. None if a length is no whole number then."""
        other, leaves = copy.copy(self), list(self._leaves)
        for number, axis in axes:
            length = leaves[number].shape[axis]
            wanted = max(1, round(length * factor))
            if round(length * factor, 6) % 1:
                return None
            leaves[number] = np.take(leaves[number], np.arange(wanted) % length, axis)
        other._leaves = leaves
        return other

    def batches(self, size: int) -> Any:
        """An endless dataset of batches of a size; examples repeat if there are too few. One op
        makes a batch. To join single examples, tf.data allocates each of them, which hides what a
        batch needs. As in a training, the next batch is made during a step, and no other: a
        parallel map would make one more."""
        options = tf.data.Options()
        options.experimental_optimization.map_parallelization = False
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        count = _size(self._leaves)
        leaves = self._leaves
        if count == size:  # as many as the batch would be taken for one
            leaves = [np.concatenate([leaf, leaf[:1]]) for leaf in leaves]
        examples = tf.nest.pack_sequence_as(self._structure, leaves)

        def taken(all_examples: Any) -> Any:
            # The default leaves the batch dimension open, as it is in a dataset's own batches.
            rows = tf.range(tf.compat.v1.placeholder_with_default(size, [])) % count
            return tf.nest.map_structure(lambda leaf: tf.gather(leaf, rows), all_examples)

        return (
            tf.data.Dataset.from_tensors((examples,))
            .repeat()
            .map(taken)
            .prefetch(1)
            .with_options(options)
        )


def _single(data: Any) -> Any:
    if (
        data is None
        or isinstance(data, (str, bytes))
        or callable(data)
        or hasattr(data, "__next__")
    ):
        raise RecordingError(f"{_KINDS}. Received: {type(data).__name__}")
    if isinstance(data, tuple):
        if not 1 <= len(data) <= 3:
            raise RecordingError(f"{_KINDS}. Received: a tuple of {len(data)}")
        while len(data) > 1 and data[-1] is None:
            data = data[:-1]
        return data
    return (data,)


def _as_array(leaf: Any) -> Any:
    """A dense tensor in host memory, of shape [examples, ...]; a copy, but of an array itself."""
    try:
        array = (
            leaf
            if type(leaf) is np.ndarray
            else np.array(leaf.numpy() if tf.is_tensor(leaf) else leaf)
        )
    except (AttributeError, TypeError, ValueError):  # sparse, ragged, or no tensor at all
        array = np.array(None)
    if array.ndim == 0 or (
        array.dtype == object and not all(isinstance(one, (bytes, str)) for one in array.flat)
    ):
        raise RecordingError(
            f"{_KINDS}, each with the examples as its first dimension. Received: {leaf!r:.120}"
        )
    return array


def _size(leaves: list[Any]) -> int:
    sizes = {len(leaf) for leaf in leaves}
    if not sizes:
        raise RecordingError(f"{_KINDS}. Received: no array")
    if len(sizes) > 1:
        raise RecordingError(
            f"all arrays of data must have the same number of examples. Received: {sorted(sizes)}"
        )
    return sizes.pop()


_OWN_RESOURCES = {
    "ShuffleDatasetV3": "DummySeedGenerator",
    "ShuffleAndRepeatDatasetV2": "DummySeedGenerator",
    "RandomDatasetV2": "DummySeedGenerator",
    "CacheDatasetV2": "DummyMemoryCache",
}
"""Op of a dataset to the op that stands for a resource of its own in place of a shared one."""
_IGNORE_STATE = 1
"""TensorFlow's `ExternalStatePolicy.POLICY_IGNORE`: lookup tables and Python functions are shared
with the original."""


def copied(dataset: Any) -> Any:
    """A copy of a dataset; TensorFlow raises if it cannot be copied, for example because it holds
    more than 2 GiB."""
    with tf.device("/CPU:0"):
        serialized = tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(dataset),
            external_state_policy=_IGNORE_STATE,
        )
        graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            constants = {node.name: node for node in nodes if node.op == "Const"}
            for node in [node for node in nodes if node.op in _OWN_RESOURCES]:
                sources = [constants.get(name.partition(":")[0]) for name in node.input]
                for source in filter(None, sources):
                    if source.attr["dtype"].type == tf.resource.as_datatype_enum:
                        source.op = _OWN_RESOURCES[node.op]
                        source.attr.clear()
                        source.ClearField("input")
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
        return tf.data.experimental.from_variant(variant, dataset.element_spec)


class SharedValues(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Refers to the values of all variables during the first step, which therefore needs room for a
    second copy: later steps need no more, so they do not fail. From `batch`, metrics and the
    optimizer make their variables before it."""

    def __init__(self, batch: Any) -> None:
        super().__init__()
        self._batch = batch
        self._values: list[Any] = []

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        first, self._batch = self._batch, None
        if first is not None and self.model.jit_compile:
            # Keras does so itself under other backends than TensorFlow's
            self.model._symbolic_build(data_batch=first)
            self._values = [variable.read_value() for variable in saved_variables(self.model)]

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._values = []  # before the next traced step begins


# share by which the compiler may plan another step's temporaries than were recorded
MOST_DIFFERENT = 0.02
MOST_COPIES = 4  # of the weights that a step makes: two slots, gradients and their sums
# traced steps of each batch size, after one that compiles: ops run in another order in each
TRACED_STEPS = 3


class OutOfMemoryError(Exception): ...


def probe(
    model: Any,
    data: Any,
    batch_sizes: Sequence[int] = (4, 8),
    log_dir: str | os.PathLike[str] | None = None,
) -> RecordedRun:
    """Record a few training steps with small batches, to predict what others need.

    ```python
    run = tb_memplugin.probe(model, dataset)
    print(tb_memplugin.what_if(run, batch_size=256))
    ```

    Each batch size takes four steps of `model.fit`: one that compiles and three traced ones. The
    model, its optimizer and metrics, and the random generators of Python, NumPy, TensorFlow and
    Keras are restored bit for bit: a following training has the same losses as without the probe.

    Args:
        model: Compiled Keras model with weights.
        data: A `tf.data.Dataset` of batches, a tuple (x, y) or (x, y, sample_weight) of arrays or
            tensors, or a batch of inputs. Arrays are in the device's memory as a whole, as in
            `fit`. Too few examples repeat.
        batch_sizes: Distinct batch sizes, for each replica of a distribution strategy. One is
            enough; two make predictions of compiled steps more certain.
        log_dir: Directory that keeps the run; by default a temporary one, which is removed.

    Returns:
        The recorded run, for `tb_memplugin.what_if`. If XLA compiles the model, that asks XLA's
        compiler about each batch size, as long as the model exists and is not changed.

    Raises:
        RecordingError: An argument is invalid, the model is not compiled or has no weights, the
            allocator cannot be read, nothing could be recorded, or memory ran out. Everything is
            restored then as well."""
    sizes = [size * replicas_of(model) for size in checked_sizes(batch_sizes)]
    directory = None if log_dir is None else absolute(os.fspath(log_dir))
    devices = checked_devices(model)
    examples = Examples(data, max(sizes))
    with restored(model), Progress("probe", len(sizes)) as progress:
        return record(model, examples, sizes, devices, directory, progress)


def replicas_of(model: Any) -> int:
    """How many replicas of a model train together."""
    return int(getattr(getattr(model, "distribute_strategy", None), "num_replicas_in_sync", 1))


def checked_devices(model: Any, trains: bool = True) -> list[Device]:
    """The devices to record, if the model can be probed on them; with `trains` false, if XLA can be
    asked about it."""
    check_model(model)
    devices, sentences = choose_devices(None)
    if devices:
        maps = MemoryMaps([device.name for device in devices], sentences.append)
        readable = [device for device in devices if maps.available(device.name)]
        _refuse_freed(model, (maps.read(device.name) for device in readable if trains))
        if readable:
            return readable
    raise RecordingError(" ".join(["The probe needs an allocator that can be read.", *sentences]))


def _refuse_freed(model: Any, dumps: Iterable[bytes | None]) -> None:
    """`RecordingError` for variables in free memory: a compiled step that failed has freed what it
    was to replace."""
    addresses = np.array(
        [one for one in map(variable_address, saved_variables(model)) if one], np.int64
    )
    for chunks in (read_dump(one, 0.0) for one in dumps if one):
        place = np.searchsorted(chunks.address, addresses, side="right") - 1
        offset = addresses - chunks.address[place]
        if np.any((offset >= 0) & (offset < chunks.bytes[place]) & (chunks.state[place] == FREE)):
            lost = (
                f"Model {model.name!r} is lost: a compiled step of it ran out of memory and freed "
                "variables"
            )
            raise RecordingError(
                f"{lost}. Start the program again, with a smaller batch size and saved weights."
            )


def record(
    model: Any,
    examples: Examples,
    sizes: Sequence[int],
    devices: Sequence[Device],
    directory: str | None,
    progress: Progress,
) -> RecordedRun:
    """Record steps of each batch size into a directory, by default a temporary one. Changes the
    model."""
    each = 1 + TRACED_STEPS
    start, device = int(model.optimizer.iterations.numpy()), devices[0]
    traced = [
        start + number * each + step for number in range(len(sizes)) for step in range(1, each)
    ]
    with contextlib.ExitStack() as stack:
        if directory is None:
            remove_abandoned()
            private = PrivateDirectory("probe")
            stack.callback(private.remove)
            directory = private.path
        ask, planned, guarded = None, Asked(None, ""), True
        if model.jit_compile:
            ask = CompiledSteps(model, examples.batch(1), device.name)
            # Variables that move make room that the training does not have.
            planned = ask(max(sizes))
            guarded = not is_roomy(model, device, planned.temporary_bytes)
        names = [one.name for one in devices[: replicas_of(model)]]
        callback = MemoryCallback(directory, trace_steps=traced, devices=names)
        try:
            for size in sizes:
                progress.part(f"steps with batch size {size:,}")
                train(model, examples, size, each, callback, guarded)
        except OutOfMemoryError as error:
            advice = (
                f"Pass smaller batch_sizes than {tuple(sizes)}, or free memory first. The model "
                "is as before."
            )
            raise RecordingError(
                f"Memory ran out in the probe's steps with batch size {size}. {advice}"
            ) from error
        finally:
            callback.close()
        run = Runs(directory)["."]
        if all(one.first for one in run.requests):
            raise RecordingError(" ".join(["The probe's steps could not be recorded.", *run.notes]))
        if ask is not None:
            recorded = [
                temporary_bytes(one) for one in run.requests if one.batch_size == max(sizes)
            ]
            ask.refusal = refusal(planned, max(recorded, default=0), max(sizes))
        return dataclasses.replace(run, ask=ask)


def refusal(planned: Asked, recorded_bytes: int, size: int) -> str | None:
    """Why the compiler's answers are not those of the real step, as a sentence; None if they
    are."""
    if planned.temporary_bytes is None:
        return planned.sentence
    if abs(planned.temporary_bytes - recorded_bytes) <= MOST_DIFFERENT * recorded_bytes:
        return None
    both = (
        f"{format_bytes(planned.temporary_bytes)} at batch size {size:,}, of "
        f"{format_bytes(recorded_bytes)} recorded"
    )
    return f"XLA is not asked: it plans {both}, so the trained step is another one."


def is_roomy(model: Any, device: Device, temporary_bytes: int | None) -> bool:
    """Whether a device has twice the room that a step with so many temporaries can need beside the
    model's weights."""
    if temporary_bytes is None or device.capacity_bytes is None:
        return False
    weights = sum(
        variable.value.dtype.size * math.prod(variable.shape) for variable in model.variables
    )
    free = device.capacity_bytes - allocator.memory_info(device.name)[0]
    return bool(2 * (temporary_bytes + MOST_COPIES * weights) <= free)


def train(
    model: Any, examples: Examples, size: int, steps: int, callback: Any, guarded: bool = True
) -> None:
    """Train steps with batches of a size; `guarded` keeps variables whole if memory runs out.
    Raises `OutOfMemoryError`."""
    batches, executions = examples.batches(size), steps * model.steps_per_execution
    callbacks = [callback, SharedValues(examples.batch(1))] if guarded else [callback]
    try:
        model.fit(
            batches,
            steps_per_epoch=executions,
            epochs=1,
            verbose=0,
            shuffle=False,
            callbacks=callbacks,
        )
        return
    except tf.errors.OpError as error:
        if memory_request(error) is None:
            raise
        message = str(error)
    # Raised here, without the first exception: its frames hold the step's tensors.
    callbacks.clear()
    gc.collect()
    raise OutOfMemoryError(message)


def recorded_steps(model: Any, data: Any, batch_size: int | None) -> tuple[RecordedRun, int]:
    """A probing run of a model, and the batch size of its training: by default the dataset's, or
    Keras's."""
    if batch_size is not None:
        (size,) = checked_sizes([batch_size])
    elif isinstance(data, tf.data.Dataset):
        size = len(tf.nest.flatten(Examples(data.take(1), _MOST).batch(_MOST))[0])
    else:
        size = DEFAULT_SIZE
    each = max(1, size // replicas_of(model))
    sizes = sizes_below(each)
    with contextlib.suppress(RecordingError):  # if memory runs out
        return probe(model, data, sizes), size
    return probe(model, data, [max(1, sizes[0] // 8)]), size


VERIFIED_STEPS = 2  # the first one makes the optimizer's slots, the second one is a typical one


def largest_batch_size(
    model: Any, data: Any, capacity: int | str | None = None, batch_sizes: Sequence[int] = (4, 8)
) -> BatchSizeAnswer:
    """Predict the largest batch size that fits, and train two steps with it to verify that.

    ```python
    print(tb_memplugin.largest_batch_size(model, dataset))
    ```

    Everything is restored as `probe` does. If memory runs out in the verification, or the measured
    peak exceeds the capacity, the next lower prediction is tried, three at most.

    Args:
        model, data, batch_sizes: As for `probe`.
        capacity: The allocator's limit, in bytes or as a text such as ``"24GiB"``; by default the
            device's own. With a smaller one the steps run on this device, and their peak is
            compared with it. A batch that this device may not hold is not verified for a larger
            one.

    Returns:
        The answer.

    Raises:
        RecordingError: As `probe` does.
        RequestError: The capacity is malformed."""
    wanted = checked_conditions(capacity=capacity).capacity_bytes
    sizes = [size * replicas_of(model) for size in checked_sizes(batch_sizes)]
    (device, *_) = devices = checked_devices(model)
    examples = Examples(data, max(sizes))
    limit = wanted or device.capacity_bytes
    if limit is None:
        raise RecordingError(
            f"The capacity of {device.name} is unknown. Pass capacity, for example '24GiB'."
        )
    with Progress("largest_batch_size") as progress, restored(model):
        run = record(model, examples, sizes, devices, None, progress)
    fullest = device_of(run, None)
    device = next(one for one in devices if one.name == fullest)
    trial = Trial(functools.partial(peak_of, model, examples, device.name), replicas_of(model))
    return largest_of(run, device, limit, trial)


def peak_of(model: Any, examples: Examples, device: str, size: int) -> int | None:
    """The peak of the last of some steps with a batch size; None if memory ran out."""
    peaks: list[int] = []
    measuring = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: allocator.reset_peak(device),
        on_train_end=lambda logs: peaks.append(allocator.memory_info(device)[1]),
    )
    with (
        contextlib.suppress(OutOfMemoryError),
        Progress("verification") as progress,
        restored(model),
    ):
        progress.part(f"steps with batch size {size:,}")
        train(model, examples, size, VERIFIED_STEPS, measuring)
    return peaks[-1] if peaks else None
