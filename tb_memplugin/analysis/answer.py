"""The four questions on a run, answered for a device: does it fit, grow, fragment, and what
changed? Each answer is a sentence, how it is known, and where its evidence is. From these what is
wrong with a run in one word, and which run of a directory to open first. Pure."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from tb_memplugin.analysis.causes import Cause
from tb_memplugin.analysis.changes import StepChange, step_changes
from tb_memplugin.analysis.composition import snapshots_of, step_rows
from tb_memplugin.analysis.facts import (
    capacity_of,
    device_names,
    device_phase,
    fitting_peak,
    range_of,
)
from tb_memplugin.analysis.growth import (
    Growth,
    SessionGrowth,
    examined,
    growth_bound,
    growth_of,
    levels_text,
    session_growth,
)
from tb_memplugin.analysis.host import CPU, HostGrowth, host_growth
from tb_memplugin.analysis.largest import RELEVANT_SHARE
from tb_memplugin.analysis.trend import MIN_JUMP_STEPS, Trend, least_change
from tb_memplugin.schema import (
    MISSING,
    Category,
    Oom,
    Phase,
    Pool,
    Run,
    RunStatus,
    format_bytes,
    full_device_name,
    is_cpu,
    last_known,
    lost_step_notes,
    measured_pools,
    take_rows,
    values_of,
)

AnswerName: TypeAlias = Literal["fits", "growing", "fragmented", "changed"]
AnswerStatus: TypeAlias = Literal["ok", "warning", "failed", "fact", "unknown"]
"""What to do: nothing; soon something, as it will fail or is wasted; repair it, as it failed or
caused the failure. A fact asks for nothing."""
AnswerSource: TypeAlias = Literal["measured", "inferred", "unknown"]
EvidenceView: TypeAlias = Literal["overview", "fragmentation", "oom", "compare"]

QUESTIONS: Mapping[AnswerName, str] = {
    "fits": "Fits?",
    "growing": "Growing?",
    "fragmented": "Fragmented?",
    "changed": "What changed?",
}


@dataclasses.dataclass(frozen=True)
class AnswerEvidence:
    """The place of the page that shows an answer; `oom` is an index in the run's failures."""

    view: EvidenceView
    step: int | None = None
    phase: Phase | None = None
    other_step: int | None = None
    category: Category | None = None
    layer: str | None = None
    zoom: tuple[int, int] | None = None
    oom: int | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer on one device, None for a run without allocator data. `figures` are the numbers
    behind the sentence, sizes in bytes under names that end in ``_bytes``; `details` are sentences
    on what it leaves out."""

    question: str
    name: AnswerName
    device: str | None
    sentence: str
    status: AnswerStatus
    source: AnswerSource
    evidence: AnswerEvidence
    figures: Mapping[str, int | float]
    details: tuple[str, ...] = ()


_OVERVIEW = AnswerEvidence("overview")


def _answer(
    name: AnswerName,
    sentence: str,
    status: AnswerStatus,
    evidence: AnswerEvidence,
    figures: Mapping[str, int | float | None],
    details: Iterable[str] = (),
    source: AnswerSource = "measured",
) -> Answer:
    """An answer with the figures that are known; `answers` adds the device."""
    known = {figure: value for figure, value in figures.items() if value is not None}
    of = QUESTIONS[name]
    return Answer(of, name, None, sentence, status, source, evidence, known, tuple(details))


def _unknown(
    name: AnswerName, sentence: str, evidence: AnswerEvidence = _OVERVIEW, **figures: int | None
) -> Answer:
    return _answer(name, sentence, "unknown", evidence, figures, source="unknown")


def _too_little(run: Run, device: str, few: str) -> str:
    """Why an answer about steps is unknown: there are too `few`, unless no step tells anything."""
    return few if device in run.samples.devices else "Bytes in use were not sampled"


LITTLE_HEADROOM = 0.05  # less, as a share of the capacity, is a warning
LARGE_WASTE = 0.05
"""Free memory outside the largest free chunk is a warning if it is more than this share of the
pool, more than half of the free memory, and more than the pool can still grow by."""


def fits(run: Run, device: str, phase: Phase) -> Answer:
    """Peak and headroom, or the newest failure of the device if no step was recorded after it."""
    run, failure, again = _since_failure(run, device, phase)
    if failure is not None and again is None:
        oom = failure[1]
        details = [oom.outcome] if oom.status == "survived" else []
        sizes = ("requested_bytes", "in_use_bytes", *_SIZES, "capacity_bytes")
        sentence, evidence = _failure_sentence(oom), _at_failure(*failure)
        return _answer("fits", sentence, "failed", evidence, values_of(oom, *sizes), details)
    peak, capacity = fitting_peak(run, device, phase), capacity_of(run, device)
    if peak is None:
        return _unknown("fits", "No peak recorded", capacity_bytes=capacity)
    headroom = None if capacity is None else capacity - peak.bytes
    status: AnswerStatus = "unknown"
    size = format_bytes(peak.bytes)
    if capacity is None or headroom is None:
        sentence = f"Peak {size}, capacity unknown"
    elif peak.at_step_end:
        sentence = f"At least {_of(peak.bytes, capacity)}: peak unknown"
    elif headroom < 0:
        sentence = f"Peak {size}, above the capacity of {format_bytes(capacity)}"
    else:
        memory = last_known(run.samples.of(device).driver_total_bytes)
        is_unlimited = is_cpu(device) and memory == capacity
        room = "no limit is set" if is_unlimited else f"{format_bytes(headroom)} headroom"
        since = "" if again is None else f"Since step {again}: "
        sentence = f"{since}{_of(peak.bytes, capacity)} at peak, {room}"
        status = "warning" if since or headroom < LITTLE_HEADROOM * capacity else "ok"
        if status == "ok" and (run.damage or lost_step_notes(run.notes)):
            # A step that could not be read may have the highest peak.
            sentence, status = f"At least {_of(peak.bytes, capacity)} at peak", "unknown"
    return _answer(
        "fits",
        sentence,
        status,
        AnswerEvidence("overview", step=peak.step, phase=peak.phase),
        {"peak_bytes": peak.bytes, "capacity_bytes": capacity, "headroom_bytes": headroom},
        [] if failure is None else [f"Before: {_failure_sentence(failure[1])}."],
    )


def fragmented(run: Run, device: str, phase: Phase) -> Answer:
    """Free bytes and the largest free chunk at the failure, or at the traced or measured step with
    the highest peak, which is named if it is not the step of the peak that `fits` tells."""
    run, failure, again = _since_failure(run, device, phase)
    if failure is not None and again is None:
        return _fragmented_failure(*failure)
    state = _pool_at_peak(run, device, phase)
    if state is None:
        evidence = AnswerEvidence("fragmentation", phase=phase)
        return _unknown("fragmented", "No memory map recorded", evidence)
    step, pool, largest, capacity, at_peak = state
    when = "at peak" if at_peak else "at step end"
    if not _is_the_peak(run, device, phase, step):
        when = f"at step {step}" if at_peak else f"at the end of step {step}"
    return _answer(
        "fragmented",
        _free(pool.free_bytes, largest, when),
        _judgement(pool.free_bytes, largest, pool.pool_bytes, capacity),
        AnswerEvidence("fragmentation", step=step, phase=phase),
        {**values_of(pool, *_SIZES, "pool_bytes"), "capacity_bytes": capacity},
    )


def _is_the_peak(run: Run, device: str, phase: Phase, step: int) -> bool:
    """Whether a step's measured peak is, as it is shown, the one that `fits` tells."""
    steps, figures = step_rows(run, device, phase)
    own, highest = figures.peak_bytes[steps == step], fitting_peak(run, device, phase)
    if highest is None or not len(own):
        return True
    return format_bytes(int(own.max())) == format_bytes(highest.bytes)


