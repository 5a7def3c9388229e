"""Array types with their mark for unknown values, phases, modes, kinds of devices, and records as JSON."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

Phase: TypeAlias = Literal["train", "validation", "predict"]
PHASES: tuple[Phase, ...] = ("train", "validation", "predict")

Mode: TypeAlias = Literal["graph", "eager", "xla"]

MISSING = -(2**63)
"""Stands for "unknown" in integer arrays; floating-point arrays have NaN."""

MAX_STEP = 2**53 - 1
"""JavaScript represents no larger integer exactly."""


def values_of(record: object, *names: str) -> dict[str, Any]:
    """Name to value of some fields of a record; a tuple is a list, as in JSON."""
    values = {name: getattr(record, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def optional_column(values: Iterable[int | None]) -> Integers:
    """Integers with `MISSING` for None."""
    return np.asarray([MISSING if value is None else value for value in values], np.int64)


def optional_values(column: Integers) -> list[int | None]:
    return [None if value == MISSING else value for value in column.tolist()]


def last_known(column: Integers) -> int | None:
    known = np.flatnonzero(column != MISSING)
    return int(column[known[-1]]) if len(known) else None


def distinct(*columns: Integers) -> Integers:
    """The values that occur in any of the columns, sorted.

    Faster than `numpy.unique`, which hashes since NumPy 2.3: twenty times for a few thousand integers.
    """
    values = np.sort(np.concatenate(columns))
    result: Integers = values[np.diff(values, prepend=values[:1] - 1) != 0]
    return result


def is_gpu(device: str) -> bool:
    """Whether ``GPU:0``, ``worker/GPU:0`` in a run of several workers, or ``/device:GPU:0`` is a GPU."""
    return _kind(device) == "GPU"


def is_cpu(device: str) -> bool:
    return _kind(device) == "CPU"


def _kind(device: str) -> str:
    return device.rsplit("/", 1)[-1].removeprefix("device:").partition(":")[0].upper()


def as_json(value: Any, without: Collection[str] = ()) -> Any:
    """A record as an object, `without` some fields, a tuple as a list, a column as a list with None for `MISSING`."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name not in without]
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, (tuple, list)):
        return [as_json(one) for one in value]
    if isinstance(value, Mapping):
        return {name: as_json(one) for name, one in value.items()}
    return optional_values(value) if isinstance(value, np.ndarray) else value
