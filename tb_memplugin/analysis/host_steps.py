"""Host memory at the steps of one phase, with its parts where they were measured. Pure."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from tb_memplugin.analysis.host_parts import RESIDENT
from tb_memplugin.model import HOST_ALLOCATED, MISSING, PHASES, Floats, HostMemory, Integers, Phase
from tb_memplugin.model.downsample import extreme_rows

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
    # The parts of a sample have its time. Of several samples of a step, the one with parts is shown, or else the last.
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
