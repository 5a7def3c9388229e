"""Recorded steps with the size of each chunk under other conditions: the input of a simulation.
Pure.

What is known to be proportional to the batch, or independent of it, is scaled exactly. The scratch
space of a GPU's kernels is typically in proportion, within a range. A compiled module's one chunk
is as XLA's compiler plans it, where it was asked; else it follows from two recorded batch sizes, or
from the shapes of the buffers in it. Other sizes without either lie between the recorded size and
the one in proportion."""

import collections
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema import (
    ANY_POWER,
    SCRATCH_POWER,
    SQUARE_POWER,
    UNKNOWN_POWER,
    Integers,
    StepRequests,
)

LEFT_OUT = -1
"""Size of a chunk that does not exist under the conditions of a simulation."""

Rows: TypeAlias = npt.NDArray[np.bool_]
NOT_ASKED: Mapping[int, int] = MappingProxyType({})
SCRATCH_RANGE = (0.5, 1.5)
"""Least and most scratch space of a kernel as shares of the one in proportion to the batch. Fitted
on convolutions of ResNet50, MobileNetV2, VGG16 and U-Net with 16 to 128 images on an H200
(tests/gpu/predictions.py): weighted by bytes, a twentieth of the requests took less than half,
another more than 1.5 times."""

_COMPILATION = re.compile(
    r"(?<=cluster)_\d+(_\d+)*|(?<=_XlaRun)_\d+|(?<=__inference_one_step_on_data)_\d+"
)
"""Numbers in the names of compiled clusters and functions, which differ from compilation to
compilation."""


@dataclasses.dataclass(frozen=True)
class SizedStep:
    """A recorded step with the requested bytes of each chunk, `LEFT_OUT` for chunks that do not
    exist."""

    requests: StepRequests
    sizes: Integers


@dataclasses.dataclass(frozen=True)
class BatchSizes:
    """The sizes of a step's chunks for a batch size, shape [chunks] each."""

    low: Integers  # low, high: bounds of each size; equal where the size is known
    high: Integers
    # usually: halfway between the bounds, but scratch space in proportion to the batch
    typical: Integers
    scratch_bytes: int = 0  # recorded bytes of scratch space
    uncertain_bytes: int = 0  # recorded bytes of the other chunks without a known size
    between_bytes: int = 0  # bytes between the bounds of these chunks
    measured: bool = False  # whether sizes follow from a second recorded batch size
    # bytes of compiled modules' chunks whose sizes follow from the shapes in them
    module_bytes: int = 0


def sized_for(
    first: Sequence[StepRequests],
    steps: Sequence[StepRequests],
    batch: int | None,
    asked: Mapping[int, int] = NOT_ASKED,
) -> list[tuple[StepRequests, BatchSizes]]:
    """The first step and those of the recorded batch size that is closest to another one, with
    their sizes for it.

    `asked` are the bytes of the compiled step's temporaries by batch size, where the compiler was
    asked."""
    chosen, known = steps, [one for one in steps if one.batch_size]
    if batch and known:
        nearest = min(
            {one.batch_size or 1 for one in known}, key=lambda size: abs(math.log(size / batch))
        )
        chosen = [one for one in known if one.batch_size == nearest]
    return [(one, sizes_for(one, batch, steps, asked)) for one in (*first, *chosen)]


