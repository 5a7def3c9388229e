"""Growth of device memory over the steps of a phase, or from one training of a process to the next.
Pure.

Steps after another phase are left out, and jumps are removed; `trend` examines the remainder. Each
run has what earlier sessions of its process left in use beside their own models, so it tells of all
of them: a search or a cross-validation trains one model after another, each for too few steps to
show growth."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.causes import (
    Cause,
    cause_of,
    cause_of_models,
    counters_of,
    rows_by_counter,
    what_collecting_frees,
)
from tb_memplugin.analysis.facts import device_phase, latest_session, step_name
from tb_memplugin.analysis.trend import (
    MIN_BYTES,
    MIN_ORDER,
    Trend,
    is_long_enough,
    least_change,
    slope_and_order,
    smallest_growth,
    trend_between_jumps,
)
from tb_memplugin.schema import (
    MISSING,
    PHASES,
    DeviceSamples,
    Integers,
    Phase,
    Run,
    Snapshot,
    counted,
    format_bytes,
    full_device_name,
)

# that traced functions may hold, such as their constants
UNEXPLAINED = ("unattributed", "other_state", "rounding")
LAST_STEPS = 100  # steps whose peaks above their ends tell those of later steps


_Owner: TypeAlias = tuple[str | None, str]


class Owner(NamedTuple):
    """The layer and category with the largest growth between traced steps, the first and the last
    of which are `steps`, or in recorded activations; and growth of the rounding of the layer if
    that exceeds `bytes`, else 0."""

    layer: str | None
    category: str
    bytes: int
    rounding_bytes: int
    steps: tuple[int, int] | None

    def span(self) -> str:
        return "" if self.steps is None else " from step {} to step {}".format(*self.steps)


@dataclasses.dataclass(frozen=True)
class Growth:
    """Growth of a device's memory: of the peak, or else of the memory in use at step end.

    Attributes:
        trend, jumps: A rate without jumps, levels as measured; step and size in bytes of each jump
            since it began.
        whole_bytes: All that was added over the traced steps of the trend if it has two (`traced`),
            or over its steps.
        held_by, line: If the owner is held tensors, the holder of most of them, and the line that
            made most of these.
        cause: Why it grows, by the program's counters; None if they do not tell it, or if the
            holder is known.
        full: Where the peak reaches the device's capacity at this rate; None if far away."""

    device: str
    phase: Phase
    at_peak: bool
    trend: Trend
    jumps: tuple[tuple[int, int], ...]
    owner: Owner | None
    whole_bytes: float
    traced: bool
    held_by: str | None
    line: str | None
    cause: Cause | None
    full: "Full | None"

    def sentence(self) -> str:
        series = (
            f"peak memory of a {step_name(self.phase)}"
            if self.at_peak
            else ("memory in use at step end")
        )
        text = f"{self.device}: {series} {rate_and_levels(self.trend, self.jumps)}"
        owner = self.owner
        if owner is not None:
            name = owner.category.replace("_", " ")
            if owner.category != "held_tensors":
                name += f" of {owner.layer}" if owner.layer is not None else ", not tied to a layer"
            text += f"; largest growth{owner.span()}: {name}, {format_bytes(owner.bytes)}"
            if owner.rounding_bytes:
                text += f" and {format_bytes(owner.rounding_bytes)} of rounding"
            text += "".join(f", {part}" for part in self.origin())
        if self.full is not None:
            text += (
                f"; at this rate memory runs out by step {self.full.capacity_step}, earlier with "
                "fragmentation"
            )
        return with_cause(text, self.cause)

    def seen_until(self) -> int:
        """The last step of a picture: that at which the device is full, if the growth takes a third
        of it or more."""
        since, last = self.trend.since_step, self.trend.last_step
        return (
            last if self.full is None else min(self.full.capacity_step, last + 2 * (last - since))
        )

    def origin(self) -> tuple[str, ...]:
        parts = (
            self.held_by and f"kept alive by {self.held_by}",
            self.line and f"made at {self.line}",
        )
        return tuple(part for part in parts if part)


def rate_and_levels(trend: Trend, jumps: Sequence[tuple[int, int]]) -> str:
    return (
        f"grows by {format_bytes(round(100 * trend.bytes_per_step))} every 100 steps since step "
        f"{trend.since_step}, from {levels_text(trend, jumps)}"
    )


