"""`RunFile`: the event file of one session, which the background thread writes; on a remote file
system, TensorFlow's files write it."""

import collections
import ctypes
import functools
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

from tb_memplugin.analysis import summarize_session
from tb_memplugin.environment import keras_backend
from tb_memplugin.recorder.base import Faults, Settings, background, submit, wait
from tb_memplugin.recorder.devices import SampleBuffer
from tb_memplugin.recorder.loop.counts import CounterRows
from tb_memplugin.recorder.loop.scalars import PeakScalars, ScalarPoint
from tb_memplugin.schema import SAMPLES, Oom, counted
from tb_memplugin.storage.frames import framed
from tb_memplugin.storage.write import RunWriter, Summarize

REMOTE_FILE_BYTES = 8 << 20  # size from which a remote run goes on in a new file

SCALARS = "peaks as scalars"
KEPT = "writing what was sampled"  # also after sampling has stopped
FILES = "writing the memory run"
ROLL_UPS = "roll-ups for the list of workers"


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


class RunFile:
    """The event file of one session, and what is written into it. Any thread calls `send`,
    `write_oom` and `drain`, a forked child `abandon`, the background thread the other methods. A
    failure of the file is logged once and stops writing."""

    def __init__(
        self,
        settings: Settings,
        faults: Faults,
        notes: collections.deque[str],
        samples: SampleBuffer,
        counters: CounterRows,
    ) -> None:
        self._settings = settings
        self._faults = faults
        self._notes = notes  # sentences that were not written yet
        self._samples = samples
        self._counters = counters
        self._scalars = PeakScalars() if settings.scalars else None
        self._writer: RunWriter | None = None
        self._resting = False

    def send(self, method: Callable[..., None], *record: object) -> None:
        """Have a method of `RunWriter` called."""
        submit(self.do, method, *record)

    def write_oom(self, oom: Oom, waits: bool) -> None:
        """Write a post-mortem and flush the file; optionally wait until that is done."""
        self.send(RunWriter.oom, oom)
        self.send(RunWriter.flush)
        if waits:
            self.drain()

    def drain(self) -> bool:
        """Wait until everything recorded so far is written; False if that takes too long."""
        submit(self.write_out)
        return wait()

    @property
    def peak_bytes(self) -> int | None:
        """The highest peak so far of any device."""
        return None if self._writer is None else self._writer.peak_bytes

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()

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

    def _close_if_resting(self) -> None:
        if self._resting and self._writer is not None:
            self._faults.clean_up(FILES, self._writer.close)

    def write_out(self) -> None:
        while self._notes:
            self.do(RunWriter.note, self._notes.popleft())
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
            "max_file_bytes": REMOTE_FILE_BYTES,
            "open_file": RemoteRecordFile,
            "make_directories": make_directories,
        }
    return RunWriter(settings.log_dir, producer="recorder", versions=versions(), **own)


@functools.cache
def versions() -> dict[str, str]:
    """Versions of the packages that determine what is recorded."""
    found = {}
    engine = ("jax", "jaxlib") if keras_backend() == "jax" else ("tensorflow",)
    for name in (*engine, "keras", *(["tf_keras"] if "tf_keras" in sys.modules else [])):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # another build of TensorFlow, such as tensorflow-cpu
            found[name] = str(getattr(__import__(name), "__version__", "unknown"))
    return found
