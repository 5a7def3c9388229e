"""Growth of device memory over the steps of a phase, or from one training of a process to the next.
Pure.

Steps after another phase are left out, and jumps are removed; `trend` examines the remainder. Each
run has what earlier sessions of its process left in use beside their own models, so it tells of all
of them: a search or a cross-validation trains one model after another, each for too few steps to
show growth."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

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
from tb_memplugin.analysis.composition import snapshots_of
from tb_memplugin.analysis.facts import device_phase, highest_peak, latest_session, step_name
from tb_memplugin.analysis.largest import RELEVANT_SHARE, finding
from tb_memplugin.analysis.trend import (
    MIN_BYTES,
    MIN_ORDER,
    Trend,
    find_trend,
    is_long_enough,
    least_change,
    slope_and_order,
    smallest_growth,
    trend_between_jumps,
)
from tb_memplugin.schema import (
    MISSING,
    PHASES,
    Category,
    DeviceSamples,
    Finding,
    HeldTensorGroup,
    Integers,
    Phase,
    Run,
    Snapshot,
    counted,
    format_bytes,
    full_device_name,
    last_known,
    sums_by,
)

# that traced functions may hold, such as their constants
UNEXPLAINED = ("unattributed", "other_state", "rounding")
MIN_EPOCHS = 2  # in fewer epochs nothing begins anew
_EDGE = 5  # steps at an epoch's start and end whose medians tell whether memory fell in between
LAST_STEPS = 100  # steps whose peaks above their ends tell those of later steps


_Kind = TypeVar("_Kind")
_Owner: TypeAlias = tuple[str | None, Category]


class Owner(NamedTuple):
    """The layer and category with the largest growth between traced steps, the first and the last
    of which are `steps`, or in recorded activations; and growth of the rounding of the layer if
    that exceeds `bytes`, else 0."""

    layer: str | None
    category: Category
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
        full: Where the peak reaches the device's capacity at this rate; None if far away.
        epochs: Number of epochs in each of which memory grows from the same level; the trend is
            that within the last one. 0 for growth that goes on."""

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
    epochs: int = 0

    def sentence(self) -> str:
        peak = f"peak memory of a {step_name(self.phase)}"
        series = peak if self.at_peak else "memory in use at step end"
        text = f"{self.device}: {series} {rate_and_levels(self.trend, self.jumps, self.epochs)}"
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


def rate_and_levels(trend: Trend, jumps: Sequence[tuple[int, int]], epochs: int = 0) -> str:
    since = f"since step {trend.since_step}"
    if epochs:
        since = f"within each of {epochs} epochs and falls back at its end, in the last one {since}"
    return (
        f"grows by {format_bytes(round(100 * trend.bytes_per_step))} every 100 steps {since}, from "
        f"{levels_text(trend, jumps)}"
    )


def levels_text(trend: Trend, jumps: Iterable[tuple[int, int]]) -> str:
    jumped = sum(size for _, size in jumps)
    text = f"{format_bytes(trend.from_bytes)} to {format_bytes(trend.to_bytes)}"
    text += f" at step {trend.last_step}"
    if jumped:
        kind = "jumps" if jumped > 0 else "drops"
        text += f" (including {kind} of {format_bytes(abs(jumped))})"
    return text


def with_cause(text: str, cause: Cause | None) -> str:
    return f"{text}." if cause is None else f"{text}. Cause: {cause.text}."


def growth_of(run: Run, device: str, phase: Phase | None = None) -> Growth | None:
    """Find growing memory of a device over the steps of a phase, by default its `device_phase`; see
    `examined`."""
    phase = device_phase(run, device) if phase is None else phase
    run = examined(run, device, phase)
    figures = run.samples.of(device)
    for found in _trends(run, figures, phase):
        trend, jumps, at_peak = found.trend, found.jumps, found.at_peak
        # Snapshots in the longest part of the trend without a jump, or of an epoch; a failure is in
        # the middle of a step.
        breaks = found.epochs or tuple(step for step, _ in jumps)
        since = 0 if found.epochs else trend.since_step
        parts: dict[int, list[Snapshot]] = {}
        for one in snapshots_of(run, device, phase):
            if not one.at_failure and one.step >= since:
                parts.setdefault(sum(step <= one.step for step in breaks), []).append(one)
        snapshots = max(parts.values(), key=lambda part: part[-1].step - part[0].step, default=[])
        span = snapshots[-1].step - snapshots[0].step if snapshots else 0
        whole = trend.bytes_per_step * span if span else trend.added_bytes
        owner = _owner(run, snapshots if span else (), trend)
        full = None if found.epochs else _full(trend, figures, found.rows, at_peak)
        held_by, line, cause = None, None, None
        if owner is not None and owner[:2] == (None, "held_tensors"):
            held_by, line = _holder_and_line(snapshots)
        if owner is None or held_by is None or 2 * owner.bytes < whole:
            is_unexplained = owner is not None and owner.category in UNEXPLAINED
            cause = cause_of(run, device, trend, is_unexplained)
        return Growth(
            device,
            phase,
            at_peak,
            trend,
            jumps,
            owner,
            whole,
            traced=span > 0,
            held_by=held_by,
            line=line,
            cause=cause,
            full=full,
            epochs=len(found.epochs),
        )
    return None


