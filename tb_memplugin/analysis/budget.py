"""Whether the peaks of a run, or the bytes live at once in its traced steps, stay within a budget. Pure.

A budget is a fixed limit, or a baseline run plus what it may grow by. A peak that is only known to be a lower bound,
because data is damaged or steps were not recorded, never passes.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Literal, TypeAlias

from tb_memplugin.analysis.steps.facts import Peak, device_facts, highest_peak
from tb_memplugin.model import Phase, Run, full_device_name
from tb_memplugin.model.notes import lost_step_notes, unrecorded_devices
from tb_memplugin.model.units import format_bytes
from tb_memplugin.prediction.demand import demand_of

Limit: TypeAlias = Literal["max_peak", "max_regression", "out_of_memory"]
CheckStatus: TypeAlias = Literal["within", "violated", "unchecked", "new"]
Measure: TypeAlias = Literal["peak", "live"]
WORDS: Mapping[Measure, str] = {"peak": "peak", "live": "live at once"}


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
    """The limits, what they limit, and the devices and phases that they are for; none means all.

    Attributes:
        max_bytes, max_regression: The limits.
        devices: Names such as ``GPU:0``, which is that of each worker, or ``worker_1/GPU:0``.
        phases: The phases.
        of: ``peak``: the allocator's highest peak; ``live``: the most requested bytes that are live at once in a traced
            step, which neither parallel operations of the CPU nor unsplit remainders of chunks change much.
    """

    max_bytes: int | None = None
    max_regression: Regression | None = None
    devices: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()
    of: Measure = "peak"


@dataclasses.dataclass(frozen=True)
class BudgetCheck:
    """One comparison, or one that could not be made.

    Attributes:
        run: Name of the run.
        device: Its name in the whole run; None if it is about the whole run.
        limit: The limit that was compared with; None if nothing could be compared.
        status: ``unchecked``: a figure is unknown or a lower bound; ``new``: the baseline has no such run or device.
        reason: The figures, or why it could not be made.
        measured_bytes, step, phase: The highest value of the selected phases, None if unknown.
        allowed_bytes: The highest allowed value.
        baseline_bytes: The baseline's value.
    """

    run: str
    device: str | None
    limit: Limit | None
    status: CheckStatus
    reason: str
    measured_bytes: int | None = None
    step: int | None = None
    phase: Phase | None = None
    allowed_bytes: int | None = None
    baseline_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Failure:
    """The last failed allocation of a device."""

    sentence: str
    step: int | None
    phase: Phase | None


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a budget limits of one worker.

    Attributes:
        devices: All devices, by their names in the whole run.
        highest: Device to its highest value in the selected phases, None without one.
        failures: Device to its last failure in these phases.
        lost: Sentences on steps that are not known.
        unrecorded: Notes that name a device that was not recorded.
    """

    devices: tuple[str, ...]
    highest: Mapping[str, Peak | None]
    failures: Mapping[str, Failure]
    lost: tuple[str, ...]
    unrecorded: tuple[str, ...]


def measure(run: Run, budget: Budget, worker: str = "") -> Measured:
    """What a budget limits of one worker's run, by the devices that it is for under their own names."""
    names = {facts.device: full_device_name(worker, facts.device) for facts in device_facts(run)}
    devices = [own for own, full in names.items() if not budget.devices or {own, full} & set(budget.devices)]
    highest = _peak if budget.of == "peak" else _live
    failures = {device: found for device in devices if (found := _failure(run, device, budget)) is not None}
    return Measured(
        tuple(names.values()),
        {device: highest(run, device, budget) for device in devices},
        failures,
        tuple(_lost(run)),
        tuple(unrecorded_devices(run.notes)),
    )


def check_run(run: Run, budget: Budget, baseline: Run | None = None) -> list[BudgetCheck]:
    """`check_workers` for a run of one worker."""
    before = {} if baseline is None else {"": measure(baseline, budget)}
    return check_workers(run.name, [("", measure(run, budget))], budget, before)


