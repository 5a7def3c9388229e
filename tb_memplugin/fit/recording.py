"""One recorded program: what its steps show, and why they predict nothing. Pure."""

import dataclasses
from collections.abc import Sequence
from functools import cached_property

from tb_memplugin.allocator import PoolRules, rules_of
from tb_memplugin.fit.asking import COMPILED, ON_JAX, Answers, Ask
from tb_memplugin.fit.cases import make_case
from tb_memplugin.fit.conditions import MAX_BATCH_SIZE, PRECISIONS, RECORDED, Conditions
from tb_memplugin.fit.simulation import (
    NO_LIMIT,
    Reproduced,
    exploratory_rows,
    in_one_piece,
    of_highest_kind,
    reproduce,
    simulated,
    start_map,
)
from tb_memplugin.schema import Layer, StepRequests, format_bytes, recorded_precision

MOST_DEVIATION = 0.1
"""Largest deviation of the simulated from the measured peak of the recorded steps with which
anything is predicted."""
_RECURRENT = ("RNN", "LSTM", "GRU")
"""Parts of the types of recurrent layers."""
NO_STEPS = (
    "Unknown: the run has no traced training step with its requests. Imported profiles and runs "
    "without memory maps have none."
)
NAME_IT = "Name it with `batch_size=` of `MemoryRecorder`, its `step`, or `MemoryCallback`."
NO_BATCH_SIZE = f"Unknown: the recorded steps do not show their batch size. {NAME_IT}"
OTHER_SIZES_UNKNOWN = (
    "Unknown: the step is compiled, and only one batch size was recorded. Record a second one, "
    "for example with tb_memplugin.probe."
)


