"""What trained steps show of a plan's options: their peaks and times, and options that no recording
shows. Pure."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tb_memplugin.allocator import SPLIT_AT_BYTES
from tb_memplugin.fit.asking import Measured
from tb_memplugin.fit.conditions import Interval
from tb_memplugin.fit.plans import Kind, PlanOption

TRAINED = (
    "recompute",
    "accumulate",
    "recompute_and_accumulate",
    "batch_size",
    "recompute_and_batch_size",
)
"""Simulated changes that steps are trained with if they fit, at most `MOST_TRAINED`, until one is
within the budget."""
MOST_TRAINED = 2
LEAST_SAVED = 0.03
"""Share of the peak that a change must save that is offered because steps were trained with it."""
_ALIKE = ("recompute", "graph_optimizer", "xla")
"""Changes that train the same."""


def switches(unchanged: PlanOption, is_compiled: bool) -> list[PlanOption]:
    """The options that no recording shows, of a step that XLA compiled or not."""
    graph: dict[Kind, str] = {
        "graph_optimizer": "without TensorFlow's graph optimizer",
        "xla": "with XLA",
    }
    named: dict[Kind, str] = {"xla": "without XLA"} if is_compiled else graph
    unknown: dict[str, Any] = dict.fromkeys(("peak_bytes", "low_bytes", "high_bytes", "extra_time"))
    return [
        dataclasses.replace(unchanged, kind=kind, sentence=said, **unknown)
        for kind, said in named.items()
    ]


class Trained(NamedTuple):
    """How trained steps change options; `same` are those without a change."""

    same: Measured
    budget: int
    is_compiled: bool  # whether XLA compiled the recorded step
    grows: bool  # whether the allocator's pool does
    # share by which the recorded steps differ, and other trainings with the change may, too
    spread: float

    def option(self, option: PlanOption, found: Measured) -> PlanOption:
        if found.peak is None:
            return dataclasses.replace(option, fits=option.fits and not found.ran_out)
        if found.seconds and self.same.seconds:
            time = found.seconds / self.same.seconds - 1
            option = dataclasses.replace(option, extra_time=time, time_source="measured")
        low, typical, high = found.peak
        least, most = (
            min(low, round(typical / (1 + self.spread))),
            max(high, round(typical * (1 + self.spread))),
        )
        if option.low_bytes is None or option.high_bytes is None:
            is_whole = self.grows and option.kind == "xla" and not self.is_compiled
            most += is_whole * min(most, SPLIT_AT_BYTES)
        elif typical < option.low_bytes and self.grows:
            # A pool that grows leaves a chunk whole for a compiled step in a process of its own,
            # and splits what larger steps left here: it may need as much as was predicted.
            return dataclasses.replace(
                option, low_bytes=least, fits=option.high_bytes <= self.budget
            )
        elif option.low_bytes <= typical <= option.high_bytes:
            least, most = (
                min(low, max(least, option.low_bytes)),
                max(high, min(most, option.high_bytes)),
            )
        peak = Interval(least, typical, most).as_peak()
        return dataclasses.replace(option, fits=most <= self.budget, peak_source="measured", **peak)


def cheapest_first(options: Sequence[PlanOption]) -> list[PlanOption]:
    """The options, those first that fit and train the same, in the order of their time."""
    alike = [one for one in options if one.fits and one.kind in _ALIKE]
    alike.sort(key=lambda one: math.inf if one.extra_time is None else one.extra_time)
    return [*alike, *(one for one in options if one not in alike)]
