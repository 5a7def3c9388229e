"""Samples: the cheap record of every step."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema.basics import MISSING, PHASES, Floats, Integers
from tb_memplugin.schema.fields import MAX_LAYERS, Bounds, Matrix, MaybeSizes, Most, Sizes, Table


@dataclasses.dataclass(frozen=True)
class DeviceSamples:
    """Allocator figures of one device, shape [rows] as in their `Samples`; `MISSING` if unknown.

    Attributes:
        in_use_bytes: Allocated at step end.
        peak_bytes: Highest allocated bytes of the step.
        capacity_bytes: The allocator's limit.
        driver_process_bytes: Device memory of the process, by the driver.
        driver_used_bytes: Device memory of all processes, by the driver.
        driver_total_bytes: Total device memory, by the driver.
        pool_bytes: Reserved by the allocator at step end.
        largest_free_bytes: Largest free chunk at step end.
    """

    in_use_bytes: MaybeSizes
    peak_bytes: MaybeSizes
    capacity_bytes: MaybeSizes
    driver_process_bytes: MaybeSizes
    driver_used_bytes: MaybeSizes
    driver_total_bytes: MaybeSizes
    pool_bytes: MaybeSizes
    largest_free_bytes: MaybeSizes


_ROWS = Table("rows", 2**31)


@dataclasses.dataclass(frozen=True)
class Samples:
    """One row for each training step and each validation or prediction batch, in the order of recording.

    Attributes:
        step: Training step; a validation batch carries the training step it came after.
        phase: Index into `PHASES`.
        epoch: Epoch from 0, `MISSING` outside an epoch.
        wall_time: Time of the step's end, in seconds since the Unix epoch.
        host_resident_bytes: Host RSS of the process.
        devices: Device name (``GPU:0``) to its figures.
        tf_data_bytes: Elements in buffers and caches of ``tf.data`` by its own model of the pipelines, read at some
            steps.
        pinned_pool_bytes: TensorFlow's pool of host memory that is pinned for transfers to GPUs (``gpu_host_bfc``),
            read at some steps.
    """

    step: Annotated[Sizes, _ROWS]
    phase: Annotated[Integers, Bounds(0, len(PHASES) - 1), _ROWS]
    epoch: Annotated[Integers, _ROWS]
    wall_time: Annotated[Floats, _ROWS]
    host_resident_bytes: Annotated[MaybeSizes, _ROWS]
    devices: Annotated[Mapping[str, DeviceSamples], Most(256), _ROWS]
    tf_data_bytes: Annotated[MaybeSizes, _ROWS] = None  # type: ignore[assignment]  # unknown
    pinned_pool_bytes: Annotated[MaybeSizes, _ROWS] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        for name in ("tf_data_bytes", "pinned_pool_bytes"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.broadcast_to(np.int64(MISSING), len(self.step)))

    def __len__(self) -> int:
        return len(self.step)


SAMPLE_COLUMNS = tuple(field.name for field in dataclasses.fields(Samples) if field.name != "devices")
"""The columns of `Samples` that belong to no device."""


def one_row_a_step(steps: Integers, figures: DeviceSamples, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Those of some rows with a value of the device, sorted by step; for each step the row of the highest peak."""
    known = (figures.peak_bytes != MISSING) | (figures.in_use_bytes != MISSING)
    chosen = np.flatnonzero(rows & (known | (figures.driver_process_bytes != MISSING)))
    steps, peaks = steps[chosen], figures.peak_bytes[chosen]
    if (np.diff(steps) <= 0).any():
        # Sorted by step and peak, the last row of a step has its highest peak.
        order = np.lexsort((peaks, steps))
        steps = steps[order]
        chosen = chosen[order][np.append(steps[1:] != steps[:-1], True)]
    return chosen


def measured_pools(figures: DeviceSamples) -> npt.NDArray[np.bool_]:
    """Mask of rows with a measured pool that holds the allocated bytes and the largest free chunk at step end."""
    in_use, pool, largest = figures.in_use_bytes, figures.pool_bytes, figures.largest_free_bytes
    known = (in_use != MISSING) & (pool != MISSING) & (largest != MISSING)
    measured: npt.NDArray[np.bool_] = known & (in_use + largest <= pool)
    return measured


@dataclasses.dataclass(frozen=True)
class LayerActivations:
    """Recorded activation bytes of layers over steps.

    Attributes:
        step: Steps in order of recording, shape [rows].
        wall_time: Seconds since the epoch, shape [rows].
        layers: Layer paths, one for each column.
        bytes: Shape [rows, layers]; `MISSING` if a layer was not recorded at a step.
    """

    step: Annotated[Sizes, _ROWS]
    wall_time: Annotated[Floats, _ROWS]
    layers: Annotated[tuple[str, ...], Table("layers", MAX_LAYERS)]
    bytes: Annotated[MaybeSizes, Matrix("step", "layers"), Table("bytes", 2**31)]

    def __len__(self) -> int:
        return len(self.step)

    def faults(self) -> Iterator[str]:
        """What no table can be, as sentences."""
        if len(set(self.layers)) != len(self.layers):
            yield "the layer paths of activations are not unique"


def full_device_name(worker: str, device: str) -> str:
    """A worker's device by its name in the run of all workers: ``worker_0/GPU:0``."""
    return f"{worker}/{device}" if worker else device
