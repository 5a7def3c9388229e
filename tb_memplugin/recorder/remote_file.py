"""`RemoteRecordFile`: an event file on one of TensorFlow's file systems, such as an object store."""

import contextlib
import ctypes
from collections.abc import Iterator

from tb_memplugin.events.frames.record_file import framed
from tb_memplugin.recorder.base import background


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
        with self._call():
            self._write()
            self._file.flush()

    def close(self) -> None:
        """Upload the records that wait and close the file; does nothing after a failure."""
        if not self._abandoned:
            with self._call():
                self._write()
                self._file.close()

    def abandon(self) -> None:
        self._waiting = []
        if not self._abandoned:
            self._abandoned = True
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._file))

    def _write(self) -> None:
        if self._waiting:
            self._file.write(b"".join(self._waiting))
            self._waiting = []

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        if self._abandoned:
            raise OSError("the file could not be uploaded before")
        try:
            with background.foreign_call():
                yield
        except BaseException:
            self.abandon()
            raise


def make_directories(path: str) -> None:
    import tensorflow as tf

    with background.foreign_call():
        tf.io.gfile.makedirs(path)
