"""Reduction for the screen keeps real rows, in order, and all extremes."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tb_memplugin.schema import MISSING, extreme_rows

sizes = st.integers(0, 2**53 - 1) | st.just(MISSING)
columns = st.integers(1, 400).flatmap(
    lambda rows: st.lists(hnp.arrays(np.int64, rows, elements=sizes), min_size=1, max_size=3)
)


@given(columns, st.integers(10, 100), st.data())
def test_extremes_ends_and_wanted_rows_are_kept_in_order(
    given_columns: list[npt.NDArray[np.int64]], limit: int, data: st.DataObject
) -> None:
    # GIVEN columns and rows that must stay
    count = len(given_columns[0])
    always = data.draw(st.lists(st.integers(0, count - 1), max_size=3))
    # WHEN they are reduced
    rows = extreme_rows(given_columns, limit, always)
    # THEN rows are real, in order, each once, not many more than requested
    assert (np.diff(rows) > 0).all() and rows[0] >= 0 and rows[-1] < count
    assert len(rows) <= limit + 2 + len(always) + 2 * len(given_columns)
    # AND ends and wanted rows are there, and the highest and lowest known value of every column
    assert {0, count - 1, *always} <= set(rows.tolist())
    for column in given_columns:
        assert column[rows].max() == column.max()
        known = column[column != MISSING]
        if len(known):
            kept = column[rows]
            assert kept[kept != MISSING].min() == known.min()


@given(columns)
def test_few_rows_are_all_kept(given_columns: list[npt.NDArray[np.int64]]) -> None:
    count = len(given_columns[0])
    assert extreme_rows(given_columns, count).tolist() == list(range(count))


def test_every_one_of_200_lone_peaks_survives_100_000_steps() -> None:
    # GIVEN a flat series with 200 one-step peaks of different heights, at random places
    random = np.random.default_rng(7)
    series = np.full(100_000, 1_000)
    places = random.choice(100_000, 200, replace=False)
    series[places] += random.permutation(np.arange(1, 201))
    # WHEN it is reduced to one row in ten
    rows = extreme_rows([series], 10_000)
    # THEN every bucket of 20 steps keeps its highest peak
    buckets = np.linspace(0, 100_000, 5_001).astype(int)
    expected = {max(range(begin, end), key=series.__getitem__) for begin, end in pairwise(buckets)}
    assert expected & set(places.tolist()) <= set(rows.tolist())