def check_workers(
    run: str, workers: Iterable[tuple[str, Measured]], budget: Budget, baseline: Mapping[str, Measured]
) -> list[BudgetCheck]:
    """Compare each device of each worker of a run with the budget.

    Args:
        run: The run's name.
        workers: Its workers.
        budget: The limits.
        baseline: The workers to compare with if `budget` has `max_regression`; empty if the baseline has no such run.
    """
    checks: list[BudgetCheck] = []
    named: set[str] = set()
    lost: tuple[str, ...] = ()
    for worker, found in workers:
        own = list(_check_worker(run, worker, found, budget, baseline.get(worker)))
        devices = {check.device for check in own if check.device is not None}
        named |= devices | {device.removeprefix(f"{worker}/") for device in devices}
        lost = lost or found.lost
        checks += own
    for device in budget.devices:
        if device not in named:
            reason = "; ".join([_nothing(budget), *lost])
            checks.append(BudgetCheck(run, device, None, "unchecked", reason))
    return checks


def _check_worker(
    run: str, worker: str, found: Measured, budget: Budget, before: Measured | None
) -> Iterator[BudgetCheck]:
    if not budget.devices:
        for note in found.unrecorded:
            yield BudgetCheck(run, None, None, "unchecked", f"{worker}: {note}" if worker else note)
        if not found.highest and not found.unrecorded:
            yield BudgetCheck(run, worker or None, None, "unchecked", "; ".join([_nothing(budget), *found.lost]))
    others = () if before is None or budget.max_regression is None else before.highest
    for device in dict.fromkeys([*found.highest, *others] if found.highest else ()):
        for check in _check_device(run, device, found, budget, before):
            yield dataclasses.replace(check, device=full_device_name(worker, device))


def exit_status(checks: list[BudgetCheck], allow_new: bool = False) -> Literal["within", "violated", "unchecked"]:
    """The status of all checks together: a violation counts more than something that could not be checked."""
    statuses = {check.status for check in checks}
    if "violated" in statuses:
        return "violated"
    complete = bool(statuses) and "unchecked" not in statuses and (allow_new or "new" not in statuses)
    return "within" if complete else "unchecked"


def _check_device(
    run: str, device: str, found: Measured, budget: Budget, before: Measured | None
) -> Iterator[BudgetCheck]:
    failure = found.failures.get(device)
    if failure is not None:
        yield BudgetCheck(
            run, device, "out_of_memory", "violated", failure.sentence, step=failure.step, phase=failure.phase
        )
        return
    highest = found.highest.get(device)
    if highest is None:
        reason = _nothing(budget)
        if before is not None and before.highest.get(device) is not None:
            reason += ", unlike in the baseline"
        yield BudgetCheck(run, device, None, "unchecked", "; ".join([reason, *found.lost]))
        return
    if budget.max_bytes is not None:
        yield _compare(run, device, "max_peak", highest, _doubts(found, highest), budget, budget.max_bytes)
    if budget.max_regression is not None:
        yield _compare_with_baseline(run, device, budget, budget.max_regression, found, highest, before)


def _compare_with_baseline(
    run: str,
    device: str,
    budget: Budget,
    regression: Regression,
    found: Measured,
    highest: Peak,
    before: Measured | None,
) -> BudgetCheck:
    def uncompared(status: CheckStatus, reason: str) -> BudgetCheck:
        figures = highest.bytes, highest.step, highest.phase
        return BudgetCheck(run, device, "max_regression", status, reason, *figures)

    if before is None:
        return uncompared("new", "the baseline has no such run")
    failure = before.failures.get(device)
    if failure is not None:
        return uncompared("unchecked", f"the baseline {failure.sentence}")
    former = before.highest.get(device)
    if former is None:
        lost = [*before.lost, *before.unrecorded]
        if lost:
            return uncompared("unchecked", f"the baseline's {WORDS[budget.of]} is unknown: {lost[0]}")
        missing = f"the baseline has no {WORDS[budget.of]} of this device"
        return uncompared("new", missing + (" and phase" if budget.phases else ""))
    suffix = f" (baseline {format_bytes(former.bytes)} + {regression.text})"
    allowed = regression.allowed(former.bytes)
    doubts = _doubts(found, highest)
    checked = _compare(run, device, "max_regression", highest, doubts, budget, allowed, suffix, _doubts(before, former))
    return dataclasses.replace(checked, baseline_bytes=former.bytes)


