"""What a recorded run shows: the steps of its program, which batch sizes ran or failed, and the
demand of a peak. Pure.

No prediction contradicts the batch sizes that ran or failed."""

import collections
import dataclasses
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tb_memplugin.analysis import failure_of, growth_of, highest_peak
from tb_memplugin.fit.conditions import Conditions, Interval
from tb_memplugin.fit.simulation import (
    MARGIN,
    FailedRequest,
    of_highest_kind,
)
from tb_memplugin.fit.steps import sizes_for
from tb_memplugin.schema import (
    MAX_STEP,
    PHASES,
    ChunkOwner,
    LayerTable,
    Oom,
    Phase,
    Run,
    StepRequests,
    format_bytes,
    former_name,
)

_TRAIN: Phase = "train"
SMALLER: Mapping[Phase | None, str] = {
    "validation": "validation_batch_size of fit, batch_size of evaluate, or the data set's own",
    "predict": "batch_size of predict, or the data set's own",
}
"""What makes the batches of a phase smaller that are not those of training."""


class Ran(NamedTuple):
    """The peaks of the recorded steps of a batch size; typically their median."""

    peak: Interval
    capacity_bytes: int | None = None  # the smallest limit within which they ran; None if unknown


@dataclasses.dataclass(frozen=True)
class Failure:
    batch_size: int
    capacity_bytes: int | None
    step: int
    request: FailedRequest | None = None  # what failed, if all of it is known
    what: str = "ran out of memory"


class Verdict(NamedTuple):
    """Whether a training fits.

    It does, it does not, it may, which is None, or that is `unknown`, with a sentence on why."""

    fits: bool | None = None
    unknown: str | None = None
    sentences: tuple[str, ...] = ()  # why
    within_bytes: int | None = None  # the capacity within which steps ran that prove that it fits
    failed: FailedRequest | None = None  # what failed under exactly these conditions
    # the highest recorded peak under exactly these conditions
    recorded_bytes: int | None = None
    # a sentence on the failure that ended the run, if its training steps may fit
    elsewhere: str | None = None


