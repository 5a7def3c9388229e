"""Host memory of a run's workers: its parts, and growth over the steps of the main phase. Pure.

Growth is found as that of device memory is (`levelling`, `trend`), in the resident memory (RSS) of every step. The
parts were measured at some steps; their differences tell which of them grew. What the CPU's allocator adds is a finding
on ``CPU:0``, and no second one here.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.growth.device_growth import growth_of, jumps_text, phase_rows
from tb_memplugin.analysis.growth.growth_causes import Cause, host_cause_of
from tb_memplugin.analysis.growth.levelling import trend_between_jumps
from tb_memplugin.analysis.growth.trend import (
    MIN_GROWTH_BYTES,
    MIN_GROWTH_SHARE,
    Trend,
    is_long_enough,
    smallest_growth,
)
from tb_memplugin.analysis.host.host_parts import PART_NAMES, HostState, growth_of_allocated, growth_of_parts, state_at
from tb_memplugin.analysis.steps.facts import range_of, samples_phase
from tb_memplugin.analysis.steps.sessions import host_of_sessions
from tb_memplugin.model import MISSING, HostMemory, HostSamples, Run, Samples
from tb_memplugin.model.units import format_bytes

CPU = "CPU:0"
MIN_OWN_SHARE = 0.5
"""Report growth only if at least this share is not explained by `CPU:0`'s allocator."""


@dataclasses.dataclass(frozen=True)
class HostGrowth:
    """Host RSS grows over the steps of the main phase.

    Attributes:
        worker: The worker, ``""`` in a run of one process.
        trend: The growth; see `growth.Growth`.
        jumps: Step and size in bytes of each jump since the trend began, which are no part of its rate.
        first_step, last_step: Steps between which the parts grew; None if fewer than two were measured in the trend.
        parts, allocated: Growth by name between them, as in `HostState`.
        cpu_bytes_per_step: Growth of the memory in use on the worker's ``CPU:0``, or of its pool if that grows more; 0
            if the memory in use does not grow.
        cause: Why it grows beyond that; None if unknown.
    """

    worker: str
    trend: Trend
    jumps: tuple[tuple[int, int], ...]
    first_step: int | None
    last_step: int | None
    parts: Mapping[str, int]
    allocated: Mapping[str, int]
    cpu_bytes_per_step: float
    cause: Cause | None

    @property
    def beyond_cpu(self) -> Trend:
        """The growth with the rate of what grows beyond the memory of ``CPU:0``."""
        return _beyond(self.trend, self.cpu_bytes_per_step)

    @property
    def is_finding(self) -> bool:
        """Whether most of it is beyond the memory of ``CPU:0``."""
        return _grows_beyond(self.trend, self.cpu_bytes_per_step)

    def sentence(self) -> str:
        """The growth as text."""
        trend = self.trend
        text = (
            f"{self.worker + ': host' if self.worker else 'Host'} RSS grows by "
            f"{format_bytes(round(100 * trend.bytes_per_step))} every 100 steps since step {trend.since_step}, from "
            f"{format_bytes(trend.from_bytes)} to {format_bytes(trend.to_bytes)} at step {trend.last_step}"
            f"{jumps_text(self.jumps)}"
        )
        if self.cpu_bytes_per_step:
            beyond = max(0, round(100 * self.beyond_cpu.bytes_per_step))
            text += f" ({format_bytes(beyond)} of it beyond the memory of {CPU})"
        text += self._largest_part()
        return f"{text}." if self.cause is None else f"{text}. Cause: {self.cause.text}."

    def _largest_part(self) -> str:
        largest = max(self.parts, key=lambda name: self.parts[name], default=None)
        if largest is None or self.parts[largest] <= 0:
            return ""
        text = (
            f"; largest growth from step {self.first_step} to step {self.last_step}: {PART_NAMES[largest]}, "
            f"{format_bytes(self.parts[largest])}"
        )
        # Memory that the part holds for the most part, the most specific name first.
        inside = next(
            (
                name
                for name in ("tf_data_bytes", "c_heap_bytes")
                if 2 * self.allocated.get(name, 0) >= self.parts[largest]
            ),
            None,
        )
        if inside is not None and largest in ("other_bytes", "cpu_pool_bytes"):
            text += f" ({PART_NAMES[inside]}: {format_bytes(self.allocated[inside])} more)"
        return text


