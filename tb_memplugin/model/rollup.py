"""Roll-ups: what a session recorded, in a record of bounded size. A view of many workers reads these alone."""

import dataclasses
from collections.abc import Mapping

from tb_memplugin.model.basics import Floats, Integers, Phase
from tb_memplugin.model.groups import TracedPeak


@dataclasses.dataclass(frozen=True)
class PoolRollup:
    """The pool when the highest peak was measured: in the traced step, or at the end of a sampled one."""

    free_bytes: int
    largest_free_bytes: int
    pool_bytes: int
    capacity_bytes: int | None


@dataclasses.dataclass(frozen=True)
class PhaseRollup:
    """One device in one phase.

    Attributes:
        steps: Number of its steps; samples in a row with the same step count once.
        peak_bytes, peak_step: Highest bytes in use and the earliest step that reached them, traced steps included; None
            if no sample has them.
        in_use_bytes, pool_bytes: The last known values at step end, None if unknown.
        pool: None if it was never measured.
        traced: The traced step with the highest peak, None if no step was traced.
    """

    steps: int
    peak_bytes: int | None
    peak_step: int | None
    in_use_bytes: int | None
    pool_bytes: int | None
    pool: PoolRollup | None
    traced: TracedPeak | None


@dataclasses.dataclass(frozen=True)
class DeviceRollup:
    """One device of a session.

    Attributes:
        name: The device's name in its worker.
        capacity_bytes: As last recorded, None if unknown.
        ooms: Number of failed allocations that TensorFlow did not tolerate.
        went_on: Whether the session recorded steps after the newest of them; see `Oom.rows_after`.
        oom_in_use_bytes, oom_step: Most bytes in use at a failed allocation, and its step; None if unknown.
        snapshots: Number of traced steps.
        phases: By phase, those without a record left out.
    """

    name: str
    capacity_bytes: int | None
    ooms: int
    went_on: bool
    oom_in_use_bytes: int | None
    oom_step: int | None
    snapshots: int
    phases: Mapping[Phase, PhaseRollup]


@dataclasses.dataclass(frozen=True)
class Spans:
    """Samples of a phase by epoch or by neighboring epochs; outside epochs by ranges of steps.

    Attributes:
        phase: Index into `PHASES`, shape [spans].
        first_step, last_step, last_wall_time: Of the samples, shape [spans].
        peak_bytes, peak_step: The highest peak of a step and the earliest step that reached it, shape [devices, spans];
            `MISSING` without samples of a known peak.
    """

    phase: Integers
    first_step: Integers
    last_step: Integers
    last_wall_time: Floats
    peak_bytes: Integers
    peak_step: Integers

    def __len__(self) -> int:
        return len(self.phase)


@dataclasses.dataclass(frozen=True)
class Levels:
    """The lowest memory of consecutive training steps, which shows whether memory grows.

    Attributes:
        step: Last step of each group of steps, shape [levels].
        in_use_bytes, peak_bytes: The lowest bytes in use at step end and the lowest peak, rounded down to multiples of
            `LEVEL_BYTES`; shape [devices, levels], `MISSING` if unknown.
    """

    step: Integers
    in_use_bytes: Integers
    peak_bytes: Integers


LEVEL_BYTES = 64 << 10
"""Resolution of levels: a sixteenth of the smallest growth that counts."""


@dataclasses.dataclass(frozen=True)
class Rollup:
    """What a session recorded until the roll-up was written.

    Attributes:
        started: Start of the session in seconds since the epoch.
        ended: When the recorder was closed; None if it did not say so.
        is_recorders: Whether a recorder writes the session, which says when it ends.
        samples: Number of samples in any phase.
        first_step, last_step, first_wall_time, last_wall_time: Of the samples of any phase, None without any.
        first_training_step, last_training_step: None without any.
        devices: In order of recording.
        spans: With a row for each device, in their order.
        levels: With a row for each device, in their order.
    """

    started: float
    ended: float | None
    is_recorders: bool
    samples: int
    first_step: int | None
    last_step: int | None
    first_wall_time: float | None
    last_wall_time: float | None
    first_training_step: int | None
    last_training_step: int | None
    devices: tuple[DeviceRollup, ...]
    spans: Spans
    levels: Levels
