"""Findings on device memory that grows over the steps of a phase, or from one training of a process to the next. Pure.

Steps after another phase are left out, and jumps are removed; `trend` examines the remainder. Each run has what earlier
sessions of its process left in use beside their own models, so it tells of all of them: a search or a cross-validation
trains one model after another, each for too few steps to show growth.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.causes import (
    Cause,
    cause_of,
    cause_of_models,
    counters_of,
    what_collecting_frees,
)
from tb_memplugin.analysis.facts import device_phase, runs_of_sessions, step_name
from tb_memplugin.analysis.trend import (
    MIN_GROWTH_BYTES,
    MIN_GROWTH_SHARE,
    MIN_ORDER,
    Trend,
    is_long_enough,
    slope_and_order,
    smallest_growth,
    trend_between_jumps,
)
from tb_memplugin.schema import (
    MISSING,
    PHASES,
    CounterKind,
    Counters,
    DeviceSamples,
    HeldTensorGroup,
    Integers,
    LayerActivations,
    Phase,
    Run,
    Samples,
    Snapshot,
    counted,
    format_bytes,
)

UNEXPLAINED = ("unattributed", "other_state", "rounding")
"""Categories of memory that traced functions may hold, such as their constants."""


HeldKey: TypeAlias = tuple[tuple[int, ...], str, str | None]
"""Shape, dtype and holder of held tensors."""
LAST_STEPS = 100
"""Steps whose peaks above their ends tell those of later steps."""


@dataclasses.dataclass(frozen=True)
class Growth:
    """A finding.

    Attributes:
        at_peak: Whether the peak grows; if not, the memory in use at step end does.
        trend: The growth. Its rate leaves out jumps; its levels are as measured.
        jumps: Step and size in bytes of each jump since the trend began, which are no part of its rate.
        owner: Layer and category with the largest growth between traced steps, or in recorded activations; None if
            unknown.
        owner_bytes: Growth of the owner over these steps.
        owner_steps: The first and the last of these traced steps; None for recorded activations.
        rounding_bytes: Growth of the rounding of the owner's layer if it exceeds `owner_bytes`, else 0.
        held_by: Holder of most of the added held tensors, if the owner is held tensors; None if unknown.
        line: Python line that made most of these; None if unknown.
        cause: Why it grows, by the program's counters; None if they do not tell it, or if the holder is known.
        capacity_step: Step by which the peak reaches the device's capacity at this rate; None if unknown or far away.
            With fragmentation a step fails before it.
    """

    device: str
    phase: Phase
    at_peak: bool
    trend: Trend
    jumps: tuple[tuple[int, int], ...]
    owner: tuple[str | None, str] | None
    owner_bytes: int | None
    owner_steps: tuple[int, int] | None
    rounding_bytes: int
    held_by: str | None
    line: str | None
    cause: Cause | None
    capacity_step: int | None

    def sentence(self) -> str:
        trend = self.trend
        series = f"peak memory of a {step_name(self.phase)}" if self.at_peak else "memory in use at step end"
        text = (
            f"{self.device}: {series} grows by {format_bytes(round(100 * trend.bytes_per_step))} every 100 steps "
            f"since step {trend.since_step}, from {format_bytes(trend.from_bytes)} "
            f"to {format_bytes(trend.to_bytes)} at step {trend.last_step}"
        )
        text += jumps_text(self.jumps)
        if self.owner is not None and self.owner_bytes is not None:
            layer, category = self.owner
            name = category.replace("_", " ")
            if category != "held_tensors":
                name += f" of {layer}" if layer is not None else ", not tied to a layer"
            text += f"; largest growth{self.span()}: {name}, {format_bytes(self.owner_bytes)}"
            if self.rounding_bytes:
                text += f" and {format_bytes(self.rounding_bytes)} of rounding"
            text += "".join(f", {part}" for part in self.origin())
        if self.capacity_step is not None:
            text += f"; at this rate memory runs out by step {self.capacity_step}, earlier with fragmentation"
        return f"{text}." if self.cause is None else f"{text}. Cause: {self.cause.text}."

    def span(self) -> str:
        return "" if self.owner_steps is None else " from step {} to step {}".format(*self.owner_steps)

    def origin(self) -> tuple[str, ...]:
        parts = (self.held_by and f"kept alive by {self.held_by}", self.line and f"made at {self.line}")
        return tuple(part for part in parts if part)


def jumps_text(jumps: Iterable[tuple[int, int]]) -> str:
    """The step and size of each jump as a clause on their sum, to follow the levels before and after them."""
    jumped = sum(size for _, size in jumps)
    return f" (including {'jumps' if jumped > 0 else 'drops'} of {format_bytes(abs(jumped))})" if jumped else ""


def find_growth(run: Run) -> list[Growth]:
    return [growth for device in run.samples.devices if (growth := growth_of(run, device)) is not None]


def growth_of(run: Run, device: str, phase: Phase | None = None) -> Growth | None:
    """Find growing memory of a device over the steps of a phase, by default its `device_phase`; see `examined`."""
    phase = device_phase(run, device) if phase is None else phase
    run = examined(run, device, phase)
    figures = run.samples.devices.get(device)
    if figures is None:
        return None
    # Memory in use at step end is the clearer sign of a leak; the peak is examined only if it does not grow.
    for at_peak, column in ((False, figures.in_use_bytes), (True, figures.peak_bytes)):
        rows = phase_rows(run.samples, column, phase)
        found = trend_between_jumps(run.samples.step[rows], column[rows], run.layer_tables)
        if found is not None:
            trend, jumps = found
            snapshots = traced_of(run, device, phase, trend, jumps)
            owner, owner_bytes, rounding, traced = _owner(run, snapshots, trend) or (None, None, 0, None)
            above = 0 if at_peak else _above_end(figures, rows)
            full = _capacity_step(trend, above, figures.capacity_bytes)
            held_by, line = _holder_and_line(snapshots) if owner == (None, "held_tensors") else (None, None)
            explained = held_by is not None and _makes_up_half(owner_bytes, snapshots, trend)
            cause = None if explained else cause_of(run, device, trend, owner is not None and owner[1] in UNEXPLAINED)
            causes = (held_by, line, cause)
            return Growth(device, phase, at_peak, trend, jumps, owner, owner_bytes, traced, rounding, *causes, full)
    return None


def examined(run: Run, device: str, phase: Phase) -> Run:
    """The part of a run in which growth is looked for: of a restarted training, whose memory starts anew in each
    session, the latest one with enough steps of the phase; the whole run if no session has them."""
    sessions = runs_of_sessions(run, [device])
    return next((one for one in sessions if _has_enough(one, device, phase)), run)


def growth_bound(run: Run, device: str) -> int | None:
    """The smallest growth of a device's memory that would be found in its `device_phase`; None without enough steps."""
    phase = device_phase(run, device)
    run = examined(run, device, phase)
    figures = run.samples.devices.get(device)
    for column in () if figures is None else (figures.in_use_bytes, figures.peak_bytes):
        values = column[phase_rows(run.samples, column, phase)]
        if is_long_enough(len(values)):
            return smallest_growth(values)
    return None


