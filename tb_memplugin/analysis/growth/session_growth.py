"""Memory that grows from one recording session of a process to the next, and models that Python's garbage collector has
yet to free. Pure.

Each run has what earlier sessions of its process left in use beside their own models, so it tells of all of them: a
search or a cross-validation trains one model after another, each for too few steps to show growth.
"""

import dataclasses

import numpy as np

from tb_memplugin.analysis.growth.growth_causes import Cause, cause_of_models, counters_of, what_collecting_frees
from tb_memplugin.analysis.growth.trend import MIN_GROWTH_BYTES, MIN_GROWTH_SHARE, MIN_ORDER, slope_and_order
from tb_memplugin.model import MISSING, CounterKind, Counters, Run
from tb_memplugin.model.units import counted, format_bytes

MIN_SESSIONS = 4
"""Fewer earlier sessions show no growth. The first one, in which memory is taken once, is left out."""
MIN_WAITING_SHARE = 0.05
"""Unreachable models with a smaller share of the bytes in use are no finding."""


@dataclasses.dataclass(frozen=True)
class SessionGrowth:
    """Growth over the sessions of a process.

    Attributes:
        device: The device.
        sessions: Number of the last one that ended before this run.
        first: Number of the first one that is compared.
        bytes_per_session: Median slope.
        from_bytes, to_bytes: In use at the end of the first and of the last one, without their own models.
        cause: Why it grows; None if unknown.
    """

    device: str
    sessions: int
    first: int
    bytes_per_session: float
    from_bytes: int
    to_bytes: int
    cause: Cause | None

    def short(self) -> str:
        """The rate in a few words."""
        return f"+{format_bytes(round(self.bytes_per_session))} per training since the {_ordinal(self.first)}"

    def sentence(self) -> str:
        """The finding as text."""
        text = (
            f"{self.device}: memory in use grows by {format_bytes(round(self.bytes_per_session))} from one training of "
            f"this process to the next, from {format_bytes(self.from_bytes)} after the {_ordinal(self.first)} to "
            f"{format_bytes(self.to_bytes)} after the {_ordinal(self.sessions)}, each without its own model"
        )
        return f"{text}." if self.cause is None else f"{text}. Cause: {self.cause.text}."


def session_growth(run: Run, device: str) -> SessionGrowth | None:
    """Growth over the earlier sessions of the process that recorded a device last; None without one."""
    counters, own = counters_of(run, device)
    if counters is None:
        return None
    rows = _rows(counters, "earlier_sessions", own)
    numbers, sizes = counters.count[rows], counters.bytes[rows]
    known = (sizes != MISSING) & (numbers > 1)
    numbers, sizes = numbers[known], sizes[known].astype(np.float64)
    if len(numbers) < MIN_SESSIONS:
        return None
    slope, order = slope_and_order(numbers.astype(np.float64), sizes)
    rises = np.diff(np.maximum.accumulate(sizes))
    growth = float(sizes[-1] - sizes[0])
    least = max(MIN_GROWTH_BYTES, MIN_GROWTH_SHARE * float(sizes[0]))
    # In a single rise, memory is taken once.
    if slope <= 0 or order < MIN_ORDER or growth - float(rises.max(initial=0)) < least:
        return None
    first, last = int(numbers[0]), int(numbers[-1])
    cause = cause_of_models(counters, own, float(sizes[-1]))
    return SessionGrowth(device, last, first, slope, int(sizes[0]), int(sizes[-1]), cause)


def collector_finding(run: Run, device: str, name: str) -> str | None:
    """The finding on models that only Python's garbage collector can free, when they took most; None if that was
    little. `name` is the device's full name."""
    counters, own = counters_of(run, device)
    rows = [] if counters is None else _rows(counters, "models_unreachable", own)
    figures = run.samples.devices.get(device)
    if counters is None or not rows or figures is None:
        return None
    row = max(rows, key=lambda at: int(counters.bytes[at]))
    size, step = int(counters.bytes[row]), int(counters.step[row])
    in_use = int(figures.in_use_bytes[run.samples.step == step].max(initial=0))
    if min(size, in_use) < max(MIN_GROWTH_BYTES, MIN_WAITING_SHARE * in_use):
        return None
    models = counted(int(counters.count[row]), "model")
    return (
        f"{name}: {models} ({format_bytes(size)}) could no longer be reached at step {step}, but wait for Python's "
        f"garbage collector. Called after a model is dropped, {what_collecting_frees(size, in_use)}."
    )


def _rows(counters: Counters, kind: CounterKind, name: str) -> list[int]:
    found = [at for at, key in enumerate(zip(counters.kind, counters.name, strict=True)) if key == (kind, name)]
    return [at for at in found if int(counters.count[at]) > 0]


def _ordinal(number: int) -> str:
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
