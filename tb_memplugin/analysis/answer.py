"""The four questions on a run, answered for a device: does it fit, grow, fragment, and what
changed? Each answer is a sentence, how it is known, and where its evidence is. From these what is
wrong with a run in one word, and which run of a directory to open first. Pure."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
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
from tb_memplugin.analysis.trend import MIN_JUMP_STEPS, Trend, least_change
from tb_memplugin.schema import (
    CATEGORIES,
    MISSING,
    PHASES,
    Category,
    Oom,
    Phase,
    Pool,
    Run,
    RunStatus,
    as_json,
    format_bytes,
    full_device_name,
    is_cpu,
    last_known,
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

    name: AnswerName
    device: str | None
    sentence: str
    status: AnswerStatus
    source: AnswerSource
    evidence: AnswerEvidence
    figures: Mapping[str, int | float]
    details: tuple[str, ...] = ()

    @property
    def question(self) -> str:
        return QUESTIONS[self.name]


def known(**figures: int | float | None) -> dict[str, int | float]:
    return {name: value for name, value in figures.items() if value is not None}


LITTLE_HEADROOM = 0.05  # less, as a share of the capacity, is a warning
LARGE_WASTE = 0.05
"""Free memory outside the largest free chunk is a warning if it is more than this share of the
pool, more than half of the free memory, and more than the pool can still grow by."""


def fits(run: Run, device: str, phase: Phase) -> Answer:
    """Peak and headroom, or the newest failure of the device if no step was recorded after it."""
    run, failure, again = _since_failure(run, device, phase)
    if failure is not None and again is None:
        index, oom = failure
        details = (oom.outcome,) if oom.status == "survived" else ()
        sizes = (
            "requested_bytes",
            "in_use_bytes",
            "free_bytes",
            "largest_free_bytes",
            "capacity_bytes",
        )
        evidence, figures = _at_failure(index, oom), known(**values_of(oom, *sizes))
        return Answer(
            "fits", device, _failure_sentence(oom), "failed", "measured", evidence, figures, details
        )
    peak = fitting_peak(run, device, phase)
    capacity = capacity_of(run, device)
    if peak is None:
        figures = known(capacity_bytes=capacity)
        return Answer(
            "fits",
            device,
            "No peak recorded",
            "unknown",
            "unknown",
            AnswerEvidence("overview"),
            figures,
        )
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
        own = run.samples.devices.get(device)
        is_unlimited = (
            is_cpu(device) and own is not None and last_known(own.driver_total_bytes) == capacity
        )
        room = "no limit is set" if is_unlimited else f"{format_bytes(headroom)} headroom"
        since = "" if again is None else f"Since step {again}: "
        sentence = f"{since}{_of(peak.bytes, capacity)} at peak, {room}"
        status = "warning" if since or headroom < LITTLE_HEADROOM * capacity else "ok"
    evidence = AnswerEvidence("overview", step=peak.step, phase=peak.phase)
    figures = known(peak_bytes=peak.bytes, capacity_bytes=capacity, headroom_bytes=headroom)
    details = () if failure is None else (f"Before: {_failure_sentence(failure[1])}.",)
    return Answer("fits", device, sentence, status, "measured", evidence, figures, details)


def fragmented(run: Run, device: str, phase: Phase) -> Answer:
    """Free bytes and the largest free chunk at the failure, or at the traced or measured step with
    the highest peak."""
    run, failure, again = _since_failure(run, device, phase)
    if failure is not None and again is None:
        return _fragmented_failure(*failure)
    state = _pool_at_peak(run, device, phase)
    if state is None:
        evidence = AnswerEvidence("fragmentation", phase=phase)
        return Answer(
            "fragmented", device, "No memory map recorded", "unknown", "unknown", evidence, {}
        )
    step, pool, largest, capacity, when = state
    status = _judgement(pool.free_bytes, largest, pool.pool_bytes, capacity)
    figures = known(
        **values_of(pool, "free_bytes", "largest_free_bytes", "pool_bytes"), capacity_bytes=capacity
    )
    evidence = AnswerEvidence("fragmentation", step=step, phase=phase)
    sentence = _free(pool.free_bytes, largest, when)
    return Answer("fragmented", device, sentence, status, "measured", evidence, figures)


_Failure: TypeAlias = tuple[int, Oom]  # index in the run's failures, and the failure


def _since_failure(run: Run, device: str, phase: Phase) -> tuple[Run, _Failure | None, int | None]:
    """What follows the newest failed allocation of a device, or the whole run without one; that
    failure; and the first step after it, None without a peak after it: the failure is the last that
    is known."""
    failures = [(at, oom) for at, oom in enumerate(run.ooms) if oom.device == device]
    newest = max(failures, key=lambda one: (one[1].wall_time, one[0]), default=None)
    samples, figures = run.samples, run.samples.devices.get(device)
    if newest is None or figures is None:
        return run, newest, None
    oom = newest[1]
    known = np.flatnonzero(np.maximum(figures.peak_bytes, figures.in_use_bytes) != MISSING)
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


def _failure_sentence(oom: Oom) -> str:
    when = " ".join(filter(None, ("OOM", oom.place.removesuffix(" (train)"))))
    return (
        when
        if oom.requested_bytes is None
        else f"{when}: {format_bytes(oom.requested_bytes)} requested"
    )


def _fragmented_failure(index: int, oom: Oom) -> Answer:
    free, largest = oom.free_bytes, oom.largest_free_bytes
    figures = known(
        **values_of(oom, "requested_bytes", "free_bytes", "largest_free_bytes", "pool_bytes")
    )
    status: AnswerStatus = "failed" if oom.verdict == "fragmentation" else "unknown"
    if free is None or largest is None:
        known_part = (
            None if free is None else f"{format_bytes(free)} free at the failure, chunks unknown"
        )
        sentence = known_part or "No memory map of the failure"
        return Answer(
            "fragmented",
            oom.device,
            sentence,
            "unknown",
            "unknown",
            _at_failure(index, oom),
            figures,
        )
    if status == "unknown" and oom.pool_bytes is not None:
        is_wasted = _judgement(free, largest, oom.pool_bytes, oom.capacity_bytes) == "warning"
        status = "warning" if is_wasted else "fact"
    sentence, evidence = _free(free, largest, "at the failure"), _at_failure(index, oom)
    return Answer("fragmented", oom.device, sentence, status, "measured", evidence, figures)


def _judgement(free: int, largest: int, pool: int, capacity: int | None) -> AnswerStatus:
    wasted = free - largest
    can_grow = capacity is not None and capacity - pool >= wasted
    return "warning" if 2 * wasted > free and wasted > LARGE_WASTE * pool and not can_grow else "ok"


def _at_failure(index: int, oom: Oom) -> AnswerEvidence:
    return AnswerEvidence("oom", step=oom.step, phase=oom.phase, oom=index)


def _pool_at_peak(
    run: Run, device: str, phase: Phase
) -> tuple[int, Pool, int, int | None, str] | None:
    """The pool at the highest traced peak, or else at the end of the measured step with the highest
    peak: its step, the largest free chunk, the capacity, and the moment."""
    described = [
        (one.step, pool, pool.largest_free_bytes, one.capacity_bytes, "at peak")
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
    return int(steps[row]), pool, largest, capacity_of(run, device), "at step end"


def _of(size: int, whole: int) -> str:
    """ "14.2 of 16.0 GiB", or with two units where they differ."""
    one, other = format_bytes(size), format_bytes(whole)
    number, unit = one.split(" ")
    return f"{number} of {other}" if other.endswith(f" {unit}") else f"{one} of {other}"


def _free(free: int, largest: int, when: str) -> str:
    if not free:
        return f"Nothing free in the pool {when}"
    return f"{format_bytes(free)} free {when}, largest {format_bytes(largest)}"


def growing(run: Run, device: str, phase: Phase) -> Answer:
    """The growth over the steps of the `device_phase`, or else of `phase`, with the category that
    makes up most."""
    main = device_phase(run, device)
    growth = growth_of(run, device, main) or (
        growth_of(run, device, phase) if phase != main else None
    )
    of_phase = main if growth is None else growth.phase
    part = examined(run, device, of_phase)
    own, samples = part.samples.devices.get(device), part.samples
    every = np.asarray(
        [one.step for one in part.snapshots if (one.device, one.phase) == (device, of_phase)],
        np.int64,
    )
    if own is not None:
        seen = (own.in_use_bytes != MISSING) | (own.peak_bytes != MISSING)
        every = np.append(every, samples.step[seen & (samples.phase == PHASES.index(of_phase))])
    steps = range_of(every, part.thinning > 1).steps
    figures: dict[str, int | float] = {"steps": steps}
    if growth is not None:
        return _grows(growth, figures)
    if (sessions := session_growth(run, device)) is not None:
        return _sessions_grow(sessions, main, figures)
    evidence = AnswerEvidence("overview", phase=main)
    bound = growth_bound(part, device, main)
    if bound is None:
        return Answer(
            "growing", device, f"Too few steps: {steps:,}", "unknown", "unknown", evidence, figures
        )
    if (host := host_growth(run)) is not None:
        return _host_grows(host, device, main, figures)
    sentence = f"No growth over {steps:,} steps (under {format_bytes(bound)})"
    return Answer(
        "growing", device, sentence, "ok", "measured", evidence, figures | {"bound_bytes": bound}
    )


def _grows(growth: Growth, figures: dict[str, int | float]) -> Answer:
    trend, owner = growth.trend, growth.owner
    source: AnswerSource = "measured"
    if owner is not None and 2 * (owner.bytes + owner.rounding_bytes) < growth.whole_bytes:
        owner = None
    sentence, details = _rate(trend), []
    if owner is not None:
        source = "measured" if growth.traced else "inferred"
        category = owner.category.replace("_", " ")
        sentence += "" if growth.cause is not None else f": {category}"
        name = category.capitalize() + (
            f" of {owner.layer}" if owner.layer and not growth.origin() else ""
        )
        since = "" if owner.steps is None else f" since step {owner.steps[0]}"
        details = [
            ", ".join((f"{name} +{format_bytes(owner.bytes)}{since}", *growth.origin())) + "."
        ]
    if growth.cause is not None:
        sentence, source = f"{sentence}: {growth.cause.short}", "inferred"
        details.append(f"Cause: {growth.cause.text}.")
    if not details:
        details.append(f"From {levels_text(trend, growth.jumps)}.")
    evidence = AnswerEvidence(
        "overview",
        step=trend.last_step,
        phase=growth.phase,
        category=next(
            (one for one in CATEGORIES if owner is not None and one == owner.category), None
        ),
        layer=None if owner is None else owner.layer,
        zoom=(trend.since_step, growth.seen_until()),
    )
    figures = figures | known(
        **values_of(trend, "bytes_per_step", "since_step", "from_bytes", "to_bytes"),
        owner_bytes=None if owner is None else owner.bytes,
        last_step=trend.last_step,
        **(growth.full._asdict() if growth.full else {}),
        **_cause_figures(growth.cause),
    )
    return Answer(
        "growing", growth.device, sentence, "warning", source, evidence, figures, tuple(details)
    )


def _rate(trend: Trend) -> str:
    steps, per = (1, "/step") if trend.bytes_per_step >= 1 else (1000, " per 1,000 steps")
    return (
        f"+{format_bytes(round(steps * trend.bytes_per_step))}{per} since step {trend.since_step}"
    )


def _cause_figures(cause: Cause | None) -> dict[str, int | float]:
    return {} if cause is None else known(cause_count=cause.count, cause_bytes=cause.bytes)


def _sessions_grow(growth: SessionGrowth, phase: Phase, figures: dict[str, int | float]) -> Answer:
    cause = growth.cause
    sentence = growth.short() + ("" if cause is None else f": {cause.short}")
    sizes = values_of(growth, "bytes_per_session", "sessions", "from_bytes", "to_bytes")
    figures = figures | sizes | _cause_figures(cause)
    source: AnswerSource = "measured" if cause is None else "inferred"
    evidence = AnswerEvidence("overview", phase=phase)
    return Answer(
        "growing",
        growth.device,
        sentence,
        "warning",
        source,
        evidence,
        figures,
        (growth.sentence(),),
    )


def _host_grows(
    host: HostGrowth, device: str, phase: Phase, figures: dict[str, int | float]
) -> Answer:
    """The device's memory does not grow, but host RSS does, by more than the memory of
    ``CPU:0``."""
    trend, cause = host.beyond_cpu, host.cause
    name = f"Host RSS beyond {CPU}" if host.cpu_bytes_per_step else "Host RSS"
    sentence = f"{name} {_rate(trend)}" + ("" if cause is None else f": {cause.short}")
    zoom = trend.since_step, trend.last_step
    evidence = AnswerEvidence("fragmentation", step=trend.last_step, phase=phase, zoom=zoom)
    figures = figures | known(
        host_bytes_per_step=trend.bytes_per_step,
        since_step=trend.since_step,
        from_host_bytes=trend.from_bytes,
        to_host_bytes=trend.to_bytes,
        **_cause_figures(cause),
    )
    source: AnswerSource = "measured" if cause is None else "inferred"
    return Answer("growing", device, sentence, "warning", source, evidence, figures)


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
        return tuple(
            Answer(
                name,
                None,
                "No allocator data recorded",
                "unknown",
                "unknown",
                AnswerEvidence("overview"),
                {},
            )
            for name in QUESTIONS
        )
    phase = device_phase(run, device) if phase is None else phase
    of_worker, own_name = run, device
    for worker, own in (by_worker or {}).items():
        name = device.removeprefix(f"{worker}/") if worker else device
        if device == full_device_name(worker, name) and name in own.samples.devices:
            of_worker, own_name = own, name
            break
    grows = dataclasses.replace(growing(of_worker, own_name, phase), device=device)
    fit, change = fits(run, device, phase), changed(run, device, phase)
    if fit.status == "failed":
        grows, change = _as_cause(fit, grows), _as_cause(fit, change)
    elif (
        fit.status in ("ok", "warning") and (full := grows.figures.get("capacity_step")) is not None
    ):
        of = _of(int(fit.figures["peak_bytes"]), int(grows.figures["capacity_bytes"]))
        details = ("At the rate of the growth, earlier with fragmentation.", *fit.details)
        figures = {**fit.figures, "capacity_step": full}
        sentence = f"Full by step {full}: {of}"
        fit = dataclasses.replace(
            fit, sentence=sentence, status="warning", figures=figures, details=details
        )
    return fit, grows, fragmented(run, device, phase), change


def _as_cause(failure: Answer, answer: Answer) -> Answer:
    """An answer on added bytes as the cause of a failure, if the request would have had room
    without them."""
    of, figures = failure.figures, answer.figures
    added = figures.get("delta_bytes", figures.get("to_bytes", 0) - figures.get("from_bytes", 0))
    since = figures.get("step", figures.get("since_step", 0))
    is_before = added > 0 and (failure.evidence.step is None or since <= failure.evidence.step)
    if not is_before or not {"requested_bytes", "in_use_bytes", "capacity_bytes"} <= of.keys():
        return answer
    had_room = of["in_use_bytes"] - added + of["requested_bytes"] <= of["capacity_bytes"]
    return dataclasses.replace(answer, status="failed") if had_room else answer


def describe_answers(
    run: Run,
    device: str | None,
    phase: Phase | None = None,
    by_worker: Mapping[str, Run] | None = None,
) -> list[dict[str, Any]]:
    return [
        {**as_json(one), "question": one.question} for one in answers(run, device, phase, by_worker)
    ]


def changed(run: Run, device: str, phase: Phase) -> Answer:
    """The change with the largest effect on the peak; of equal ones, the latest."""
    changes = step_changes(run, device, phase)
    if changes:
        return _changed(
            device, phase, max(changes, key=lambda one: (abs(one.delta_bytes or 0), one.step))
        )
    rows, device_figures = step_rows(run, device, phase)
    is_known = device_figures.peak_bytes != MISSING
    peaks = device_figures.peak_bytes[is_known]
    measured = range_of(rows[is_known], run.thinning > 1).steps
    evidence = AnswerEvidence("overview", phase=phase)
    figures = {"steps": measured}
    # In a series too short for a jump, peaks that differ considerably may be one.
    if measured < 2 or (measured < MIN_JUMP_STEPS and np.ptp(peaks) >= least_change(peaks.min())):
        sentence = f"Too few steps to compare: {measured}"
        return Answer("changed", device, sentence, "unknown", "unknown", evidence, figures)
    return Answer(
        "changed",
        device,
        f"No changes in {measured:,} steps",
        "fact",
        "measured",
        evidence,
        figures,
    )


def _changed(device: str, phase: Phase, change: StepChange) -> Answer:
    before, after = change.before, change.after
    evidence = AnswerEvidence("overview", step=change.step, phase=phase)
    if before is not None and after is not None:
        evidence = AnswerEvidence("compare", step=before.step, phase=phase, other_step=after.step)
    figures = known(
        step=change.step,
        delta_bytes=change.delta_bytes,
        peak_before_bytes=None if before is None else before.peak_bytes,
        peak_after_bytes=None if after is None else after.peak_bytes,
    )
    figures |= {
        f"{category}_delta_bytes": change.own_bytes(category, delta)
        for category, delta in change.parts
    }
    figures |= {"earlier_optimizers_bytes": change.former_bytes} if change.former_bytes else {}
    status: AnswerStatus = "warning" if change.slots_bytes or change.others_bytes else "fact"
    return Answer(
        "changed",
        device,
        change.sentence(),
        status,
        "measured",
        evidence,
        figures,
        change.details(),
    )


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


def worst(statuses: Sequence[RunStatus]) -> RunStatus:
    found = [status for status in WORST_FIRST if status in statuses]
    return found[0] if found else "ok" if "ok" in statuses else "unknown"


def with_ranks(runs: Sequence[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    """The entries of ``GET runs``, ranked in the order in which to open them; those that still
    train are marked."""

    def place(at: int) -> tuple[int, bool, float]:
        status = runs[at]["status"]
        severity = WORST_FIRST.index(status) if status in WORST_FIRST else len(WORST_FIRST)
        return severity, not runs[at]["devices"], -(runs[at]["started"] or 0.0)

    def trains(run: Mapping[str, Any]) -> bool:
        until = run["recorded_until"]
        return (
            run["status"] == "ok"
            and not run["ended"]
            and until is not None
            and now - until < TRAINING_SECONDS
        )

    ranks = {at: rank for rank, at in enumerate(sorted(range(len(runs)), key=place))}
    ranked = [{**run, "rank": ranks[at]} for at, run in enumerate(runs)]
    return [{**run, "status": "training"} if trains(run) else run for run in ranked]
