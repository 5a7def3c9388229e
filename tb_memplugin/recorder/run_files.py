"""The run's event file, written with TensorFlow's own record writer: it checksums fast and writes to remote files."""

import functools
from collections.abc import Callable
from importlib import metadata
from typing import TypeVar, cast

from tb_memplugin.events.run_writer import RecordFile, RunWriter
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

    def open(self) -> None:
        """Open the file of a new session."""
        self._writer = self._faults.run(FILES, open_run_writer, self._settings)

    def write(self, method: Callable[[RunWriter, _Record], None], record: _Record) -> None:
        """Write one record with a method of `RunWriter`."""
        if self._writer is not None:
            self._faults.run(FILES, method, self._writer, record)

    def flush(self) -> None:
        """Make everything that was written readable."""
        if self._writer is not None:
            self._faults.run(FILES, self._writer.flush)

    def close(self) -> None:
        """End the session."""
        if self._writer is not None:
            self._faults.run(FILES, self._writer.close)


def open_run_writer(settings: Settings) -> RunWriter:
    """The run writer of a new session."""
    import tensorflow as tf

    return RunWriter(
        settings.log_dir,
        producer="recorder",
        versions=versions(),
        worker=settings.worker,
        max_file_bytes=REMOTE_FILE_BYTES if settings.remote else None,
        open_file=lambda path: cast(RecordFile, tf.io.TFRecordWriter(path)),
        make_directories=tf.io.gfile.makedirs,
    )


@functools.cache
def versions() -> dict[str, str]:
    """Versions of the packages that determine what is recorded."""
    found = {}
    for name in ("tensorflow", "keras"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # another build of TensorFlow, such as tensorflow-cpu
            module = __import__(name)
            found[name] = str(getattr(module, "__version__", "unknown"))
    return found
