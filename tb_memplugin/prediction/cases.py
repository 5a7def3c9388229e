"""The steps that a prediction simulates, with the least and the most bytes of their sizes. Pure."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from tb_memplugin.model import StepRequests, is_gpu
from tb_memplugin.model.units import format_bytes
from tb_memplugin.prediction.batch_sizes import sizes_for
from tb_memplugin.prediction.changes import Change
from tb_memplugin.prediction.prediction import Method
from tb_memplugin.prediction.sized_steps import SizedStep, as_recorded, peak_in_one_piece

COMPILED_MARGIN = 0.08
"""Share of the larger of the recorded and the predicted peak by which compiled steps on a GPU may need less or more
than follows from two batch sizes. At 0,
`test_compiled_steps_on_a_gpu_have_a_range_around_what_two_batch_sizes_tell` fails."""
UNCERTAIN_SHARE = 0.01
"""Share of a step's requests up to which sizes that are unknown for the batch size widen the range without a note. At
0,
`test_only_sizes_that_the_batch_leaves_open_are_called_unknown` fails."""

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


@dataclasses.dataclass(frozen=True)
class Case:
    """The steps of a prediction with their least and most bytes.

    Attributes:
        least, most: The steps.
        typical: The steps as they usually run, None if that is halfway between least and most.
        transient_bytes: Least, typical and most additional bytes at the peak.
        saved_bytes: Of the typical ones, those of results that are saved for the backward pass.
        method: The method of the prediction.
        sentences: What is assumed.
    """

    least: list[SizedStep]
    most: list[SizedStep]
    typical: list[SizedStep] | None
    transient_bytes: tuple[int, int, int]
    saved_bytes: int
    method: Method
    sentences: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Most bytes of all requests of a step together."""
        return max(int(step.requests.requested.sum()) for step in self.most)

    @property
    def same_order(self) -> bool:
        """Whether the least and the most steps request and free their chunks in the same order."""
        pairs = [(one.requests, other.requests) for one, other in zip(self.least, self.most, strict=True)]
        return all(
            np.array_equal(one.birth, other.birth) and np.array_equal(one.death, other.death) for one, other in pairs
        )

    @property
    def uncertain_bytes(self) -> int:
        """Bytes between the least and the most sizes of a step together."""
        return max(
            int((other.sizes - one.sizes).sum())
            for one, other in zip(self.least, self.most, strict=True)
            if not one.requests.first
        )


def make_case(first: Sequence[StepRequests], steps: Sequence[StepRequests], batch: int | None, change: Change) -> Case:
    """The recorded steps whose batch size is closest to the requested one, with their sizes.

    Args:
        first: The recorded first step, if any.
        steps: The other recorded steps.
        batch: The requested batch size, None if unknown.
        change: What other conditions change.
    """
    chosen = steps if not batch else _closest(steps, batch)
    recorded = [*first, *chosen]
    sized = [sizes_for(one, batch, steps) for one in recorded]
    least = [change.least(one, sizes.lower) for one, sizes in zip(recorded, sized, strict=True)]
    most = [change.most(one, sizes.upper) for one, sizes in zip(recorded, sized, strict=True)]
    typical = None
    if not change.is_halfway and (
        change.changes_lifetimes or change.doubled or any(sizes.scratch_bytes for sizes in sized)
    ):
        typical = [change.typical(one, sizes.typical) for one, sizes in zip(recorded, sized, strict=True)]
    later = sized[len(first) :]
    measured = any(sizes.measured for sizes in later)
    method: Method = "estimate" if change.is_estimate else "two_sizes" if measured else "replay"
    saved = change.example_bytes * (batch or 0)
    case = Case(least, most, typical, _transient_bytes(most, saved, change), saved, method)
    if measured and chosen[0].mode == "xla" and is_gpu(chosen[0].device):
        case = _compiled_anew(case)
    scratch = max((sizes.scratch_bytes for sizes in later), default=0)
    if scratch > UNCERTAIN_SHARE * case.total_bytes:
        sentence = (
            f"{format_bytes(scratch)} of the recorded requests are scratch space of the GPU's kernels. It usually "
            "follows the batch size; the range covers other algorithms."
        )
        case = dataclasses.replace(case, method="estimate", sentences=(*case.sentences, sentence))
    unknown = max((sizes.uncertain_bytes for sizes in later), default=0)
    between = max((sizes.between_bytes for sizes in later), default=0)
    if between and case.method == "replay":
        case = dataclasses.replace(case, method="estimate")
    if between <= UNCERTAIN_SHARE * case.total_bytes:
        return case
    sentence = (
        f"Unknown for {format_bytes(unknown)} of the recorded requests: whether they grow with the batch size. The "
        "range covers both. A second recorded batch size makes them known."
    )
    return dataclasses.replace(case, method="estimate", sentences=(*case.sentences, sentence))


def _compiled_anew(case: Case) -> Case:
    """The case with the range that a GPU's compiled steps need at a batch size that was not recorded."""
    steps = [step for step in case.most if not step.requests.first]
    peaks = (peak_in_one_piece(one) for step in steps for one in (step, as_recorded(step.requests)))
    margin = round(COMPILED_MARGIN * max(peaks))
    least, typical, most = case.transient_bytes
    sentence = "XLA chooses other kernels and buffers on a GPU for each batch size. The range covers that."
    return dataclasses.replace(
        case,
        transient_bytes=(least - margin, typical, most + margin),
        method="estimate",
        sentences=(*case.sentences, sentence),
    )


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
