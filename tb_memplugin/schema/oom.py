"""Post-mortems of failed allocations."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from tb_memplugin.schema.chunks import MemoryMap, StepRequests
from tb_memplugin.schema.fields import (
    PHASES,
    Floats,
    Integers,
    Most,
    Name,
    NotStored,
    Phase,
    Size,
    Step,
    record_of,
)
from tb_memplugin.schema.snapshot import (
    MAX_TENSOR_GROUPS,
    LedgerRow,
    SavedRow,
    Snapshot,
    TensorGroup,
    pool_of,
    rounding_total,
    sums_by,
)

Verdict: TypeAlias = Literal["fragmentation", "capacity"]
OomStatus: TypeAlias = Literal["failed", "survived", "failing", "tolerated"]
FailedDuring: TypeAlias = Literal["step", "between_steps", "building"]
FixKind: TypeAlias = Literal[
    "batch", "recompute", "accumulation", "freezing", "unfragmented", "limit", "precision"
]


@dataclasses.dataclass(frozen=True)
class Fix:
    """A possible fix for a failed request.

    Attributes:
        kind: ``batch``: a smaller batch; ``recompute``: segments of layers run again in the
            backward pass; ``accumulation``: gradient accumulation; ``freezing``: frozen layers;
            ``unfragmented``: no fragmentation; ``limit``: a larger capacity; ``precision``: mixed
            precision.
        enough: Whether the training passes with it alone, in a simulation of whole steps; None for
            an estimate.
        batch_size, capacity_bytes: The advised batch size and capacity, None for other fixes.
        freeze: The layers to freeze as globs for `what_if`, None for other fixes or if they are too
            long for it.
        budget_bytes: The budget with which `plan` recomputes the same, None for fixes that do not
            recompute.
        peak_bytes: The peak with the fix, of simulated or recorded steps; None for an estimate.
        low_bytes, high_bytes: Its range, None if the peak of a fix that is not enough was not
            simulated.
        code: The lines of Python that apply the fix to a compiled `model`, None for fixes that need
            none."""

    kind: FixKind
    change: str
    sentence: str
    enough: bool | None = None
    batch_size: int | None = None
    capacity_bytes: int | None = None
    freeze: str | None = None
    budget_bytes: int | None = None
    peak_bytes: int | None = None
    low_bytes: int | None = None
    high_bytes: int | None = None
    code: str | None = None


_OUTCOMES: dict[OomStatus, str] = {
    "survived": "The program caught the error and went on.",
    "failing": "Outcome unknown: the process ended while TensorFlow waited for memory, or only a "
    "dump was imported.",
}


@dataclasses.dataclass(frozen=True)
class Oom:
    """The post-mortem of a failed allocation.

    Attributes:
        identifier: Identifies the failure within its session; a later record of the same failure
            replaces it.
        status: ``failed``; ``survived`` if the program caught the error; ``failing`` while
            TensorFlow waits for memory, which stays if the process is then killed. A record
            ``tolerated`` withdraws the failure: the step continued.
        step: Failed step; outside of steps the last one before, null before the first one.
        phase: Its phase; null outside of steps.
        during: ``step``, or where else memory ran out: ``building`` (a model) or ``between_steps``.
        device: Where.
        wall_time: Time of the failure.
        requested_bytes: Size of the request.
        op: Op of the request.
        layer: Layer of the request.
        shape: Shape of the requested tensor.
        line: The user's line that called the layer or op, such as ``train.py:42``.
        free_bytes: Free bytes of the pool; if it is unknown, the bytes of the limit that are not in
            use.
        largest_free_bytes: Largest free chunk.
        in_use_bytes: Allocated.
        pool_bytes: Reserved by the allocator.
        capacity_bytes: The allocator's limit.
        verdict: ``capacity`` or ``fragmentation``; null if a figure for it is missing.
        reason: Sizes behind the verdict, as a sentence.
        ledger: Memory at failure by owner; sums to `in_use_bytes`; empty if that is unknown.
        fixes: Possible fixes, if requested: they are not recorded but simulated from the recorded
            steps.
        map: The chunks at the failure.
        not_available: Sentences on what is unknown.
        batch_size: Examples in the batch of the failed step, of all replicas together.
        request_ledger: What the request holds by owner, if a compiled module made it for all its
            layers: at the moment with most bytes in it. Sums to `requested_bytes`; empty if that is
            unknown.
        largest_tensors: Those of the ledger's tensors whose shapes are known, the largest group
            first.
        request_tensors: Those of the request's.
        requests: Requests of the failed step, if no whole step was recorded before: those up to the
            failure, or those that a compiled module would have made; null if unknown."""

    identifier: str
    status: OomStatus
    step: Step | None
    phase: Phase | None
    device: Name
    wall_time: float
    requested_bytes: Size | None
    free_bytes: Size | None
    largest_free_bytes: Size | None
    in_use_bytes: Size | None
    pool_bytes: Size | None
    capacity_bytes: Size | None
    verdict: Verdict | None
    reason: str
    op: str | None
    layer: str | None
    shape: str | None
    ledger: tuple[LedgerRow, ...]
    map: MemoryMap | None
    not_available: tuple[str, ...]
    fixes: Annotated[tuple[Fix, ...], NotStored] = ()
    line: str | None = None
    batch_size: Size | None = None
    during: FailedDuring | None = None
    request_ledger: tuple[LedgerRow, ...] = ()
    largest_tensors: Annotated[tuple[TensorGroup, ...], Most(MAX_TENSOR_GROUPS)] = ()
    request_tensors: Annotated[tuple[TensorGroup, ...], Most(MAX_TENSOR_GROUPS)] = ()
    requests: StepRequests | None = None

    def faults(self) -> Iterator[str]:
        if (
            self.request_ledger
            and sum(row.bytes for row in self.request_ledger) != self.requested_bytes
        ):
            yield f"what a failed request holds does not sum to its {self.requested_bytes} bytes"
        if self.ledger and sum(row.bytes for row in self.ledger) != self.in_use_bytes:
            yield (
                f"the ledger of a failed allocation does not sum to its {self.in_use_bytes} bytes "
                "in use"
            )

    @property
    def failed(self) -> bool:
        """Whether TensorFlow gave up the request, whatever the program then did."""
        return self.status in ("failed", "survived")

    def rows_after(
        self, step: Integers, phase: Integers, wall_time: Floats, restart: float = math.inf
    ) -> Integers:
        """Indices of the samples that show that a training went on after the failure.

        Samples of the same session count only if the program caught the error: that of an input
        pipeline may end the training some steps after the failure.

        The columns are those of `Samples`; `restart` is when the next session began, infinite
        without one."""
        since = self.wall_time if self.status == "survived" else restart
        rows = np.flatnonzero(wall_time > self.wall_time)
        if (
            len(rows)
            and int(step[rows[0]]) == self.step
            and self.phase in (None, PHASES[int(phase[rows[0]])])
        ):
            rows = rows[1:]  # the failed step, or the one that had not ended
        return rows[wall_time[rows] >= since]

    @property
    def outcome(self) -> str:
        """What became of the process, in a sentence; empty if the failure says it."""
        return _OUTCOMES.get(self.status, "")

    @property
    def place(self) -> str:
        """Where it happened, in words that follow "OOM" or "ran out of memory"; empty if that is
        unknown."""
        after = "" if self.step is None else f"after step {self.step}"
        if self.during == "building":
            return f"building the model {after}".rstrip()
        if self.during == "between_steps":
            return f"between steps, {after or 'before the first one'}"
        if self.step is None:
            return ""
        return f"at step {self.step}" + ("" if self.phase is None else f" ({self.phase})")


def settled_ooms(ooms: Sequence[Oom]) -> tuple[Oom, ...]:
    """The last record of each failed allocation, without those that TensorFlow tolerated."""
    last: dict[str, Oom] = {}
    for oom in ooms:
        known = last.get(oom.identifier) if oom.status == "survived" else None
        last[oom.identifier] = (
            oom if known is None else dataclasses.replace(known, status="survived")
        )
    return tuple(oom for oom in last.values() if oom.status != "tolerated")


def with_failed_steps(snapshots: Sequence[Snapshot], ooms: Iterable[Oom]) -> tuple[Snapshot, ...]:
    """The snapshots of a session, and one of each step with a failed allocation whose owners are
    known.

    Every view, the terminal and reports take a step's breakdown from its snapshot, so that they
    agree with the post-mortem. The last failure of a step on a device counts; it replaces a trace
    of the same step."""
    failed: dict[Any, Snapshot] = {}
    for oom in sorted(ooms, key=lambda oom: oom.wall_time):
        if not oom.ledger or None in (oom.step, oom.phase, oom.in_use_bytes):
            continue
        failed[oom.step, oom.phase, oom.device] = _failed_snapshot(oom)
    traced = [one for one in snapshots if (one.step, one.phase, one.device) not in failed]
    return (*traced, *failed.values())


def _failed_snapshot(oom: Oom) -> Snapshot:
    """The breakdown of a failed step at its failure."""
    pool = pool_of(oom.pool_bytes, oom.in_use_bytes, oom.largest_free_bytes)
    activations = (row for row in oom.ledger if row.category == "activations")
    saved = sums_by(activations, lambda row: row.layer)
    return record_of(
        Snapshot,
        oom,
        mode=None,
        fragmentation=None if pool is None else pool.fragmentation,
        rounding_bytes=rounding_total(oom.ledger),
        saved_for_backward=tuple(SavedRow(layer, size) for layer, size in saved.most_common()),
        at_failure=True,
    )