class OtherFailure(NamedTuple):
    """The failure that ended a run, if it shows nothing of training steps: a sentence on it and on
    what helps, the allocator's limit, and the batch size of the training, both None if unknown."""

    sentence: str
    capacity_bytes: int | None
    trained: int | None

    def fits(self, batch_size: int | None, capacity_bytes: int | None) -> bool | None:
        """False if the run fails again, None if that is unknown: with smaller batches of training,
        others may be smaller, too."""
        if batch_size is None or self.trained is None or batch_size < self.trained:
            return None
        return False if (capacity_bytes or 0) <= (self.capacity_bytes or 0) else None


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The batch sizes that a run trained with, and their failures; each proves something under its
    own capacity."""

    ran: Mapping[int, Ran] = dataclasses.field(default_factory=dict)
    failures: Sequence[Failure] = ()
    # a sentence on why steps that ran prove nothing of later ones: memory grows, or shapes differ
    refused: str | None = None
    other_failure: OtherFailure | None = None
    highest_bytes: int = 0  # the highest peak of the run, of all its steps; 0 if unknown

    @property
    def spread(self) -> float:
        """Share by which the steps of the largest recorded batch size differ, at least `MARGIN`."""
        peaks = [one.peak for _, one in sorted(self.ran.items())[-1:]]
        return max([MARGIN, *(high / low - 1 for low, _, high in peaks)])

    def verdict(self, batch_size: int | None, capacity_bytes: int | None) -> Verdict:
        """Whether a batch size fits into a capacity, as far as the run shows it."""
        if batch_size is None or capacity_bytes is None:
            return Verdict()
        failed = self._failure(batch_size, capacity_bytes)
        if failed is not None:
            what = f"batch size {failed.batch_size:,} {failed.what} in step {failed.step:,}"
            said = f"Recorded: {what}, with {format_bytes(failed.capacity_bytes)}."
            same = [
                one.request
                for one in self.failures
                if (one.batch_size, one.capacity_bytes) == (batch_size, capacity_bytes)
            ]
            return Verdict(False, sentences=(said,), failed=same[-1] if same else None)
        proof = self._proof(batch_size, capacity_bytes)
        if proof is None:
            return Verdict()
        within = self.ran[proof].capacity_bytes
        said = f"Recorded: batch size {proof:,} ran within {format_bytes(within)}."
        sentences = () if proof == batch_size else (said,)
        recorded = None
        if batch_size in self.ran:
            of_run = self.highest_bytes if len(self.ran) == 1 else 0
            recorded = max(self.ran[batch_size].peak.high_bytes, of_run)
        return Verdict(True, None, sentences, within, recorded_bytes=recorded)

    def of_run(self, training: Verdict, wanted: Conditions, shown: "Evidence") -> Verdict:
        """The verdict on the run, from that on its training; `shown` is what the run shows of the
        conditions."""
        other = self.other_failure
        if other is None:
            return training
        said = training._replace(sentences=(other.sentence, *training.sentences))
        if training.fits is False:
            return said
        is_same = training.fits and shown is self
        fits = other.fits(wanted.batch_size, wanted.capacity_bytes) if is_same else None
        return said._replace(fits=fits, elsewhere=other.sentence)

    def _failure(self, batch_size: int, capacity_bytes: int) -> Failure | None:
        """The failure that shows that a batch size does not fit: of this size, or of a smaller one
        if none ran."""
        failed = [
            one
            for one in self.failures
            if one.batch_size <= batch_size and capacity_bytes <= (one.capacity_bytes or 0)
        ]
        last = max(failed, key=lambda one: one.batch_size, default=None)
        if last is None or last.batch_size == batch_size:
            return last
        return None if any(size >= batch_size for size in self._ran(capacity_bytes)) else last

    def _proof(self, batch_size: int, capacity_bytes: int) -> int | None:
        """The smallest batch size whose steps prove that this one fits. None if one ran and failed
        later, within no smaller capacity: then steps that pass prove nothing, as memory may
        leak."""
        outlived = any(
            size >= one.batch_size and (ran.capacity_bytes or 0) <= (one.capacity_bytes or 0)
            for one in self.failures
            for size, ran in self.ran.items()
        )
        if self.refused is not None or outlived:
            return None
        return min((size for size in self._ran(capacity_bytes) if size >= batch_size), default=None)

    def _ran(self, capacity_bytes: int) -> list[int]:
        return [
            size
            for size, one in self.ran.items()
            if one.capacity_bytes and one.capacity_bytes <= capacity_bytes
        ]

    def largest(self, capacity_bytes: int) -> int:
        return max(
            (size for size in self.ran if self.verdict(size, capacity_bytes).fits), default=0
        )

    def smallest_failed(self, capacity_bytes: int) -> int | None:
        """The smallest batch size from which on none is known to fit into a capacity; None without
        any."""
        largest = self.largest(capacity_bytes)
        failed = [
            one.batch_size
            for one in self.failures
            if one.batch_size > largest
            and self.verdict(one.batch_size, capacity_bytes).fits is False
        ]
        return min(failed, default=None)


NOTHING = Evidence()


def recorded_program(
    requests: Iterable[StepRequests], device: str, phase: Phase = "train"
) -> tuple[StepRequests, ...]:
    """The recorded steps of a device since the program last changed, without changes that no later
    step follows.

    The first one may be the step that made the long-lived chunks. Steps before it with other batch
    sizes count as well if they have the same weights and optimizer state, for example those of an
    earlier session. The one step of a batch smaller than all others is an epoch's partial one, and
    not the latest of them."""
    groups: list[list[StepRequests]] = [[]]
    for one in requests:
        if one.device == device and one.phase == phase:
            changed = one.planned and groups[-1] and _program(one) != _program(groups[-1][-1])
            if one.first or changed:
                groups.append([])
            groups[-1].append(one)
    complete = [group for group in groups if not all(one.first for one in group)]
    if not complete:
        return ()
    latest = complete[-1]
    first, later = [one for one in latest if one.first], [one for one in latest if not one.first]
    earlier: list[StepRequests] = []
    for group in reversed(complete[:-1]):
        if _program(group[-1]) != _program(latest[-1]):
            break
        known = {one.batch_size for one in (*earlier, *later)}
        earlier = [one for one in group if not one.first and one.batch_size not in known] + earlier
    *others, last = later
    smallest_other = min((one.batch_size or 0 for one in others), default=0)
    if 0 < (last.batch_size or 0) < smallest_other:
        later = [last, *others]
    return (*first, *earlier, *later)


def program_of(run: Run, device: str) -> tuple[StepRequests, ...]:
    """The recorded training steps, or else what the first step was planned to be that ran out of
    memory last."""
    steps = recorded_program(run.requests, device, _TRAIN)
    planned = [
        one.requests
        for one in _failures(run, device, ())
        if one.requests is not None and one.requests.planned
    ]
    return steps or tuple(planned[-1:])


def _program(
    requests: StepRequests,
) -> tuple[str, collections.Counter[tuple[ChunkOwner, int]]]:
    """What distinguishes a step's program: its mode, and the weights and optimizer state that it
    starts with."""
    lasting: collections.Counter[tuple[ChunkOwner, int]] = collections.Counter()
    for row in np.flatnonzero(requests.birth < 0).tolist():
        owner = requests.owners[int(requests.owner[row])]
        if owner.category in ("weights", "optimizer_state") and former_name(owner.layer) is None:
            lasting[owner, int(requests.requested[row])] += 1
    return requests.mode, lasting


def measured_peak(
    run: Run, device: str, steps: Sequence[StepRequests], until: float = math.inf
) -> int | None:
    """Median peak of the steps like the latest recorded ones, of the kind that needs most, before a
    time, if known."""
    typical = _typical(steps)
    if not typical:
        return None
    same = [one for one in typical if one.batch_size == typical[-1].batch_size]
    own = [one.step for one in of_highest_kind(same)]
    peaks = _peaks_from(run, typical[-1], own[0], until)
    # of several batch sizes or kinds of steps: only traced steps show theirs
    if len(own) < len(typical):
        peaks = {step: peak for step, peak in peaks.items() if step in own}
    return int(statistics.median(peaks.values())) if peaks else None


def _typical(steps: Iterable[StepRequests]) -> list[StepRequests]:
    return [one for one in steps if not one.first and not one.planned]


def _peaks_from(
    run: Run, like: StepRequests, first: int, until: float = math.inf
) -> dict[int, int]:
    """Step to peak in bytes, of a step's device and phase, from the first step until a wall time or
    a failure."""
    samples, figures = run.samples, run.samples.devices.get(like.device)
    if figures is None:
        return {}
    failed = [one.step for one in _of_phase(run, like.device, like.phase) if one.step is not None]
    end = min((step for step in failed if step > first), default=MAX_STEP + 1)
    rows = (samples.step >= first) & (samples.step < end) & (samples.wall_time < until)
    rows &= (samples.phase == PHASES.index(like.phase)) & (figures.peak_bytes > 0)
    return dict(zip(samples.step[rows].tolist(), figures.peak_bytes[rows].tolist(), strict=True))


def recorded_evidence(
    run: Run, device: str, steps: Sequence[StepRequests], until: float = math.inf
) -> Evidence:
    """What a run shows of its batch sizes, by the recorded steps of its program, up to the wall
    time `until`."""
    typical = _typical(steps)
    # A failure of unknown batch size is one of the size that ran.
    running = typical[-1].batch_size if typical else None
    failed = []
    for oom in _failures(run, device, steps):
        size, limit = oom.batch_size or running, oom.capacity_bytes or 0
        # It, or a larger one, may have run afterwards, within no larger capacity.
        later = [
            one.batch_size or 0
            for one in typical
            if one.wall_time > oom.wall_time and (one.capacity_bytes or 0) <= limit
        ]
        if size and oom.step is not None and max(later, default=0) < size:
            failed.append(Failure(size, oom.capacity_bytes, oom.step, _request(oom), _what(oom)))
    unlike = [one for one in _failures(run, device, steps) if (stretch(typical, one) or 0) > 1]
    refused = _growth(run, device) or (_unlike(unlike[-1]) if unlike else None)
    last = failure_of(run, device) if until == math.inf else None
    other = None
    if last is not None and all((one.step, one.what) != (last.step, _what(last)) for one in failed):
        other = _other_failure(last, running)
    if not typical:
        return Evidence(failures=failed, refused=refused, other_failure=other)
    measured = _peaks_from(run, typical[-1], min(one.step for one in typical), until)
    ran: dict[int, Ran] = {}
    sizes = {one.batch_size for one in typical if one.batch_size}
    for size in sizes:
        own = [one for one in typical if one.batch_size == size and one.step in measured]
        if not own:
            continue
        traced = [measured[one.step] for one in of_highest_kind(own)]
        # Not every step was traced; of several sizes or kinds, only the traced ones show theirs.
        is_alike = len(sizes) == 1 and len(traced) == len(own)
        all_steps = list(measured.values()) if is_alike else traced
        median = int(statistics.median(all_steps))
        limits = [one.capacity_bytes for one in own]
        within = None if None in limits else min(limit for limit in limits if limit)
        # The highest peak of all is the largest batch's: a partial one may be the last that was
        # seen.
        high = max(*(measured.values() if size == max(sizes) else all_steps), median)
        ran[size] = Ran(Interval(min(*traced, median), median, high), within)
    highest = highest_peak(run, device)
    return Evidence(ran, failed, refused, other, 0 if highest is None else highest.bytes)


def _what(oom: Oom) -> str:
    return "ran out of memory" if oom.failed else "waited for memory as the process ended"


def _other_failure(oom: Oom, trained: int | None) -> OtherFailure:
    """The failure that ended a run and that no training step of known batch size shows; `trained`
    is the batch size of the training."""
    size, capacity = oom.requested_bytes, oom.capacity_bytes
    request = "" if size is None else f": {format_bytes(size)} requested"
    said = (
        f"The run {_what(oom)} {oom.place}".rstrip()
        + f", within {format_bytes(capacity)}{request}."
    )
    is_training = oom.phase == "train" and oom.during in (None, "step")
    said += "" if is_training else " Only its training steps are predicted."
    if oom.phase in SMALLER:
        said += f" {smaller_batch(oom)}"
        if trained and trained < (oom.batch_size or 0):
            # a forward pass alone, of as many examples as trained
            said += f" One of {trained:,}, as in training, needs less than a training step."
    return OtherFailure(said, capacity, trained)


def smaller_batch(oom: Oom) -> str:
    """A sentence on how to make the batches of validation or prediction smaller."""
    than = "" if oom.batch_size is None else f" than {oom.batch_size:,}"
    return f"Choose a smaller batch{than}: {SMALLER[oom.phase]}."


def _growth(run: Run, device: str) -> str | None:
    """A sentence on memory that grows over the training steps; None if it does not."""
    grown = growth_of(run, device, _TRAIN)
    if grown is None:
        return None
    owner = ""
    if grown.owner is not None:
        owner = f" ({', '.join((grown.owner[1].replace('_', ' '), *grown.origin()))})"
    trend = grown.trend
    return (
        f"Unknown: memory grows by {format_bytes(round(trend.bytes_per_step))} in each step. It "
        f"rose from {format_bytes(trend.from_bytes)} to {format_bytes(trend.to_bytes)} so "
        f"far{owner}. Fix the leak first."
    )


def stretch(
    steps: Sequence[StepRequests], oom: Oom, batches: Collection[int | None] = ()
) -> float | None:
    """The bytes of a failed tensor as a multiple of the most that its op requests in steps with its
    batch size, or scaled to it from those of `batches`; None if that is unknown."""
    name, size, batch = _op_name(oom.op), oom.requested_bytes, oom.batch_size
    if not (name and size and batch and oom.shape):
        return None
    most = 0
    for one in steps:
        if one.first or one.batch_size not in (batch, *batches):
            continue
        named = np.asarray([*(_op_name(op) == name for op in one.ops), False], bool)[one.op]
        most = max(most, int(sizes_for(one, batch, steps).high[named].max(initial=0)))
    return size / most if most else None


def _op_name(op: str | None) -> str:
    """An op's name in the function that it is written in, into which others are inlined or not."""
    return (op or "").removeprefix("StatefulPartitionedCall/")


