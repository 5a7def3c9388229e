"""One window of TensorFlow's profiler around one step, and the bytes that it recorded."""

import glob
import os
import shutil
import tempfile
import time


class ProfilerBusyError(Exception):
    """Another profiler runs in this process; only one can."""


class ProfilerWindow:
    """Starts the profiler on construction; `stop` ends it and returns what it recorded.

    The public API writes a file and nothing else, so that goes to memory (``/dev/shm``) where there is one.

    Raises:
        ProfilerBusyError: A profiler runs already.
    """

    def __init__(self) -> None:
        import tensorflow as tf

        self._directory = tempfile.mkdtemp(
            prefix="tb_memplugin_", dir="/dev/shm" if os.path.isdir("/dev/shm") else None
        )
        began = time.perf_counter()
        try:
            tf.profiler.experimental.start(self._directory)
        except tf.errors.AlreadyExistsError as error:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise ProfilerBusyError(str(error)) from None
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        self.seconds = time.perf_counter() - began

    def stop(self) -> bytes:
        """The recorded XSpace; `seconds` is then what starting and stopping took together."""
        import tensorflow as tf

        began = time.perf_counter()
        try:
            tf.profiler.experimental.stop()
            files = glob.glob(os.path.join(self._directory, "**", "*.xplane.pb"), recursive=True)
            if not files:
                raise RuntimeError("the profiler wrote no profile")
            with open(files[0], "rb") as file:
                return file.read()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
            self.seconds += time.perf_counter() - began
