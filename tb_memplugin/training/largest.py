"""Searches for the largest batch size that fits: predicts it from a run, and tries it where steps
may be trained."""

import dataclasses
import sys
from collections.abc import Callable
from typing import NamedTuple

from tb_memplugin.export import RecordedRun
from tb_memplugin.fit import MOST_ASKED, Conditions, Predictor, WhatIf, answer_of
from tb_memplugin.recorder.devices import Device
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.schema import clean, format_bytes, html_text, is_gpu

MOST_TRIES = 3  # most batch sizes that are verified
# share of the last capacity that the next prediction may use if the last one did not hold
STEP_DOWN = 0.95
# share by which a size is larger that is tried because a verified one leaves memory
MUCH_LARGER = 1.25


@dataclasses.dataclass(frozen=True, repr=False)
class BatchSizeAnswer:
    """The largest batch size of a model on a device; `print` shows it with its sentences.

    Attributes:
        batch_size: The largest batch size that is predicted to fit and was not refuted; None if
            there is none, or it is unknown.
        predicted: The prediction for it, or the last one that was made.
        verified: Whether training steps with it ran within the capacity; None if they could not be
            tried.
        peak_bytes: Measured peak of bytes in use in these steps; None without a verification that
            passed.
        sentences: What was found, as sentences."""

    batch_size: int | None
    predicted: WhatIf
    verified: bool | None
    peak_bytes: int | None
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        size = "unknown or none" if self.batch_size is None else f"{self.batch_size:,}"
        return "\n".join(
            [
                f"largest batch size: {size}",
                *(f"  {clean(sentence)}" for sentence in self.sentences),
            ]
        )

    def __repr__(self) -> str:
        peak = format_bytes(self.peak_bytes)
        return (
            f"<{type(self).__name__} batch_size={self.batch_size}, verified={self.verified}, "
            f"measured peak {peak}>"
        )

    def _repr_html_(self) -> str:
        return html_text(str(self))


class Trial(NamedTuple):
    """How a batch size is tried.

    Attributes:
        peak_of: Trains a few steps and returns their peak in bytes; None if memory ran out.
        replicas: How many replicas train together."""

    peak_of: Callable[[int], int | None]
    replicas: int = 1


def largest_of(
    run: RecordedRun,
    device: Device,
    limit: int,
    trial: Trial | None,
    refuted: int = sys.maxsize,
    why: str = "",
    told: Callable[[BatchSizeAnswer], None] = lambda answer: None,
) -> BatchSizeAnswer:
    """The answer from a run of the model, below a refuted size; `why` says why it cannot be
    verified, without a trial. `told` is given the answer so far before each trial, and may raise to
    end the search."""
    own, usable, predictor = device.capacity_bytes, limit, Predictor.of(run, device.name, run.ask)
    replicas = 1 if trial is None else trial.replicas
    sentences: list[str] = []

    def verified(size: int) -> int | None:
        peak = None if trial is None else trial.peak_of(size)
        if peak is not None and peak <= limit:
            return peak
        why = f"Memory ran out in the steps with batch size {size:,}."
        if peak is not None:
            why = f"Batch size {size:,} does not fit: its steps needed {format_bytes(peak)}."
        sentences.append(why)
        return None

    for tries in range(MOST_TRIES, 0, -1):  # noqa: B007  # used below
        for _ in range(MOST_ASKED):
            most = predictor.largest_batch_size(Conditions(capacity_bytes=usable)) or 0
            most = min(most, refuted - 1)
            size = most - most % replicas or None
            if not predictor.ask(Conditions(size)):
                break
        predicted = answer_of(predictor, Conditions(size, limit))
        prediction = predicted.prediction
        if size is None:
            unknown = predictor.reason_against(Conditions((predictor.batch_size or 0) + 1))
            sentences.append(unknown or f"No batch is predicted to fit into {format_bytes(limit)}.")
            return BatchSizeAnswer(None, predicted, None, None, tuple(sentences))
        needed = f"{format_bytes(prediction.peak_bytes)} of {format_bytes(limit)}"
        how = ", as XLA's compiler plans it" if prediction.method == "compiled" else ""
        sentences.append(f"Batch size {size:,} is predicted to need {needed}{how}.")
        if trial is None and prediction.fits is False:  # as the last question showed
            refuted = size
            continue
        if own is not None and limit > own and (prediction.high_bytes or own) >= own:
            why = f"{device.name} has only {format_bytes(own)}"
        unverified = f"Not verified: {why or 'there was no time for it'}."
        answer = BatchSizeAnswer(size, predicted, None, None, (*sentences, unverified))
        if why:
            return answer
        told(answer)
        peak = verified(size)
        if peak is not None:
            break
        refuted, usable = size, int(usable * STEP_DOWN)
    else:
        return BatchSizeAnswer(None, predicted, False, None, tuple(sentences))
    share = f" ({size // replicas:,} for each of {replicas} replicas)" if replicas > 1 else ""
    sentences.append(f"Verified: two steps ran, with a peak of {format_bytes(peak)}{share}.")
    held, room = allocator.memory_info(device.name)[0], min(limit, own or limit) * STEP_DOWN
    for _ in range(tries - 1 if is_gpu(device.name) else 0):
        # A pool of one region. Predictions must take for needed what convolutions only use because
        # it was there.
        larger = min(int(size * (room - held) / max(1, peak - held)), refuted - 1)
        if larger < size * MUCH_LARGER:
            break
        told(BatchSizeAnswer(size, predicted, True, peak, tuple(sentences)))
        needed_by_larger = verified(larger)
        if needed_by_larger is None:
            break
        size, peak = larger, needed_by_larger
        predicted = answer_of(predictor, Conditions(size, limit))
        sentences.append(
            f"Batch size {size:,} is larger in proportion, and verified: a peak of "
            f"{format_bytes(peak)}."
        )
    return BatchSizeAnswer(size, predicted, True, peak, tuple(sentences))
