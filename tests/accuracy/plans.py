"""Plans under a budget against trainings that follow them: peak, time of a step, and whether they
train the same."""

import dataclasses
import statistics
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from train import Training

import tb_memplugin
from tb_memplugin.fit import PlanOption
from tb_memplugin.schema import format_bytes

SETTLED = 3
"""Steps before peaks and times are alike: the first ones create variables, choose kernels and plan
buffers."""
CYCLES = 4
"""Updates of a training that accumulates gradients; the first one makes the optimizer's slots."""
SHARES = (0.85, 0.7)
"""Budgets, as shares of the recorded peak."""
STEPS = 20
REPETITIONS = 5
"""Trainings that follow each plan: which chunks the allocator splits differs between them, and so
does the peak."""
FOLLOWED = ("recompute", "accumulate", "recompute_and_accumulate")


@dataclasses.dataclass(frozen=True)
class Planned:
    """A change that a plan proposes, and the training that followed it.

    Attributes:
        budget_bytes: The plan's budget.
        option: The change.
        peaks: Peaks of the steps of each training; of one that accumulates gradients, the highest
            of each update's steps.
        time: The predicted and the measured additional time of a step, as shares of the plain step;
            None if the plan predicts none.
        same: Whether losses and variables were bit-identical to plain training with deterministic
            ops; None for a change that does not train the same.
        apart: The largest relative difference of a loss.
    """

    model: str
    budget_bytes: int
    option: PlanOption
    peaks: tuple[tuple[int, ...], ...]
    time: tuple[float, float] | None
    same: bool | None
    apart: float

    @property
    def each(self) -> list[int]:
        """The median peak of each training, the lowest one first."""
        return sorted(int(statistics.median(one)) for one in self.peaks)

    @property
    def measured(self) -> int:
        return int(statistics.median(self.each))

    @property
    def error(self) -> float:
        return self.option.peak_bytes / self.measured - 1


def planned(
    trainings: Any, names: Iterable[str], batch: int = 32, **common: Any
) -> Iterator[Planned]:
    """Records each model, plans it for each share of its peak, and follows what the plans propose.

    That is the recomputation, whether it is enough or not, and the accumulation where that is what
    fits.

    Args:
        trainings: Runs trainings.
        names: Models.
        batch: Recorded batch size.
        common: What all trainings have in common.
    """
    for training in (Training(name, (batch,), **common) for name in names):
        for applied, option, budget in _proposed(trainings, training):
            before, after = (
                [
                    trainings.run(one, records=False, repetition=turn)[0]
                    for turn in range(REPETITIONS)
                ]
                for one in (training, applied)
            )
            peaks = tuple(settled_peaks(one["peaks"], option.accumulation) for one in after)
            if option.extra_time is None:
                yield Planned(training.model, budget, option, peaks, None, None, 0.0)
                continue
            plain, changed = (
                statistics.median(statistics.median(one["seconds"][SETTLED:]) for one in repeated)
                for repeated in (before, after)
            )
            exact = _exact(trainings, training, applied)
            same = all(exact[0][key] == exact[1][key] for key in ("losses", "variables"))
            apart = max(
                abs(a / b - 1) for a, b in zip(*(one["losses"] for one in exact), strict=True)
            )
            time = option.extra_time, changed / plain - 1
            yield Planned(training.model, budget, option, peaks, time, same, apart)


def prepare(trainings: Any, name: str, batch: int = 32, **common: Any) -> None:
    """Runs what `planned` needs except the timed trainings, so that only those have to be alone on
    the machine."""
    training = Training(name, (batch,), **common)
    for applied, option, _ in _proposed(trainings, training):
        if option.accumulation == 1:
            _exact(trainings, training, applied)