class _Found(NamedTuple):
    trend: Trend
    jumps: tuple[tuple[int, int], ...]
    at_peak: bool
    rows: npt.NDArray[np.intp]  # of the samples
    epochs: tuple[int, ...] = ()  # first steps of the epochs in each of which memory grows


def _trends(run: Run, figures: DeviceSamples, phase: Phase) -> Iterator[_Found]:
    # Memory in use at step end is the clearer sign of a leak; the peak is examined only if it does
    # not grow.
    for at_peak, column in ((False, figures.in_use_bytes), (True, figures.peak_bytes)):
        rows = phase_rows(run, column, phase)
        found = trend_between_jumps(run.samples.step[rows], column[rows], run.layer_tables)
        if found is not None:
            yield _Found(*found, at_peak, rows)
    rows = phase_rows(run, figures.in_use_bytes, phase)
    within = _within_epochs(run, figures.in_use_bytes, rows[run.samples.epoch[rows] != MISSING])
    if within is not None:
        yield within


def _within_epochs(run: Run, column: Integers, rows: npt.NDArray[np.intp]) -> _Found | None:
    """Growth that begins anew in each epoch. At each place in the epochs, the lowest level from
    there on counts that any of them has: what one epoch has by chance or once, or what is freed
    within it, is no growth."""
    # What is freed at an epoch's end is gone when its last step is sampled.
    ends = np.flatnonzero(np.diff(run.samples.epoch[rows])) + 1
    parts = [part[:-1] for part in np.split(rows, ends)]
    longest = max(map(len, parts))
    if not is_long_enough(longest):
        return None
    whole = [part for part in parts if 2 * len(part) > longest]
    length = min(map(len, whole))
    levels = np.stack([column[part[:length]] for part in whole])
    steps = run.samples.step[whole[-1][:length]]
    lowest = levels.min(axis=0)
    trend = find_trend(steps, np.minimum.accumulate(lowest[::-1])[::-1])
    if trend is None or len(whole) < MIN_EPOCHS:
        return None
    # Levels from a place on also rise in noise.
    if slope_and_order(steps, lowest.astype(np.float64))[1] < MIN_ORDER / 2:
        return None
    fallen = np.median(levels[:-1, -_EDGE:], axis=1) - np.median(levels[1:, :_EDGE], axis=1)
    if 2 * fallen.min() < trend.to_bytes - trend.from_bytes:
        return None
    return _Found(
        trend, (), False, rows, tuple(run.samples.step[[part[0] for part in whole]].tolist())
    )


def examined(run: Run, device: str, phase: Phase) -> Run:
    """The part of a run in which growth is looked for, as `latest_session`: with enough steps of
    the phase."""
    return latest_session(
        run, [device], lambda session: growth_bound(session, device, phase) is not None
    )


def growth_bound(run: Run, device: str, phase: Phase) -> int | None:
    """The smallest growth of a device's memory that would be found in such a part; None without
    enough steps."""
    figures = run.samples.of(device)
    for column in (figures.in_use_bytes, figures.peak_bytes):
        values = column[phase_rows(run, column, phase)]
        if is_long_enough(len(values)):
            return smallest_growth(values)
    return None


def phase_rows(run: Run, column: Integers, phase: Phase) -> npt.NDArray[np.intp]:
    """Rows of a phase with a known value that do not follow another phase, or only those that do if
    they are more; of several with one step the last one."""
    # In a run of several workers, rows of others, whose values are unknown here, lie between those
    # of one.
    known = np.flatnonzero(column != MISSING)
    phases = run.samples.phase[known]
    follows = np.ones(len(known), np.bool_)
    follows[1:] = phases[1:] == phases[:-1]
    of_phase = phases == PHASES.index(phase)
    is_alike = follows if 2 * follows[of_phase].sum() >= of_phase.sum() else ~follows
    rows: npt.NDArray[np.intp] = known[of_phase & is_alike]
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
    last, capacity = rows[-LAST_STEPS:], last_known(figures.capacity_bytes)
    peaks, level = figures.peak_bytes[last], trend.to_bytes
    if not at_peak:
        level += int((peaks - figures.in_use_bytes[last])[peaks != MISSING].max(initial=0))
    if capacity is None or capacity <= level:
        return None
    remaining = (capacity - level) / trend.bytes_per_step
    # Extrapolate to at most ten times the observed steps.
    is_near = remaining < 10 * (trend.last_step - trend.since_step)
    return Full(trend.last_step + int(remaining), level, capacity) if is_near else None


