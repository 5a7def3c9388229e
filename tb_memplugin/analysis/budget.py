"""Whether the peaks of a run stay within a budget: a fixed limit, or a baseline run plus what it may grow by. Pure.

A peak that is only known to be a lower bound, because data is damaged or steps were not recorded, never passes.
"""

import dataclasses
from fractions import Fraction
from typing import Literal, TypeAlias

from tb_memplugin.analysis.steps.facts import Peak, device_facts, highest_peak
from tb_memplugin.model import Oom, Phase, Run
from tb_memplugin.model.notes import lost_step_notes, unrecorded_devices
from tb_memplugin.model.units import format_bytes

Limit: TypeAlias = Literal["max_peak", "max_regression", "out_of_memory"]
CheckStatus: TypeAlias = Literal["within", "violated", "unchecked", "new"]


@dataclasses.dataclass(frozen=True)
class Regression:
    """How much a peak may exceed the baseline's.

    Attributes:
        text: As the user wrote it, such as ``5%`` or ``200MiB``.
        share: As a share of the baseline's peak; None for a size.
        bytes: As a size; 0 for a share.
    """

    text: str
    share: Fraction | None
    bytes: int

    def allowed(self, baseline_bytes: int) -> int:
        """The highest allowed peak, rounded down to whole bytes."""
        return baseline_bytes + (self.bytes if self.share is None else int(baseline_bytes * self.share))


@dataclasses.dataclass(frozen=True)
class Budget:
    """The limits, and the devices and phases that they are for; none means all."""

    max_peak_bytes: int | None = None
    max_regression: Regression | None = None
    devices: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()


@dataclasses.dataclass(frozen=True)
class BudgetCheck:
    """One comparison, or one that could not be made.

    Attributes:
        run: Name of the run.
        device: None if it is about the whole run.
        limit: The limit that was compared with; None if nothing could be compared.
        status: ``unchecked``: a figure is unknown or a lower bound; ``new``: the baseline has no such run or device.
        reason: The figures, or why it could not be made.
        peak_bytes, step, phase: The highest peak of the selected phases, None if unknown.
        allowed_bytes: The highest allowed peak.
        baseline_peak_bytes: The baseline's peak.
    """

    run: str
    device: str | None
    limit: Limit | None
    status: CheckStatus
    reason: str
    peak_bytes: int | None = None
    step: int | None = None
    phase: Phase | None = None
    allowed_bytes: int | None = None
    baseline_peak_bytes: int | None = None


def check_run(run: Run, budget: Budget, baseline: Run | None = None) -> list[BudgetCheck]:
    """Compare each device of a run with the budget.

    Args:
        run: The run.
        budget: The limits.
        baseline: The run to compare with if `budget` has `max_regression`; None if the baseline has no such run.
    """
    recorded = [facts.device for facts in device_facts(run)]
    checks = []
    if not budget.devices:
        checks += [BudgetCheck(run.name, None, None, "unchecked", note) for note in unrecorded_devices(run.notes)]
    if not recorded:
        reason = "; ".join(["no peak recorded", *_lost(run)])
        return checks or [BudgetCheck(run.name, None, None, "unchecked", reason)]
    wanted = list(budget.devices) or recorded
    if budget.max_regression is not None and baseline is not None and not budget.devices:
        wanted += [facts.device for facts in device_facts(baseline) if facts.device not in wanted]
    for device in wanted:
        checks += _check_device(run, device, budget, baseline)
    return checks


def exit_status(checks: list[BudgetCheck], allow_new: bool = False) -> Literal["within", "violated", "unchecked"]:
    """The status of all checks together: a violation counts more than something that could not be checked."""
    statuses = {check.status for check in checks}
    if "violated" in statuses:
        return "violated"
    complete = bool(statuses) and "unchecked" not in statuses and (allow_new or "new" not in statuses)
    return "within" if complete else "unchecked"


def _check_device(run: Run, device: str, budget: Budget, baseline: Run | None) -> list[BudgetCheck]:
    failures = _failures(run, device, budget)
    if failures:
        return [_failed(run, device, failures)]
    peak = _peak(run, device, budget)
    if peak is None:
        reason = "no peak recorded" + (f" in phase {' or '.join(budget.phases)}" if budget.phases else "")
        if baseline is not None and _peak(baseline, device, budget) is not None:
            reason += ", unlike in the baseline"
        return [BudgetCheck(run.name, device, None, "unchecked", "; ".join([reason, *_lost(run)]))]
    checks = []
    doubts = _doubts(run, peak)
    if budget.max_peak_bytes is not None:
        checks.append(_compare(run, device, "max_peak", peak, doubts, budget.max_peak_bytes))
    if budget.max_regression is not None:
        checks.append(_compare_with_baseline(run, device, budget, budget.max_regression, peak, doubts, baseline))
    return checks


