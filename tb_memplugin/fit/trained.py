"""What trained steps show of a plan's options: their peaks and times, and options that no recording
shows. Pure."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tb_memplugin.allocator import SPLIT_AT_BYTES
from tb_memplugin.fit.asking import Measure, Measured
from tb_memplugin.fit.conditions import PEAK, Conditions, Interval
from tb_memplugin.fit.plans import Kind, PlanOption
from tb_memplugin.fit.predictor import Predictor

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
    unknown: dict[str, Any] = dict.fromkeys((*PEAK, "extra_time"))
    return [
        dataclasses.replace(unchanged, kind=kind, sentence=said, **unknown)
        for kind, said in named.items()
    ]


class Tried(NamedTuple):
    """A change, and the conditions under which its peak was simulated; None if it was not."""

    option: PlanOption
    conditions: Conditions | None


def trained_options(
    predictor: Predictor, tried: Sequence[Tried], budget: int, has_room: bool, measure: Measure
) -> tuple[list[Tried], list[str]]:
    """The options, of which the first changes nothing, with what steps show that are trained with
    the best ones and with `switches`, and sentences; `has_room` says whether this device has the
    memory for what was not simulated."""
    unchanged, *changed = tried
    is_compiled = predictor.steps[-1].mode == "xla"

    def measured(one: Tried) -> Measured:
        enough = has_room
        if one.conditions is not None:
            # on this device, whatever the capacity of the plan
            enough = predictor.fits(dataclasses.replace(one.conditions, capacity_bytes=None))
        if enough:
            return measure(one.option)
        return Measured(None, None, "this device may not have the memory")

    found = {unchanged: measured(unchanged)}
    same = found[unchanged]
    trained = Trained(same, budget, is_compiled, predictor.rules.grows, predictor.evidence.spread)
    promising = [one for one in changed if one.option.fits and one.option.kind in TRAINED]
    for one in promising[:MOST_TRAINED]:
        found[one] = measured(one)
        if trained.option(one.option, found[one]).fits:
            break
    added = [Tried(option, None) for option in switches(unchanged.option, is_compiled)]
    found |= {one: measured(one) for one in added}
    known: dict[Tried, Tried] = {}
    for one, steps in found.items():
        option = trained.option(one.option, steps)
        is_predicted = steps.peak is None or option.peak_source == "predicted"
        known[one] = Tried(option, one.conditions if is_predicted else None)
    if unchanged.conditions is not None and predictor.first_bytes(unchanged.conditions) > budget:
        option = dataclasses.replace(known[unchanged].option, fits=False)
        known[unchanged] = known[unchanged]._replace(option=option)
    before = same.peak.typical_bytes if same.peak else unchanged.option.peak_bytes or 0
    enough = before * (1 - LEAST_SAVED)
    saving = [
        known[one]
        for one in added
        if found[one].peak and (known[one].option.peak_bytes or 0) <= enough
    ]
    ordered = cheapest_first([*(known.get(one, one) for one in changed), *saving])
    sentences = [f"{one.option.sentence}: {steps}" for one, steps in found.items()]
    return [known[unchanged], *ordered], sentences


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


def cheapest_first(tried: Sequence[Tried]) -> list[Tried]:
    """The options, those first that fit and train the same, in the order of their time."""
    alike = [one for one in tried if one.option.fits and one.option.kind in _ALIKE]

    def time(one: Tried) -> float:
        return math.inf if one.option.extra_time is None else one.option.extra_time

    return [*sorted(alike, key=time), *(one for one in tried if one not in alike)]