def can_show_growth(run: Run, device: str) -> bool:
    return _has_enough(run, device, device_phase(run, device))


def _has_enough(run: Run, device: str, phase: Phase) -> bool:
    figures = run.samples.devices.get(device)
    return figures is not None and any(
        is_long_enough(len(phase_rows(run.samples, column, phase)))
        for column in (figures.in_use_bytes, figures.peak_bytes)
    )


def phase_rows(samples: Samples, column: Integers, phase: Phase) -> npt.NDArray[np.intp]:
    """Rows of a phase with a known value that do not follow another phase; of several with one step the last one."""
    # In a run of several workers, rows of others, whose values are unknown here, lie between those of one.
    known = np.flatnonzero(column != MISSING)
    phases = samples.phase[known]
    follows = np.ones(len(known), np.bool_)
    follows[1:] = phases[1:] == phases[:-1]
    rows: npt.NDArray[np.intp] = known[follows & (phases == PHASES.index(phase))]
    # Batches of validation and prediction have the number of the training step before them.
    return rows if phase == "train" else rows[np.diff(samples.step[rows], append=MISSING) != 0]


def _makes_up_half(size: int | None, snapshots: Sequence[Snapshot], trend: Trend) -> bool:
    """Whether bytes that were added between the first and the last snapshot are at least half of the growth."""
    steps = snapshots[-1].step - snapshots[0].step if snapshots else 0
    return size is not None and 2 * size >= trend.bytes_per_step * steps


def _above_end(figures: DeviceSamples, rows: npt.NDArray[np.intp]) -> int:
    """How far the peak of a step rises above its end, at most in the last steps: what must still fit then."""
    last = rows[-LAST_STEPS:]
    above = figures.peak_bytes[last] - figures.in_use_bytes[last]
    return int(above[figures.peak_bytes[last] != MISSING].max(initial=0))


def _capacity_step(trend: Trend, above_bytes: int, capacities: Integers) -> int | None:
    """The step whose peak, `above_bytes` above the level of the trend, reaches the capacity."""
    known = capacities[capacities != MISSING]
    if not len(known) or known[-1] <= trend.to_bytes + above_bytes:
        return None
    remaining = (float(known[-1]) - trend.to_bytes - above_bytes) / trend.bytes_per_step
    span = trend.last_step - trend.since_step
    # Extrapolate to at most ten times the observed steps.
    return trend.last_step + int(remaining) if remaining < 10 * span else None