def levels_text(trend: Trend, jumps: Iterable[tuple[int, int]]) -> str:
    jumped = sum(size for _, size in jumps)
    including = (
        (f" (including {'jumps' if jumped > 0 else 'drops'} of {format_bytes(abs(jumped))})")
        if jumped
        else ""
    )
    return (
        f"{format_bytes(trend.from_bytes)} to {format_bytes(trend.to_bytes)} at step "
        f"{trend.last_step}{including}"
    )


def with_cause(text: str, cause: Cause | None) -> str:
    return f"{text}." if cause is None else f"{text}. Cause: {cause.text}."


def growth_of(run: Run, device: str, phase: Phase | None = None) -> Growth | None:
    """Find growing memory of a device over the steps of a phase, by default its `device_phase`; see
    `examined`."""
    phase = device_phase(run, device) if phase is None else phase
    run = examined(run, device, phase)
    figures = run.samples.devices.get(device)
    if figures is None:
        return None
    # Memory in use at step end is the clearer sign of a leak; the peak is examined only if it does
    # not grow.
    for at_peak, column in ((False, figures.in_use_bytes), (True, figures.peak_bytes)):
        rows = phase_rows(run, column, phase)
        found = trend_between_jumps(run.samples.step[rows], column[rows], run.layer_tables)
        if found is None:
            continue
        trend, jumps = found
        # Snapshots in the longest part of the trend without a jump; a failure is in the middle of a
        # step.
        parts: dict[int, list[Snapshot]] = {}
        for one in run.snapshots:
            if (
                not one.at_failure
                and (one.device, one.phase) == (device, phase)
                and one.step >= trend.since_step
            ):
                parts.setdefault(sum(step <= one.step for step, _ in jumps), []).append(one)
        snapshots = max(parts.values(), key=lambda part: part[-1].step - part[0].step, default=[])
        traced = len(snapshots) >= 2 and snapshots[-1].step > snapshots[0].step
        steps = (
            snapshots[-1].step - snapshots[0].step if traced else trend.last_step - trend.since_step
        )
        whole = trend.bytes_per_step * steps
        owner = _owner(run, snapshots if traced else (), trend)
        full = _full(trend, figures, rows, at_peak)
        held_by, line, cause = None, None, None
        if owner is not None and owner[:2] == (None, "held_tensors"):
            held_by, line = _holder_and_line(snapshots)
        if owner is None or held_by is None or 2 * owner.bytes < whole:
            cause = cause_of(
                run, device, trend, owner is not None and owner.category in UNEXPLAINED
            )
        return Growth(
            device, phase, at_peak, trend, jumps, owner, whole, traced, held_by, line, cause, full
        )
    return None


def examined(run: Run, device: str, phase: Phase) -> Run:
    """The part of a run in which growth is looked for, as `latest_session`: with enough steps of
    the phase."""
    return latest_session(
        run, [device], lambda session: growth_bound(session, device, phase) is not None
    )


def growth_bound(run: Run, device: str, phase: Phase) -> int | None:
    """The smallest growth of a device's memory that would be found in such a part; None without
    enough steps."""
    figures = run.samples.devices.get(device)
    for column in () if figures is None else (figures.in_use_bytes, figures.peak_bytes):
        values = column[phase_rows(run, column, phase)]
        if is_long_enough(len(values)):
            return smallest_growth(values)
    return None


def phase_rows(run: Run, column: Integers, phase: Phase) -> npt.NDArray[np.intp]:
    """Rows of a phase with a known value that do not follow another phase; of several with one step
    the last one."""
    # In a run of several workers, rows of others, whose values are unknown here, lie between those
    # of one.
    known = np.flatnonzero(column != MISSING)
    phases = run.samples.phase[known]
    follows = np.ones(len(known), np.bool_)
    follows[1:] = phases[1:] == phases[:-1]
    rows: npt.NDArray[np.intp] = known[follows & (phases == PHASES.index(phase))]
    # Batches of validation and prediction have the number of the training step before them.
    return rows if phase == "train" else rows[np.diff(run.samples.step[rows], append=MISSING) != 0]


