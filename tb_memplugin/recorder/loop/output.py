"""`Output`: a session's event file and what is written into it, also peaks as ordinary scalars (`PeakScalars`).
TensorFlow's record writer writes the file if it is on a remote file system."""

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

from tb_memplugin.analysis import summarize_session
from tb_memplugin.recorder.base import Faults, Settings, background
from tb_memplugin.recorder.devices import SampleBuffer
from tb_memplugin.recorder.loop.counters import CounterRows
from tb_memplugin.recorder.tracing import TraceResult
from tb_memplugin.schema import MISSING, PHASES, SAMPLES, Samples, counted
from tb_memplugin.storage.frames import framed
from tb_memplugin.storage.write import RunWriter, Summarize

RUN_TAG = "memory/peak_bytes"  # the highest peak so far, of any device in any phase: the metric for HParams
EPOCH_TAG = "memory/epoch_peak_bytes/{phase}/{device}"  # the highest peak of an epoch


class ScalarPoint(NamedTuple):
    tag: str
    step: int
    value: int


class PeakScalars:
    """Collects samples and returns the points that are due. One thread owns it. The run's peak is due whenever it
    rises; an epoch's peaks are due when the epoch ends. Steps outside of an epoch count towards the run's peak only."""

    def __init__(self) -> None:
        self._run_peak = MISSING
        self._epoch = MISSING
        self._step = 0
        self._peaks: dict[str, int] = {}

    def add(self, samples: Samples) -> list[ScalarPoint]:
        """Take samples in the order of recording; return the points that are due."""
        points: list[ScalarPoint] = []
        changes = np.flatnonzero(np.diff(samples.epoch)) + 1
        for rows in np.split(np.arange(len(samples)), changes) if len(samples) else ():
            epoch = int(samples.epoch[rows[0]])
            if epoch != self._epoch:
                points += self.end_epoch()
                self._epoch = epoch
            self._step = int(samples.step[rows].max())
            peaks = dict(_peaks(samples, rows))
            if epoch != MISSING:
                self._peaks.update({tag: max(peak, self._peaks.get(tag, peak)) for tag, peak in peaks.items()})
            highest = max(peaks.values(), default=MISSING)
            if highest > self._run_peak:
                self._run_peak = highest
                points.append(ScalarPoint(RUN_TAG, self._step, highest))
        return points

    def end_epoch(self) -> list[ScalarPoint]:
        points = [ScalarPoint(tag, self._step, peak) for tag, peak in self._peaks.items()]
        if points:
            points.append(ScalarPoint(RUN_TAG, self._step, self._run_peak))
        self._epoch, self._peaks = MISSING, {}
        return points


def _peaks(samples: Samples, rows: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Iterator[tuple[str, int]]:
    """Tag and highest peak of each phase and device in the given rows, unless unknown."""
    for device, figures in samples.devices.items():
        for at, phase in enumerate(PHASES):
            peaks = figures.peak_bytes[rows][samples.phase[rows] == at]
            if len(peaks) and peaks.max() != MISSING:
                yield EPOCH_TAG.format(phase=phase, device=device), int(peaks.max())


class RemoteRecordFile:
    """A TFRecord file that TensorFlow uploads; each flush uploads all of it. Not thread-safe: one thread owns it.

    Not `tf.io.TFRecordWriter`, which holds Python's lock while it uploads, so that all threads wait.

    After a failure nothing is written any more. TensorFlow's file is then never destroyed: its destructor would hold
    the lock and try again to upload what is left, for minutes if the store goes on failing.
    """

    def __init__(self, path: str) -> None:
        import tensorflow as tf

        self._file = tf.io.gfile.GFile(path, "wb")
        self._waiting: list[bytes] = []
        self._abandoned = False

    def write(self, record: bytes, /) -> None:
        self._waiting += framed(record)

    def flush(self) -> None:
        """Upload the file with the records that wait; raises also if this failed before, or the process ends."""
        self._upload(self._file.flush)

    def close(self) -> None:
        """Upload the records that wait and close the file; does nothing after a failure."""
        if not self._abandoned:
            self._upload(self._file.close)

    def abandon(self) -> None:
        self._waiting = []
        if not self._abandoned:
            self._abandoned = True
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._file))

    def _upload(self, action: Callable[[], None]) -> None:
        if self._abandoned:
            raise OSError("the file could not be uploaded before")
        try:
            with background.foreign_call():
                if self._waiting:
                    self._file.write(b"".join(self._waiting))
                    self._waiting = []
                action()
        except BaseException:
            self.abandon()
            raise


