"""Columns in few bytes: every value is as it was."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_memplugin.model import MISSING
from tb_memplugin.reader.narrow import Narrow, joined

VALUES = st.one_of(
    st.just(MISSING),
    st.integers(0, 3),
    st.integers(0, 2**33).map(lambda value: value * 256),
    st.integers(-(2**63), 2**63 - 1),
)
COLUMNS = st.lists(st.tuples(VALUES, st.integers(1, 40)), max_size=12).map(
    lambda runs: np.asarray([value for value, count in runs for _ in range(count)], np.int64)
)


@given(COLUMNS, st.data())
def test_all_values_and_any_of_them_are_as_they_were(values: np.ndarray, data: st.DataObject) -> None:
    column = Narrow(values)
    assert len(column) == len(values) and column.wide().tolist() == values.tolist()
    places = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=9)) if len(values) else []
    assert column.at(np.asarray(places, np.intp)).tolist() == values[places].tolist()


@given(st.lists(st.one_of(COLUMNS, st.integers(0, 5)), max_size=5))
def test_joined_columns_are_one_after_the_other(parts: list[np.ndarray | int]) -> None:
    expected = [value for part in parts for value in ([MISSING] * part if isinstance(part, int) else part.tolist())]
    made = joined([part if isinstance(part, int) else Narrow(part) for part in parts])
    assert made.wide().tolist() == expected


@pytest.mark.parametrize(
    ("values", "most"),
    [
        (np.zeros(100_000), 0),
        (np.repeat([7, MISSING, 9], 30_000), 3 * 12),
        (np.where(np.arange(100_000) % 10, MISSING, 2**40), 100_000),
        (2**35 + 256 * (np.arange(100_000) * 7919 % 60_000), 200_000),
        (np.arange(100_000) * 7919 % 99_991 * 256, 400_000),
        (np.arange(100_000) % 2 * (2**53 - 1), 800_000),
    ],
    ids=["constant", "stretches", "missing", "multiples", "wider", "any"],
)
def test_the_bytes_are_those_that_the_values_need(values: np.ndarray, most: int) -> None:
    column = Narrow(values.astype(np.int64))
    assert column.nbytes <= most + 300
    assert column.wide().tolist() == values.astype(np.int64).tolist()
