"""What XLA's compiler plans for steps that never ran, and what trained steps need: questions and
answers. Pure.

Who asks gives a function; a recorded run that is read from files has none."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from tb_memplugin.fit.changes import Segments
from tb_memplugin.fit.conditions import Conditions, Interval
from tb_memplugin.schema import format_bytes

MOST_RECOMPUTED = 3
"""Choices of segments, and numbers of accumulated batches, that one plan asks about: each compiles
for minutes."""
MOST_ASKED = 3
"""Batch sizes that are asked about to find the largest one that fits."""
COMPILED = (
    "XLA compiled the recorded step, and what it needs for recomputed layers follows from no "
    "recording. Ask with tb_memplugin.plan(model, data, budget=...)."
)
ON_JAX = "Recomputed layers are planned for TensorFlow only."


@dataclasses.dataclass(frozen=True)
class Asked:
    """The bytes of a compiled step's temporaries, as the compiler plans them; None if it gave no
    answer. The sentence says how long the question took, or why there is no answer."""

    temporary_bytes: int | None
    sentence: str


@dataclasses.dataclass(frozen=True)
class Measured:
    """Peaks and median time of trained updates; None, with a sentence on why, if no steps were
    trained to their end."""

    peak: Interval | None
    seconds: float | None
    reason: str = ""
    ran_out: bool = False  # of memory

    def __str__(self) -> str:
        if self.peak is None:
            return f"not trained: {self.reason}."
        peak, milliseconds = format_bytes(self.peak.typical_bytes), 1000 * (self.seconds or 0)
        return f"trained, peak {peak}, {milliseconds:.0f} ms an update."


PeakSource: TypeAlias = Literal["measured", "predicted"]
Measure: TypeAlias = Callable[[Any], Measured]
"""Trains a few steps with a `PlanOption`, and restores everything."""
Ask: TypeAlias = Callable[[int, Segments, bool], Asked]
"""Asks about a batch size with segments recomputed, maybe with accumulated gradients; takes as long
as compiling."""


class Answers:
    """The answers so far to questions about one compiled step; none if nobody can `ask`."""

    def __init__(self, ask: Ask | None) -> None:
        self.are_possible = ask is not None
        self._ask = ask
        self._found: dict[tuple[int, Segments, bool], Asked] = {}

    def ask(self, wanted: Conditions) -> bool:
        """Ask what was not asked before; returns whether there is a new answer."""
        key = _question(wanted)
        changes = [(bool(segments), accumulates) for _, segments, accumulates in self._found]
        kind = (bool(wanted.recompute), wanted.accumulate)
        is_too_much = any(kind) and changes.count(kind) >= MOST_RECOMPUTED
        if self._ask is None or key in self._found or is_too_much:
            return False
        self._found[key] = self._ask(*key)
        return self._found[key].temporary_bytes is not None

    def said(self, wanted: Conditions) -> tuple[str, ...]:
        found = self._found.get(_question(wanted))
        return () if found is None else (found.sentence,)

    def sizes(self, wanted: Conditions) -> dict[int, int]:
        """Batch size to bytes of temporaries, with the segments of some conditions."""
        same = _question(wanted)[1:]
        return {
            size: one.temporary_bytes
            for (size, *changes), one in self._found.items()
            if (*changes,) == same and one.temporary_bytes is not None
        }


def _question(wanted: Conditions) -> tuple[int, Segments, bool]:
    return wanted.batch_size or 0, wanted.recompute, wanted.accumulate