_SIZES = ("free_bytes", "largest_free_bytes")
_Failure: TypeAlias = tuple[int, Oom]  # index in the run's failures, and the failure


def _since_failure(run: Run, device: str, phase: Phase) -> tuple[Run, _Failure | None, int | None]:
    """What follows the newest failed allocation of a device, or the whole run without one; that
    failure; and the first step after it, None without a peak after it: the failure is the last that
    is known."""
    failures = [(at, oom) for at, oom in enumerate(run.ooms) if oom.device == device]
    newest = max(failures, key=lambda one: (one[1].wall_time, one[0]), default=None)
    if newest is None:
        return run, None, None
    oom, samples = newest[1], run.samples
    known = np.flatnonzero(samples.of(device).least_peak_bytes != MISSING)
    restart = min(
        (start for start in run.session_starts if start > oom.wall_time), default=math.inf
    )
    rows = known[
        oom.rows_after(samples.step[known], samples.phase[known], samples.wall_time[known], restart)
    ]
    snapshots = tuple(
        one
        for one in run.snapshots
        if one.wall_time > oom.wall_time and one.step in samples.step[rows]
    )
    later = dataclasses.replace(run, samples=take_rows(samples, rows), snapshots=snapshots)
    if not len(rows) or fitting_peak(later, device, phase) is None:
        return run, newest, None
    return later, newest, int(samples.step[rows[0]])


