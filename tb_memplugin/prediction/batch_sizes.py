"""The sizes of a recorded step's chunks for another batch size. Pure.

What is known to be proportional to the batch, or independent of it, is scaled exactly. The scratch space of a GPU's
kernels is typically in proportion, within a range. Other sizes, such as a compiled module's one chunk, follow from two
recorded batch sizes. Without these they lie between the recorded size and the one in proportion.
"""

import dataclasses
import math
import re
from collections.abc import Sequence

import numpy as np

from tb_memplugin.model import SCRATCH_POWER, SQUARE_POWER, UNKNOWN_POWER, Integers, StepRequests

SCRATCH_RANGE = (0.5, 1.5)
"""Least and most scratch space of a kernel as shares of the one in proportion to the batch. Fitted on convolutions of
ResNet50, MobileNetV2, VGG16 and U-Net with 16 to 128 images on an H200 (tests/gpu/predictions.py): weighted by bytes, a
twentieth of the requests took less than half, another more than 1.5 times."""

_COMPILATION = re.compile(r"(?<=cluster)_\d+(_\d+)*|(?<=_XlaRun)_\d+|(?<=__inference_one_step_on_data)_\d+")
"""Numbers in the names of compiled clusters and functions, which differ from compilation to compilation."""


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
    scratch_bytes: int
    uncertain_bytes: int
    between_bytes: int
    measured: bool


def sizes_for(requests: StepRequests, batch_size: int | None, others: Sequence[StepRequests] = ()) -> BatchSizes:
    """The sizes of a recorded step for a batch size; the recorded ones if that or the recorded one is unknown.

    Args:
        requests: The recorded step.
        batch_size: The wanted batch size.
        others: Steps of the same program with other batch sizes.
    """
    if not batch_size or not requests.batch_size or batch_size == requests.batch_size:
        recorded = requests.requested
        return BatchSizes(recorded, recorded, recorded, 0, 0, 0, measured=False)
    ratio = batch_size / requests.batch_size
    asked = requests.requested.astype(np.float64)
    power = requests.batch_power
    scaled = np.where(power > 0, asked * ratio ** np.maximum(power, 0), asked)
    lower, upper = scaled.copy(), scaled.copy()
    unknown = np.flatnonzero(power == UNKNOWN_POWER)
    slopes = _slopes(requests, others, unknown, batch_size)
    known = np.isin(unknown, list(slopes))
    for row, slope in slopes.items():
        lower[row] = upper[row] = max(0.0, asked[row] + slope * (batch_size - requests.batch_size))
    left = unknown[~known]
    lower[left] = asked[left] * min(1.0, ratio)
    upper[left] = asked[left] * max(1.0, ratio)
    square = np.flatnonzero(power == SQUARE_POWER)
    lower[square] = asked[square] * min(ratio, ratio**2)
    upper[square] = asked[square] * max(ratio, ratio**2)
    left = np.concatenate([left, square])
    typical = (lower + upper) / 2
    scratch = power == SCRATCH_POWER
    typical[scratch] = asked[scratch] * ratio
    lower[scratch], upper[scratch] = typical[scratch] * SCRATCH_RANGE[0], typical[scratch] * SCRATCH_RANGE[1]
    return BatchSizes(
        lower=np.rint(lower).astype(np.int64),
        upper=np.rint(upper).astype(np.int64),
        typical=np.rint(typical).astype(np.int64),
        scratch_bytes=int(requests.requested[scratch].sum()),
        uncertain_bytes=int(requests.requested[left].sum()),
        between_bytes=round(float((upper - lower)[left].sum())),
        measured=bool(slopes),
    )


def _slopes(
    requests: StepRequests, others: Sequence[StepRequests], rows: Integers, batch_size: int
) -> dict[int, float]:
    """Bytes per example of the chunks that a step with another batch size has as well.

    Uses the recorded batch size closest to the requested one, and its latest step.
    """
    if requests.first:
        return _slopes_of_first(requests, others, rows, batch_size)
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


def _slopes_of_first(
    requests: StepRequests, others: Sequence[StepRequests], rows: Integers, batch_size: int
) -> dict[int, float]:
    """`_slopes` of a first step, which has many chunks that no other step has.

    Its chunks are those of a later step with the same batch size that the same op requests with the same size.
    """
    same = next((one for one in others if one.batch_size == requests.batch_size), None)
    if same is None:
        return {}
    unknown = np.flatnonzero(same.batch_power == UNKNOWN_POWER)
    known = {_kind(same, row): slope for row, slope in _slopes(same, others, unknown, batch_size).items()}
    return {row: known[key] for row in rows.tolist() if (key := _kind(requests, row)) in known}


def _kind(requests: StepRequests, row: int) -> tuple[str, int]:
    """The op and the size of a chunk."""
    return _op(requests, row), int(requests.requested[row])


def _op(requests: StepRequests, row: int) -> str:
    op = int(requests.op[row])
    return "" if op < 0 else _COMPILATION.sub("", requests.ops[op])


def _by_op(requests: StepRequests) -> dict[tuple[str, int, int], int]:
    """(op, number among its chunks, count or 0) to row, of the chunks that the step allocated.

    Compiled modules run in no named op. Their chunks, which are the ones of unknown size among the unnamed ones, keep
    their order from batch size to batch size if their count is the same; other unnamed chunks come in any order.
    """
    keys: dict[tuple[str, int, int], int] = {}
    counts: dict[str, int] = {}
    born = np.flatnonzero(requests.birth >= 0)
    unnamed = born[(requests.op[born] < 0) & (requests.batch_power[born] == UNKNOWN_POWER)]
    for number, row in enumerate(unnamed[np.argsort(requests.birth[unnamed], kind="stable")].tolist()):
        keys["", number, len(unnamed)] = row
    named = born[requests.op[born] >= 0]
    for row in named[np.argsort(requests.birth[named], kind="stable")].tolist():
        name = _op(requests, row)
        number = counts.get(name, 0)
        counts[name] = number + 1
        keys[name, number, 0] = row
    return keys