def _unlike(oom: Oom) -> str:
    layer = "" if oom.layer is None else f" of layer {oom.layer}"
    return (
        f"Unknown: in step {oom.step}, a tensor{layer} had the shape {oom.shape} and was larger "
        "than in the recorded steps with this batch size. Its batch was unlike theirs, for example "
        "of longer sequences or larger images: record steps with such a batch."
    )


def _request(oom: Oom) -> FailedRequest | None:
    requested, free, largest = oom.requested_bytes, oom.free_bytes, oom.largest_free_bytes
    if requested is None or free is None or largest is None:
        return None
    return FailedRequest(oom.op, oom.layer, requested, oom.step or 0, free, largest)


def last_failed_batch(run: Run, device: str, steps: Sequence[StepRequests]) -> int | None:
    """Batch size of the failure that ended a run; None if training went on, or if it is unknown."""
    failures = _failures(run, device, steps)
    if not failures or failures[-1].step is None:
        return None
    last = max((one.step for one in steps), default=-1)
    return failures[-1].batch_size if failures[-1].step >= last else None


# the last one last
def _failures(run: Run, device: str, steps: Sequence[StepRequests]) -> list[Oom]:
    begin = min((one.step for one in steps), default=0)
    failed = [one for one in _of_phase(run, device, _TRAIN) if (one.step or 0) >= begin]
    return sorted(failed, key=lambda one: one.wall_time)


def _of_phase(run: Run, device: str, phase: Phase) -> list[Oom]:
    last = failure_of(run, device)  # a process that ended as TensorFlow waited failed as well
    return [
        one
        for one in run.ooms
        if one.device == device and one.phase == phase and (one.failed or one is last)
    ]


def layer_table_of(run: Run, steps: tuple[StepRequests, ...]) -> LayerTable | None:
    if not steps:
        return run.layer_tables[-1] if run.layer_tables else None
    tables = [table for table in run.layer_tables if table.step <= steps[-1].step]
    return tables[-1] if tables else None
