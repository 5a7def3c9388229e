"""Resident bytes in ranges of addresses."""

import ctypes
import mmap
from collections.abc import Sequence

import numpy as np


def resident_bytes(ranges: Sequence[tuple[int, int]]) -> int | None:
    """Bytes of the resident pages that lie wholly in `ranges`; None if a range is not mapped, or not on Linux.

    Nothing is read at the addresses: the kernel is asked (``mincore``). Takes about 3 ms per GiB.

    Args:
        ranges: (begin, end) of each range.
    """
    mincore = getattr(ctypes.CDLL(None), "mincore", None)
    if mincore is None:
        return None
    mincore.argtypes, mincore.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p], ctypes.c_int
    pages = 0
    for begin, end in ranges:
        first, last = -(-begin // mmap.PAGESIZE), end // mmap.PAGESIZE
        if last <= first:
            continue
        states = np.zeros(last - first, np.uint8)
        if mincore(first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE, states.ctypes.data):
            return None
        pages += int(np.count_nonzero(states & 1))
    return pages * mmap.PAGESIZE
