"""What a recorded run would need under other conditions: questions as they are put, and their answers. Pure."""

import dataclasses
import operator
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.analysis import device_facts, phases, retracing_of
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.fit.conditions import MAX_GLOB_CHARACTERS, PRECISIONS, SLOTS, Conditions, unmatched
from tb_memplugin.fit.prediction import Prediction
from tb_memplugin.fit.predictor import MAX_BATCH_SIZE, Predictor
from tb_memplugin.fit.what_if_answer import WhatIf, describe_failure
from tb_memplugin.fit.what_if_evidence import (
    last_failed_batch,
    measured_peak,
    recorded_evidence,
    recorded_program,
)
from tb_memplugin.schema import SIZE_RULE, Layer, LayerTable, Phase, Run, StepRequests, parse_bytes, values_of

CURVE_POINTS, FEWEST_CURVE_POINTS = 16, 4
"""Most and fewest batch sizes of a curve, beside the recorded, the requested and the largest one."""
CURVE_EVENTS = 40_000
"""Events of one step of each of a curve's points together: with more events, there are fewer points."""
_TRAIN: Phase = "train"
Globs: TypeAlias = str | Collection[str]
"""A glob for paths of layers, several that commas separate, or a list of them."""

MAX_CAPACITY_BYTES = 1 << 50


def devices_of(run: Run) -> list[str]:
    """Devices with recorded requests, then all others; accelerators first."""
    known = {one.device for one in run.requests}
    return sorted((facts.device for facts in device_facts(run)), key=lambda device: device not in known)