def _compare_with_baseline(
    run: Run, device: str, budget: Budget, regression: Regression, peak: Peak, doubts: list[str], baseline: Run | None
) -> BudgetCheck:
    figures = {"peak_bytes": peak.bytes, "step": peak.step, "phase": peak.phase}

    def uncompared(status: CheckStatus, reason: str) -> BudgetCheck:
        return BudgetCheck(run.name, device, "max_regression", status, reason, **figures)  # type: ignore[arg-type]

    if baseline is None:
        return uncompared("new", "the baseline has no such run")
    failures = _failures(baseline, device, budget)
    if failures:
        return uncompared("unchecked", f"the baseline {_failure_text(failures[-1])}")
    before = _peak(baseline, device, budget)
    if before is None:
        lost = [*_lost(baseline), *unrecorded_devices(baseline.notes)]
        if lost:
            return uncompared("unchecked", f"the baseline's peak is unknown: {lost[0]}")
        return uncompared("new", "the baseline has no peak of this device" + (" and phase" if budget.phases else ""))
    return _compare(
        run,
        device,
        "max_regression",
        peak,
        doubts,
        regression.allowed(before.bytes),
        before.bytes,
        f" (baseline {format_bytes(before.bytes)} + {regression.text})",
        _doubts(baseline, before),
    )


def _compare(
    run: Run,
    device: str,
    limit: Limit,
    peak: Peak,
    doubts: list[str],
    allowed: int,
    before: int | None = None,
    suffix: str = "",
    baseline_doubts: list[str] | None = None,
) -> BudgetCheck:
    """Compare a peak with what is allowed; each may be a lower bound, for the reasons in its `doubts`."""
    status: CheckStatus = "violated" if peak.bytes > allowed else "within"
    reasons = doubts if status == "within" else [f"baseline: {one}" for one in baseline_doubts or ()]
    if reasons:
        status = "unchecked"
    received, limiting = _sizes(peak.bytes, allowed)
    at_least = "at least " if doubts else ""
    text = f"peak {at_least}{received} at step {peak.step} ({peak.phase}), allowed {limiting}{suffix}"
    text = "; ".join([text, *reasons])
    return BudgetCheck(run.name, device, limit, status, text, peak.bytes, peak.step, peak.phase, allowed, before)


def _failures(run: Run, device: str, budget: Budget) -> list[Oom]:
    """Failed allocations of a device in the selected phases, by time; an imported one has no phase."""
    chosen = [oom for oom in run.ooms if oom.device == device]
    return [oom for oom in chosen if not budget.phases or oom.phase is None or oom.phase in budget.phases]


def _failed(run: Run, device: str, failures: list[Oom]) -> BudgetCheck:
    last = failures[-1]
    more = f" ({len(failures)} failures)" if len(failures) > 1 else ""
    return BudgetCheck(
        run.name, device, "out_of_memory", "violated", _failure_text(last) + more, step=last.step, phase=last.phase
    )


def _failure_text(oom: Oom) -> str:
    where = "" if oom.step is None else f" at step {oom.step} ({oom.phase})"
    size = "" if oom.requested_bytes is None else f": {format_bytes(oom.requested_bytes)} requested"
    return f"ran out of memory{where}{size}"


def _peak(run: Run, device: str, budget: Budget) -> Peak | None:
    found = [highest_peak(run, device, phase) for phase in budget.phases or (None,)]
    return max((peak for peak in found if peak is not None), key=lambda peak: peak.bytes, default=None)


def _doubts(run: Run, peak: Peak) -> list[str]:
    """Why the peak of a device may have been higher."""
    doubts = _lost(run)
    if peak.at_step_end:
        doubts.append("the allocator keeps no peak: this is the memory in use at step end")
    return doubts


def _lost(run: Run) -> list[str]:
    sentences = [f"damaged data: {one}" for one in run.damage] + lost_step_notes(run.notes)
    return sentences[:1] + ([f"{len(sentences) - 1} more"] if len(sentences) > 1 else [])


def _sizes(one: int, other: int) -> tuple[str, str]:
    """Two different sizes as different texts: exact bytes if rounding would make them equal."""
    texts = format_bytes(one), format_bytes(other)
    return texts if texts[0] != texts[1] or one == other else (f"{one:,} B", f"{other:,} B")
