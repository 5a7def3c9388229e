"""Host memory of a run of one worker: its known parts, and growth over the steps of the main phase.
Pure.

Growth is found as that of device memory is, in the resident memory (RSS) of every step. The
differences of the parts tell which of them grew. What the CPU's allocator adds is a finding on
``CPU:0``, and no second one here."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.causes import Cause, host_cause_of
from tb_memplugin.analysis.facts import latest_session, main_phase, range_of
from tb_memplugin.analysis.growth import growth_of, phase_rows, rate_and_levels, with_cause
from tb_memplugin.analysis.largest import finding
from tb_memplugin.analysis.trend import (
    MIN_BYTES,
    Trend,
    is_long_enough,
    least_change,
    smallest_growth,
    trend_between_jumps,
)
from tb_memplugin.schema import (
    MISSING,
    Finding,
    Integers,
    Phase,
    Run,
    Samples,
    extreme_rows,
    format_bytes,
    is_cpu,
    values_of,
)

CPU = "CPU:0"
# of the samples, before those of `PART_NAMES`
HOST_COLUMNS = ("step", "wall_time", "host_resident_bytes")
# report growth only if at least this share is not explained by `CPU:0`'s allocator
MIN_OWN_SHARE = 0.5
PART_NAMES: Mapping[str, str] = {
    "pinned_pool_bytes": "pool of pinned memory",
    "tf_data_bytes": "tf.data buffers",
    "cpu_bytes": "memory of CPU:0",
    "other_bytes": "other memory",
}
"""Disjoint parts of RSS, which sum to it, from the bottom up; that of `CPU:0` is without the
buffers of tf.data."""


def host_parts(samples: Samples) -> dict[str, Integers]:
    """The columns of `PART_NAMES`, known together: at the rows at which the buffers were read, or
    at all rows of a recorded CPU if they never were. A part that is unknown there lies in
    ``other_bytes``. Where they exceed RSS, memory that is allocated and not resident, all are
    unknown."""
    resident, pinned, tf_data = (
        samples.host_resident_bytes,
        samples.pinned_pool_bytes,
        samples.tf_data_bytes,
    )
    cpu = samples.of(CPU).in_use_bytes
    parts = {
        "pinned_pool_bytes": pinned,
        "tf_data_bytes": tf_data,
        "cpu_bytes": np.where(cpu == MISSING, MISSING, np.maximum(0, cpu - np.maximum(0, tf_data))),
    }
    read = (pinned != MISSING) | (tf_data != MISSING)
    known = (read if read.any() else cpu != MISSING) & (resident != MISSING)
    other = resident - sum(np.where(column == MISSING, 0, column) for column in parts.values())
    known &= other >= 0
    return {
        name: np.where(known, column, MISSING)
        for name, column in {**parts, "other_bytes": other}.items()
    }


@dataclasses.dataclass(frozen=True)
class HostState:
    """RSS at the last step with known parts, and these by name; unknown ones are left out."""

    step: int
    resident_bytes: int
    parts: Mapping[str, int]


def _state_at(samples: Samples, parts: Mapping[str, Integers], row: int) -> HostState:
    sizes = {name: int(column[row]) for name, column in parts.items() if column[row] != MISSING}
    return HostState(int(samples.step[row]), int(samples.host_resident_bytes[row]), sizes)


@dataclasses.dataclass(frozen=True)
class HostGrowth:
    """Host RSS grows over the steps of the main phase.

    Attributes:
        trend, jumps: As in `Growth`.
        parts: Growth by name from `first_step` to `last_step`, None if fewer than two were measured
            in the trend; empty if only one of the steps knows a part, which changes the others,
            too.
        cpu_bytes_per_step: Growth of the memory in use on the worker's ``CPU:0``, or of its pool if
            that grows more; 0 if the memory in use does not grow.
        cause: Why it grows beyond that; None if unknown."""

    worker: str
    trend: Trend
    jumps: tuple[tuple[int, int], ...]
    first_step: int | None
    last_step: int | None
    parts: Mapping[str, int]
    cpu_bytes_per_step: float
    cause: Cause | None

    @property
    def beyond_cpu(self) -> Trend:
        return dataclasses.replace(
            self.trend, bytes_per_step=self.trend.bytes_per_step - self.cpu_bytes_per_step
        )

    @property
    def is_finding(self) -> bool:
        trend, own = self.trend, self.beyond_cpu
        is_large = own.added_bytes >= least_change(trend.from_bytes)
        return own.bytes_per_step >= MIN_OWN_SHARE * trend.bytes_per_step and bool(is_large)

    def sentence(self) -> str:
        name = self.worker + ": host" if self.worker else "Host"
        text = f"{name} RSS {rate_and_levels(self.trend, self.jumps)}"
        if self.cpu_bytes_per_step:
            beyond = max(0, round(100 * self.beyond_cpu.bytes_per_step))
            text += f" ({format_bytes(beyond)} of it beyond the memory of {CPU})"
        largest = max(self.parts, key=lambda name: self.parts[name], default=None)
        if largest is not None and self.parts[largest] > 0:
            text += (
                f"; largest growth from step {self.first_step} to step {self.last_step}: "
                f"{PART_NAMES[largest]}, {format_bytes(self.parts[largest])}"
            )
        return with_cause(text, self.cause)


@dataclasses.dataclass(frozen=True)
class HostSummary:
    """Host memory of one worker: RSS at the last step with a sample, and its highest at the end of
    a step. `steps` of the main phase were examined for growth, 0 if too few were recorded; growth
    below `bound_bytes` is not reported."""

    sentence: str
    resident_bytes: int
    peak_bytes: int
    peak_step: int
    state: HostState | None
    steps: int
    bound_bytes: int
    growth: HostGrowth | None


def host_summary(run: Run) -> HostSummary | None:
    """Host memory of the run of one worker; None without a known RSS."""
    samples = run.samples
    resident = samples.host_resident_bytes
    known = np.flatnonzero(resident != MISSING)
    if not len(known) or len(run.workers) != 1:
        return None
    highest = int(known[np.argmax(resident[known])])
    examined, rows = _examined(run)
    steps, bound = 0, MIN_BYTES
    sentence = "Unknown whether host RSS grows: too few steps."
    if is_long_enough(len(rows)):
        steps = range_of(examined.samples.step[rows], run.thinning > 1).steps
        bound = smallest_growth(examined.samples.host_resident_bytes[rows])
        sentence = f"Host RSS: no growth of {format_bytes(bound)} or more in {steps:,} steps."
    parts, growth = host_parts(samples), _growth(run)
    measured = np.flatnonzero(parts["other_bytes"] != MISSING)
    return HostSummary(
        sentence if growth is None else growth.sentence(),
        resident_bytes=int(resident[known[-1]]),
        peak_bytes=int(resident[highest]),
        peak_step=int(samples.step[highest]),
        state=_state_at(samples, parts, int(measured[-1])) if len(measured) else None,
        steps=steps,
        bound_bytes=bound,
        growth=growth,
    )


def host_summaries(by_worker: Mapping[str, Run]) -> dict[str, HostSummary]:
    summaries = {worker: host_summary(run) for worker, run in by_worker.items()}
    return {worker: summary for worker, summary in summaries.items() if summary is not None}


def host_growth(run: Run) -> HostGrowth | None:
    growth = _growth(run) if len(run.workers) == 1 else None
    return growth if growth is not None and growth.is_finding else None


def host_findings(run: Run) -> list[Finding]:
    growth = host_growth(run)
    if growth is None:
        return []
    trend, text = growth.trend, growth.sentence()
    place = growth.worker, None, trend.since_step, trend.last_step
    return [finding("host_growth", text, *place, trend.added_bytes)]


def _growth(run: Run) -> HostGrowth | None:
    (worker,) = run.workers
    run, rows = _examined(run)
    samples, resident = run.samples, run.samples.host_resident_bytes
    found = trend_between_jumps(samples.step[rows], resident[rows], run.layer_tables)
    if found is None:
        return None
    trend, jumps = found
    on_cpu = _cpu_bytes_per_step(run, trend.since_step)
    growth = HostGrowth(worker, trend, jumps, None, None, {}, on_cpu, None)
    if growth.is_finding:
        known = resident != MISSING
        cause = host_cause_of(run, growth.beyond_cpu, samples.step[known], resident[known])
        growth = dataclasses.replace(growth, cause=cause)
    parts = host_parts(samples)
    known_rows = np.flatnonzero(parts["other_bytes"] != MISSING)
    inside = known_rows[samples.step[known_rows] >= trend.since_step]
    # The longest part of the trend without a jump, whose parts need not be those that grow.
    stretch = np.searchsorted(
        np.sort([step for step, _ in jumps]), samples.step[inside], side="right"
    )
    stretches = [inside[stretch == number] for number in np.unique(stretch)]
    longest = max(
        stretches, key=lambda rows: samples.step[rows[-1]] - samples.step[rows[0]], default=inside
    )
    if len(longest) < 2 and not jumps:
        # A short run: from the last measurement before the growth.
        longest = np.append(known_rows[samples.step[known_rows] < trend.since_step][-1:], inside)
    if len(longest) < 2:
        return growth
    first, last = (_state_at(samples, parts, int(longest[at])) for at in (0, -1))
    same = first.parts.keys() == last.parts.keys()
    grown = {name: size - first.parts[name] for name, size in last.parts.items()} if same else {}
    return dataclasses.replace(growth, first_step=first.step, last_step=last.step, parts=grown)


def _examined(run: Run) -> tuple[Run, npt.NDArray[np.intp]]:
    """The part in which growth is looked for, and its rows."""

    def rows(part: Run) -> npt.NDArray[np.intp]:
        return phase_rows(
            part,
            part.samples.host_resident_bytes,
            main_phase(dataclasses.replace(part, snapshots=())),
        )

    devices = [name for name in run.samples.devices if is_cpu(name)]
    part = latest_session(run, devices, lambda session: is_long_enough(len(rows(session))))
    return part, rows(part)


def _cpu_bytes_per_step(run: Run, since_step: int) -> float:
    growth = growth_of(run, CPU)
    if growth is None:
        return 0.0
    samples = run.samples
    pool = samples.devices[CPU].pool_bytes
    known = np.flatnonzero((pool != MISSING) & (samples.step >= since_step))
    rates = [growth.trend.bytes_per_step]
    if len(known):
        ends = known[[0, -1]]
        steps, added = np.diff(samples.step[ends]), np.diff(pool[ends])
        rates += (added[steps > 0] / steps[steps > 0]).tolist()
    return max(rates)


def host_steps(
    run: Run, phase: Phase, first_step: int | None, last_step: int | None, limit: int
) -> tuple[int, dict[str, npt.NDArray[Any]]]:
    """`HOST_COLUMNS` and `host_parts`, a row for each step with a known RSS; and the number of rows
    before a reduction to about `limit`, which keeps the extremes of RSS in every bucket, and known
    parts spread over the steps."""
    samples = run.samples
    parts = host_parts(samples)
    is_known = parts["other_bytes"] != MISSING
    chosen = np.flatnonzero(samples.is_of(phase) & (samples.host_resident_bytes != MISSING))
    # A step's sample with parts is shown, or else its last sample.
    chosen = chosen[np.lexsort((is_known[chosen], samples.step[chosen]))]
    steps = samples.step[chosen]
    inside = np.append(steps[1:] != steps[:-1], True)[: len(steps)] & (steps >= (first_step or 0))
    chosen = chosen[inside & (True if last_step is None else steps <= last_step)]
    total = len(chosen)
    if total > limit:
        measured = np.flatnonzero(is_known[chosen])
        kept = measured[:: max(1, -(-len(measured) // max(1, limit // 4)))]
        chosen = chosen[extreme_rows([samples.host_resident_bytes[chosen]], limit, kept.tolist())]
    columns = values_of(samples, *HOST_COLUMNS) | parts
    return total, {name: column[chosen] for name, column in columns.items()}
