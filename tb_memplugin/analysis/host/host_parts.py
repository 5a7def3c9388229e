"""Host memory: its parts, what they are called, and the parts at the steps of one phase. Pure."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from tb_memplugin.model import (
    HOST_ALLOCATED,
    HOST_PARTS,
    MISSING,
    PHASES,
    Floats,
    HostMemory,
    HostSamples,
    Integers,
    Phase,
)
from tb_memplugin.model.downsample import extreme_rows

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


FIGURES = (*RESIDENT, *HOST_ALLOCATED)
"""Columns of the parts, which sum to RSS, and then of allocated memory."""


@dataclasses.dataclass(frozen=True)
class HostSteps:
    """One row for each step with a known RSS; `MISSING` where unknown.

    Attributes:
        total_rows: Rows before reduction.
        host_resident_bytes: RSS at the end of the step.
        figures: `FIGURES` by name; of steps at which the parts were measured.
    """

    total_rows: int
    step: Integers
    wall_time: Floats
    host_resident_bytes: Integers
    figures: Mapping[str, Integers]


def host_steps(
    memory: HostMemory, phase: Phase, first_step: int | None, last_step: int | None, limit: int
) -> HostSteps:
    """The steps from `first_step` to `last_step`, about `limit` rows at most.

    A reduction keeps recorded rows: the extremes of RSS in every bucket, and measured parts spread over the steps.
    """
    samples, parts = memory.samples, memory.parts
    chosen = np.flatnonzero((samples.phase == PHASES.index(phase)) & (samples.host_resident_bytes != MISSING))
    # The parts of a sample have its time. A step's sample with parts is shown, or else its last sample.
    place = {time: row for row, time in enumerate(parts.wall_time.tolist())}
    source = np.asarray([place.get(time, -1) for time in samples.wall_time[chosen].tolist()], np.int64)
    order = np.lexsort((source >= 0, samples.step[chosen]))
    chosen, source = chosen[order], source[order]
    steps = samples.step[chosen]
    last = np.append(steps[1:] != steps[:-1], True)[: len(steps)]
    inside = (
        last & (steps >= (first_step or 0)) & (steps <= (np.iinfo(np.int64).max if last_step is None else last_step))
    )
    chosen, source = chosen[inside], source[inside]
    total = len(chosen)
    if total > limit:
        measured = np.flatnonzero(source >= 0)
        kept = measured[:: max(1, -(-len(measured) // max(1, limit // 4)))]
        rows = extreme_rows([samples.host_resident_bytes[chosen]], limit, kept.tolist())
        chosen, source = chosen[rows], source[rows]
    columns = {name: parts.other_bytes() if name == "other_bytes" else getattr(parts, name) for name in FIGURES}
    return HostSteps(
        total_rows=total,
        step=samples.step[chosen],
        wall_time=samples.wall_time[chosen],
        host_resident_bytes=samples.host_resident_bytes[chosen],
        figures={
            name: np.where(source >= 0, np.append(column, MISSING)[source], MISSING) for name, column in columns.items()
        },
    )