@dataclasses.dataclass(frozen=True)
class HostSummary:
    """Host memory of one worker.

    Attributes:
        resident_bytes: RSS at the last step with a sample, None if it was not recorded.
        peak_bytes, peak_step: Highest RSS at the end of a step.
        state: The parts, None if they were not measured.
        steps: Steps of the main phase that were examined for growth, 0 if too few were recorded.
        bound_bytes: Smaller growth over these steps is not reported.
        growth: The finding, None without one.
    """

    resident_bytes: int | None
    peak_bytes: int | None
    peak_step: int | None
    state: HostState | None
    steps: int
    bound_bytes: int
    growth: HostGrowth | None

    def sentence(self) -> str:
        """The growth, or its absence, as text."""
        if self.growth is not None:
            return self.growth.sentence()
        if not self.steps:
            return "Unknown whether host RSS grows: too few steps."
        return f"Host RSS: no growth of {format_bytes(self.bound_bytes)} or more in {self.steps:,} steps."


def host_summaries(run: Run) -> dict[str, HostSummary]:
    """Host memory by worker; workers without a known RSS are left out."""
    summaries = {worker: _summary(run, worker, memory) for worker, memory in run.host.items()}
    return {worker: summary for worker, summary in summaries.items() if summary.resident_bytes is not None}


def host_summaries_of(by_worker: Mapping[str, Run]) -> dict[str, HostSummary]:
    """The same from the runs of the workers, in which the sessions of each are known."""
    return {worker: summary for run in by_worker.values() for worker, summary in host_summaries(run).items()}


def host_growths(run: Run) -> list[HostGrowth]:
    """The findings on host memory, at most one for each worker."""
    found = (host_growth(run, worker, memory) for worker, memory in run.host.items())
    return [growth for growth in found if growth is not None and growth.is_finding]


def host_findings(run: Run) -> list[str]:
    """The findings as sentences."""
    return [growth.sentence() for growth in host_growths(run)]


def host_growth_beside(run: Run, device: str) -> HostGrowth | None:
    """The finding on the host memory of a device's worker."""
    worker = device.rpartition("/")[0]
    if worker not in run.host and len(run.host) == 1:
        (worker,) = run.host
    memory = run.host.get(worker)
    growth = None if memory is None else host_growth(run, worker, memory)
    return growth if growth is not None and growth.is_finding else None


def host_growth(run: Run, worker: str, memory: HostMemory) -> HostGrowth | None:
    """Find growing RSS of a worker; `run` is the run of all workers, or of this one."""
    run, memory = _examined(run, memory)
    samples = memory.samples
    rows = _rss_rows(samples)
    found = trend_between_jumps(samples.step[rows], samples.host_resident_bytes[rows], run.layer_tables)
    if found is None:
        return None
    trend, jumps = found
    on_cpu = _cpu_bytes_per_step(run, worker, trend.since_step)
    cause = host_cause_of(run, worker, _beyond(trend, on_cpu), samples) if _grows_beyond(trend, on_cpu) else None
    parts = memory.parts
    inside = _measured_rows(parts, trend, [step for step, _ in jumps])
    if len(inside) < 2:
        return HostGrowth(worker, trend, jumps, None, None, {}, {}, on_cpu, cause)
    first, last = state_at(parts, int(inside[0])), state_at(parts, int(inside[-1]))
    return HostGrowth(
        worker,
        trend,
        jumps,
        first.step,
        last.step,
        growth_of_parts(first, last),
        growth_of_allocated(first, last),
        on_cpu,
        cause,
    )


