"""`largest_batch_size`: predicts the largest batch that fits and trains with it to verify that."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from tb_memplugin.errors import RecordingError
from tb_memplugin.fit import Conditions, Predictor, WhatIf, checked_conditions
from tb_memplugin.progress import Progress
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.schema import clean, format_bytes, html_text
from tb_memplugin.training.examples import Examples
from tb_memplugin.training.probing import (
    OutOfMemoryError,
    checked_devices,
    checked_sizes,
    record,
    restored,
    train,
)

MOST_TRIES = 3  # most batch sizes that are verified
STEP_DOWN = 0.95  # share of the last capacity that the next prediction may use if the last one did not hold
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
        predictor = Predictor.of(run, device.name)
        return _search(model, examples, device, predictor, limit, progress)


def _search(
    model: Any, examples: Examples, device: allocator.Device, predictor: Predictor, capacity: int, progress: Progress
) -> BatchSizeAnswer:
    """The largest batch size within a capacity."""
    sentences: list[str] = []
    usable, refuted, own = capacity, sys.maxsize, device.capacity_bytes

    def answer(size: int | None, verified: bool | None, peak: int | None = None) -> BatchSizeAnswer:
        return BatchSizeAnswer(size, predicted, verified, peak, tuple(sentences))

    for _ in range(MOST_TRIES):
        size = min(predictor.largest_batch_size(Conditions(capacity_bytes=usable)) or 0, refuted - 1) or None
        predicted = predictor.what_if(Conditions(batch_size=size, capacity_bytes=capacity))
        prediction = predicted.prediction
        if size is None:
            sentences += prediction.assumptions or (f"No batch is predicted to fit into {format_bytes(capacity)}.",)
            return answer(None, None)
        sentences.append(
            f"Batch size {size:,} is predicted to need {format_bytes(prediction.peak_bytes)} of "
            f"{format_bytes(capacity)}."
        )
        if own is not None and capacity > own and (prediction.high_bytes or own) >= own:
            sentences.append(f"Not verified: {device.name} has only {format_bytes(own)}.")
            return answer(size, None)
        progress.part(f"verification of batch size {size:,}")
        peak = _measured_peak(model, examples, size, device)
        if peak is not None and peak <= capacity:
            sentences.append(f"Verified: two steps ran, with a peak of {format_bytes(peak)}.")
            return answer(size, True, peak)
        sentences.append(
            f"Memory ran out in the steps with batch size {size:,}."
            if peak is None
            else f"Batch size {size:,} does not fit: its steps needed {format_bytes(peak)}."
        )
        refuted = size
        usable = int(usable * STEP_DOWN)
    return answer(None, False)


def _measured_peak(model: Any, examples: Examples, size: int, device: allocator.Device) -> int | None:
    """The peak of steps with a batch size; None if memory runs out."""
    peaks = _Peaks(device.name)
    try:
        with restored(model):
            train(model, examples, size, VERIFIED_STEPS, peaks)
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
