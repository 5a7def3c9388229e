"""The same values as NumPy finds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tb_memplugin.model.distinct import distinct

COLUMNS = npst.arrays(np.int64, st.integers(0, 30), elements=st.integers(-5, 5))


@given(COLUMNS, COLUMNS)
def test_distinct_values_are_numpys(one: np.ndarray, other: np.ndarray) -> None:
    assert distinct(one).tolist() == np.unique(one).tolist()
    assert distinct(one, other).tolist() == np.union1d(one, other).tolist()