def sizes_for(
    requests: StepRequests,
    batch_size: int | None,
    others: Sequence[StepRequests] = (),
    asked: Mapping[int, int] = NOT_ASKED,
) -> BatchSizes:
    """The sizes of a recorded step for a batch size, the recorded ones if one is unknown; `others`
    are steps of the same program with other batch sizes, `asked` as in `sized_for`."""
    if (
        not batch_size
        or not requests.batch_size
        or (batch_size == requests.batch_size and batch_size not in asked)
    ):
        return BatchSizes(requests.requested, requests.requested, requests.requested)
    ratio = batch_size / requests.batch_size
    recorded = requests.requested.astype(np.float64)
    power = requests.batch_power
    lower = np.where(power > 0, recorded * ratio ** np.maximum(power, 0), recorded)
    upper = lower.copy()
    unknown = np.flatnonzero(power == UNKNOWN_POWER)
    known: dict[int, float] = {}
    slopes = _slopes(requests, others, unknown, batch_size)
    for row, slope in slopes.items():
        known[row] = max(0.0, recorded[row] + slope * (batch_size - requests.batch_size))
    modules = []
    for row in unknown[~np.isin(unknown, list(slopes))].tolist():
        factor = _module_factor(requests, row, ratio)
        if factor is not None:
            known[row] = recorded[row] * factor
            modules.append(row)
    temporaries = module_row(requests) if asked else None
    if temporaries is not None:
        planned = {requests.batch_size: int(requests.requested[temporaries]), **asked}
        known[temporaries] = _between(batch_size, planned)
    lower[list(known)] = upper[list(known)] = list(known.values())
    left = unknown[~np.isin(unknown, list(known))]
    lower[left], upper[left] = recorded[left] * min(1.0, ratio), recorded[left] * max(1.0, ratio)
    for marked, least in ((SQUARE_POWER, ratio), (ANY_POWER, 1.0)):
        rows = np.flatnonzero(power == marked)
        lower[rows] = recorded[rows] * min(least, ratio**2)
        upper[rows] = recorded[rows] * max(least, ratio**2)
        left = np.concatenate([left, rows])
    typical = (lower + upper) / 2
    scratch = power == SCRATCH_POWER
    typical[scratch] = recorded[scratch] * ratio
    lower[scratch] = typical[scratch] * SCRATCH_RANGE[0]
    upper[scratch] = typical[scratch] * SCRATCH_RANGE[1]
    lowest, highest, usual = (np.rint(sizes).astype(np.int64) for sizes in (lower, upper, typical))
    return BatchSizes(
        lowest,
        highest,
        usual,
        scratch_bytes=int(requests.requested[scratch].sum()),
        uncertain_bytes=int(requests.requested[left].sum()),
        between_bytes=round(float((upper - lower)[left].sum())),
        measured=bool(slopes),
        module_bytes=int(usual[modules].sum()) if modules else 0,
    )


def _module_factor(requests: StepRequests, row: int, ratio: float) -> float | None:
    """Factor by which a compiled module's chunk grows, as the most of its live bytes do; None for
    other chunks."""
    moments = [one for one in requests.module_moments if one.chunk == row]
    before = max((one.fixed_bytes + one.batch_bytes for one in moments), default=0)
    after = max((one.fixed_bytes + one.batch_bytes * ratio for one in moments), default=0)
    return after / before if before else None


def _between(batch_size: int, sizes: Mapping[int, int]) -> float:
    """The bytes for a batch size on the line through those of the two nearest known ones."""
    first, *others = sorted(sizes, key=lambda size: abs(math.log(size / batch_size)))
    slope = (
        (sizes[others[0]] - sizes[first]) / (others[0] - first) if others else sizes[first] / first
    )
    return max(0.0, sizes[first] + slope * (batch_size - first))


def temporary_bytes(requests: StepRequests) -> int:
    """The bytes of a compiled step's temporaries; 0 for other steps."""
    row = module_row(requests) if requests.mode == "xla" else None
    return 0 if row is None else int(requests.requested[row])


def module_row(requests: StepRequests) -> int | None:
    """The row of the compiled module's temporaries: the largest chunk whose size only a compiler
    knows."""
    rows = [one.chunk for one in requests.module_moments]
    if not rows:
        unknown = (requests.batch_power == UNKNOWN_POWER) & (requests.birth >= 0)
        rows = np.flatnonzero(unknown).tolist()
    return max(rows, key=lambda row: int(requests.requested[row]), default=None)


def _slopes(
    requests: StepRequests, others: Sequence[StepRequests], rows: Integers, batch_size: int
) -> dict[int, float]:
    """Bytes per example of the chunks that a step with another batch size has as well.

    Uses the recorded batch size closest to the requested one, and its latest step. A first step has
    many chunks that no other step has: its own are those of a later step with its batch size that
    the same op requests with the same size.
    """
    if requests.first:
        same = next((one for one in others if one.batch_size == requests.batch_size), None)
        if same is None:
            return {}
        unknown = np.flatnonzero(same.batch_power == UNKNOWN_POWER)
        known = {
            _kind(same, row): slope
            for row, slope in _slopes(same, others, unknown, batch_size).items()
        }
        return {row: known[key] for row in rows.tolist() if (key := _kind(requests, row)) in known}
    comparable = [
        one for one in reversed(others) if one.batch_size and one.batch_size != requests.batch_size
    ]
    mine = {row: key for key, row in _by_op(requests).items()} if comparable and len(rows) else {}
    for other in sorted(
        comparable, key=lambda one: abs(math.log((one.batch_size or 1) / batch_size))
    ):
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

    Compiled modules run in no named op. Their chunks, which are the ones of unknown size among the
    unnamed ones, keep their order from batch size to batch size if their count is the same; other
    unnamed chunks come in any order."""
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