class Full(NamedTuple):
    """The step by which the peak reaches the capacity, and its level at the last step of the
    trend."""

    capacity_step: int
    last_peak_bytes: int
    capacity_bytes: int


def _full(
    trend: Trend, figures: DeviceSamples, rows: npt.NDArray[np.intp], at_peak: bool
) -> Full | None:
    """The step whose peak reaches the capacity: that of the last steps is at most so far above the
    trend's level."""
    last, capacities = rows[-LAST_STEPS:], figures.capacity_bytes[figures.capacity_bytes != MISSING]
    peaks = figures.peak_bytes[last]
    above = (
        0 if at_peak else int((peaks - figures.in_use_bytes[last])[peaks != MISSING].max(initial=0))
    )
    level = trend.to_bytes + above
    if not len(capacities) or capacities[-1] <= level:
        return None
    remaining = (float(capacities[-1]) - level) / trend.bytes_per_step
    # Extrapolate to at most ten times the observed steps.
    is_near = remaining < 10 * (trend.last_step - trend.since_step)
    return (
        Full(trend.last_step + int(remaining), int(level), int(capacities[-1])) if is_near else None
    )


def _owner(run: Run, snapshots: Sequence[Snapshot], trend: Trend) -> Owner | None:
    """The owner by the first and the last snapshot; without them, the layer whose recorded
    activations grew most."""
    grown: dict[_Owner, int] = {}
    steps = None
    if snapshots:
        sums: tuple[Counter[_Owner], Counter[_Owner]] = Counter(), Counter()
        for of_snapshot, snapshot in zip(sums, (snapshots[0], snapshots[-1]), strict=True):
            for row in snapshot.ledger:
                of_snapshot[row.layer, row.category] += row.bytes
        grown = {
            name: size - sums[0][name] for name, size in sums[1].items() if size > sums[0][name]
        }
        steps = snapshots[0].step, snapshots[-1].step
    if not grown:
        # Each layer's median over the last recorded steps, minus that over the first ones.
        recorded, steps = run.activations, None
        rows = np.flatnonzero(recorded.step >= trend.since_step)
        part = min(100, len(rows) // 4)
        if part:
            first, last = recorded.bytes[rows[:part]], recorded.bytes[rows[-part:]]
            added = np.median(last, axis=0) - np.median(first, axis=0)
            rising = ((first != MISSING) & (last != MISSING)).all(axis=0) & (added >= 1)
            grown = {
                (recorded.layers[at], "activations"): int(added[at])
                for at in np.flatnonzero(rising).tolist()
            }
    name = max(grown, key=lambda name: grown[name], default=None)
    if name is None:
        return None
    # Small tensors have more rounding than bytes: name the tensors, not their rounding.
    beside = {other: size for other, size in grown.items() if other[0] == name[0] and other != name}
    if name[1] != "rounding" or not beside:
        return Owner(*name, grown[name], 0, steps)
    other = max(beside, key=lambda other: beside[other])
    return Owner(*other, beside[other], grown[name], steps)


def _holder_and_line(snapshots: Sequence[Snapshot]) -> tuple[str | None, str | None]:
    """The holder of most of the held tensors added from the first to the last snapshot, and the
    line that made those of the shape that grew most; None where unknown."""
    by_group: Counter[tuple[tuple[int, ...], str, str | None]] = Counter()
    by_holder: Counter[str] = Counter()
    for snapshot, sign in ((snapshots[-1], 1), (snapshots[0], -1)):
        for group in (one for one in snapshot.held_tensors if one.category == "held_tensors"):
            by_group[group.shape, group.dtype, group.held_by] += sign * group.bytes
            if group.held_by is not None:
                by_holder[group.held_by] += sign * group.bytes
    held_by = max(
        (name for name in by_holder if by_holder[name] > 0),
        key=lambda name: by_holder[name],
        default=None,
    )
    grown = [key for key, added in by_group.items() if added > 0 and held_by in (None, key[2])]
    most = max(grown, key=lambda key: by_group[key], default=None)
    # A step that made none of them does not know their line.
    groups = (group for snapshot in reversed(snapshots) for group in snapshot.held_tensors)
    kept = (group for group in groups if group.line and group.category == "held_tensors")
    return held_by, next(
        (one.line for one in kept if (one.shape, one.dtype, one.held_by) == most), None
    )


# fewer earlier ones show no growth; the first one, in which memory is taken once, is left out
MIN_SESSIONS = 4
# unreachable models with a smaller share of the bytes in use are no finding
MIN_WAITING_SHARE = 0.05


@dataclasses.dataclass(frozen=True)
class SessionGrowth:
    """Growth over the sessions of a process, from number `first` to the last one that ended before
    this run; bytes in use at their ends are without their own models."""

    device: str
    sessions: int
    first: int
    bytes_per_session: float
    from_bytes: int
    to_bytes: int
    cause: Cause | None

    def short(self) -> str:
        return (
            f"+{format_bytes(round(self.bytes_per_session))} per training since the "
            f"{_ordinal(self.first)}"
        )

    def sentence(self) -> str:
        return with_cause(
            f"{self.device}: memory in use grows by "
            f"{format_bytes(round(self.bytes_per_session))} from one training of this process to "
            f"the next, from {format_bytes(self.from_bytes)} after the {_ordinal(self.first)} to "
            f"{format_bytes(self.to_bytes)} after the {_ordinal(self.sessions)}, each without "
            "its own model",
            self.cause,
        )


def session_growth(run: Run, device: str) -> SessionGrowth | None:
    """Growth over the earlier sessions of the process that recorded a device last; None without
    one."""
    counters, own = counters_of(run, device)
    if counters is None:
        return None
    rows = rows_by_counter(counters).get(("earlier_sessions", own), [])
    numbers, sizes = counters.count[rows], counters.bytes[rows]
    known = (sizes != MISSING) & (numbers > 1)
    numbers, sizes = numbers[known], sizes[known].astype(np.float64)
    if len(numbers) < MIN_SESSIONS:
        return None
    slope, order = slope_and_order(numbers.astype(np.float64), sizes)
    rises = np.diff(np.maximum.accumulate(sizes))
    growth = float(sizes[-1] - sizes[0])
    # In a single rise, memory is taken once.
    if (
        slope <= 0
        or order < MIN_ORDER
        or growth - float(rises.max(initial=0)) < least_change(sizes[0])
    ):
        return None
    first, last = int(numbers[0]), int(numbers[-1])
    cause = cause_of_models(counters, own, float(sizes[-1]))
    return SessionGrowth(device, last, first, slope, int(sizes[0]), int(sizes[-1]), cause)


def growth_findings(worker: str, run: Run) -> list[str]:
    """Those on device memory of one worker, over steps and trainings, and on models that only a
    collection frees."""
    found: list[str] = []
    for device in run.samples.devices:
        name = full_device_name(worker, device)
        growths = [
            growth
            for growth in (growth_of(run, device), session_growth(run, device))
            if growth is not None
        ]
        found += [dataclasses.replace(growth, device=name).sentence() for growth in growths]
        if not any(
            growth.cause is not None and growth.cause.kind == "models_unreachable"
            for growth in growths
        ):
            found += _collector_finding(run, device, name)
    return found


def _collector_finding(run: Run, device: str, name: str) -> list[str]:
    """That on models that only Python's garbage collector can free, when they took most; none if
    that was little."""
    counters, own = counters_of(run, device)
    figures = run.samples.devices[device]
    rows = (
        [] if counters is None else rows_by_counter(counters).get(("models_unreachable", own), [])
    )
    if counters is None or not rows:
        return []
    row = max(rows, key=lambda at: int(counters.bytes[at]) if counters.count[at] > 0 else 0)
    size, step = int(counters.bytes[row]), int(counters.step[row])
    in_use = int(figures.in_use_bytes[run.samples.step == step].max(initial=0))
    if min(size, in_use) < max(MIN_BYTES, MIN_WAITING_SHARE * in_use):
        return []
    models = counted(int(counters.count[row]), "model")
    return [
        f"{name}: {models} ({format_bytes(size)}) could no longer be reached at step {step}, but "
        "wait for Python's garbage collector. Called after a model is dropped, "
        f"{what_collecting_frees(size, in_use)}."
    ]


def _ordinal(number: int) -> str:
    suffix = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{suffix}"
