"""Plans under a budget against trainings that follow them: peak, time of a step, and whether they train the same."""

import dataclasses
import pathlib
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from train import Training

import tb_memplugin
from tb_memplugin.analysis.plan_answer import Plan
from tb_memplugin.model.units import format_bytes

SETTLED = 3
"""Steps before peaks and times are alike: the first ones create variables, choose kernels and plan buffers."""
SHARES = (0.85, 0.7)
"""Budgets, as shares of the recorded peak."""
STEPS = 20


@dataclasses.dataclass(frozen=True)
class Planned:
    """A plan and the training that followed it.

    Attributes:
        peaks: Peaks of its steps.
        time: The predicted and the measured additional time of a step, as shares of the plain step; None if the plan
            predicts none.
        same: Whether losses and variables were bit-identical to plain training with deterministic ops; None for a plan
            that does not train the same.
        apart: The largest relative difference of a loss.
    """

    model: str
    plan: Plan
    peaks: tuple[int, ...]
    time: tuple[float, float] | None
    same: bool | None
    apart: float

    @property
    def measured(self) -> int:
        return int(statistics.median(self.peaks))

    @property
    def error(self) -> float:
        assert self.plan.peak_bytes is not None
        return self.plan.peak_bytes / self.measured - 1


def planned(trainings: Any, names: Iterable[str], shares: Sequence[float] = SHARES, **common: Any) -> list[Planned]:
    """Records each model, plans it for each share of its peak, and follows the plans that recompute segments.

    Args:
        trainings: Runs trainings.
        names: Models.
        shares: Budgets, as shares of the recorded peak.
        common: What all trainings have in common.
    """
    return [cell for name in names for cell in _of_model(trainings, Training(name, (32,), **common), shares)]


def prepare(trainings: Any, name: str, shares: Sequence[float] = SHARES, **common: Any) -> None:
    """Runs what `planned` needs except the timed trainings, so that only those have to be alone on the machine."""
    training = Training(name, (32,), **common)
    for applied, plan in _plans(trainings, training, shares):
        if plan.accumulation == 1:
            _exact(trainings, training, applied)


def _of_model(trainings: Any, training: Training, shares: Sequence[float]) -> Iterator[Planned]:
    for applied, plan in _plans(trainings, training, shares):
        yield _followed(trainings, training, applied, plan)


def _plans(trainings: Any, training: Training, shares: Sequence[float]) -> Iterator[tuple[Training, Plan]]:
    """Each plan with recomputed segments, and the training that follows it."""
    run = _run(trainings.run(training, records=True)[1])
    recorded = tb_memplugin.plan(run, budget="1TiB").recorded_peak_bytes
    if recorded is None:
        print(f"{training.model}: nothing is predicted", flush=True)
        return
    followed = set()
    for share in shares:
        plan = tb_memplugin.plan(run, budget=int(share * recorded))
        print(f"{training.model}, {share}: {_sentence(plan)}", flush=True)
        if plan.segments and plan.segments not in followed:
            followed.add(plan.segments)
            batches = (plan.batch_size or training.batches[0],)
            yield (
                dataclasses.replace(training, batches=batches, segments=plan.segments, accumulate=plan.accumulation),
                plan,
            )


def _followed(trainings: Any, plain: Training, applied: Training, plan: Plan) -> Planned:
    before, after = (trainings.run(one, records=False)[0] for one in (plain, applied))
    time = None
    if plan.extra_time is not None:
        seconds = [statistics.median(one["seconds"][SETTLED:]) for one in (before, after)]
        time = plan.extra_time, seconds[1] / seconds[0] - 1
    peaks = tuple(after["peaks"][SETTLED:])
    if plan.accumulation > 1:
        return Planned(plain.model, plan, peaks, time, None, 0.0)
    exact = _exact(trainings, plain, applied)
    same = all(exact[0][key] == exact[1][key] for key in ("losses", "variables"))
    apart = max(abs(a / b - 1) for a, b in zip(*(one["losses"] for one in exact), strict=True))
    return Planned(plain.model, plan, peaks, time, same, apart)


def _exact(trainings: Any, *both: Training) -> list[dict[str, Any]]:
    return [trainings.run(dataclasses.replace(one, deterministic=True, steps=STEPS), records=False)[0] for one in both]


def _run(directory: pathlib.Path) -> Any:
    (run,) = tb_memplugin.load(directory).values()
    return run


def _sentence(plan: Plan) -> str:
    return next((option.sentence for option in plan.options if option.fits), "nothing fits")


def of_plans(cells: Sequence[Planned]) -> str:
    """The table of plans, and its summary."""
    lines = [
        "| model | budget | plan | predicted peak | measured | error | step predicted | measured | 20 steps |",
        "|---|---:|---|---:|---:|---:|---:|---:|---|",
    ]
    lines += [_row(cell) for cell in cells]
    errors = sorted(abs(cell.error) for cell in cells)
    above = sum(cell.measured > cell.plan.budget_bytes for cell in cells)
    inside = sum(cell.plan.low_bytes <= cell.measured <= cell.plan.high_bytes for cell in cells)
    apart = sorted(abs((1 + cell.time[0]) / (1 + cell.time[1]) - 1) for cell in cells if cell.time is not None)
    lines += [
        "",
        f"Peaks: median error {100 * statistics.median(errors):.1f} %, worst {100 * errors[-1]:.1f} %; {inside} of "
        f"{len(cells)} in the predicted range, {above} above the budget. Times of a step: median error "
        f"{100 * statistics.median(apart):.0f} %, worst {100 * apart[-1]:.0f} %.",
    ]
    return "\n".join(lines) + "\n"


def _row(cell: Planned) -> str:
    plan = cell.plan
    low, peak, high = (format_bytes(size) for size in (plan.low_bytes, plan.peak_bytes, plan.high_bytes))
    times = ("–", "–") if cell.time is None else tuple(f"{100 * share:+.0f} %" for share in cell.time)
    exact = "–" if cell.same is None else "bit-identical" if cell.same else f"losses differ by {cell.apart:.1e}"
    return (
        f"| {cell.model} | {format_bytes(plan.budget_bytes)} | {_sentence(plan)} | {peak} ({low} to {high}) | "
        f"{format_bytes(cell.measured)} | {100 * cell.error:+.1f} % | {times[0]} | {times[1]} | {exact} |"
    )
