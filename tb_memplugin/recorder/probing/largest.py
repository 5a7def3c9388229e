"""`largest_batch_size`: predicts the largest batch that fits and trains with it to verify that."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from tb_memplugin.analysis.fit.what_if import RunPredictor, checked_conditions
from tb_memplugin.analysis.fit.what_if_answer import WhatIf
from tb_memplugin.errors import RecordingError
from tb_memplugin.model.text import clean, html_text
from tb_memplugin.model.units import format_bytes
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.progress import Progress
from tb_memplugin.recorder.probing.examples import Examples
from tb_memplugin.recorder.probing.probe import (
    OutOfMemoryError,
    checked_devices,
    checked_sizes,
    record,
    restored,
    train,
)
from tb_memplugin.recorder.sampling import devices as allocator

MOST_TRIES = 3
"""Most batch sizes that are verified."""
STEP_DOWN = 0.95
"""Share of the last capacity that the next prediction may use if the last one did not hold."""
VERIFIED_STEPS = 2
"""Steps of a verification: the first one makes the optimizer's slots, the second one is a typical one."""


@dataclasses.dataclass(frozen=True, repr=False)
class BatchSizeAnswer:
    """The largest batch size of a model on a device; `print` shows it with its sentences.

    Attributes:
        batch_size: The largest batch size that is predicted to fit and was not refuted; None if there is none, or it
            is unknown.
        predicted: The prediction for it, or the last one that was made.
        verified: Whether training steps with it ran within the capacity; None if they could not be tried.
        peak_bytes: Measured peak of bytes in use in these steps; None without a verification that passed.
        sentences: What was found, as sentences.
    """

    batch_size: int | None
    predicted: WhatIf
    verified: bool | None
    peak_bytes: int | None
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        size = "unknown or none" if self.batch_size is None else f"{self.batch_size:,}"
        return "\n".join([f"largest batch size: {size}", *(f"  {clean(sentence)}" for sentence in self.sentences)])

    def __repr__(self) -> str:
        peak = format_bytes(self.peak_bytes)
        return f"<{type(self).__name__} batch_size={self.batch_size}, verified={self.verified}, measured peak {peak}>"

    def _repr_html_(self) -> str:
        return html_text(str(self))


def largest_batch_size(
    model: Any, data: Any, capacity: int | str | None = None, batch_sizes: Sequence[int] = (4, 8)
) -> BatchSizeAnswer:
    """Predict the largest batch size that fits, and train two steps with it to verify that.

    ```python
    print(tb_memplugin.largest_batch_size(model, dataset))
    ```

    Everything is restored as `probe` does. If memory runs out in the verification, or the measured peak exceeds the
    capacity, the next lower prediction is tried, three at most.

    Args:
        model, data, batch_sizes: As for `probe`.
        capacity: The allocator's limit, in bytes or as a text such as ``"24GiB"``; by default the device's own. With
            a smaller one the steps run on this device, and their peak is compared with it. A batch that this device
            may not hold is not verified for a larger one.

    Returns:
        The answer.

    Raises:
        RecordingError: As `probe` does.
        RequestError: The capacity is malformed.
    """
    wanted = checked_conditions(capacity=capacity).capacity_bytes
    sizes = checked_sizes(batch_sizes)
    (device, *_) = checked_devices(model)
    examples = Examples(data, max(sizes))
    limit = wanted or device.capacity_bytes
    if limit is None:
        raise RecordingError(f"The capacity of {device.name} is unknown. Pass capacity, for example '24GiB'.")
    with Progress("largest_batch_size") as progress:
        with restored(model):
            run = record(model, examples, sizes, device, None, progress)
        progress.part("prediction")
        predictor = RunPredictor(run, device.name)
        return _Search(model, examples, device, predictor, limit, progress).answer()


class _Search:
    def __init__(
        self,
        model: Any,
        examples: Examples,
        device: allocator.Device,
        predictor: RunPredictor,
        capacity: int,
        progress: Progress,
    ) -> None:
        self._model, self._examples, self._device = model, examples, device
        self._predictor, self._capacity = predictor, capacity
        self._progress = progress
        self._sentences: list[str] = []
        self._smallest_refuted: int | None = None

    def answer(self) -> BatchSizeAnswer:
        usable = self._capacity
        for _ in range(MOST_TRIES):
            size = self._predict(usable)
            prediction = self._predictor.what_if(Conditions(batch_size=size, capacity_bytes=self._capacity))
            if size is None:
                self._sentences += prediction.prediction.assumptions or (
                    f"No batch is predicted to fit into {format_bytes(self._capacity)}.",
                )
                return BatchSizeAnswer(None, prediction, None, None, tuple(self._sentences))
            self._sentences.append(
                f"Batch size {size:,} is predicted to need {format_bytes(prediction.prediction.peak_bytes)} of "
                f"{format_bytes(self._capacity)}."
            )
            own = self._device.capacity_bytes
            if own is not None and self._capacity > own and (prediction.prediction.high_bytes or own) >= own:
                self._sentences.append(f"Not verified: {self._device.name} has only {format_bytes(own)}.")
                return BatchSizeAnswer(size, prediction, None, None, tuple(self._sentences))
            self._progress.part(f"verification of batch size {size:,}")
            peak = self._measure(size)
            if peak is not None and peak <= self._capacity:
                self._sentences.append(f"Verified: two steps ran, with a peak of {format_bytes(peak)}.")
                return BatchSizeAnswer(size, prediction, True, peak, tuple(self._sentences))
            self._sentences.append(
                f"Memory ran out in the steps with batch size {size:,}."
                if peak is None
                else f"Batch size {size:,} does not fit: its steps needed {format_bytes(peak)}."
            )
            self._smallest_refuted = size
            usable = int(usable * STEP_DOWN)
        return BatchSizeAnswer(None, prediction, False, None, tuple(self._sentences))

    def _predict(self, usable: int) -> int | None:
        """The largest batch size within a share of the capacity, below those that did not fit."""
        size = self._predictor.largest_batch_size(Conditions(capacity_bytes=usable))
        if size is not None and self._smallest_refuted is not None:
            size = min(size, self._smallest_refuted - 1)
        return size or None

    def _measure(self, size: int) -> int | None:
        """The peak of steps with a batch size; None if memory runs out."""
        peaks = _Peaks(self._device.name)
        try:
            with restored(self._model):
                train(self._model, self._examples, size, VERIFIED_STEPS, peaks)
        except OutOfMemoryError:
            return None
        return peaks.typical


class _Peaks(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Measures the peak of the last step."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device
        self.typical = 0

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        allocator.reset_peak(self._device)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self.typical = allocator.memory_info(self._device)[1]
