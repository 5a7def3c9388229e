"""Columns of integers in as few bytes as their values need.

Allocators' figures repeat, and are multiples of 256 within a narrow range: eight bytes for each would be most of what a
large run takes in memory.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import MISSING, Integers

_OWN_BYTES = 200
"""Estimated bytes of a column without its values: the object and the headers of its arrays."""
_SMALL = 4096
"""Columns of so many values are kept as they are by `kept`: narrowing them would cost more time than it is worth."""
_RUN_BYTES = 12
"""Bytes of a stretch of equal values: where it begins, and the value."""


class Narrow:
    """An immutable column.

    Args:
        values: The column.
        as_it_is: Whether to keep `values` unless they are all equal; otherwise they are not kept.

    Attributes:
        nbytes: Bytes in memory.
    """

    __slots__ = ("_codes", "_least", "_length", "_missing", "_shift", "_starts", "nbytes")

    def __init__(self, values: Integers, as_it_is: bool = False) -> None:
        self._length = len(values)
        self._least = int(values[0]) if len(values) else MISSING
        self._shift, self._missing = 0, False
        self._codes: npt.NDArray[np.generic] | None = None
        self._starts: npt.NDArray[np.uint32] | None = None
        if len(values) and (values != values[0]).any():
            if as_it_is:
                self._least, self._codes = 0, values
            else:
                self._fill(values)
        own = 0 if self._codes is None else self._codes.nbytes
        self.nbytes = _OWN_BYTES + own + (0 if self._starts is None else self._starts.nbytes)

    def __len__(self) -> int:
        return self._length

    @property
    def constant(self) -> int | None:
        """The value that all rows have; None if they differ or there are none."""
        return self._least if self._codes is None and self._length else None

    def wide(self) -> Integers:
        """All values. A constant column takes no memory and is read-only."""
        if self._codes is None:
            return np.broadcast_to(np.int64(self._least), self._length)
        values = np.empty(self._length, np.int64)
        self.write(values)
        return values

    def write(self, out: Integers) -> None:
        """Write all values into `out`."""
        if self._codes is None:
            out[:] = self._least
        elif self._starts is not None:
            out[:] = np.repeat(self._codes, np.diff(self._starts, append=np.uint32(self._length)))
        else:
            self._decode(self._codes, out)

    def at(self, places: npt.NDArray[np.intp]) -> Integers:
        """The values at `places`."""
        out = np.empty(len(places), np.int64)
        if self._codes is None:
            out[:] = self._least
        elif self._starts is not None:
            # Searched in their own type: another one would convert all of them.
            found = np.searchsorted(self._starts, places.astype(np.uint32), side="right") - 1
            out[:] = self._codes[found]
        else:
            self._decode(self._codes[places], out)
        return out

    def _fill(self, values: Integers) -> None:
        missing = values == MISSING
        self._missing = bool(missing.any())
        most = int(values.max())
        self._least = least = int(values.min(where=~missing, initial=most)) if self._missing else int(values.min())
        # Differences are taken without sign, so that none overflows.
        offsets = values.view(np.uint64) - np.uint64(least & (2**64 - 1))
        offsets[missing] = 0
        together = int(np.bitwise_or.reduce(offsets))
        self._shift = (together & -together).bit_length() - 1 if together else 0
        offsets >>= np.uint64(self._shift)
        highest = (most - least >> self._shift) + self._missing
        kind = next((kind for kind in (np.uint8, np.uint16, np.uint32) if highest <= np.iinfo(kind).max), np.int64)
        if self._begins_runs(values, np.dtype(kind).itemsize):
            return
        if kind is np.int64:
            self._least, self._shift, self._missing = 0, 0, False
            self._codes = values.copy()
            return
        codes: npt.NDArray[Any] = offsets.astype(kind)
        if self._missing:
            codes += np.asarray(1, kind)
            codes[missing] = 0
        self._codes = codes

    def _begins_runs(self, values: Integers, itemsize: int) -> bool:
        """Keep stretches of equal values, if these take less."""
        changes = values[1:] != values[:-1]
        count = 1 + int(np.count_nonzero(changes))
        if count * _RUN_BYTES >= len(values) * itemsize or len(values) >= 2**32:
            return False
        self._starts = np.append(0, 1 + np.flatnonzero(changes)).astype(np.uint32)
        self._codes = values[self._starts]
        self._missing = False
        return True

    def _decode(self, codes: npt.NDArray[np.generic], out: Integers) -> None:
        out[:] = codes
        if self._missing:
            missing = codes == 0
            out -= 1
        if self._shift:
            out <<= self._shift
        out += self._least
        if self._missing:
            out[missing] = MISSING


def kept(values: Integers) -> Narrow:
    """The column of one frame, which is soon joined to others."""
    return Narrow(values, as_it_is=len(values) <= _SMALL)


def joined(parts: list[Narrow | int]) -> Narrow:
    """The values of all parts in order; an integer stands for so many rows without a value."""
    constants = {MISSING if isinstance(part, int) else part.constant for part in parts if _length(part)}
    length = sum(map(_length, parts))
    if len(constants) == 1 and None not in constants:
        return Narrow(np.broadcast_to(np.int64(constants.pop() or 0), length))
    values = np.empty(length, np.int64)
    at = 0
    for part in parts:
        end = at + _length(part)
        if isinstance(part, int):
            values[at:end] = MISSING
        else:
            part.write(values[at:end])
        at = end
    return Narrow(values)


def _length(part: Narrow | int) -> int:
    return part if isinstance(part, int) else len(part)
