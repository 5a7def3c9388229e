"""Trains a few steps with a change that a plan proposes, measures their peak and time, and restores
the model."""

import contextlib
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from tb_memplugin.fit import Interval, Measured, PlanOption
from tb_memplugin.progress import Progress
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.training.asked_steps import changed_model
from tb_memplugin.training.probing import Examples, OutOfMemoryError, checked_devices, train
from tb_memplugin.training.saved_state import restored

UPDATES = 5  # measured ones, after one that compiles and makes the optimizer's slots
MOST_SECONDS = 120.0  # of all measurements of a plan together, as far as that is known before each
_OFF = "disable_meta_optimizer"


class MeasuredSteps:
    """Measures options of a plan for a model and its data, as `tb_memplugin.plan` takes them."""

    def __init__(self, model: Any, data: Any) -> None:
        self._model, self._examples = model, Examples(data, 1)
        self._device = checked_devices(model)[0].name
        self._spent = self._longest = 0.0

    def __call__(self, option: PlanOption) -> Measured:
        if self._spent + self._longest > MOST_SECONDS:
            return Measured(None, None, f"trainings of more than {MOST_SECONDS:.0f} s")
        start, parts = time.perf_counter(), option.accumulation
        watch = _Watch(self._device, parts)
        is_compiled = bool(self._model.jit_compile) is not (option.kind == "xla")
        try:
            with Progress("tb_memplugin.plan", delay=0.0) as progress, restored(self._model):
                progress.part(f"steps with {option.sentence}")
                model = changed_model(self._model, option.segments, is_compiled, parts)
                if bool(model.jit_compile) is not is_compiled:
                    return Measured(None, None, "XLA does not support the model")
                with (
                    graph_optimizer_off()
                    if option.kind == "graph_optimizer"
                    else contextlib.nullcontext()
                ):
                    train(
                        model, self._examples, option.batch_size or 1, (1 + UPDATES) * parts, watch
                    )
            peak = Interval(min(watch.peaks), statistics.median_low(watch.peaks), max(watch.peaks))
            return Measured(peak, statistics.median(watch.seconds))
        except Exception as error:  # whatever a user's step, or the compiler, raises
            if isinstance(error, OutOfMemoryError):
                return Measured(None, None, "memory ran out", ran_out=True)
            return Measured(
                None, None, f"{type(error).__name__}: {' '.join(str(error).split()):.200}"
            )
        finally:
            seconds = time.perf_counter() - start
            self._spent, self._longest = self._spent + seconds, max(self._longest, seconds)


class _Watch(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """The peak of each update but the first, and its time."""

    def __init__(self, device: str, batches: int) -> None:
        super().__init__()
        self._device, self._batches, self._step, self._begin = device, batches, 0, 0.0
        self.seconds, self.peaks = list[float](), list[int]()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._step += 1
        if self._step % self._batches == 0:
            self.model.optimizer.iterations.numpy()  # waits for the device
            now = time.perf_counter()
            if self._step > self._batches:
                self.seconds.append(now - self._begin)
                self.peaks.append(allocator.memory_info(self._device)[1])
            self._begin = now
            allocator.reset_peak(self._device)


@contextlib.contextmanager
def graph_optimizer_off() -> Iterator[None]:
    """Switch TensorFlow's graph optimizer off in this process, and back at the end of the block."""
    before = tf.config.optimizer.get_experimental_options().get(_OFF, False)
    tf.config.optimizer.set_experimental_options({_OFF: True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({_OFF: before})
