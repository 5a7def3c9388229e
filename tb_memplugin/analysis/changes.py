"""Layer changes of a run with their effect on the measured peak, epochs and validation passes. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema import MISSING, PHASES, Integers, LayerTable, Samples, unfreezing_bytes

MOST_BYTES = 2**53 - 1
"""Limit of sums (8 PiB): the largest integer that JavaScript represents exactly."""

MAX_SPANS = 10_000
"""Most epochs, and most validation passes, that are reported for a run."""


@dataclasses.dataclass(frozen=True)
class LayerTotals:
    """Sums over a layer table; layers without weights count neither as frozen nor as trainable.

    Attributes:
        statistics_bytes: Weights of trainable layers that are never trained, such as the moving statistics of batch
            normalizations.
        unfreezing_weight_bytes: Weights of frozen layers that unfreezing would train.
        optimizer_bytes: Optimizer state, `other_optimizer_bytes` included.
    """

    frozen_weight_bytes: int
    trainable_weight_bytes: int
    statistics_bytes: int
    unfreezing_weight_bytes: int
    optimizer_bytes: int
    other_optimizer_bytes: int
    frozen_layers: int
    trainable_layers: int


@dataclasses.dataclass(frozen=True)
class LayerChange:
    """A layer table that took effect at `step`, and the layers with weights that became trainable or frozen."""

    step: int
    reason: str
    totals: LayerTotals
    became_trainable: tuple[str, ...]
    became_frozen: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Epoch:
    epoch: int
    first_step: int
    last_step: int


@dataclasses.dataclass(frozen=True)
class ValidationPass:
    """The validation batches between two training steps; `peak_bytes` is None if unknown."""

    after_step: int
    batches: int
    peak_bytes: int | None


def layer_totals(table: LayerTable) -> LayerTotals:
    flags = trainable_layers(table).values()
    frozen = [layer for layer in table.layers if not layer.trainable]
    sums = {
        "frozen_weight_bytes": sum(layer.weight_bytes for layer in frozen),
        "trainable_weight_bytes": sum(layer.trainable_weight_bytes for layer in table.layers),
        "statistics_bytes": sum(
            layer.weight_bytes - layer.trainable_weight_bytes for layer in table.layers if layer.trainable
        ),
        "unfreezing_weight_bytes": sum(map(unfreezing_bytes, frozen)),
        "optimizer_bytes": sum(layer.optimizer_bytes for layer in table.layers) + table.other_optimizer_bytes,
        "other_optimizer_bytes": table.other_optimizer_bytes,
    }
    # Fields of a hostile table are in range, but their sums may not be.
    limited = {name: min(max(0, size), MOST_BYTES) for name, size in sums.items()}
    return LayerTotals(**limited, frozen_layers=sum(not on for on in flags), trainable_layers=sum(flags))


def trainable_layers(table: LayerTable) -> dict[str, bool]:
    """Path to whether the layer is trainable, for layers with weights: the others are neither frozen nor trainable."""
    return {layer.path: layer.trainable for layer in table.layers if layer.weight_bytes}


def _became(before: Mapping[str, bool], now: Mapping[str, bool], trainable: bool) -> tuple[str, ...]:
    return tuple(path for path, on in now.items() if on is trainable and before.get(path) is (not trainable))


def layer_changes(tables: Sequence[LayerTable]) -> list[LayerChange]:
    changes = []
    before: dict[str, bool] = {}
    for table in tables:
        now = trainable_layers(table)
        became = _became(before, now, trainable=True), _became(before, now, trainable=False)
        changes.append(LayerChange(table.step, table.reason, layer_totals(table), *became))
        before = now
    return changes


def table_at(tables: Sequence[LayerTable], step: int | None) -> LayerTable | None:
    """The table valid at `step` (None: the last one); the first for earlier steps; None without tables."""
    if not tables:
        return None
    if step is None:
        return tables[-1]
    return next((table for table in reversed(tables) if table.step <= step), tables[0])


def epochs(samples: Samples) -> list[Epoch]:
    of_training = (samples.phase == PHASES.index("train")) & (samples.epoch != MISSING)
    steps, numbers = samples.step[of_training], samples.epoch[of_training]
    return [
        Epoch(int(numbers[begin]), int(steps[begin:end].min()), int(steps[begin:end].max()))
        for begin, end in _stretches(numbers)
    ]


def validation_passes(samples: Samples, device: str) -> list[ValidationPass]:
    """The validation passes of a training, with their peak on `device`: the batches after its first step."""
    of_validation = (samples.phase == PHASES.index("validation")) & _after_training_began(samples)
    steps = samples.step[of_validation]
    figures = samples.devices.get(device)
    peaks = np.full(len(steps), MISSING) if figures is None else figures.peak_bytes[of_validation]
    passes = []
    for begin, end in _stretches(steps):
        peak = int(peaks[begin:end].max())
        passes.append(ValidationPass(int(steps[begin]), end - begin, None if peak == MISSING else peak))
    return passes


def _after_training_began(samples: Samples) -> npt.NDArray[np.bool_]:
    """The rows that were recorded after the first training step; batches before it count as steps of their own."""
    trained = samples.wall_time[samples.phase == PHASES.index("train")]
    return samples.wall_time >= (trained.min() if len(trained) else np.inf)


def _stretches(values: Integers) -> list[tuple[int, int]]:
    """Ranges [begin, end) of equal values, the first `MAX_SPANS`."""
    if not len(values):
        return []
    edges = np.flatnonzero(np.diff(values)) + 1
    ends = np.append(edges, len(values))[:MAX_SPANS]
    begins = np.append(0, edges)[:MAX_SPANS]
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


WINDOW = 20
"""Steps compared on either side of a change, never past the next change."""


@dataclasses.dataclass(frozen=True)
class Level:
    step: int
    peak_bytes: int


@dataclasses.dataclass(frozen=True)
class ChangeEffect:
    """A change of the layer table. Tables of neighbouring steps are one change: an unfreezing, then a new optimizer.

    Attributes:
        first, last: Indices of its tables.
        unfrozen, frozen: Paths of the layers with weights that became trainable or frozen.
        before, after: The peaks of the nearest traced steps before and after; if a side has none, the highest peaks of
            the steps near the change. None if no peak was measured.
    """

    first: int
    last: int
    step: int
    reason: str
    unfrozen: tuple[str, ...]
    frozen: tuple[str, ...]
    before: Level | None
    after: Level | None


def change_effects(
    tables: Sequence[LayerTable], steps: Integers, peaks: Integers, traced: Sequence[int] = ()
) -> list[ChangeEffect]:
    """The changes after the start of the recording.

    Args:
        steps, peaks: Steps in ascending order with their peaks.
        traced: The traced steps that can be compared, in ascending order.
    """
    groups = _grouped(tables)
    traced_rows = np.flatnonzero(np.isin(steps, traced) & (peaks != MISSING))
    effects = []
    for at in range(1, len(groups)):
        (begin, before), (first, last) = groups[at - 1], groups[at]
        step = tables[first].step
        row = int(np.searchsorted(steps, step))
        start = int(np.searchsorted(steps, tables[begin].step))
        end = int(np.searchsorted(steps, tables[groups[at + 1][0]].step)) if at + 1 < len(groups) else len(steps)
        levels = _nearest(steps, peaks, traced_rows, start, row, end) or (
            _highest(steps, peaks, max(start, row - WINDOW), row),
            _highest(steps, peaks, row, min(end, row + WINDOW)),
        )
        layers = trainable_layers(tables[before]), trainable_layers(tables[last])
        became = _became(*layers, trainable=True), _became(*layers, trainable=False)
        effects.append(ChangeEffect(first, last, step, tables[first].reason, *became, *levels))
    return effects


def _grouped(tables: Sequence[LayerTable]) -> list[tuple[int, int]]:
    groups: list[tuple[int, int]] = []
    for at, table in enumerate(tables):
        if groups and table.step <= tables[at - 1].step + 1:
            groups[-1] = (groups[-1][0], at)
        else:
            groups.append((at, at))
    return groups


def _nearest(
    steps: Integers, peaks: Integers, traced: npt.NDArray[np.intp], start: int, row: int, end: int
) -> tuple[Level, Level] | None:
    """The traced rows nearest to `row` in [start, row) and [row, end); None if either has none."""
    at = int(np.searchsorted(traced, row))
    if not at or at == len(traced) or traced[at - 1] < start or traced[at] >= end:
        return None
    before, after = int(traced[at - 1]), int(traced[at])
    return Level(int(steps[before]), int(peaks[before])), Level(int(steps[after]), int(peaks[after]))


def _highest(steps: Integers, peaks: Integers, begin: int, end: int) -> Level | None:
    if begin >= end:
        return None
    row = begin + int(np.argmax(peaks[begin:end]))
    return None if peaks[row] == MISSING else Level(int(steps[row]), int(peaks[row]))