class RunPredictor:
    """Answers questions about one device of a run that has its requests.

    `predictor` predicts from the recorded `steps`, `layers` are the model's in these.
    """

    def __init__(self, run: Run, device: str) -> None:
        self._device = device
        self.steps = recorded_program(run.requests, device, _TRAIN)
        evidence = recorded_evidence(run, device, self.steps)
        self._measured_bytes = measured_peak(run, device, self.steps)
        # A run that failed is asked about what failed.
        self._default_batch = last_failed_batch(run, device, self.steps)
        table = layer_table_of(run, self.steps)
        self.layers: tuple[Layer, ...] = () if table is None else table.layers
        self.predictor = Predictor(self.steps, self.layers, self._measured_bytes, _without_steps(run, device), evidence)

    def predict(self, conditions: Conditions) -> Prediction:
        """The prediction alone, without the search for the largest batch size."""
        batch = conditions.batch_size or self._default_batch
        return self.predictor.predict(dataclasses.replace(conditions, batch_size=batch))

    def largest_batch_size(self, conditions: Conditions) -> int | None:
        capacity = conditions.capacity_bytes or self.predictor.capacity_bytes
        return None if capacity is None else self.predictor.largest_batch_size(capacity, conditions)

    def what_if(self, conditions: Conditions) -> WhatIf:
        """The prediction, and the largest batch size that fits; `RequestError` if a glob for layers matches none."""
        error = unmatched(conditions, self.layers)
        if error is not None:
            raise RequestError(error[1], error[0])
        prediction = self.predict(conditions)
        batch, capacity, enough = prediction.batch_size, prediction.capacity_bytes, None
        if prediction.fits is False and prediction.method != "unknown" and batch is not None and capacity is not None:
            enough = self.predictor.enough_capacity(batch, capacity, conditions)
        return WhatIf(
            device=self._device,
            conditions=conditions,
            prediction=prediction,
            largest_batch_size=self.largest_batch_size(conditions),
            recorded_batch_sizes=self.predictor.batch_sizes,
            recorded_steps=tuple(one.step for one in self.steps),
            measured_peak_bytes=self._measured_bytes,
            enough=enough,
        )

    def curve(self, answer: WhatIf) -> list[dict[str, Any]]:
        """Predictions over batch sizes, as JSON objects: from an eighth of the recorded one to beyond the largest that
        fits, fewer if a step has more events. Each is as an answer of its own gives it.
        """
        recorded = self.predictor.batch_size
        if recorded is None:
            return []
        asked, largest = answer.prediction.batch_size or 0, answer.largest_batch_size
        low, high = max(1, recorded // 8), max(recorded * 4, round((largest or 0) * 1.25), asked)
        spread = curve_sizes(self.predictor, low, min(MAX_BATCH_SIZE, high))
        sizes = sorted({recorded, *spread, *(size for size in (asked, largest) if size)})
        found = [self.predictor.predict(dataclasses.replace(answer.conditions, batch_size=size)) for size in sizes]
        names = ("batch_size", "peak_bytes", "low_bytes", "high_bytes", "fits")
        return [
            {**values_of(one, *names), "fails_at": describe_failure(one.fails_at)}
            for one in found
            if one.peak_bytes is not None
        ]


def curve_sizes(predictor: Predictor, low: int, high: int) -> list[int]:
    points = max(FEWEST_CURVE_POINTS, min(CURVE_POINTS, CURVE_EVENTS // max(1, predictor.events)))
    sizes: list[int] = np.geomspace(low, high, points).round().astype(int).tolist()
    return sorted(set(sizes))


def _without_steps(run: Run, device: str) -> str | None:
    """A sentence on a run without training steps, or with none but those in which the program changed; else None."""
    others = phases(run)
    if others and _TRAIN not in others:
        return f"Unknown: predictions come from training steps, and this run has only {' and '.join(others)} steps."
    if not any(one.device == device and one.phase == _TRAIN for one in run.requests):
        return None
    because = retracing_of(run, device)
    reason = "Unknown: each traced training step is the first one after a change of the program, and so not typical."
    return f"{reason} {because}" if because else reason


def layer_table_of(run: Run, steps: tuple[StepRequests, ...]) -> LayerTable | None:
    if not steps:
        return run.layer_tables[-1] if run.layer_tables else None
    tables = [table for table in run.layer_tables if table.step <= steps[-1].step]
    return tables[-1] if tables else None


def checked_conditions(
    batch_size: int | None = None,
    capacity: int | str | None = None,
    freeze: Globs | None = None,
    unfreeze: Globs | None = None,
    optimizer: str | None = None,
    precision: str | None = None,
) -> Conditions:
    """The conditions of a question, as `tb_memplugin.what_if` takes them; `RequestError` if one is malformed."""
    size = None if batch_size is None else _whole(batch_size)
    if batch_size is not None and (size is None or not 1 <= size <= MAX_BATCH_SIZE):
        message = f"a batch size is an integer from 1 to {MAX_BATCH_SIZE:,}. Received: {batch_size!r:.80}"
        raise RequestError(message, "batch_size")
    return Conditions(
        batch_size=size,
        capacity_bytes=None if capacity is None else capacity_bytes(capacity),
        freeze=_globs("freeze", freeze),
        unfreeze=_globs("unfreeze", unfreeze),
        optimizer=_one_of("optimizer", optimizer, tuple(SLOTS)),
        precision=_one_of("precision", precision, PRECISIONS),
    )


def capacity_bytes(capacity: int | str, name: str = "capacity") -> int:
    """Bytes of a capacity, or of what else has this name: a text such as ``"24GiB"``, or a number; `RequestError` if it
    is no size from 1 B to 1 PiB.
    """
    size = parse_bytes(capacity) if isinstance(capacity, str) else _whole(capacity)
    if size is None or not 1 <= size <= MAX_CAPACITY_BYTES:
        raise RequestError(f"a {name} is {SIZE_RULE}, at most 1 PiB. Received: {capacity!r:.80}", name)
    return size


def _whole(number: Any) -> int | None:
    try:
        return None if isinstance(number, bool) else operator.index(number)
    except TypeError:
        return None


def _globs(name: str, globs: Any) -> str | None:
    several = [globs] if isinstance(globs, str) or globs is None else globs
    if not isinstance(several, Collection) or not all(one is None or isinstance(one, str) for one in several):
        raise RequestError(f"{name} is a glob for paths of layers, or a list of globs. Received: {globs!r:.80}", name)
    text = ",".join(filter(None, several))
    if len(text) > MAX_GLOB_CHARACTERS:
        raise RequestError(f"{name} has at most {MAX_GLOB_CHARACTERS:,} characters. Received: {len(text):,}", name)
    return text or None


def _one_of(name: str, value: Any, known: Sequence[str]) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or value.lower() not in known:
        raise RequestError(f"{name} is one of {', '.join(known)}. Received: {value!r:.80}", name)
    return value.lower()


def device_of(run: Run, device: str | None) -> str:
    """The device of a question; `NotFoundError` if the run has no such device."""
    devices = devices_of(run)
    if not devices or (device is not None and device not in devices):
        raise NotFoundError(
            f"no device {device!r:.80} in this run; available: {', '.join(devices) or 'none'}"
            if device is not None
            else "this run has no records of a device's memory"
        )
    return device or devices[0]
