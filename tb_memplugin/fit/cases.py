"""The steps that a prediction simulates, with the least and the most bytes of their sizes for a batch size. Pure.

What is known to be proportional to the batch, or independent of it, is scaled exactly. The scratch space of a GPU's
kernels is typically in proportion, within a range. Other sizes, such as a compiled module's one chunk, follow from two
recorded batch sizes. Without these they lie between the recorded size and the one in proportion.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Sequence

import numpy as np

from tb_memplugin.fit.changes import Change
from tb_memplugin.fit.prediction import Method
from tb_memplugin.fit.sized_steps import SizedStep, as_recorded, peak_in_one_piece
from tb_memplugin.schema import SCRATCH_POWER, SQUARE_POWER, UNKNOWN_POWER, Integers, StepRequests, format_bytes, is_gpu

COMPILED_MARGIN = 0.08
"""Share of the larger of the recorded and the predicted peak by which compiled steps on a GPU may need less or more
than follows from two batch sizes. At 0,
`test_compiled_steps_on_a_gpu_have_a_range_around_what_two_batch_sizes_tell` fails."""
UNCERTAIN_SHARE = 0.01
"""Share of a step's requests up to which sizes that are unknown for the batch size widen the range without a note. At
0, `test_only_sizes_that_the_batch_leaves_open_are_called_unknown` fails."""

OVERLAPPING_RESULTS = 3
"""Results of recomputed layers that a step may hold in addition, since operations run in parallel.

Fitted on recordings of `tests/integration/plan_child.py wide` on two busy cores: with 1, the median of a training lay
up to 2.4 % above the range in 2 of about 30; with 2, 2.0 % in 1 of about 11; with 3, in none of 12. Of the plans in
docs/accuracy.md, medians lay at most 2.2 results above the simulated peak."""
OVERLAPPING_RESULTS_ON_A_GPU = 2
"""The same on a GPU, which runs one operation after the other. Of 12 plans for 8 models on an NVIDIA H100
(`tests/gpu/planned.py`), the peak was at most 0.95 results above the simulated one."""
FEWER_RESULTS = 1
"""Results of recomputed layers that a step may hold less than the simulated ones, for the same reason; none on a GPU.

