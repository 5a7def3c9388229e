"""A table that a route answers with."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class Columns:
    """A table for the page: JSON fields, and columns of equal length."""

    fields: Mapping[str, Any]
    columns: Mapping[str, npt.NDArray[Any]]
