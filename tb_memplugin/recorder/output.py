"""`Output`: what a recording writes into its run, and `RunFiles`: the run's event file.

TensorFlow's record writer writes the file if it is on a remote file system."""

import functools
import sys
from collections.abc import Callable
from importlib import metadata
from typing import TypeVar

from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.model import LayerTable, Samples
from tb_memplugin.model.notes import SAMPLES
from tb_memplugin.model.units import counted
from tb_memplugin.recorder.base.faults import Faults
from tb_memplugin.recorder.base.settings import Settings
from tb_memplugin.recorder.host_parts import HostParts
from tb_memplugin.recorder.remote_file import RemoteRecordFile, make_directories
from tb_memplugin.recorder.sampling.counter_rows import CounterRows
from tb_memplugin.recorder.sampling.peak_scalars import PeakScalars
from tb_memplugin.recorder.sampling.sample_buffer import SampleBuffer
from tb_memplugin.recorder.tracing.step_analysis import TraceResult

SCALARS = "peaks as scalars"
KEPT = "writing what was sampled"  # also after sampling has stopped


class Output:
    """Writes samples, layer tables and traced steps. Methods run on the background thread."""

    def __init__(self, settings: Settings, faults: Faults, samples: SampleBuffer, counters: CounterRows) -> None:
        self.files = RunFiles(settings, faults)
        self.host_parts: HostParts | None = None
        self._faults = faults
        self._samples = samples
        self._counters = counters
        self._scalars = PeakScalars() if settings.scalars else None

    def write_out(self) -> None:
        self.write_samples()
        if not self._faults.stopped(FILES):
            self.files.flush()

    def write_samples(self) -> None:
        samples = self._faults.run(KEPT, self._samples.take)
        parts = None if self.host_parts is None else self._faults.run(KEPT, self.host_parts.take)
        counters = self._faults.run(KEPT, self._counters.take)
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
        if self._scalars is not None:
            self._write_scalars(None)
            self.files.flush()

    def _write_scalars(self, samples: Samples | None) -> None:
        """Write the peaks that are due after samples, or at the end of an epoch."""
        if self._scalars is None:
            return
        due = self._scalars.end_epoch if samples is None else functools.partial(self._scalars.add, samples)
        for point in self._faults.run(SCALARS, due) or ():
            self.files.write(lambda writer, point: writer.scalar(*point), point)

    def write_table(self, table: LayerTable) -> None:
        self.files.write(RunWriter.layer_table, table)

    def write_traced(self, result: TraceResult) -> None:
        for snapshot in result.snapshots:
            self.files.write(RunWriter.snapshot, snapshot)
        for memory_map in result.maps:
            self.files.write(RunWriter.memory_map, memory_map)
        for timeline in result.timelines:
            self.files.write(RunWriter.timeline, timeline)
        for requests in result.requests:
            self.files.write(RunWriter.requests, requests)


REMOTE_FILE_BYTES = 8 << 20
FILES = "writing the memory run"

_Record = TypeVar("_Record")


class RunFiles:
    """One session's event file. Methods run on the background thread; a failure is logged once and stops writing."""

    def __init__(self, settings: Settings, faults: Faults) -> None:
        self._settings = settings
        self._faults = faults
        self._writer: RunWriter | None = None
        self._resting = False

    def open(self) -> None:
        self._writer = None
        self._writer = self._faults.run(FILES, open_run_writer, self._settings)

    def write(self, method: Callable[[RunWriter, _Record], None], record: _Record) -> None:
        """Write one record with a method of `RunWriter`."""
        if self._writer is not None:
            self._faults.run(FILES, method, self._writer, record)
            if self._resting:
                self.rest()

    def flush(self) -> None:
        if self._writer is not None:
            self._faults.run(FILES, self._writer.flush)

    def roll_up(self) -> None:
        if self._writer is not None:
            self._faults.run(FILES, self._writer.roll_up)

    def end(self) -> None:
        if self._writer is not None:
            self._faults.run(FILES, self._writer.end)
            if self._resting:
                self.rest()

    def rest(self) -> None:
        """Keep the file closed between writes until `wake`; also after a fault."""
        self._resting = True
        if self._writer is not None:
            self._faults.clean_up(FILES, self._writer.close)

    def wake(self) -> None:
        self._resting = False

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()


def open_run_writer(settings: Settings) -> RunWriter:
    if not settings.remote:
        return RunWriter(settings.log_dir, producer="recorder", versions=versions(), worker=settings.worker)
    return RunWriter(
        settings.log_dir,
        producer="recorder",
        versions=versions(),
        worker=settings.worker,
        max_file_bytes=REMOTE_FILE_BYTES,
        open_file=RemoteRecordFile,
        make_directories=make_directories,
    )


@functools.cache
def versions() -> dict[str, str]:
    """Versions of the packages that determine what is recorded."""
    found = {}
    for name in ("tensorflow", "keras", *(["tf_keras"] if "tf_keras" in sys.modules else [])):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # another build of TensorFlow, such as tensorflow-cpu
            module = __import__(name)
            found[name] = str(getattr(module, "__version__", "unknown"))
    return found
