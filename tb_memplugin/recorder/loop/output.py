"""What is written of a run beside its steps: counters of the program (`ProgramCounts`), peaks as
ordinary scalars (`PeakScalars`), and the event file (`Output`), which TensorFlow's record writer
writes on a remote file system."""

import collections
import ctypes
import functools
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.analysis import summarize_session
from tb_memplugin.recorder.base import Faults, Settings, background
from tb_memplugin.recorder.devices import SampleBuffer
from tb_memplugin.recorder.heap import kept_objects, unreachable
from tb_memplugin.recorder.watch import program_counters
from tb_memplugin.schema import MISSING, PHASES, SAMPLES, CounterKind, Counters, Samples, counted
from tb_memplugin.storage.frames import framed
from tb_memplugin.storage.write import RunWriter, Summarize

Value: TypeAlias = tuple[CounterKind, str | None, int, int, str | None]
"""Kind, name, count, bytes and detail, as in `Counters`."""

# rows of a counter that are kept at every change; after them, one row for each `take`
DENSE_ROWS = 256
# most earlier sessions that a run is told, spread evenly: the first and the last are among them
MAX_SESSIONS = 128
# processor time that looking at kept objects may take at any cost, for short programs
FREE_SECONDS = 0.25
SHARE = 0.2  # share of the overhead budget that it may take beyond that


class CounterRows:
    """Takes values on the training's thread and returns the rows that changed on another.
    Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str | None], Value] = {}
        self._rows: list[tuple[int, Value]] = []
        self._kept: collections.Counter[tuple[str, str | None]] = collections.Counter()
        self._pending: dict[tuple[str, str | None], tuple[int, Value]] = {}

    def add(self, step: int, values: Sequence[Any]) -> None:
        """Keep the values that changed since the last call. A counter that is missing in `values`
        became zero."""
        with self._lock:
            now: dict[tuple[str, str | None], Value] = {
                (value[0], value[1]): tuple(value) for value in values
            }
            for key, last in self._last.items():
                now.setdefault(key, (last[0], last[1], 0, min(0, last[3]), None))
            for key, value in now.items():
                if self._last.get(key, (None,) * 5)[2:4] == value[2:4]:
                    continue
                self._kept[key] += 1
                if self._kept[key] <= DENSE_ROWS:
                    self._rows.append((step, value))
                else:
                    self._pending[key] = (step, value)
            self._last = now

    def take(self) -> Counters | None:
        with self._lock:
            rows = [*self._rows, *self._pending.values()]
            self._rows, self._pending = [], {}
        if not rows:
            return None
        steps, values = zip(*rows, strict=True)
        kinds, names, counts, sizes, details = zip(*values, strict=True)
        step, count, size = (np.asarray(column, np.int64) for column in (steps, counts, sizes))
        return Counters(step, kinds, names, count, size, details)


_numbers = itertools.count(1)  # of the sessions of this process
session_ends: dict[int, Mapping[str, int]] = {}
"""What the sessions of this process left in use: bytes by device, by the session's number."""


def earlier_sessions(number: int) -> list[list[Value]]:
    """The counters of each session before one, in order."""
    ends = sorted((one, left) for one, left in session_ends.copy().items() if one < number)
    if len(ends) > MAX_SESSIONS:
        ends = [
            ends[round(at * (len(ends) - 1) / (MAX_SESSIONS - 1))] for at in range(MAX_SESSIONS)
        ]
    return [
        [("earlier_sessions", device, one, size, None) for device, size in left.items()]
        for one, left in ends
    ]


class ProgramCounts:
    """Counts the program for one session, on the training's thread."""

    def __init__(self, overhead: float) -> None:
        self.rows = CounterRows()
        self._number = next(_numbers)
        self._overhead = overhead
        self._began = time.monotonic()
        self._spent_seconds = 0.0
        # the last earlier session; None before the first `count`
        self._earlier: Sequence[Value] | None = None
        self._kept: list[Value] = []  # the objects that the program keeps

    def count(self, step: int, grew: Callable[[], bool]) -> float:
        """Keep the counters that changed, and once those of earlier sessions. Looks at the
        program's objects if its memory `grew` and the budget allows. Returns the cost in processor
        seconds."""
        budget = FREE_SECONDS + SHARE * self._overhead * (time.monotonic() - self._began)
        cost = self._look() if self._overhead and self._spent_seconds <= budget and grew() else 0.0
        if program_counters.due_in() > 0.0 and self._earlier is not None and not cost:
            return 0.0
        if self._earlier is None:
            self._earlier = ()
            for values in earlier_sessions(self._number):
                self.rows.add(step, values)
                self._earlier = values
        cost += program_counters.models.find_unreachable(self._overhead, unreachable)
        self.rows.add(step, [*program_counters.values(), *self._kept, *self._earlier])
        return cost

    def _look(self) -> float:
        began = time.thread_time()
        arrays, iterators = kept_objects()
        self._kept = [
            ("kept_arrays", one.holder, one.number, one.size or 0, None) for one in arrays
        ]
        self._kept += [
            ("kept_iterators", one.holder, one.number, MISSING, None) for one in iterators
        ]
        self._spent_seconds += (seconds := time.thread_time() - began)
        return seconds

    def note_end(self, in_use: Mapping[str, int], own: Mapping[str, int]) -> None:
        """Note for later sessions what this one leaves in use beside its model."""
        # On the CPU, TensorFlow may use a NumPy array's memory for a weight, which its allocator
        # does not know.
        left = {name: max(0, size - own.get(name, 0)) for name, size in in_use.items()}
        if left:
            session_ends[self._number] = left


