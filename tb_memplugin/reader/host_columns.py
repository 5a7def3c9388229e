"""Rows of the parts of host memory: joining and selecting."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import HOST_COLUMNS, HostSamples


def empty_host() -> HostSamples:
    """No rows."""
    return HostSamples.of(dict.fromkeys(HOST_COLUMNS, ()))


def join_host(parts: Sequence[HostSamples]) -> HostSamples:
    """Concatenate the rows of `parts`; those of a single one are not copied."""
    parts = [part for part in parts if len(part)]
    if len(parts) <= 1:
        return parts[0] if parts else empty_host()
    return HostSamples(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in HOST_COLUMNS})


def take_host(host: HostSamples, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> HostSamples:
    """The given rows."""
    return HostSamples(**{name: getattr(host, name)[rows] for name in HOST_COLUMNS})
