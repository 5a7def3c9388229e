"""The sizes of a recorded step's chunks for another batch size. Pure.

What is known to be proportional to the batch, or independent of it, is scaled exactly. Other sizes, such as kernel
scratch space or a compiled module's one chunk, follow from two recorded batch sizes. Without these they have a range:
from the recorded size to the one in proportion.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tb_memplugin.model import UNKNOWN_POWER, Integers, StepRequests


@dataclasses.dataclass(frozen=True)
class BatchSizes:
    """The sizes of a step's chunks for a batch size, shape [chunks] each.

    Attributes:
        least, most: Bounds of each size; equal where the size is known.
        uncertain_bytes: Recorded bytes of the chunks without a known size.
        measured: Whether sizes follow from a second recorded batch size.
    """

    least: Integers
    most: Integers
    uncertain_bytes: int
    measured: bool


def sizes_for(requests: StepRequests, batch_size: int, others: Sequence[StepRequests] = ()) -> BatchSizes:
    """The sizes of a recorded step for a batch size.

    Args:
        requests: The recorded step, of a known batch size.
        batch_size: The other batch size.
        others: Steps of the same program with other batch sizes.

    Raises:
        ValueError: The recorded step's batch size is unknown.
    """
    if not requests.batch_size:
        raise ValueError("sizes_for() needs a step with a known batch size")
    ratio = batch_size / requests.batch_size
    asked = requests.requested.astype(np.float64)
    power = requests.batch_power
    scaled = np.where(power > 0, asked * ratio ** np.maximum(power, 0), asked)
    least, most = scaled.copy(), scaled.copy()
    unknown = np.flatnonzero(power == UNKNOWN_POWER) if ratio != 1 else np.empty(0, np.int64)
    slopes = _slopes(requests, others, unknown)
    known = np.asarray([row in slopes for row in unknown.tolist()], bool)
    for row, slope in slopes.items():
        least[row] = most[row] = max(0.0, asked[row] + slope * (batch_size - requests.batch_size))
    left = unknown[~known] if len(unknown) else unknown
    least[left] = asked[left] * min(1.0, ratio)
    most[left] = asked[left] * max(1.0, ratio)
    return BatchSizes(
        least=np.rint(least).astype(np.int64),
        most=np.rint(most).astype(np.int64),
        uncertain_bytes=int(requests.requested[left].sum()),
        measured=bool(slopes),
    )


def _slopes(requests: StepRequests, others: Sequence[StepRequests], rows: Integers) -> dict[int, float]:
    """Bytes per example of the chunks that a step with another batch size has as well.

    Chunks are the same if the same op requests them, as the n-th of its chunks.
    """
    for other in others:
        if other.batch_size and other.batch_size != requests.batch_size and len(rows):
            theirs = _by_op(other)
            mine = {row: key for key, row in _by_op(requests).items()}
            examples = other.batch_size - (requests.batch_size or 0)
            return {
                row: (int(other.requested[theirs[mine[row]]]) - int(requests.requested[row])) / examples
                for row in rows.tolist()
                if row in mine and mine[row] in theirs
            }
    return {}


def _by_op(requests: StepRequests) -> dict[tuple[str, int], int]:
    """(op, number among its chunks) to row, of the chunks that the step allocated; modules' names without a number."""
    counts: dict[str, int] = {}
    keys: dict[tuple[str, int], int] = {}
    born = np.flatnonzero(requests.birth >= 0)
    for row in born[np.argsort(requests.birth[born], kind="stable")].tolist():
        op = int(requests.op[row])
        name = "" if op < 0 else requests.ops[op]
        number = counts.get(name, 0)
        counts[name] = number + 1
        keys[name, number] = row
    return keys
