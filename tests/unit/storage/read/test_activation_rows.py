"""Rows of activations of a long run, taken from several tables."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import equal, make_activations

from tb_memplugin.schema import MISSING
from tb_memplugin.storage.read import ActivationRows
from tb_memplugin.storage.read.activations import join_activations, part_of, row_sums


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.permutations("abc").flatmap(lambda p: st.sampled_from([p[:1], p[:2], p]))),
        max_size=5,
    ),
    st.data(),
)
def test_any_rows_equal_those_of_the_joined_table(shapes: list[tuple[int, list[str]]], data: st.DataObject) -> None:
    # GIVEN tables of different rows and layers
    random = np.random.default_rng(0)
    parts = [
        make_activations(range(rows), layers, random.integers(0, 99, (rows, len(layers)))) for rows, layers in shapes
    ]
    joined, _ = join_activations(parts)
    rows = ActivationRows([part_of(part) for part in parts])
    # THEN any of their rows, in order, are those of all of them joined
    assert rows.layers == joined.layers and len(rows) == len(joined)
    picked = np.asarray(sorted(data.draw(st.sets(st.integers(0, max(0, len(rows) - 1))))) if len(rows) else [], np.intp)
    taken = rows.take(picked)
    assert equal(taken.bytes, joined.bytes[picked]) and equal(taken.step, joined.step[picked])
    assert rows.totals.tolist() == np.maximum(joined.bytes, 0).sum(axis=1).tolist()


def test_sums_skip_missing_values_and_do_not_overflow() -> None:
    assert row_sums(np.asarray([[1, MISSING, 3], [MISSING] * 3])).tolist() == [4, 0]
    assert row_sums(np.full((1, 5_000), 2**53 - 1)).tolist() == [2**62]