def failure_of(run: Run, device: str | None) -> Oom | None:
    """The newest failure of a device if no step was recorded after it."""
    if device is None:
        return None
    _, failure, again = _since_failure(run, device, device_phase(run, device))
    return failure[1] if failure is not None and again is None else None


def _failure_sentence(oom: Oom) -> str:
    when = " ".join(filter(None, ("OOM", oom.place.removesuffix(" (train)"))))
    size = oom.requested_bytes
    return when if size is None else f"{when}: {format_bytes(size)} requested"


def _fragmented_failure(index: int, oom: Oom) -> Answer:
    free, largest, evidence = oom.free_bytes, oom.largest_free_bytes, _at_failure(index, oom)
    figures = values_of(oom, "requested_bytes", *_SIZES, "pool_bytes")
    if free is None or largest is None:
        sentence = "No memory map of the failure"
        if free is not None:
            sentence = f"{format_bytes(free)} free at the failure, chunks unknown"
        return _unknown("fragmented", sentence, evidence, **figures)
    status: AnswerStatus = "failed" if oom.verdict == "fragmentation" else "unknown"
    if status == "unknown" and oom.pool_bytes is not None:
        is_wasted = _judgement(free, largest, oom.pool_bytes, oom.capacity_bytes) == "warning"
        status = "warning" if is_wasted else "fact"
    sentence = _free(free, largest, "at the failure")
    return _answer("fragmented", sentence, status, evidence, figures)


def _judgement(free: int, largest: int, pool: int, capacity: int | None) -> AnswerStatus:
    wasted = free - largest
    can_grow = capacity is not None and capacity - pool >= wasted
    return "warning" if 2 * wasted > free and wasted > LARGE_WASTE * pool and not can_grow else "ok"


def _at_failure(index: int, oom: Oom) -> AnswerEvidence:
    return AnswerEvidence("oom", step=oom.step, phase=oom.phase, oom=index)


def _pool_at_peak(
    run: Run, device: str, phase: Phase
) -> tuple[int, Pool, int, int | None, bool] | None:
    """The pool at the highest traced peak, or else at the end of the measured step with the highest
    peak: its step, the largest free chunk, the capacity, and whether it is at the peak."""
    described = [
        (one.step, pool, pool.largest_free_bytes, one.capacity_bytes, True)
        for one in snapshots_of(run, device, phase)
        if (pool := one.pool) is not None and pool.largest_free_bytes is not None
    ]
    if described:
        return max(described, key=lambda one: (one[1].in_use_bytes, -one[0]))
    steps, figures = step_rows(run, device, phase)
    measured = np.flatnonzero(measured_pools(figures))
    if not len(measured):
        return None
    row = int(measured[np.argmax(figures.peak_bytes[measured])])
    largest = int(figures.largest_free_bytes[row])
    pool = Pool(int(figures.pool_bytes[row]), int(figures.in_use_bytes[row]), largest)
    return int(steps[row]), pool, largest, capacity_of(run, device), False


def _of(size: int, whole: int) -> str:
    """ "14.2 of 16.0 GiB", or with two units where they differ."""
    one, other = format_bytes(size), format_bytes(whole)
    number, unit = one.split(" ")
    return f"{number} of {other}" if other.endswith(f" {unit}") else f"{one} of {other}"