def _owner(run: Run, snapshots: Sequence[Snapshot], trend: Trend) -> Owner | None:
    """The owner by the first and the last snapshot; without them, the layer whose recorded
    activations grew most."""
    grown: dict[_Owner, int] = {}
    steps = None
    if snapshots:
        before, after = (
            sums_by(one.ledger, lambda row: (row.layer, row.category))
            for one in (snapshots[0], snapshots[-1])
        )
        grown = after - before  # without what did not grow
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
    held = [
        [group for group in one.held_tensors if group.category == "held_tensors"]
        for one in snapshots
    ]

    def grown(key: Callable[[HeldTensorGroup], _Kind]) -> Counter[_Kind]:
        return sums_by(held[-1], key) - sums_by(held[0], key)

    by_holder = grown(lambda group: group.held_by)
    del by_holder[None]
    held_by = max(by_holder, key=by_holder.__getitem__, default=None)
    by_kind = grown(_kind_of)
    of_holder = (kind for kind in by_kind if held_by in (None, kind[2]))
    most = max(of_holder, key=by_kind.__getitem__, default=None)
    # A step that made none of them does not know their line.
    lines = (
        group.line
        for groups in reversed(held)
        for group in groups
        if group.line and _kind_of(group) == most
    )
    return held_by, next(lines, None)


def _kind_of(group: HeldTensorGroup) -> tuple[tuple[int, ...], str, str | None]:
    return group.shape, group.dtype, group.held_by


# fewer earlier ones show no growth; the first one, in which memory is taken once, is left out
MIN_SESSIONS = 4


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
            f"{self.device}: memory in use grows by {format_bytes(round(self.bytes_per_session))} "
            f"from one training of this process to the next, from {format_bytes(self.from_bytes)} "
            f"after the {_ordinal(self.first)} to {format_bytes(self.to_bytes)} after the "
            f"{_ordinal(self.sessions)}, each without its own model",
            self.cause,
        )


def session_growth(run: Run, device: str) -> SessionGrowth | None:
    """Growth over the earlier sessions of the process that recorded a device last; None without
    one."""
    counters, own = counters_of(run, device)
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
    several = growth - float(rises.max(initial=0))
    if slope <= 0 or order < MIN_ORDER or several < least_change(sizes[0]):
        return None
    first, last = int(numbers[0]), int(numbers[-1])
    until = int(counters.step[rows[-1]])
    cause = cause_of_models(counters, own, float(sizes[-1]), until)
    return SessionGrowth(device, last, first, slope, int(sizes[0]), int(sizes[-1]), cause)


def growth_findings(worker: str, run: Run) -> list[Finding]:
    """Those on device memory of one worker, over steps and trainings, and on models that only a
    collection frees."""
    found: list[Finding] = []
    for device in run.samples.devices:
        name, highest = full_device_name(worker, device), highest_peak(run, device)
        peak = None if highest is None else highest.bytes
        steps, sessions = growth_of(run, device), session_growth(run, device)
        if steps is not None:
            trend = steps.trend
            span = worker, device, trend.since_step, trend.last_step
            text = dataclasses.replace(steps, device=name).sentence()
            found.append(finding("growth", text, *span, trend.added_bytes, peak))
        if sessions is not None:
            text = dataclasses.replace(sessions, device=name).sentence()
            added = sessions.to_bytes - sessions.from_bytes
            place = worker, device, None, None
            found.append(finding("session_growth", text, *place, added, peak))
        growths: list[Growth | SessionGrowth | None] = [steps, sessions]
        causes = (one.cause.kind for one in growths if one is not None and one.cause is not None)
        if "models_unreachable" not in causes:
            found += _collector_finding(run, device, worker)
    return found


def _collector_finding(run: Run, device: str, worker: str) -> list[Finding]:
    """That on models that only Python's garbage collector can free, when they took most; none if
    that was little."""
    counters, own = counters_of(run, device)
    figures = run.samples.devices[device]
    rows = rows_by_counter(counters).get(("models_unreachable", own), [])
    if not rows:
        return []
    row = max(rows, key=lambda at: int(counters.bytes[at]) if counters.count[at] > 0 else 0)
    size, step = int(counters.bytes[row]), int(counters.step[row])
    in_use = int(figures.in_use_bytes[run.samples.step == step].max(initial=0))
    if min(size, in_use) < max(MIN_BYTES, RELEVANT_SHARE * in_use):
        return []
    models = counted(int(counters.count[row]), "model")
    text = (
        f"{full_device_name(worker, device)}: {models} ({format_bytes(size)}) could no longer be "
        f"reached at step {step}, but wait for Python's garbage collector. Called after a model is "
        f"dropped, {what_collecting_frees(size, in_use)}."
    )
    freed = min(size, in_use)
    return [finding("unreachable_models", text, worker, device, None, step, freed, in_use)]


def _ordinal(number: int) -> str:
    suffix = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{suffix}"