def make_directories(path: str) -> None:
    import tensorflow as tf

    with background.foreign_call():
        tf.io.gfile.makedirs(path)


SCALARS = "peaks as scalars"
KEPT = "writing what was sampled"  # also after sampling has stopped
FILES = "writing the memory run"
ROLL_UPS = "roll-ups for the list of workers"
REMOTE_FILE_BYTES = 8 << 20


class Output:
    """The event file of one session, and what is written into it. Methods run on the background thread. A failure of
    the file is logged once and stops writing."""

    def __init__(self, settings: Settings, faults: Faults, samples: SampleBuffer, counters: CounterRows) -> None:
        self._settings = settings
        self._faults = faults
        self._samples = samples
        self._counters = counters
        self._scalars = PeakScalars() if settings.scalars else None
        self._writer: RunWriter | None = None
        self._resting = False

    def open(self) -> None:
        self._writer = None
        self._writer = self._faults.run(
            FILES, open_run_writer, self._settings, lambda run: self._faults.run(ROLL_UPS, summarize_session, run)
        )

    def do(self, method: Callable[..., None], *record: object) -> None:
        """Call a method of `RunWriter`; while the file rests, it is closed again afterwards."""
        if self._writer is not None:
            self._faults.run(FILES, method, self._writer, *record)
            self._close_if_resting()

    def rest(self) -> None:
        """Keep the file closed between writes until `wake`; also after a fault."""
        self._resting = True
        self._close_if_resting()

    def wake(self) -> None:
        self._resting = False

    def _close_if_resting(self) -> None:
        if self._resting and self._writer is not None:
            self._faults.clean_up(FILES, self._writer.close)

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()

    def write_out(self) -> None:
        self.write_samples()
        self.do(RunWriter.flush)

    def write_samples(self) -> None:
        """Write the samples and counters so far; after a fault of the file take them all the same."""
        samples = self._faults.run(KEPT, self._samples.take)
        counters = self._faults.run(KEPT, self._counters.take)
        dropped = self._samples.take_dropped()
        if self._faults.stopped(FILES):
            return
        if samples is not None:
            self.do(RunWriter.samples, samples)
            if self._scalars is not None:
                self._write_scalars(self._scalars.add, samples)
        if counters is not None:
            self.do(RunWriter.counters, counters)
        if dropped:
            self._faults.warn(
                f"{SAMPLES} stopped for {counted(dropped, 'step')}: earlier ones could not be written in time"
            )

    def end_epoch(self) -> None:
        if self._scalars is not None:
            self._write_scalars(self._scalars.end_epoch)
            self.do(RunWriter.flush)

    def _write_scalars(self, due: Callable[..., list[ScalarPoint]], *given: Any) -> None:
        for point in self._faults.run(SCALARS, due, *given) or ():
            self.do(RunWriter.scalar, *point)

    def write_traced(self, result: TraceResult) -> None:
        for snapshot in result.snapshots:
            self.do(RunWriter.snapshot, snapshot)
        for memory_map in result.maps:
            self.do(RunWriter.memory_map, memory_map)
        for timeline in result.timelines:
            self.do(RunWriter.timeline, timeline)
        for requests in result.requests:
            self.do(RunWriter.requests, requests)


def open_run_writer(settings: Settings, summarize: Summarize | None = None) -> RunWriter:
    return RunWriter(
        settings.log_dir,
        producer="recorder",
        versions=versions(),
        worker=settings.worker,
        max_file_bytes=REMOTE_FILE_BYTES if settings.remote else None,
        open_file=RemoteRecordFile if settings.remote else None,
        make_directories=make_directories if settings.remote else None,
        summarize=summarize,
    )


@functools.cache
def versions() -> dict[str, str]:
    """Versions of the packages that determine what is recorded."""
    found = {}
    for name in ("tensorflow", "keras", *(["tf_keras"] if "tf_keras" in sys.modules else [])):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # another build of TensorFlow, such as tensorflow-cpu
            found[name] = str(getattr(__import__(name), "__version__", "unknown"))
    return found