def _owner(
    run: Run, snapshots: Sequence[Snapshot], trend: Trend
) -> tuple[tuple[str | None, str], int, int, tuple[int, int] | None] | None:
    """The (layer, category) with the largest growth from the first to the last snapshot, its growth, that of its
    rounding, and the steps of these snapshots; without them, the layer whose recorded activations grew most."""
    candidates: dict[tuple[str | None, str], int] = {}
    steps = None
    if len(snapshots) >= 2 and snapshots[-1].step > snapshots[0].step:
        first = _sums(snapshots[0])
        candidates = {name: size - first[name] for name, size in _sums(snapshots[-1]).items()}
        steps = snapshots[0].step, snapshots[-1].step
    if not any(size > 0 for size in candidates.values()):
        candidates, steps = _activation_growth(run.activations, trend), None
    owner = max(candidates, key=lambda name: candidates[name], default=None)
    if owner is None or candidates[owner] <= 0:
        return None
    if owner[1] != "rounding":
        return owner, candidates[owner], 0, steps
    # Small tensors have more rounding than bytes: name the tensors, not their rounding.
    beside = {name: size for name, size in candidates.items() if name[0] == owner[0] and name != owner and size > 0}
    cause = max(beside, key=lambda name: beside[name], default=None)
    if cause is None:
        return owner, candidates[owner], 0, steps
    return cause, beside[cause], candidates[owner], steps


def traced_of(run: Run, device: str, phase: Phase, trend: Trend, jumps: Sequence[tuple[int, int]]) -> list[Snapshot]:
    """Snapshots of a phase's steps of a trend, in the longest part of it without a jump."""
    parts: dict[int, list[Snapshot]] = {}
    for snapshot in run.snapshots:
        if snapshot.at_failure:  # in the middle of a step
            continue
        if snapshot.device == device and snapshot.phase == phase and snapshot.step >= trend.since_step:
            parts.setdefault(sum(step <= snapshot.step for step, _ in jumps), []).append(snapshot)
    return max(parts.values(), key=lambda part: part[-1].step - part[0].step, default=[])


def _holder_and_line(snapshots: Sequence[Snapshot]) -> tuple[str | None, str | None]:
    """The holder of most of the held tensors added from the first to the last snapshot, and the line that made those
    of the shape that grew most; None where unknown."""
    if len(snapshots) < 2:
        return None, None
    by_group: Counter[HeldKey] = Counter()
    by_holder: Counter[str] = Counter()
    for snapshot, sign in ((snapshots[-1], 1), (snapshots[0], -1)):
        for group in (one for one in snapshot.held_tensors if one.category == "held_tensors"):
            by_group[_held_key(group)] += sign * group.bytes
            if group.held_by is not None:
                by_holder[group.held_by] += sign * group.bytes
    held_by = max((name for name in by_holder if by_holder[name] > 0), key=lambda name: by_holder[name], default=None)
    grown = [key for key, added in by_group.items() if added > 0 and held_by in (None, key[2])]
    most = max(grown, key=lambda key: by_group[key], default=None)
    # A step that made none of them does not know their line.
    groups = (group for snapshot in reversed(snapshots) for group in snapshot.held_tensors if group.line)
    kept = (group for group in groups if group.category == "held_tensors" and _held_key(group) == most)
    return held_by, next((group.line for group in kept), None)


def _held_key(group: HeldTensorGroup) -> HeldKey:
    return group.shape, group.dtype, group.held_by


def _sums(snapshot: Snapshot) -> Counter[tuple[str | None, str]]:
    sums: Counter[tuple[str | None, str]] = Counter()
    for row in snapshot.ledger:
        sums[row.layer, row.category] += row.bytes
    return sums


def _activation_growth(activations: LayerActivations, trend: Trend) -> dict[tuple[str | None, str], int]:
    """Each layer's median over the last recorded steps of a trend, minus that over the first ones."""
    rows = np.flatnonzero(activations.step >= trend.since_step)
    if len(rows) < 4:
        return {}
    part = min(100, len(rows) // 4)
    first, last = activations.bytes[rows[:part]], activations.bytes[rows[-part:]]
    known = ((first != MISSING) & (last != MISSING)).all(axis=0)
    grown = np.median(last, axis=0) - np.median(first, axis=0)
    return {
        (path, "activations"): int(grown[column]) for column, path in enumerate(activations.layers) if known[column]
    }


MIN_SESSIONS = 4
"""Fewer earlier sessions show no growth. The first one, in which memory is taken once, is left out."""
MIN_WAITING_SHARE = 0.05
"""Unreachable models with a smaller share of the bytes in use are no finding."""


@dataclasses.dataclass(frozen=True)
class SessionGrowth:
    """Growth over the sessions of a process.

    Attributes:
        sessions: Number of the last one that ended before this run.
        first: Number of the first one that is compared.
        from_bytes, to_bytes: In use at the end of the first and of the last one, without their own models.
    """

    device: str
    sessions: int
    first: int
    bytes_per_session: float
    from_bytes: int
    to_bytes: int
    cause: Cause | None

    def short(self) -> str:
        return f"+{format_bytes(round(self.bytes_per_session))} per training since the {_ordinal(self.first)}"

    def sentence(self) -> str:
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
