"""Records as JSON."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from tb_memplugin.schema.basics import optional_values


def as_json(value: Any, without: Collection[str] = ()) -> Any:
    """A record as an object, a tuple as a list, a column as a list with None for `MISSING`; other values as they are.

    Args:
        without: Fields of the record to leave out.
    """
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name not in without]
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, (tuple, list)):
        return [as_json(one) for one in value]
    if isinstance(value, Mapping):
        return {name: as_json(one) for name, one in value.items()}
    return optional_values(value) if isinstance(value, np.ndarray) else value