def _free(free: int, largest: int, when: str) -> str:
    if not free:
        return f"Nothing free in the pool {when}"
    one, other = format_bytes(free), format_bytes(largest)
    number, unit = one.split(" ")
    # One unit where a step is named: an answer is a line.
    is_long = when[-1].isdigit() and other.endswith(f" {unit}")
    return f"{number if is_long else one} free {when}, largest {other}"


def growing(run: Run, device: str, phase: Phase) -> Answer:
    """The growth over the steps of the `device_phase`, or else of `phase`, with the category that
    makes up most."""
    main = device_phase(run, device)
    found = (growth_of(run, device, one) for one in dict.fromkeys((main, phase)))
    growth = next(filter(None, found), None)
    of_phase = main if growth is None else growth.phase
    part = examined(run, device, of_phase)
    steps = _recorded_steps(part, device, of_phase)
    if growth is not None:
        return _grows(growth, steps)
    if (sessions := session_growth(run, device)) is not None:
        return _sessions_grow(sessions, main, steps)
    evidence = AnswerEvidence("overview", phase=main)
    bound = growth_bound(part, device, main)
    if bound is None:
        why = _too_little(run, device, f"Too few steps: {steps:,}")
        return _unknown("growing", why, evidence, steps=steps)
    if (host := host_growth(run)) is not None:
        return _host_grows(host, main, steps)
    sentence = f"No growth over {steps:,} steps (under {format_bytes(bound)})"
    figures = {"steps": steps, "bound_bytes": bound}
    return _answer("growing", sentence, "ok", evidence, figures)


def _recorded_steps(run: Run, device: str, phase: Phase) -> int:
    samples = run.samples
    recorded = samples.is_of(phase) & (samples.of(device).least_peak_bytes != MISSING)
    traced = [one.step for one in snapshots_of(run, device, phase)]
    steps = np.append(samples.step[recorded], np.asarray(traced, np.int64))
    return range_of(steps, run.thinning > 1).steps


def _grows(growth: Growth, steps: int) -> Answer:
    trend, owner, cause = growth.trend, growth.owner, growth.cause
    source: AnswerSource = "measured"
    if owner is not None and 2 * (owner.bytes + owner.rounding_bytes) < growth.whole_bytes:
        owner = None
    sentence, details = _rate(trend, growth.epochs), []
    if owner is not None:
        source = "measured" if growth.traced else "inferred"
        category, origin = owner.category.replace("_", " "), growth.origin()
        sentence += "" if cause is not None else f": {category}"
        name = category.capitalize()
        name += f" of {owner.layer}" if owner.layer and not origin else ""
        since = "" if owner.steps is None else f" since step {owner.steps[0]}"
        details.append(", ".join((f"{name} +{format_bytes(owner.bytes)}{since}", *origin)) + ".")
    if cause is not None:
        sentence, source = f"{sentence}: {cause.short}", "inferred"
        details.append(f"Cause: {cause.text}.")
    if not details:
        details.append(f"From {levels_text(trend, growth.jumps)}.")
    evidence = AnswerEvidence(
        "overview",
        step=trend.last_step,
        phase=growth.phase,
        category=None if owner is None else owner.category,
        layer=None if owner is None else owner.layer,
        zoom=(trend.since_step, growth.seen_until()),
    )
    figures = {
        "steps": steps,
        **values_of(trend, "bytes_per_step", "since_step", "from_bytes", "to_bytes", "last_step"),
        "owner_bytes": None if owner is None else owner.bytes,
        **(growth.full._asdict() if growth.full else {}),
        **_cause_figures(cause),
    }
    return _answer("growing", sentence, "warning", evidence, figures, details, source)


def _rate(trend: Trend, epochs: int = 0) -> str:
    steps, per = (1, "/step") if trend.bytes_per_step >= 1 else (1000, " per 1,000 steps")
    span = f"within each of {epochs} epochs" if epochs else f"since step {trend.since_step}"
    return f"+{format_bytes(round(steps * trend.bytes_per_step))}{per} {span}"


def _cause_figures(cause: Cause | None) -> dict[str, int | None]:
    return {} if cause is None else {"cause_count": cause.count, "cause_bytes": cause.bytes}


