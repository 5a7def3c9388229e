"""What the list of workers shows of one: made of its records, by the reader or by the recorder that stores it."""

import dataclasses
from typing import Annotated, Literal, TypeAlias, get_args

import numpy as np

from tb_memplugin.schema.basics import PHASES, Floats, Integers, Phase
from tb_memplugin.schema.fields import Most, Name, NotStored, Size, Step
from tb_memplugin.schema.ledger import TracedPeak

RunStatus: TypeAlias = Literal["failed", "growing", "fragmented", "training", "ok", "reading", "unknown"]
RUN_STATUSES: tuple[RunStatus, ...] = get_args(RunStatus)

NO_STEPS: Integers = np.empty(0, np.int64)
_NO_TIMES: Floats = np.empty(0, np.float64)


@dataclasses.dataclass(frozen=True)
class DeviceSummary:
    """One device of a worker in one phase.

    Attributes:
        peak_bytes, peak_step: The same as in the answer `fits`; see `fitting_peak`.
        last_in_use_bytes, pool_bytes: As last recorded in the phase, None if unknown.
        ooms, snapshots: Numbers of failed allocations and of traced steps, in any phase.
        traced: The traced steps of the phase, one of each step, ascending; of a stored summary the highest.
        rows: Number of its steps in the phase; None in a stored summary.
        step, step_peak_bytes, step_in_use_bytes: One row a step, ascending, shape [rows]; `MISSING` if unknown.
            Empty in a summary without steps.
    """

    name: Name
    phase: Phase
    peak_bytes: Size
    peak_step: Step
    capacity_bytes: Size | None
    last_in_use_bytes: Size | None
    pool_bytes: Size | None
    ooms: Size
    snapshots: Size
    traced: tuple[TracedPeak, ...]
    rows: Annotated[int | None, NotStored] = None
    step: Annotated[Integers, NotStored] = dataclasses.field(default_factory=lambda: NO_STEPS)
    step_peak_bytes: Annotated[Integers, NotStored] = dataclasses.field(default_factory=lambda: NO_STEPS)
    step_in_use_bytes: Annotated[Integers, NotStored] = dataclasses.field(default_factory=lambda: NO_STEPS)

    @property
    def headroom_bytes(self) -> int | None:
        """Capacity − peak; None if the capacity is unknown, or after a failed allocation, which leaves no headroom."""
        return None if self.capacity_bytes is None or self.ooms else self.capacity_bytes - self.peak_bytes


@dataclasses.dataclass(frozen=True)
class WorkerSummary:
    """One worker of a run.

    Attributes:
        worker: Its name, ``""`` in a run of one process and in a stored summary.
        started: Start of its last session in seconds since the epoch, None if unknown.
        ended: As in `Run`.
        status: What is wrong with it; host memory is not examined.
        first_step, last_step, last_wall_time: Of the samples of any phase, None without any.
        devices: Its devices with figures in a phase, accelerators first.
        rows: Number of samples in any phase; None in a stored summary.
        step, wall_time: Step and time of the samples of training steps, ascending, each step once; empty in a summary
            without steps.
    """

    worker: Annotated[str, NotStored]
    sessions: Annotated[int, NotStored]
    started: float | None
    ended: bool | None
    status: RunStatus
    first_step: Step | None
    last_step: Step | None
    last_wall_time: float | None
    devices: Annotated[tuple[DeviceSummary, ...], Most(1024 * len(PHASES))]
    rows: Annotated[int | None, NotStored] = None
    step: Annotated[Integers, NotStored] = dataclasses.field(default_factory=lambda: NO_STEPS)
    wall_time: Annotated[Floats, NotStored] = dataclasses.field(default_factory=lambda: _NO_TIMES)
