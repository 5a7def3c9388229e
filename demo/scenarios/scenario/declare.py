"""Plain data: what a scenario declares. Knows nothing of TensorFlow or of runs."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

Figures: TypeAlias = Mapping[str, int]
"""Measured bytes (or counts) of one run by name: the categories at the peak, ``peak``,
``saved_for_backward``, ..."""

Verdict: TypeAlias = Literal["true", "true only if", "not true"]


@dataclasses.dataclass(frozen=True)
class Claim:
    """What the advice says about a figure: its value after, divided by its value before, is from
    `low` to `high`.

    A figure that is 0 before and not after has an infinite ratio; 0 before and after counts as 1.
    """

    words: str
    low: float
    high: float

    def holds(self, before: int, after: int) -> bool:
        ratio = after / before if before else (float("inf") if after else 1.0)
        return self.low <= ratio <= self.high


FALLS = Claim("falls", 0, 0.98)
RISES = Claim("rises", 1.02, float("inf"))
STAYS = Claim("stays the same", 0.98, 1.02)
HALVES = Claim("halves", 0.45, 0.55)


@dataclasses.dataclass(frozen=True)
class Expected:
    """What arithmetic from the model says about a figure, from counts of parameters, shapes and
    dtypes alone.

    Attributes:
        figure: Name of the figure.
        before, after: Expected bytes in each run; None where the arithmetic says nothing.
        formula: The arithmetic in words, such as ``4 B × 1,234 parameters``.
        within: Largest deviation, as a share of the larger of `before` and `after`.
        cpu_only: Whether the arithmetic is that of the CPU's kernels; other devices need not agree.
    """

    figure: str
    before: int | None
    after: int | None
    formula: str
    within: float = 0.0
    cpu_only: bool = False

    def deviations(self, before: Figures, after: Figures) -> list[str]:
        """A sentence for each of the two runs whose figure is not the expected one."""
        largest = max(value for value in (self.before, self.after, 0) if value is not None)
        return [
            f"{self.figure} {side}: {figures[self.figure]:,} measured, {value:,} expected "
            f"({self.formula})"
            for side, figures, value in (
                ("before", before, self.before),
                ("after", after, self.after),
            )
            if value is not None and abs(figures[self.figure] - value) > self.within * largest
        ]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two runs, and what the advice claims about them.

    Attributes:
        before, after: Names of the runs.
        title: What differs, if the advice has several comparisons.
        claim: What the advice claims about `figure`.
        figure: The figure that the claim is about.
        expected: What arithmetic says; more than one figure, usually.
        show: Further figures for the table, beside ``peak`` and the categories.
        only: The kind of device that the comparison is made on; empty for every device.
    """

    before: str
    after: str
    title: str = ""
    claim: Claim = FALLS
    figure: str = "peak"
    expected: Sequence[Expected] = ()
    show: Sequence[str] = ()
    only: Literal["", "CPU", "GPU"] = ""


@dataclasses.dataclass(frozen=True)
class Advice:
    """A piece of advice and whether it is true.

    Attributes:
        words: The advice as people usually put it; several ways of saying the same.
        verdict: What the comparisons must come to on the CPU: "true" if the claim holds in all of
            them, "not true" if in none, "true only if" if in some. On other devices the page says
            so where they come to something else.
        because: Why, in one or two sentences, without measured numbers. For "true only if" it
            begins with the condition and continues the sentence.
        comparisons: At least one; "true only if" needs two.
        on_gpu: Why a GPU's verdict differs, if it does.
    """

    words: Sequence[str]
    verdict: Verdict
    because: str
    comparisons: Sequence[Comparison]
    on_gpu: str = ""

    def made_on(self, device: str) -> list[Comparison]:
        """The comparisons that are made on a device, ``CPU`` or a GPU's name."""
        kind = "CPU" if device == "CPU" else "GPU"
        return [one for one in self.comparisons if one.only in ("", kind)]


@dataclasses.dataclass(frozen=True)
class Variant:
    """One run of a scenario. It has a process of its own.

    Attributes:
        train: Trains and records into the directory that it is given. May return further figures of
            the run, such as the driver's, by name.
        environment: Variables that must be set before TensorFlow is imported.
        gpus: GPUs that it needs; without them it is left out.
        timeout: Seconds after which it counts as failed.
    """

    train: Callable[[pathlib.Path], Mapping[str, Any] | None]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    gpus: int = 0
    timeout: float = 200


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One scenario, in one file.

    Attributes:
        number: Place on the page.
        title: Heading on the page.
        file: `__file__` of the scenario.
        description: Its docstring; the first paragraph stands on the page.
        runs: Variants by run name.
        advice: What is examined.
        measure: Figures of a recorded run. A run that was not recorded has only those that `train`
            returned.
    """

    number: int
    title: str
    file: str
    description: str
    runs: Mapping[str, Variant]
    advice: Sequence[Advice]
    measure: Callable[[Any], Figures] | None = None

    @property
    def name(self) -> str:
        """Name of its file, and of the directory of its runs."""
        return pathlib.Path(self.file).stem


def judged(advice: Advice, figures: Mapping[str, Figures], device: str) -> Verdict | None:
    """What the figures measured on a device say about `advice`; None if a run or every comparison
    is missing."""
    pairs = [
        (one, figures.get(one.before), figures.get(one.after)) for one in advice.made_on(device)
    ]
    if not pairs or any(before is None or after is None for _, before, after in pairs):
        return None
    held = [one.claim.holds(before[one.figure], after[one.figure]) for one, before, after in pairs]
    return "true" if all(held) else "true only if" if any(held) else "not true"