Fitted on the same model: with 0, the median of a training lay 1.6 % below the range in 1 of 7."""

SCRATCH_RANGE = (0.5, 1.5)
"""Least and most scratch space of a kernel as shares of the one in proportion to the batch. Fitted on convolutions of
ResNet50, MobileNetV2, VGG16 and U-Net with 16 to 128 images on an H200 (tests/gpu/predictions.py): weighted by bytes, a
twentieth of the requests took less than half, another more than 1.5 times."""

_COMPILATION = re.compile(r"(?<=cluster)_\d+(_\d+)*|(?<=_XlaRun)_\d+|(?<=__inference_one_step_on_data)_\d+")
"""Numbers in the names of compiled clusters and functions, which differ from compilation to compilation."""


@dataclasses.dataclass(frozen=True)
class Case:
    """The steps of a prediction with their least and most bytes.

    Attributes:
        typical: The steps as they usually run, None if that is halfway between least and most.
        transient_bytes: Least, typical and most additional bytes at the peak.
        saved_bytes: Of the typical ones, those of results that are saved for the backward pass.
    """

    least: list[SizedStep]
    most: list[SizedStep]
    typical: list[SizedStep] | None
    transient_bytes: tuple[int, int, int]
    saved_bytes: int
    change: Change
    method: Method
    sentences: tuple[str, ...] = ()

    @property
    def extra(self) -> list[int]:
        return [size for _, size in self.change.extra]

    @property
    def total_bytes(self) -> int:
        """Most bytes of all requests of a step together."""
        return max(int(step.requests.requested.sum()) for step in self.most)

    @property
    def same_order(self) -> bool:
        pairs = [(one.requests, other.requests) for one, other in zip(self.least, self.most, strict=True)]
        return all(
            np.array_equal(one.birth, other.birth) and np.array_equal(one.death, other.death) for one, other in pairs
        )

    @property
    def uncertain_bytes(self) -> int:
        """Bytes between the least and the most sizes of a step together."""
        pairs = zip(self.least, self.most, strict=True)
        return max(int((most.sizes - least.sizes).sum()) for least, most in pairs if not least.requests.first)


def make_case(first: Sequence[StepRequests], steps: Sequence[StepRequests], batch: int | None, change: Change) -> Case:
    """The recorded steps whose batch size is closest to the requested one, with their sizes, after the first step."""
    chosen = steps if not batch else _closest(steps, batch)
    sized = [(one, sizes_for(one, batch, steps)) for one in (*first, *chosen)]
    least = [change.least(one, sizes.lower) for one, sizes in sized]
    most = [change.most(one, sizes.upper) for one, sizes in sized]
    typical = None
    scratches = any(sizes.scratch_bytes for _, sizes in sized)
    if not change.is_halfway and (change.unsaved or change.saved or change.doubled or scratches):
        typical = [change.typical(one, sizes.typical) for one, sizes in sized]
    later = [sizes for _, sizes in sized[len(first) :]]
    measured = any(sizes.measured for sizes in later)
    method: Method = "estimate" if change.is_estimate else "two_sizes" if measured else "replay"
    saved = change.example_bytes * (batch or 0)
    transient = _transient_bytes(most, saved, change)
    sentences: list[str] = []
    if measured and chosen[0].mode == "xla" and is_gpu(chosen[0].device):
        steady = [step for step in most if not step.requests.first]
        peaks = (peak_in_one_piece(one) for step in steady for one in (step, as_recorded(step.requests)))
        margin = round(COMPILED_MARGIN * max(peaks))
        transient = transient[0] - margin, transient[1], transient[2] + margin
        sentences.append("XLA chooses other kernels and buffers on a GPU for each batch size. The range covers that.")
    case = Case(least, most, typical, transient, saved, change, method)
    scratch, unknown, between = (
        max((getattr(sizes, name) for sizes in later), default=0)
        for name in ("scratch_bytes", "uncertain_bytes", "between_bytes")
    )
    if scratch > UNCERTAIN_SHARE * case.total_bytes:
        sentences.append(
            f"{format_bytes(scratch)} of the recorded requests are scratch space of the GPU's kernels. It usually "
            "follows the batch size; the range covers other algorithms."
        )
    if between > UNCERTAIN_SHARE * case.total_bytes:
        sentences.append(
            f"Unknown for {format_bytes(unknown)} of the recorded requests: whether they grow with the batch size. The "
            "range covers both. A second recorded batch size makes them known."
        )
    if sentences or (between and method == "replay"):
        method = "estimate"
    return dataclasses.replace(case, method=method, sentences=tuple(sentences))


def _transient_bytes(most: Sequence[SizedStep], saved: int, change: Change) -> tuple[int, int, int]:
    """Least, typical and most additional bytes at the peak.

    At most, there are gradients of the largest two results that are saved in addition, and some results of
    recomputed layers; at least, there are fewer of these.
    """
    least, typical, highest = change.transient_bytes
    largest = max(int(step.sizes[change.saved_rows(step.requests)].max(initial=0)) for step in most)
    fewer, more = (
        (0, OVERLAPPING_RESULTS_ON_A_GPU) if is_gpu(most[0].requests.device) else (FEWER_RESULTS, OVERLAPPING_RESULTS)
    )
    repeated = max(int(step.sizes[change.repeated_rows(step.requests)].max(initial=0)) for step in most)
    return least - fewer * repeated, typical + saved, highest + saved + 2 * largest + more * repeated


def _closest(steps: Sequence[StepRequests], batch: int) -> Sequence[StepRequests]:
    known = [one for one in steps if one.batch_size]
    if not known:
        return steps
    nearest = min({one.batch_size or 1 for one in known}, key=lambda size: abs(math.log(size / batch)))
    return [one for one in known if one.batch_size == nearest]


@dataclasses.dataclass(frozen=True)
class BatchSizes:
    """The sizes of a step's chunks for a batch size, shape [chunks] each.

    Attributes:
        lower, upper: Bounds of each size; equal where the size is known.
        typical: Each size as it usually is: halfway between the bounds, but scratch space in proportion to the batch.
        scratch_bytes: Recorded bytes of scratch space.
        uncertain_bytes: Recorded bytes of the other chunks without a known size.
        between_bytes: Bytes between the bounds of these chunks.
        measured: Whether sizes follow from a second recorded batch size.
    """

    lower: Integers
    upper: Integers
    typical: Integers
    scratch_bytes: int = 0
    uncertain_bytes: int = 0
    between_bytes: int = 0
    measured: bool = False


def sizes_for(requests: StepRequests, batch_size: int | None, others: Sequence[StepRequests] = ()) -> BatchSizes:
    """The sizes of a recorded step for a batch size; the recorded ones if that or the recorded one is unknown.

    `others` are steps of the same program with other batch sizes.
    """
    if not batch_size or not requests.batch_size or batch_size == requests.batch_size:
        return BatchSizes(requests.requested, requests.requested, requests.requested)
    ratio = batch_size / requests.batch_size
    asked = requests.requested.astype(np.float64)
    power = requests.batch_power
    scaled = np.where(power > 0, asked * ratio ** np.maximum(power, 0), asked)
    lower, upper = scaled.copy(), scaled.copy()
    unknown = np.flatnonzero(power == UNKNOWN_POWER)
    slopes = _slopes(requests, others, unknown, batch_size)
    for row, slope in slopes.items():
        lower[row] = upper[row] = max(0.0, asked[row] + slope * (batch_size - requests.batch_size))
    left = unknown[~np.isin(unknown, list(slopes))]
    lower[left], upper[left] = asked[left] * min(1.0, ratio), asked[left] * max(1.0, ratio)
    square = np.flatnonzero(power == SQUARE_POWER)
    lower[square], upper[square] = asked[square] * min(ratio, ratio**2), asked[square] * max(ratio, ratio**2)
    left = np.concatenate([left, square])
    typical = (lower + upper) / 2
    scratch = power == SCRATCH_POWER
    typical[scratch] = asked[scratch] * ratio
    lower[scratch], upper[scratch] = typical[scratch] * SCRATCH_RANGE[0], typical[scratch] * SCRATCH_RANGE[1]
    lowest, highest, usual = (np.rint(sizes).astype(np.int64) for sizes in (lower, upper, typical))
    return BatchSizes(
        lowest,
        highest,
        usual,
        scratch_bytes=int(requests.requested[scratch].sum()),
        uncertain_bytes=int(requests.requested[left].sum()),
        between_bytes=round(float((upper - lower)[left].sum())),
        measured=bool(slopes),
    )


def _slopes(
    requests: StepRequests, others: Sequence[StepRequests], rows: Integers, batch_size: int
) -> dict[int, float]:
    """Bytes per example of the chunks that a step with another batch size has as well.

    Uses the recorded batch size closest to the requested one, and its latest step. A first step has many chunks that no
    other step has: its own are those of a later step with its batch size that the same op requests with the same size.
    """
    if requests.first:
        same = next((one for one in others if one.batch_size == requests.batch_size), None)
        if same is None:
            return {}
        unknown = np.flatnonzero(same.batch_power == UNKNOWN_POWER)
        known = {_kind(same, row): slope for row, slope in _slopes(same, others, unknown, batch_size).items()}
        return {row: known[key] for row in rows.tolist() if (key := _kind(requests, row)) in known}
    comparable = [one for one in reversed(others) if one.batch_size and one.batch_size != requests.batch_size]
    mine = {row: key for key, row in _by_op(requests).items()} if comparable and len(rows) else {}
    for other in sorted(comparable, key=lambda one: abs(math.log((one.batch_size or 1) / batch_size))):
        theirs = _by_op(other)
        examples = (other.batch_size or 0) - (requests.batch_size or 0)
        slopes = {
            row: (int(other.requested[theirs[mine[row]]]) - int(requests.requested[row])) / examples
            for row in rows.tolist()
            if row in mine and mine[row] in theirs
        }
        if slopes:
            return slopes
    return {}


def _kind(requests: StepRequests, row: int) -> tuple[str, int]:
    return _op(requests, row), int(requests.requested[row])


def _op(requests: StepRequests, row: int) -> str:
    op = int(requests.op[row])
    return "" if op < 0 else _COMPILATION.sub("", requests.ops[op])


def _by_op(requests: StepRequests) -> dict[tuple[str, int, int], int]:
    """(op, number among its chunks, count or 0) to row, of the chunks that the step allocated.

    Compiled modules run in no named op. Their chunks, which are the ones of unknown size among the unnamed ones, keep
    their order from batch size to batch size if their count is the same; other unnamed chunks come in any order.
    """
    counts: collections.Counter[str] = collections.Counter()
    born = np.flatnonzero(requests.birth >= 0)
    born = born[np.argsort(requests.birth[born], kind="stable")]
    unnamed = born[(requests.op[born] < 0) & (requests.batch_power[born] == UNKNOWN_POWER)]
    keys = {("", number, len(unnamed)): row for number, row in enumerate(unnamed.tolist())}
    for row in born[requests.op[born] >= 0].tolist():
        name = _op(requests, row)
        keys[name, counts[name], 0] = row
        counts[name] += 1
    return keys