def _measured_rows(parts: HostSamples, trend: Trend, jumps: Sequence[int]) -> npt.NDArray[np.intp]:
    """Rows of measured parts in the longest part of a trend without a jump, whose parts need not be those that grow."""
    known = np.flatnonzero(parts.resident_bytes != MISSING)
    inside = known[parts.step[known] >= trend.since_step]
    stretch = np.searchsorted(np.sort(jumps), parts.step[inside], side="right")
    stretches = [inside[stretch == number] for number in np.unique(stretch)]
    longest = max(stretches, key=lambda rows: parts.step[rows[-1]] - parts.step[rows[0]], default=inside)
    if len(longest) >= 2 or jumps:
        return longest
    # A short run: from the last measurement before the growth.
    return np.append(known[parts.step[known] < trend.since_step][-1:], inside)


def _examined(run: Run, memory: HostMemory) -> tuple[Run, HostMemory]:
    """The session in which growth is looked for, as `growth.examined` says."""
    sessions = host_of_sessions(run, memory)
    long = (one for one in sessions if is_long_enough(len(_rss_rows(one[1].samples))))
    return next(long, (run, memory))


def _rss_rows(samples: Samples) -> npt.NDArray[np.intp]:
    """The rows that are examined for growth."""
    return phase_rows(samples, samples.host_resident_bytes, samples_phase(samples))


def _cpu_bytes_per_step(run: Run, worker: str, since_step: int) -> float:
    """The growth of the memory in use on a worker's ``CPU:0``, or of its pool if that grows more; 0 if the former does
    not grow."""
    device = f"{worker}/{CPU}" if worker else CPU
    if device not in run.samples.devices and len(run.workers) == 1:  # the run of this worker
        device = CPU
    growth = growth_of(run, device)
    if growth is None:
        return 0.0
    return max(growth.trend.bytes_per_step, _pool_bytes_per_step(run.samples, device, since_step))


def _pool_bytes_per_step(samples: Samples, device: str, since_step: int) -> float:
    """The growth of a device's pool between the ends of the first and the last step with a known pool; 0 if unknown."""
    if device not in samples.devices:
        return 0.0
    pool = samples.devices[device].pool_bytes
    known = np.flatnonzero((pool != MISSING) & (samples.step >= since_step))
    steps = samples.step[known[[0, -1]]] if len(known) else np.zeros(2)
    return 0.0 if steps[0] == steps[1] else float((pool[known[-1]] - pool[known[0]]) / (steps[1] - steps[0]))


def _beyond(trend: Trend, on_cpu: float) -> Trend:
    return dataclasses.replace(trend, bytes_per_step=trend.bytes_per_step - on_cpu)


def _grows_beyond(trend: Trend, on_cpu: float) -> bool:
    own = _beyond(trend, on_cpu).bytes_per_step
    least = max(MIN_GROWTH_BYTES, MIN_GROWTH_SHARE * trend.from_bytes)
    return own >= MIN_OWN_SHARE * trend.bytes_per_step and own * (trend.last_step - trend.since_step) >= least


def describe_host(summary: HostSummary) -> dict[str, Any]:
    """All fields of a summary, and its sentence."""
    return {**dataclasses.asdict(summary), "sentence": summary.sentence()}


def _summary(run: Run, worker: str, memory: HostMemory) -> HostSummary:
    samples = memory.samples
    resident = samples.host_resident_bytes
    known = np.flatnonzero(resident != MISSING)
    highest = int(known[np.argmax(resident[known])]) if len(known) else None
    examined = _examined(run, memory)[1].samples
    rows = _rss_rows(examined)
    steps = range_of(examined.step[rows], run.thinning > 1).steps if is_long_enough(len(rows)) else 0
    measured = np.flatnonzero(memory.parts.resident_bytes != MISSING)
    return HostSummary(
        resident_bytes=int(resident[known[-1]]) if len(known) else None,
        peak_bytes=None if highest is None else int(resident[highest]),
        peak_step=None if highest is None else int(samples.step[highest]),
        state=state_at(memory.parts, int(measured[-1])) if len(measured) else None,
        steps=steps,
        bound_bytes=smallest_growth(examined.host_resident_bytes[rows]) if steps else MIN_GROWTH_BYTES,
        growth=host_growth(run, worker, memory),
    )
