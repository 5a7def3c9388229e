"""Host memory: resident memory of a process (RSS), and its known parts at some steps."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import numpy as np

from tb_memplugin.model.basics import MISSING, Floats, Integers
from tb_memplugin.model.fields import Bounds, MaybeSizes, Sizes, Table
from tb_memplugin.model.samples import Samples

HOST_PARTS = ("file_bytes", "shared_memory_bytes", "pinned_pool_bytes", "cpu_pool_bytes", "python_objects_bytes")
"""Disjoint parts of resident memory; the remainder is `HostSamples.other_bytes`."""
HOST_ALLOCATED = ("c_heap_bytes", "c_heap_free_bytes", "tf_data_bytes")
"""Allocated memory, resident or not, that lies in the parts above and overlaps: no part of a sum."""


_ROWS = Table("host", 2**31)


@dataclasses.dataclass(frozen=True)
class HostSamples:
    """Parts of host memory at the end of some steps, shape [rows] each, in order of recording; `MISSING` if unknown.

    Attributes:
        step, phase, wall_time: As in `Samples`, whose row of this step has the same `host_resident_bytes`.
        resident_bytes: Resident memory of the process (host RSS).
        file_bytes: Resident pages of mapped files, such as libraries.
        shared_memory_bytes: Resident pages of shared memory, without those of `pinned_pool_bytes` if that is known.
        pinned_pool_bytes: Resident pages of the pool of host memory that TensorFlow pins for transfers to GPUs
            (``gpu_host_bfc``).
        cpu_pool_bytes: Resident pages of the pool of ``CPU:0`` (BFC allocator).
        python_objects_bytes: Objects in the arenas of Python's allocator, which holds objects of up to 512 bytes.
        c_heap_bytes: Allocated by ``malloc`` and not freed (glibc). Larger Python objects, NumPy arrays and tensors on
            the CPU are among them, and the pool of ``CPU:0``.
        c_heap_free_bytes: Freed, and kept by glibc for later allocations.
        tf_data_bytes: Elements in buffers and caches of ``tf.data``, as its own model of the pipelines counts them.
    """

    step: Annotated[Sizes, _ROWS]
    phase: Annotated[Integers, Bounds(0, 2), _ROWS]
    wall_time: Annotated[Floats, _ROWS]
    resident_bytes: Annotated[MaybeSizes, _ROWS]
    file_bytes: Annotated[MaybeSizes, _ROWS]
    shared_memory_bytes: Annotated[MaybeSizes, _ROWS]
    pinned_pool_bytes: Annotated[MaybeSizes, _ROWS]
    cpu_pool_bytes: Annotated[MaybeSizes, _ROWS]
    python_objects_bytes: Annotated[MaybeSizes, _ROWS]
    c_heap_bytes: Annotated[MaybeSizes, _ROWS]
    c_heap_free_bytes: Annotated[MaybeSizes, _ROWS]
    tf_data_bytes: Annotated[MaybeSizes, _ROWS]

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> "HostSamples":
        """The rows with these columns, each of any sequence of numbers."""
        arrays: dict[str, Any] = {
            name: np.asarray(column, np.float64 if name == "wall_time" else np.int64)
            for name, column in columns.items()
        }
        return cls(**arrays)

    @classmethod
    def none(cls) -> "HostSamples":
        """No rows."""
        return cls.of(dict.fromkeys(HOST_COLUMNS, ()))

    def __len__(self) -> int:
        return len(self.step)

    def faults(self) -> Iterator[str]:
        """What no rows can be, as sentences."""
        known = self.resident_bytes != MISSING
        if (self.known_parts_bytes()[known] > self.resident_bytes[known]).any():
            yield "parts of host memory exceed its resident memory"

    def known_parts_bytes(self) -> Integers:
        """Sum of the known parts of each row."""
        total: Integers = sum(
            (column * (column != MISSING) for column in (getattr(self, name) for name in HOST_PARTS)),
            start=self.resident_bytes * 0,
        )
        return total

    def other_bytes(self) -> Integers:
        """Resident memory outside of the known parts, so that all sum to `resident_bytes`: heaps, stacks and others."""
        rest: Integers = self.resident_bytes - self.known_parts_bytes()
        rest[self.resident_bytes == MISSING] = MISSING
        return rest


HOST_COLUMNS = tuple(field.name for field in dataclasses.fields(HostSamples))
"""All columns, and those of sizes."""
HOST_BYTES = tuple(name for name in HOST_COLUMNS if name.endswith("_bytes"))


@dataclasses.dataclass(frozen=True)
class HostMemory:
    """Host memory of one worker.

    Attributes:
        samples: The worker's samples, with the RSS of every step.
        parts: The parts, of some of these steps.
    """

    samples: Samples
    parts: HostSamples
