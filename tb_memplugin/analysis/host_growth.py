"""Growth of host RSS over the steps of the main phase, beyond what the CPU's allocator adds to it. Pure."""

import dataclasses

from tb_memplugin.analysis.facts import main_phase
from tb_memplugin.analysis.growth import growth_of, phase_rows
from tb_memplugin.analysis.growth_causes import Cause, cause_of
from tb_memplugin.analysis.levelling import levelled
from tb_memplugin.analysis.trend import MIN_GROWTH_BYTES, MIN_GROWTH_SHARE, Trend, find_trend
from tb_memplugin.model import Run
from tb_memplugin.model.units import format_bytes

MIN_EXCESS = 0.5
"""Least share of the growth that the CPU's allocator must not explain."""


@dataclasses.dataclass(frozen=True)
class HostGrowth:
    """A finding.

    Attributes:
        trend: The growth of host RSS, without jumps; its rate leaves out the growth of the CPU's allocator.
        beside_device: Whether the CPU's allocator grows as well.
        cause: Why it grows, None if unknown.
    """

    trend: Trend
    beside_device: bool
    cause: Cause | None

    def sentence(self) -> str:
        """The finding as text."""
        trend = self.trend
        beyond = " beyond the memory in use on CPU:0" if self.beside_device else ""
        text = (
            f"Host RSS grows by {format_bytes(round(100 * trend.bytes_per_step))} every 100 steps{beyond} "
            f"since step {trend.since_step}, from {format_bytes(trend.from_bytes)} "
            f"to {format_bytes(trend.to_bytes)} at step {trend.last_step}"
        )
        return f"{text}. Cause: {'unknown' if self.cause is None else self.cause.text}."


def host_growth_of(run: Run) -> HostGrowth | None:
    """Find growing host RSS; None also for a run of several processes, whose rows are mixed."""
    samples = run.samples
    if len(run.workers) != 1:
        return None
    rows = phase_rows(samples, samples.host_resident_bytes, main_phase(run))
    steps, values = samples.step[rows], samples.host_resident_bytes[rows]
    trend = find_trend(steps, levelled(steps, values, run.layer_tables).values)
    if trend is None:
        return None
    growth = growth_of(run, "CPU:0")
    own = trend.bytes_per_step - (0 if growth is None else growth.trend.bytes_per_step)
    least = max(MIN_GROWTH_BYTES, MIN_GROWTH_SHARE * trend.from_bytes)
    if own < MIN_EXCESS * trend.bytes_per_step or own * (trend.last_step - trend.since_step) < least:
        return None
    trend = dataclasses.replace(trend, bytes_per_step=own)
    return HostGrowth(trend, growth is not None, cause_of(run, None, trend))
