"""Array types, phases, modes, kinds of devices, and the mark for unknown values."""

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

Phase: TypeAlias = Literal["train", "validation", "predict"]
PHASES: tuple[Phase, ...] = ("train", "validation", "predict")

Mode: TypeAlias = Literal["graph", "eager", "xla"]
MODES: tuple[Mode, ...] = ("graph", "eager", "xla")

MISSING = -(2**63)
"""Stands for "unknown" in integer arrays; floating-point arrays have NaN."""

MAX_STEP = 2**53 - 1
"""Largest step: JavaScript represents no larger integer exactly."""


def is_gpu(device: str) -> bool:
    """Whether a device is a GPU: ``GPU:0``, ``worker/GPU:0`` in a run of several workers, or ``/device:GPU:0``."""
    return _kind(device) == "GPU"


def is_cpu(device: str) -> bool:
    """Whether a device is a CPU, as in `is_gpu`."""
    return _kind(device) == "CPU"


def _kind(device: str) -> str:
    return device.rsplit("/", 1)[-1].removeprefix("device:").partition(":")[0].upper()
