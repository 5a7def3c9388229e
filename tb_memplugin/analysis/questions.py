"""The four questions on a run, answered for a device: does it fit, grow, fragment, and what changed? Pure."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tb_memplugin.analysis.answer import QUESTIONS, Answer, AnswerEvidence, AnswerSource, fits, fragmented, known
from tb_memplugin.analysis.causes import Cause
from tb_memplugin.analysis.changes import StepChange, step_changes
from tb_memplugin.analysis.facts import device_phase, range_of
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
from tb_memplugin.analysis.rows import step_rows
from tb_memplugin.analysis.trend import MIN_JUMP_STEPS, Trend, least_change
from tb_memplugin.schema import (
    CATEGORIES,
    MISSING,
    PHASES,
    Phase,
    Run,
    as_json,
    format_bytes,
    full_device_name,
    values_of,
)


def growing(run: Run, device: str, phase: Phase) -> Answer:
    """The growth over the steps of the `device_phase`, or else of `phase`, with the category that makes up most."""
    main = device_phase(run, device)
    growth = growth_of(run, device, main)
    if growth is None and phase != main:
        growth = growth_of(run, device, phase)
    of_phase = main if growth is None else growth.phase
    part = examined(run, device, of_phase)
    own, samples = part.samples.devices.get(device), part.samples
    every = np.asarray([one.step for one in part.snapshots if (one.device, one.phase) == (device, of_phase)], np.int64)
    if own is not None:
        seen = (own.in_use_bytes != MISSING) | (own.peak_bytes != MISSING)
        every = np.append(every, samples.step[seen & (samples.phase == PHASES.index(of_phase))])
    steps = range_of(every, part.thinning > 1).steps
    figures: dict[str, int | float] = {"steps": steps}
    if growth is not None:
        return _grows(growth, figures)
    sessions = session_growth(run, device)
    if sessions is not None:
        return _sessions_grow(sessions, main, figures)
    evidence = AnswerEvidence("overview", phase=main)
    bound = growth_bound(part, device, main)
    if bound is None:
        return Answer("growing", device, f"Too few steps: {steps:,}", "unknown", "unknown", evidence, figures)
    host = host_growth(run)
    if host is not None:
        return _host_grows(host, device, main, figures)
    sentence = f"No growth over {steps:,} steps (under {format_bytes(bound)})"
    return Answer("growing", device, sentence, "ok", "measured", evidence, figures | {"bound_bytes": bound})


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
        name = category.capitalize() + (f" of {owner.layer}" if owner.layer and not growth.origin() else "")
        details = [", ".join((f"{name} +{format_bytes(owner.bytes)}{owner.span()}", *growth.origin())) + "."]
    if growth.cause is not None:
        sentence, source = f"{sentence}: {growth.cause.short}", "inferred"
        details.append(f"Cause: {growth.cause.text}.")
    if growth.capacity_step is not None:
        details.append(f"At this rate memory runs out by step {growth.capacity_step}, earlier with fragmentation.")
    if not details:
        details.append(f"From {levels_text(trend, growth.jumps)}.")
    evidence = AnswerEvidence(
        "overview",
        step=trend.last_step,
        phase=growth.phase,
        category=next((one for one in CATEGORIES if owner is not None and one == owner.category), None),
        layer=None if owner is None else owner.layer,
        zoom=(trend.since_step, trend.last_step),
    )
    figures = figures | known(
        **values_of(trend, "bytes_per_step", "since_step", "from_bytes", "to_bytes"),
        owner_bytes=None if owner is None else owner.bytes,
        capacity_step=growth.capacity_step,
        **_cause_figures(growth.cause),
    )
    return Answer("growing", growth.device, sentence, "warning", source, evidence, figures, tuple(details))


def _rate(trend: Trend) -> str:
    steps, per = (1, "/step") if trend.bytes_per_step >= 1 else (1000, " per 1,000 steps")
    return f"+{format_bytes(round(steps * trend.bytes_per_step))}{per} since step {trend.since_step}"


def _cause_figures(cause: Cause | None) -> dict[str, int | float]:
    return {} if cause is None else known(cause_count=cause.count, cause_bytes=cause.bytes)


def _sessions_grow(growth: SessionGrowth, phase: Phase, figures: dict[str, int | float]) -> Answer:
    cause = growth.cause
    sentence = growth.short() + ("" if cause is None else f": {cause.short}")
    sizes = values_of(growth, "bytes_per_session", "sessions", "from_bytes", "to_bytes")
    figures = figures | sizes | _cause_figures(cause)
    source: AnswerSource = "measured" if cause is None else "inferred"
    evidence = AnswerEvidence("overview", phase=phase)
    return Answer("growing", growth.device, sentence, "warning", source, evidence, figures, (growth.sentence(),))


def _host_grows(host: HostGrowth, device: str, phase: Phase, figures: dict[str, int | float]) -> Answer:
    """The device's memory does not grow, but host RSS does, by more than the memory of ``CPU:0``."""
    trend, cause = host.beyond_cpu, host.cause
    name = f"Host RSS beyond {CPU}" if host.cpu_bytes_per_step else "Host RSS"
    sentence = f"{name} {_rate(trend)}" + ("" if cause is None else f": {cause.short}")
    evidence = AnswerEvidence(
        "fragmentation", step=trend.last_step, phase=phase, zoom=(trend.since_step, trend.last_step)
    )
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
    run: Run, device: str | None, phase: Phase | None = None, by_worker: Mapping[str, Run] | None = None
) -> tuple[Answer, ...]:
    """The answers in the order of `QUESTIONS`, from every step of the run; all unknown without a device.

    Args:
        phase: By default the `device_phase`.
        by_worker: As for `describe_run`. Growth is looked for in the run of the device's worker, whose sessions are
            known there.
    """
    if device is None:
        return tuple(
            Answer(name, None, "No allocator data recorded", "unknown", "unknown", AnswerEvidence("overview"), {})
            for name in QUESTIONS
        )
    phase = device_phase(run, device) if phase is None else phase
    of_worker, own_name = run, device
    for worker, own in (by_worker or {}).items():
        name = device.removeprefix(f"{worker}/") if worker else device
        if device == full_device_name(worker, name) and name in own.samples.devices:
            of_worker, own_name = own, name
            break
    return (
        fits(run, device, phase),
        dataclasses.replace(growing(of_worker, own_name, phase), device=device),
        fragmented(run, device, phase),
        changed(run, device, phase),
    )


def describe_answers(
    run: Run, device: str | None, phase: Phase | None = None, by_worker: Mapping[str, Run] | None = None
) -> list[dict[str, Any]]:
    return [{**as_json(one), "question": one.question} for one in answers(run, device, phase, by_worker)]


def changed(run: Run, device: str, phase: Phase) -> Answer:
    """The change with the largest effect on the peak; of equal ones, the latest."""
    changes = step_changes(run, device, phase)
    if changes:
        return _changed(device, phase, max(changes, key=lambda one: (abs(one.delta_bytes or 0), one.step)))
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
    return Answer("changed", device, f"No changes in {measured:,} steps", "ok", "measured", evidence, figures)


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
    figures |= {f"{category}_delta_bytes": delta for category, delta in change.parts}
    figures |= {"earlier_optimizers_bytes": change.former_bytes} if change.former_bytes else {}
    return Answer("changed", device, change.sentence(), "ok", "measured", evidence, figures, change.details())
