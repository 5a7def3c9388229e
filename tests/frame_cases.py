"""Frames with a column that does not belong there."""

import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tb_memplugin.storage.frames import Frame

columns = (
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6).map(
        lambda column: np.asarray(column, np.int64)
    )
    | st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=6).map(
        lambda column: np.asarray(column, np.float64)
    )
    | st.lists(st.none() | st.text(max_size=3), max_size=6).map(tuple)
)
"""Any column: of integers, of numbers, of strings."""


def spoiled(frame: Frame, table: str, column: str, value: Any) -> Frame:
    return dataclasses.replace(
        frame, tables={**frame.tables, table: {**frame.tables[table], column: value}}
    )
