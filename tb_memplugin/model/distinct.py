"""Distinct values of a column."""

import numpy as np

from tb_memplugin.model import Integers


def distinct(*columns: Integers) -> Integers:
    """The values that occur in any of the columns, sorted.

    Faster than `numpy.unique`, which hashes since NumPy 2.3: twenty times for a few thousand integers.
    """
    values = np.sort(np.concatenate(columns))
    first = np.ones(len(values), bool)
    first[1:] = values[1:] != values[:-1]
    result: Integers = values[first]
    return result
