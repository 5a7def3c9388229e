"""The peaks of a session by epochs or ranges of steps, and the lowest memory of groups of steps, which shows growth.

Both in bounded memory.
"""

import dataclasses
import itertools

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import MISSING, Integers, Samples
from tb_memplugin.model.rollup import LEVEL_BYTES, Levels, Spans

MAX_LEVELS = 80
MIN_LEVELS = 36
"""Fewer levels are not enough for a trend."""

_HIGHEST = np.iinfo(np.int64).max
_NO_LEVEL: Integers = np.empty((0, 2), np.int64)

MAX_SPANS = 48
"""Most spans of a session; neighboring ones are put together if there are more."""
SPAN_STEPS = 100
"""Steps of a span outside epochs, until neighboring spans are put together."""
_Key = tuple[int, bool, int]
"""Index of the phase, whether the span is one of epochs, and its number."""


class GrowthLevels:
    """The lowest memory of groups of training steps; twice as many steps make a group once there are too many.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._lowest: list[Integers] = []  # of each group, shape [devices, 2]; later ones may have more devices
        self._group = 1
        self._in_last = 0

    def add(self, steps: Integers, columns: Integers) -> None:
        """Add the bytes in use at step end and the peaks of all devices, shape [devices, 2, steps]."""
        columns = np.where(columns == MISSING, _HIGHEST, columns)
        begin = 0
        while begin < len(steps):
            if self._in_last in (0, self._group):
                if len(self._steps) >= MAX_LEVELS:
                    self.halve()
                    continue
                self._steps.append(0)
                self._lowest.append(_NO_LEVEL)
                self._in_last = 0
            end = min(len(steps), begin + self._group - self._in_last)
            self._steps[-1] = int(steps[end - 1])
            self._lowest[-1] = _lower(self._lowest[-1], columns[:, :, begin:end].min(axis=2))
            self._in_last += end - begin
            begin = end

    def __len__(self) -> int:
        return len(self._steps)

    def halve(self) -> bool:
        """Put neighboring groups together; False if there are none."""
        if len(self._steps) < 2:
            return False
        if len(self._steps) % 2 == 0:
            self._in_last += self._group
        self._steps = [*self._steps[1::2], *(self._steps[-1:] if len(self._steps) % 2 else [])]
        evens, odds = self._lowest[::2], self._lowest[1::2]
        self._lowest = [_lower(even, odd) for even, odd in itertools.zip_longest(evens, odds, fillvalue=_NO_LEVEL)]
        self._group *= 2
        return True

    def levels(self, devices: int) -> Levels:
        """The levels, with a row for each device."""
        values = np.full((devices, len(self._steps), 2), _HIGHEST)
        for at, lowest in enumerate(self._lowest):
            values[: len(lowest), at] = lowest
        values = np.where(values == _HIGHEST, MISSING, values // LEVEL_BYTES * LEVEL_BYTES)
        return Levels(np.asarray(self._steps, np.int64), values[:, :, 0], values[:, :, 1])


def _lower(first: Integers, second: Integers) -> Integers:
    """The lower values of two groups of steps."""
    shorter, longer = sorted((first, second), key=len)
    lower: Integers = longer.copy()
    np.minimum(lower[: len(shorter)], shorter, out=lower[: len(shorter)])
    return lower


def earliest_peak(peaks: Integers, steps: Integers) -> tuple[int, int]:
    """The highest peak and the earliest step that reached it."""
    highest = int(peaks.max())
    return highest, int(steps[peaks == highest].min())


@dataclasses.dataclass
class _Span:
    first_step: int
    last_step: int
    last_wall_time: float
    peaks: dict[str, tuple[int, int]]  # of each device the bytes, and minus the step: of equal ones the earliest counts

    def join(self, other: "_Span") -> None:
        self.first_step, self.last_step = min(self.first_step, other.first_step), max(self.last_step, other.last_step)
        self.last_wall_time = max(self.last_wall_time, other.last_wall_time)
        for device, peaks in other.peaks.items():
            self.peaks[device] = max(peaks, self.peaks.get(device, peaks))


class SessionSpans:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._spans: dict[_Key, _Span] = {}
        self._width = 1  # epochs of a span, or `SPAN_STEPS`

    def add(self, samples: Samples) -> None:
        """Add samples in the order of recording."""
        keys = self._keys(samples)
        known = {name: np.maximum(of.peak_bytes, of.in_use_bytes) for name, of in samples.devices.items()}
        while len(every := {*self._spans, *keys}) > max(MAX_SPANS, len(_kinds(every))):
            self._widen()
            keys = self._keys(samples)
        for key, rows in keys.items():
            steps = samples.step[rows]
            highest = {name: earliest_peak(peaks[rows], steps) for name, peaks in known.items()}
            own = _Span(
                int(steps.min()),
                int(steps.max()),
                float(samples.wall_time[rows].max()),
                {name: (size, -step) for name, (size, step) in highest.items() if size != MISSING},
            )
            self._spans.setdefault(key, own).join(own)

    def _keys(self, samples: Samples) -> dict[_Key, npt.NDArray[np.intp]]:
        """The spans of samples, with their rows."""
        in_epochs = samples.epoch != MISSING
        number = np.where(in_epochs, samples.epoch // self._width, samples.step // (SPAN_STEPS * self._width))
        columns = np.stack([samples.phase, in_epochs, number])
        order = np.lexsort(columns[::-1])
        ordered = columns[:, order]
        starts = np.flatnonzero(np.append(True, (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)))
        ends = np.append(starts[1:], len(order))
        return {
            (int(ordered[0, start]), bool(ordered[1, start]), int(ordered[2, start])): np.sort(order[start:end])
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        }

    def _widen(self) -> None:
        """Put neighboring spans together."""
        self._width *= 2
        spans, self._spans = self._spans, {}
        for (phase, in_epochs, number), span in spans.items():
            key = phase, in_epochs, number // 2
            if key in self._spans:
                self._spans[key].join(span)
            else:
                self._spans[key] = span

    def halve(self) -> bool:
        """Put neighboring spans together; False if there are none."""
        if len(self._spans) <= len(_kinds(set(self._spans))):
            return False
        self._widen()
        return True

    def spans(self, devices: list[str]) -> Spans:
        """The spans, with a row for each device."""
        ordered = sorted(self._spans.items(), key=lambda item: (item[0][0], item[1].first_step, item[0]))
        spans = [span for _, span in ordered]
        cells = [
            [(MISSING, MISSING) if (peak := span.peaks.get(name)) is None else (peak[0], -peak[1]) for span in spans]
            for name in devices
        ]
        table = np.asarray(cells, np.int64).reshape(len(devices), len(spans), 2)
        return Spans(
            phase=np.asarray([phase for (phase, _, _), _ in ordered], np.int64),
            first_step=np.asarray([span.first_step for span in spans], np.int64),
            last_step=np.asarray([span.last_step for span in spans], np.int64),
            last_wall_time=np.asarray([span.last_wall_time for span in spans], np.float64),
            peak_bytes=table[:, :, 0],
            peak_step=table[:, :, 1],
        )


def _kinds(keys: set[_Key]) -> set[tuple[int, bool]]:
    """Spans of one kind can be put together."""
    return {key[:2] for key in keys}
