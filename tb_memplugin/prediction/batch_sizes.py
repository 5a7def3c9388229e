"""The sizes of a recorded step's chunks for another batch size. Pure.

What is known to be proportional to the batch, or independent of it, is scaled exactly. Other sizes, such as kernel
scratch space or a compiled module's one chunk, follow from two recorded batch sizes. Without these they have a range:
from the recorded size to the one in proportion.
"""

import dataclasses
import math
import re
from collections.abc import Sequence

import numpy as np

from tb_memplugin.model import UNKNOWN_POWER, Integers, StepRequests

_COMPILATION = re.compile(r"(?<=cluster)_\d+(_\d+)*|(?<=_XlaRun)_\d+|(?<=__inference_one_step_on_data)_\d+")
"""Numbers in the names of compiled clusters and functions, which differ from compilation to compilation."""


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
    slopes = _slopes(requests, others, unknown, batch_size)
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


def _slopes(
    requests: StepRequests, others: Sequence[StepRequests], rows: Integers, batch_size: int
) -> dict[int, float]:
    """Bytes per example of the chunks that a step with another batch size has as well.

    Of several batch sizes, the one closest to the wanted one tells, of its steps the latest.
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