def _caused(sentence: str, cause: Cause | None) -> tuple[str, AnswerSource]:
    return (sentence, "measured") if cause is None else (f"{sentence}: {cause.short}", "inferred")


def _sessions_grow(growth: SessionGrowth, phase: Phase, steps: int) -> Answer:
    sentence, source = _caused(growth.short(), growth.cause)
    return _answer(
        "growing",
        sentence,
        "warning",
        AnswerEvidence("overview", phase=phase),
        {
            "steps": steps,
            **values_of(growth, "bytes_per_session", "sessions", "from_bytes", "to_bytes"),
            **_cause_figures(growth.cause),
        },
        [growth.sentence()],
        source,
    )


def _host_grows(host: HostGrowth, phase: Phase, steps: int) -> Answer:
    """The device's memory does not grow, but host RSS does, by more than the memory of
    ``CPU:0``."""
    trend = host.beyond_cpu
    name = f"Host RSS beyond {CPU}" if host.cpu_bytes_per_step else "Host RSS"
    sentence, source = _caused(f"{name} {_rate(trend)}", host.cause)
    zoom = trend.since_step, trend.last_step
    return _answer(
        "growing",
        sentence,
        "warning",
        AnswerEvidence("fragmentation", step=trend.last_step, phase=phase, zoom=zoom),
        {
            "steps": steps,
            "host_bytes_per_step": trend.bytes_per_step,
            "since_step": trend.since_step,
            "from_host_bytes": trend.from_bytes,
            "to_host_bytes": trend.to_bytes,
            **_cause_figures(host.cause),
        },
        source=source,
    )


def answers(
    run: Run,
    device: str | None,
    phase: Phase | None = None,
    by_worker: Mapping[str, Run] | None = None,
) -> tuple[Answer, ...]:
    """The answers in the order of `QUESTIONS`, from every step of the run; all unknown without a
    device. Growth is looked for in the run of the device's worker (`by_worker`), whose sessions are
    known there."""
    if device is None:
        return tuple(_unknown(name, "No allocator data recorded") for name in QUESTIONS)
    phase = device_phase(run, device) if phase is None else phase
    of_worker, own_name = run, device
    for worker, own in (by_worker or {}).items():
        name = device.removeprefix(f"{worker}/") if worker else device
        if device == full_device_name(worker, name) and name in own.samples.devices:
            of_worker, own_name = own, name
            break
    grows = growing(of_worker, own_name, phase)
    fit, change = fits(run, device, phase), changed(run, device, phase)
    if fit.status == "failed":
        grows, change = _as_cause(fit, grows), _as_cause(fit, change)
    elif fit.status in ("ok", "warning") and "capacity_step" in grows.figures:
        fit = _with_full_step(fit, grows)
    found = (fit, grows, fragmented(run, device, phase), change)
    return tuple(dataclasses.replace(one, device=device) for one in found)


def _with_full_step(fit: Answer, grows: Answer) -> Answer:
    """The answer whether it fits, of memory that grows until it is full."""
    full = grows.figures["capacity_step"]
    of = _of(int(fit.figures["peak_bytes"]), int(grows.figures["capacity_bytes"]))
    return dataclasses.replace(
        fit,
        sentence=f"Full by step {full}: {of}",
        status="warning",
        figures={**fit.figures, "capacity_step": full},
        details=("At the rate of the growth, earlier with fragmentation.", *fit.details),
    )


def _as_cause(failure: Answer, answer: Answer) -> Answer:
    """An answer on added bytes as the cause of a failure, if the request would have had room
    without them."""
    of, figures = failure.figures, answer.figures
    added = figures.get("delta_bytes", figures.get("to_bytes", 0) - figures.get("from_bytes", 0))
    since, step = figures.get("step", figures.get("since_step", 0)), failure.evidence.step
    if not added > 0 or (step is not None and since > step):
        return answer
    if {"requested_bytes", "in_use_bytes", "capacity_bytes"} <= of.keys():
        is_cause = of["in_use_bytes"] - added + of["requested_bytes"] <= of["capacity_bytes"]
    else:
        # Of an unknown request: what the very step that failed added, unless it is little.
        is_cause = since == step and added >= RELEVANT_SHARE * of.get("in_use_bytes", 0)
    return dataclasses.replace(answer, status="failed") if is_cause else answer


