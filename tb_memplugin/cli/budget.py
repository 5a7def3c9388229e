"""Whether the peaks of a run, or the bytes live at once in its traced steps, stay within a budget. Pure.

A budget is a fixed limit, or a baseline run plus what it may grow by. A peak that is only known to be a lower bound,
because data is damaged or steps were not recorded, never passes.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Literal, TypeAlias

from tb_memplugin.analysis import Peak, device_facts, highest_peak
from tb_memplugin.fit import demand_of
from tb_memplugin.schema import Phase, Run, format_bytes, full_device_name, lost_step_notes, unrecorded_devices

Limit: TypeAlias = Literal["max_peak", "max_regression", "out_of_memory"]
CheckStatus: TypeAlias = Literal["within", "violated", "unchecked", "new"]
Measure: TypeAlias = Literal["peak", "live"]
WORDS: Mapping[Measure, str] = {"peak": "peak", "live": "live at once"}


@dataclasses.dataclass(frozen=True)
class Regression:
    """How much a peak may exceed the baseline's: as the user wrote it, and as a share of it, or else as a size."""

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
        devices: Names such as ``GPU:0``, which is that of each worker, or ``worker_1/GPU:0``.
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
        device: Its name in the whole run; None if it is about the whole run.
        limit: The limit that was compared with; None if nothing could be compared.
        status: ``unchecked``: a figure is unknown or a lower bound; ``new``: the baseline has no such run or device.
        reason: The figures, or why it could not be made.
        measured_bytes, step, phase: The highest value of the selected phases, None if unknown.
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
class Measured:
    """What a budget limits of one worker.

    Attributes:
        devices: All devices, by their names in the whole run.
        highest: Device to its highest value in the selected phases, None without one.
        failures: Device to a sentence on its last failure in these phases, its step and its phase.
        lost, unrecorded: Sentences on steps that are not known, and on devices that were not recorded.
    """

    devices: tuple[str, ...]
    highest: Mapping[str, Peak | None]
    failures: Mapping[str, tuple[str, int | None, Phase | None]]
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


def check_workers(
    run: str, workers: Iterable[tuple[str, Measured]], budget: Budget, baseline: Mapping[str, Measured]
) -> list[BudgetCheck]:
    """Compare each device of each worker of a run with the budget.

    `baseline` has the workers to compare with if the budget has `max_regression`; none if it has no such run.
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
        make = functools.partial(BudgetCheck, run, full_device_name(worker, device))
        yield from _check_device(make, device, found, budget, before)


def exit_status(checks: list[BudgetCheck], allow_new: bool = False) -> Literal["within", "violated", "unchecked"]:
    """Of all checks together: a violation counts more than something that could not be checked."""
    statuses = {check.status for check in checks}
    if "violated" in statuses:
        return "violated"
    complete = bool(statuses) and "unchecked" not in statuses and (allow_new or "new" not in statuses)
    return "within" if complete else "unchecked"


def _check_device(
    make: Callable[..., BudgetCheck], device: str, found: Measured, budget: Budget, before: Measured | None
) -> Iterator[BudgetCheck]:
    failure = found.failures.get(device)
    if failure is not None:
        sentence, step, phase = failure
        yield make("out_of_memory", "violated", sentence, step=step, phase=phase)
        return
    highest = found.highest.get(device)
    if highest is None:
        reason = _nothing(budget)
        if before is not None and before.highest.get(device) is not None:
            reason += ", unlike in the baseline"
        yield make(None, "unchecked", "; ".join([reason, *found.lost]))
        return
    figures = highest.bytes, highest.step, highest.phase
    doubts = _doubts(found, highest)
    if budget.max_bytes is not None:
        status, reason = _compared(budget, highest, doubts, budget.max_bytes)
        yield make("max_peak", status, reason, *figures, budget.max_bytes)
    if budget.max_regression is not None:
        former = None if before is None else before.highest.get(device)
        if before is None or former is None or device in before.failures:
            yield make("max_regression", *_without_baseline(device, budget, before), *figures)
            return
        allowed = budget.max_regression.allowed(former.bytes)
        suffix = f" (baseline {format_bytes(former.bytes)} + {budget.max_regression.text})"
        status, reason = _compared(budget, highest, doubts, allowed, suffix, _doubts(before, former))
        yield make("max_regression", status, reason, *figures, allowed, former.bytes)


def _without_baseline(device: str, budget: Budget, before: Measured | None) -> tuple[CheckStatus, str]:
    if before is None:
        return "new", "the baseline has no such run"
    if device in before.failures:
        return "unchecked", f"the baseline {before.failures[device][0]}"
    lost = [*before.lost, *before.unrecorded]
    if lost:
        return "unchecked", f"the baseline's {WORDS[budget.of]} is unknown: {lost[0]}"
    return "new", f"the baseline has no {WORDS[budget.of]} of this device" + (" and phase" if budget.phases else "")


def _compared(
    budget: Budget,
    highest: Peak,
    doubts: Sequence[str],
    allowed: int,
    suffix: str = "",
    baseline_doubts: Sequence[str] = (),
) -> tuple[CheckStatus, str]:
    """A value against what is allowed; each may be a lower bound, for the reasons in its `doubts`."""
    status: CheckStatus = "violated" if highest.bytes > allowed else "within"
    reasons = doubts if status == "within" else [f"baseline: {one}" for one in baseline_doubts]
    received, limiting = format_bytes(highest.bytes), format_bytes(allowed)
    if received == limiting and highest.bytes != allowed:  # exact bytes if rounding would make them equal
        received, limiting = f"{highest.bytes:,} B", f"{allowed:,} B"
    at_least = "at least " if doubts else ""
    where = f"at step {highest.step} ({highest.phase})"
    text = f"{WORDS[budget.of]} {at_least}{received} {where}, allowed {limiting}{suffix}"
    return "unchecked" if reasons else status, "; ".join([text, *reasons])


def _failure(run: Run, device: str, budget: Budget) -> tuple[str, int | None, Phase | None] | None:
    """The last failed allocation of a device in the selected phases; an imported one has no phase."""
    chosen = [oom for oom in run.ooms if oom.device == device]
    chosen = [oom for oom in chosen if not budget.phases or oom.phase is None or oom.phase in budget.phases]
    if not chosen:
        return None
    last = chosen[-1]
    where = f" {last.place}".rstrip()
    size = "" if last.requested_bytes is None else f": {format_bytes(last.requested_bytes)} requested"
    more = f" ({len(chosen)} failures)" if len(chosen) > 1 else ""
    return f"ran out of memory{where}{size}{more}", last.step, last.phase


def _nothing(budget: Budget) -> str:
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
    """Why the value may have been higher."""
    doubts = list(found.lost)
    if highest.at_step_end:
        doubts.append("the allocator keeps no peak: this is the memory in use at step end")
    return doubts


def _lost(run: Run) -> list[str]:
    sentences = [f"damaged data: {one}" for one in run.damage] + lost_step_notes(run.notes)
    return sentences[:1] + ([f"{len(sentences) - 1} more"] if len(sentences) > 1 else [])