def _compare(
    run: str,
    device: str,
    limit: Limit,
    highest: Peak,
    doubts: Sequence[str],
    budget: Budget,
    allowed: int,
    suffix: str = "",
    baseline_doubts: Sequence[str] = (),
) -> BudgetCheck:
    """Compare a value with what is allowed; each may be a lower bound, for the reasons in its `doubts`."""
    status: CheckStatus = "violated" if highest.bytes > allowed else "within"
    reasons = doubts if status == "within" else [f"baseline: {one}" for one in baseline_doubts]
    if reasons:
        status = "unchecked"
    received, limiting = _sizes(highest.bytes, allowed)
    at_least = "at least " if doubts else ""
    where = f"at step {highest.step} ({highest.phase})"
    text = f"{WORDS[budget.of]} {at_least}{received} {where}, allowed {limiting}{suffix}"
    text = "; ".join([text, *reasons])
    return BudgetCheck(run, device, limit, status, text, highest.bytes, highest.step, highest.phase, allowed)


def _failure(run: Run, device: str, budget: Budget) -> Failure | None:
    """The last failed allocation of a device in the selected phases; an imported one has no phase."""
    chosen = [oom for oom in run.ooms if oom.device == device]
    chosen = [oom for oom in chosen if not budget.phases or oom.phase is None or oom.phase in budget.phases]
    if not chosen:
        return None
    last = chosen[-1]
    where = f" {last.place}".rstrip()
    size = "" if last.requested_bytes is None else f": {format_bytes(last.requested_bytes)} requested"
    more = f" ({len(chosen)} failures)" if len(chosen) > 1 else ""
    return Failure(f"ran out of memory{where}{size}{more}", last.step, last.phase)


def _nothing(budget: Budget) -> str:
    """What is said of a device without a value."""
    what = "no peak recorded" if budget.of == "peak" else "no traced step with its requests"
    return what + (f" in phase {' or '.join(budget.phases)}" if budget.phases else "")


def _peak(run: Run, device: str, budget: Budget) -> Peak | None:
    found = [highest_peak(run, device, phase) for phase in budget.phases or (None,)]
    return max((peak for peak in found if peak is not None), key=lambda peak: peak.bytes, default=None)


def _live(run: Run, device: str, budget: Budget) -> Peak | None:
    found = [
        demand_of(one)
        for one in run.requests
        if one.device == device and (not budget.phases or one.phase in budget.phases)
    ]
    most = max(found, key=lambda one: one.demand_bytes, default=None)
    return None if most is None else Peak(most.demand_bytes, most.step, most.phase, at_step_end=False)


def _doubts(found: Measured, highest: Peak) -> list[str]:
    """Why the value of a device may have been higher."""
    doubts = list(found.lost)
    if highest.at_step_end:
        doubts.append("the allocator keeps no peak: this is the memory in use at step end")
    return doubts


def _lost(run: Run) -> list[str]:
    sentences = [f"damaged data: {one}" for one in run.damage] + lost_step_notes(run.notes)
    return sentences[:1] + ([f"{len(sentences) - 1} more"] if len(sentences) > 1 else [])


def _sizes(one: int, other: int) -> tuple[str, str]:
    """Two different sizes as different texts: exact bytes if rounding would make them equal."""
    texts = format_bytes(one), format_bytes(other)
    return texts if texts[0] != texts[1] or one == other else (f"{one:,} B", f"{other:,} B")