# the highest peak so far, of any device in any phase: the metric for HParams
RUN_TAG = "memory/peak_bytes"
EPOCH_TAG = "memory/epoch_peak_bytes/{phase}/{device}"  # the highest peak of an epoch


ScalarPoint: TypeAlias = tuple[str, int, int]  # tag, step and value


class PeakScalars:
    """Collects samples and returns the points that are due. One thread owns it. The run's peak is
    due whenever it rises; an epoch's peaks are due when the epoch ends. Steps outside of an epoch
    count towards the run's peak only."""

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
                self._peaks.update(
                    {tag: max(peak, self._peaks.get(tag, peak)) for tag, peak in peaks.items()}
                )
            highest = max(peaks.values(), default=MISSING)
            if highest > self._run_peak:
                self._run_peak = highest
                points.append((RUN_TAG, self._step, highest))
        return points

    def end_epoch(self) -> list[ScalarPoint]:
        points = [(tag, self._step, peak) for tag, peak in self._peaks.items()]
        if points:
            points.append((RUN_TAG, self._step, self._run_peak))
        self._epoch, self._peaks = MISSING, {}
        return points


def _peaks(
    samples: Samples, rows: "np.ndarray[tuple[int], np.dtype[np.int64]]"
) -> Iterator[tuple[str, int]]:
    """Tag and highest peak of each phase and device in the given rows, unless unknown."""
    for device, figures in samples.devices.items():
        for at, phase in enumerate(PHASES):
            peaks = figures.peak_bytes[rows][samples.phase[rows] == at]
            if len(peaks) and peaks.max() != MISSING:
                yield EPOCH_TAG.format(phase=phase, device=device), int(peaks.max())


class RemoteRecordFile:
    """A TFRecord file that TensorFlow uploads; each flush uploads all of it. Not thread-safe: one
    thread owns it.

    Not `tf.io.TFRecordWriter`, which holds Python's lock while it uploads, so that all threads
    wait.

    After a failure nothing is written any more. TensorFlow's file is then never destroyed: its
    destructor would hold the lock and try again to upload what is left, for minutes if the store
    goes on failing."""

    def __init__(self, path: str) -> None:
        import tensorflow as tf

        self._file = tf.io.gfile.GFile(path, "wb")
        self._waiting: list[bytes] = []
        self._abandoned = False

    def write(self, record: bytes, /) -> None:
        self._waiting += framed(record)

    def flush(self) -> None:
        """Upload the file with the records that wait; raises also if this failed before, or the
        process ends."""
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


SCALARS = "peaks as scalars"
KEPT = "writing what was sampled"  # also after sampling has stopped
FILES = "writing the memory run"
ROLL_UPS = "roll-ups for the list of workers"


class Output:
    """The event file of one session, and what is written into it. Methods run on the background
    thread. A failure of the file is logged once and stops writing."""

    def __init__(
        self, settings: Settings, faults: Faults, samples: SampleBuffer, counters: CounterRows
    ) -> None:
        self._settings = settings
        self._faults = faults
        self._samples = samples
        self._counters = counters
        self._scalars = PeakScalars() if settings.scalars else None
        self._writer: RunWriter | None = None
        self._resting = False

    def open(self) -> None:
        self._writer = self._faults.run(
            FILES,
            open_run_writer,
            self._settings,
            lambda run: self._faults.run(ROLL_UPS, summarize_session, run),
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

    @property
    def peak_bytes(self) -> int | None:
        """The highest peak so far of any device."""
        return None if self._writer is None else self._writer.peak_bytes

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
        """Write the samples and counters so far; after a fault of the file take them all the
        same."""
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
                f"{SAMPLES} stopped for {counted(dropped, 'step')}: earlier ones could not be "
                "written in time"
            )

    def end_epoch(self) -> None:
        if self._scalars is not None:
            self._write_scalars(self._scalars.end_epoch)
            self.do(RunWriter.flush)

    def _write_scalars(self, due: Callable[..., list[ScalarPoint]], *given: Any) -> None:
        for point in self._faults.run(SCALARS, due, *given) or ():
            self.do(RunWriter.scalar, *point)


def open_run_writer(settings: Settings, summarize: Summarize | None = None) -> RunWriter:
    def make_directories(path: str) -> None:
        import tensorflow as tf

        with background.foreign_call():
            tf.io.gfile.makedirs(path)

    own: dict[str, Any] = {"worker": settings.worker, "summarize": summarize}
    if settings.remote:
        own |= {
            "max_file_bytes": 8 << 20,
            "open_file": RemoteRecordFile,
            "make_directories": make_directories,
        }
    return RunWriter(settings.log_dir, producer="recorder", versions=versions(), **own)


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
