"""The run's event file. TensorFlow's record writer writes it if it is on a remote file system."""

import functools
import sys
from collections.abc import Callable
from importlib import metadata
from typing import TypeVar, cast

from tb_memplugin.events.record_file import RecordFile
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.recorder.base.faults import Faults
from tb_memplugin.recorder.base.settings import Settings

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
        """Open the file of a new session."""
        self._writer = None
        with self._faults.part(FILES) as runs:
            if runs:
                self._writer = open_run_writer(self._settings)

    def write(self, method: Callable[[RunWriter, _Record], None], record: _Record) -> None:
        """Write one record with a method of `RunWriter`."""
        if self._writer is not None:
            with self._faults.part(FILES) as runs:
                if runs:
                    method(self._writer, record)
            if self._resting:
                self.rest()

    def flush(self) -> None:
        """Make everything that was written readable."""
        if self._writer is not None:
            with self._faults.part(FILES) as runs:
                if runs:
                    self._writer.flush()

    def roll_up(self) -> None:
        """Write a roll-up of the session so far."""
        if self._writer is not None:
            with self._faults.part(FILES) as runs:
                if runs:
                    self._writer.roll_up()

    def end(self) -> None:
        """Write that the session ended."""
        if self._writer is not None:
            with self._faults.part(FILES) as runs:
                if runs:
                    self._writer.end()
            if self._resting:
                self.rest()

    def rest(self) -> None:
        """Keep the file closed between writes until `wake`; also after a fault."""
        self._resting = True
        if self._writer is not None:
            self._faults.clean_up(FILES, self._writer.close)

    def wake(self) -> None:
        """Leave the file open from the next write on."""
        self._resting = False

    def abandon(self) -> None:
        """Let go of the file in a forked child."""
        if self._writer is not None:
            self._writer.abandon()


def open_run_writer(settings: Settings) -> RunWriter:
    """The run writer of a new session."""
    import tensorflow as tf

    if not settings.remote:
        return RunWriter(settings.log_dir, producer="recorder", versions=versions(), worker=settings.worker)
    return RunWriter(
        settings.log_dir,
        producer="recorder",
        versions=versions(),
        worker=settings.worker,
        max_file_bytes=REMOTE_FILE_BYTES,
        open_file=lambda path: cast(RecordFile, tf.io.TFRecordWriter(path)),
        make_directories=tf.io.gfile.makedirs,
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