def _proposed(trainings: Any, training: Training) -> Iterator[tuple[Training, PlanOption, int]]:
    """Each change to follow, as the training that follows it, with the budget of its plan."""
    (run,) = tb_memplugin.load(trainings.run(training, records=True)[1]).values()
    recorded = tb_memplugin.plan(run, budget="1TiB").unchanged_peak_bytes
    if recorded is None:
        print(f"{training.model}: nothing is predicted", flush=True)
        return
    followed = set()
    for share in SHARES:
        budget = int(share * recorded)
        for option in tb_memplugin.plan(run, budget=budget).options:
            if option.kind in FOLLOWED and (option.fits or option.kind == "recompute"):
                parts = option.accumulation
                applied = dataclasses.replace(
                    training,
                    batches=(option.batch_size or training.batches[0],),
                    segments=option.segments,
                    accumulate=parts,
                    steps=max(training.steps, CYCLES * parts if parts > 1 else 0),
                )
                if applied not in followed:
                    print(f"{training.model}, {share}: {option.sentence}", flush=True)
                    followed.add(applied)
                    yield applied, option, budget
            if option.fits:
                break


def settled_peaks(peaks: Sequence[int], parts: int) -> tuple[int, ...]:
    """The peaks once they are alike, one for each update; `parts` batches belong to each."""
    first = -(-SETTLED // parts) * parts
    return tuple(max(peaks[at : at + parts]) for at in range(first, len(peaks) - parts + 1, parts))


def _exact(trainings: Any, *both: Training) -> list[dict[str, Any]]:
    return [
        trainings.run(dataclasses.replace(one, deterministic=True, steps=STEPS), records=False)[0]
        for one in both
    ]


def of_plans(cells: Sequence[Planned]) -> str:
    """The summary of plans; the table of all of them is printed."""
    lines = [
        "| model | budget | change | predicted peak | fits | measured | error | step predicted | "
        "measured | 20 steps |",
        "|---|---:|---|---:|---|---:|---:|---:|---:|---|",
    ]
    print("\n".join([*lines, *map(_row, cells)]))
    errors = [100 * abs(cell.error) for cell in cells]
    every = [(cell.option, peak) for cell in cells for peak in cell.each]
    inside = sum(option.low_bytes <= peak <= option.high_bytes for option, peak in every)
    fitting = [
        (cell.budget_bytes, max(peaks))
        for cell in cells
        if cell.option.fits
        for peaks in cell.peaks
    ]
    above = sum(highest > budget for budget, highest in fitting)
    apart = [
        100 * abs((1 + cell.time[0]) / (1 + cell.time[1]) - 1)
        for cell in cells
        if cell.time is not None
    ]
    summary = (
        f"Peaks: median error {statistics.median(errors):.1f} %, worst {max(errors):.1f} %; "
        f"{inside} of {len(every)} trainings in the predicted range; of {len(fitting)} trainings "
        f"said to fit, {above} had a step above the budget."
    )
    if apart:
        summary += (
            f" Times of a step: median error {statistics.median(apart):.0f} %, worst "
            f"{max(apart):.0f} %."
        )
    return "\n".join(textwrap.wrap(summary, 120)) + "\n"


def _row(cell: Planned) -> str:
    option = cell.option
    low, peak, high = (
        format_bytes(size) for size in (option.low_bytes, option.peak_bytes, option.high_bytes)
    )
    times = (
        ("–", "–") if cell.time is None else tuple(f"{100 * share:+.0f} %" for share in cell.time)
    )
    differs = (
        f"losses differ by {cell.apart:.1e}"
        if cell.apart
        else ("losses bit-identical, some variables are not")
    )
    trains = {None: "–", True: "bit-identical", False: differs}[cell.same]
    return (
        f"| {cell.model} | {format_bytes(cell.budget_bytes)} | {option.sentence} | {peak} ({low} "
        f"to {high}) | {'yes' if option.fits else 'no'} | {format_bytes(cell.measured)} "
        f"({format_bytes(cell.each[0])} to {format_bytes(cell.each[-1])}) | "
        f"{100 * cell.error:+.1f} % | {times[0]} | {times[1]} | {trains} |"
    )
