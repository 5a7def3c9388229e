"""Parts of host memory, resident and allocated, and how they are called. Pure."""

import dataclasses
from collections.abc import Mapping

from tb_memplugin.model import HOST_ALLOCATED, HOST_PARTS, MISSING, HostSamples

PART_NAMES: Mapping[str, str] = {
    "file_bytes": "mapped files",
    "shared_memory_bytes": "shared memory",
    "pinned_pool_bytes": "pool of pinned memory",
    "cpu_pool_bytes": "pool of CPU:0",
    "python_objects_bytes": "Python objects",
    "other_bytes": "other memory",
    "c_heap_bytes": "C heap",
    "c_heap_free_bytes": "C heap: free",
    "tf_data_bytes": "tf.data buffers",
}
"""Parts of resident memory, which sum to it, and then allocated memory that lies in them. The page has these names."""
RESIDENT = (*HOST_PARTS, "other_bytes")


@dataclasses.dataclass(frozen=True)
class HostState:
    """Host memory of a worker at the last step with measured parts.

    Attributes:
        step: That step.
        resident_bytes: Host RSS there.
        parts: Its disjoint parts by name; they sum to `resident_bytes`. Unknown ones are left out and lie in
            ``other_bytes``.
        allocated: Allocated memory by name, resident or not; it lies in the parts and overlaps.
    """

    step: int
    resident_bytes: int
    parts: Mapping[str, int]
    allocated: Mapping[str, int]


def state_at(parts: HostSamples, row: int) -> HostState:
    """The state at a row with a known RSS."""
    figures = {name: int(getattr(parts, name)[row]) for name in (*HOST_PARTS, *HOST_ALLOCATED)}
    known = {name: size for name, size in figures.items() if size != MISSING}
    return HostState(
        step=int(parts.step[row]),
        resident_bytes=int(parts.resident_bytes[row]),
        parts={
            **{name: known[name] for name in HOST_PARTS if name in known},
            "other_bytes": int(parts.other_bytes()[row]),
        },
        allocated={name: known[name] for name in HOST_ALLOCATED if name in known},
    )


def growth_of_parts(first: HostState, last: HostState) -> dict[str, int]:
    """Growth by name; empty if only one of the steps knows a part, which changes the remainder, too."""
    return _differences(first.parts, last.parts) if first.parts.keys() == last.parts.keys() else {}


def growth_of_allocated(first: HostState, last: HostState) -> dict[str, int]:
    """Growth by name of what both steps know."""
    return _differences(first.allocated, last.allocated)


def _differences(first: Mapping[str, int], last: Mapping[str, int]) -> dict[str, int]:
    return {name: size - first[name] for name, size in last.items() if name in first}
