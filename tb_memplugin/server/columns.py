"""Tables as responses of routes."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class Columns:
    """A response of JSON fields and columns of equal length."""

    fields: Mapping[str, Any]
    columns: Mapping[str, npt.NDArray[Any]]