class Recording:
    """The steps of one recorded program.

    `measured_bytes` is the median peak of the run's steps with the latest recorded batch size, if
    known; `refused` says why the steps predict nothing, if that is known before any simulation;
    `ask` asks the compiler of compiled steps. `layers` are the model's in these steps."""

    def __init__(
        self,
        steps: Sequence[StepRequests],
        layers: Sequence[Layer] = (),
        measured_bytes: int | None = None,
        refused: str | None = None,
        ask: Ask | None = None,
    ) -> None:
        self.steps, self.layers = tuple(steps), tuple(layers)
        self.measured_bytes = measured_bytes
        self.answers = Answers(ask)
        self._refused = refused
        self.first = [one for one in steps if one.first][:1]
        self.later = [one for one in steps if not one.first]
        # how many trained together, and a sentence on their batch sizes
        self.replicas = self.later[-1].replicas if self.later else None
        whole = f"Batch sizes are those of all {self.replicas} replicas together."
        self.shared = (whole,) if self.replicas else ()

    @cached_property
    def reproduced(self) -> Reproduced:
        replays = [reproduce(one) for one in (*self.first, *self.later) if not one.planned]
        return Reproduced(sum(one.addresses for one in replays), sum(one.of for one in replays))

    @cached_property
    def batch_sizes(self) -> tuple[int, ...]:
        """The latest one last."""
        latest_first = [one.batch_size for one in reversed(self.later) if one.batch_size]
        return tuple(dict.fromkeys(latest_first))[::-1]

    @cached_property
    def batch_size(self) -> int | None:
        return self.batch_sizes[-1] if self.batch_sizes else None

    @cached_property
    def capacity_bytes(self) -> int | None:
        return self.later[-1].capacity_bytes if self.later else None

    @property
    def knows_other_batch_sizes(self) -> bool:
        """Whether the sizes for other batch sizes follow from the recorded steps."""
        latest = self.later[-1]
        known = latest.mode != "xla" or len(self.batch_sizes) > 1 or latest.module_moments
        return bool(self.batch_size and (known or self.answers.sizes(RECORDED)))

    @cached_property
    def rules(self) -> PoolRules:
        found = rules_of(start_map(self.later[-1])) or PoolRules(NO_LIMIT)
        return dataclasses.replace(found, grows=False) if in_one_piece(self.later[-1]) else found

    @cached_property
    def may_fail(self) -> frozenset[int]:
        return exploratory_rows(self.first[0], self.later) if self.first else frozenset()

    @cached_property
    def deviation(self) -> float:
        """By which share the simulated peak of the recorded training exceeds the measured one; 0
        if that is unknown. A growing pool leaves a compiled module's chunk whole, or splits it if
        it has larger regions: then, live bytes."""
        return min(self._excesses(same_start=True), key=abs)

    @cached_property
    def bias(self) -> float:
        """The same for trainings that begin in other orders, as predicted ones do."""
        return self._excesses(same_start=False)[0]

    def _excesses(self, same_start: bool) -> list[float]:
        if not self.measured_bytes:
            return [0.0]
        asked = self.answers.sizes(RECORDED)
        recorded = Conditions(self.batch_size)
        changed = make_case(self.first, self.later, recorded, self.layers, asked).changed
        found = simulated(changed, self.rules, self.may_fail, same_start)
        peaks = [found.peak.typical_bytes]
        if self.later[-1].mode == "xla" and self.rules.grows:
            peaks.append(found.live_bytes)
        return [peak / self.measured_bytes - 1 for peak in peaks]

    @cached_property
    def unusable(self) -> str | None:
        """Why nothing can be predicted from the recorded steps, as a sentence."""
        if self._refused is not None:
            return self._refused
        if not self.later:
            return NO_STEPS
        if not self.reproduced.whole:
            return (
                f"Unknown: the replay reproduced {self.reproduced.addresses:,} of "
                f"{self.reproduced.of:,} addresses, so the simulation does not follow this "
                "allocator."
            )
        if self.capacity_bytes is None and not self.later[-1].planned:
            return "Unknown: the allocator's capacity is unknown."
        if abs(self.deviation) > MOST_DEVIATION:
            side = "above" if self.deviation > 0 else "below"
            own = [one for one in self.later if one.batch_size == self.batch_size]
            unnamed = "" if self.batch_size else f" Their batch size is unknown. {NAME_IT}"
            return (
                "Unknown: the simulation of the recorded steps peaks "
                f"{100 * abs(self.deviation):.0f} % {side} the median of the run's steps. "
                f"{_untypical(own)}{unnamed}"
            )
        return None

    def reason_against(self, conditions: Conditions) -> str | None:
        """Why nothing can be predicted under conditions, as a sentence; None if it can."""
        batch, precision = conditions.batch_size, conditions.precision
        if self.later and not self.batch_size and batch is not None:
            return NO_BATCH_SIZE
        if self.unusable is not None:
            return self.unusable
        if conditions.accumulate and self.replicas:
            return "Unknown: Keras accumulates no gradients in a distribution strategy."
        recorded = recorded_precision(self.layers)
        if precision not in (None, recorded) and recorded not in (None, *PRECISIONS):
            return (
                f"Unknown: the run was recorded in {recorded}. Which of its tensors would take "
                f"more bytes in {precision} is unknown. Record a few steps in {precision}."
            )
        recurrent = any(name in layer.type for layer in self.layers for name in _RECURRENT)
        if recurrent and precision not in (None, recorded or "float32"):
            return (
                "Unknown: recurrent layers may copy their weights to half precision in every time "
                f"step. Record a few steps in {precision}."
            )
        if conditions.recompute and self.later[-1].mode == "xla":
            why = ON_JAX if in_one_piece(self.later[-1]) else COMPILED
            return None if batch in self.answers.sizes(conditions) else f"Unknown: {why}"
        if batch is None or batch == self.batch_size:
            return None
        if not 1 <= batch <= MAX_BATCH_SIZE:
            return f"Unknown: a batch size is 1 to {MAX_BATCH_SIZE:,}. Received: {batch:,}."
        return None if self.knows_other_batch_sizes else OTHER_SIZES_UNKNOWN


def _untypical(steps: Sequence[StepRequests]) -> str:
    """Why a simulation of steps of one batch size misses the measured peak, as a sentence."""
    own = of_highest_kind(steps)
    sums = [int(one.requested[one.birth >= 0].sum()) for one in own]
    if max(sums) > (1 + MOST_DEVIATION) * min(sums):
        sizes = f"{format_bytes(min(sums))} to {format_bytes(max(sums))}"
        return f"The traced steps request {sizes}, so tensors have other shapes in other steps."
    return (
        "The traced steps are not typical of this run, for example because its operations run in "
        "very different orders, or on tensors of other shapes."
    )
