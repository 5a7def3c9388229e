"""Fields of a record as a JSON object."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tb_memplugin.schema import Band, TensorShape, distinct, values_of


def test_fields_by_name() -> None:
    assert values_of(Band("forward", 3, 5), "end", "name") == {"end": 5, "name": "forward"}
    assert values_of(TensorShape((2, 3), "int32"), "shape") == {"shape": [2, 3]}


COLUMNS = npst.arrays(np.int64, st.integers(0, 30), elements=st.integers(-5, 5))


@given(COLUMNS, COLUMNS)
def test_distinct_values_are_numpys(one: np.ndarray, other: np.ndarray) -> None:
    assert distinct(one).tolist() == np.unique(one).tolist()
    assert distinct(one, other).tolist() == np.union1d(one, other).tolist()