def changed(run: Run, device: str, phase: Phase) -> Answer:
    """The change with the largest effect on the peak; of equal ones, the latest."""
    changes = step_changes(run, device, phase)
    if changes:
        return _changed(max(changes, key=lambda one: (abs(one.delta_bytes or 0), one.step)), phase)
    rows, device_figures = step_rows(run, device, phase)
    is_known = device_figures.peak_bytes != MISSING
    peaks = device_figures.peak_bytes[is_known]
    steps = range_of(rows[is_known], run.thinning > 1).steps
    evidence = AnswerEvidence("overview", phase=phase)
    # In a series too short for a jump, peaks that differ considerably may be one.
    if steps < 2 or (steps < MIN_JUMP_STEPS and np.ptp(peaks) >= least_change(peaks.min())):
        why = _too_little(run, device, f"Too few steps to compare: {steps}")
        return _unknown("changed", why, evidence, steps=steps)
    sentence = f"No changes in {steps:,} steps"
    return _answer("changed", sentence, "fact", evidence, {"steps": steps})


def _changed(change: StepChange, phase: Phase) -> Answer:
    before, after = change.before, change.after
    evidence = AnswerEvidence("overview", step=change.step, phase=phase)
    if before is not None and after is not None:
        evidence = AnswerEvidence("compare", step=before.step, phase=phase, other_step=after.step)
    figures = {
        **values_of(change, "step", "delta_bytes"),
        "peak_before_bytes": None if before is None else before.peak_bytes,
        "peak_after_bytes": None if after is None else after.peak_bytes,
        "earlier_optimizers_bytes": change.former_bytes or None,
    }
    for category, delta in change.parts:
        figures[f"{category}_delta_bytes"] = change.own_bytes(category, delta)
    stays, peak = change.slots_bytes + change.others_bytes, after.peak_bytes if after else 0
    is_wasted = stays > 0 and stays >= RELEVANT_SHARE * peak
    status: AnswerStatus = "warning" if is_wasted else "fact"
    return _answer("changed", change.sentence(), status, evidence, figures, change.details())


WORST_FIRST: tuple[RunStatus, ...] = ("failed", "growing", "fragmented")
"""These come before every other run; among equal ones, and among the others, the newest run comes
first."""
# a run whose recorder was not closed and that recorded within this time is still training
TRAINING_SECONDS = 60


def run_status(run: Run, grows: bool) -> RunStatus:
    """The status of a worker's run; `grows` says whether growing device or host memory was
    found."""
    places = [(run, device, device_phase(run, device)) for device in device_names(run)]
    if run.ooms and any(fits(*place).status == "failed" for place in places):
        return "failed"
    if grows:
        return "growing"
    if any(fragmented(*place).status in ("warning", "failed") for place in places):
        return "fragmented"
    return "ok" if len(run.samples) or run.snapshots or len(run.activations) else "unknown"


def worst(statuses: Sequence[RunStatus], is_damaged: bool) -> RunStatus:
    """The status of a run of several workers; no damaged run is ok: what could not be read may be
    worse."""
    found = [status for status in WORST_FIRST if status in statuses]
    return found[0] if found else "ok" if "ok" in statuses and not is_damaged else "unknown"


def with_ranks(runs: Sequence[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    """The entries of ``GET runs``, ranked in the order in which to open them; those that still
    train are marked."""

    def place(at: int) -> tuple[int, bool, float]:
        run = runs[at]
        severity = [*WORST_FIRST, run["status"]].index(run["status"])
        return severity, not run["devices"], -(run["started"] or 0.0)

    ranks = {at: rank for rank, at in enumerate(sorted(range(len(runs)), key=place))}
    ranked = []
    for at, run in enumerate(runs):
        until = run["recorded_until"]
        is_recent = until is not None and now - until < TRAINING_SECONDS
        trains = run["status"] == "ok" and not run["ended"] and is_recent
        status = "training" if trains else run["status"]
        ranked.append({**run, "rank": ranks[at], "status": status})
    return ranked
