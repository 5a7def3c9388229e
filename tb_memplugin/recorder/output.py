"""`Output`: what a recording writes into its run."""

from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.model import LayerTable, Samples
from tb_memplugin.model.notes import SAMPLES
from tb_memplugin.model.units import counted
from tb_memplugin.recorder.base.faults import Faults
from tb_memplugin.recorder.base.settings import Settings
from tb_memplugin.recorder.host_parts import HostParts
from tb_memplugin.recorder.run_files import FILES, RunFiles
from tb_memplugin.recorder.sampling.counter_rows import CounterRows
from tb_memplugin.recorder.sampling.peak_scalars import PeakScalars, ScalarPoint
from tb_memplugin.recorder.sampling.sample_buffer import SampleBuffer
from tb_memplugin.recorder.tracing.step_analysis import TraceResult

SCALARS = "peaks as scalars"
KEPT = "writing what was sampled"  # also after sampling has stopped


class Output:
    """Writes samples, layer tables and traced steps. Methods run on the background thread.

    Attributes:
        files: The session's event file.
        host_parts: Where parts of host memory are kept until they are written, None before the recording begins.
    """

    def __init__(self, settings: Settings, faults: Faults, samples: SampleBuffer, counters: CounterRows) -> None:
        self.files = RunFiles(settings, faults)
        self.host_parts: HostParts | None = None
        self._faults = faults
        self._samples = samples
        self._counters = counters
        self._scalars = PeakScalars() if settings.scalars else None

    def write_out(self) -> None:
        """Write what was sampled and make it readable."""
        self.write_samples()
        if not self._faults.stopped(FILES):
            self.files.flush()

    def write_samples(self) -> None:
        """Write what was sampled since the last call."""
        samples = parts = counters = None
        with self._faults.part(KEPT) as runs:
            if runs:
                samples = self._samples.take()
                parts = None if self.host_parts is None else self.host_parts.take()
                counters = self._counters.take()
        dropped = self._samples.take_dropped()
        if self._faults.stopped(FILES):
            return
        if samples is not None:
            self.files.write(RunWriter.samples, samples)
            self._write_scalars(samples)
        if parts is not None:
            self.files.write(RunWriter.host, parts)
        if counters is not None:
            self.files.write(RunWriter.counters, counters)
        if dropped:
            self._faults.warn(
                f"{SAMPLES} stopped for {counted(dropped, 'step')}: earlier ones could not be written in time"
            )

    def end_epoch(self) -> None:
        """Write the peaks of the last epoch, if scalars are wanted."""
        if self._scalars is not None:
            self._write_scalars(None)
            self.files.flush()

    def _write_scalars(self, samples: Samples | None) -> None:
        """Write the peaks that are due after samples, or at the end of an epoch."""
        points: list[ScalarPoint] = []
        with self._faults.part(SCALARS) as runs:
            if runs and self._scalars is not None:
                points = self._scalars.end_epoch() if samples is None else self._scalars.add(samples)
        for point in points:
            self.files.write(lambda writer, point: writer.scalar(*point), point)

    def write_table(self, table: LayerTable) -> None:
        """Write a layer table."""
        self.files.write(RunWriter.layer_table, table)

    def write_traced(self, result: TraceResult) -> None:
        """Write the results of a traced step."""
        for snapshot in result.snapshots:
            self.files.write(RunWriter.snapshot, snapshot)
        for memory_map in result.maps:
            self.files.write(RunWriter.memory_map, memory_map)
        for timeline in result.timelines:
            self.files.write(RunWriter.timeline, timeline)
        for requests in result.requests:
            self.files.write(RunWriter.requests, requests)
