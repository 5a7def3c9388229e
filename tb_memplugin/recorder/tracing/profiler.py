"""`ProfilerWindow`: runs TensorFlow's profiler during one step."""

import glob
import os
import shutil
import tempfile


class ProfilerBusyError(Exception):
    """Another profiler runs in this process; only one can run."""


class ProfilerWindow:
    """Starts the profiler; `stop` ends it and returns the profile. For the training's thread.

    The public API can only write a file, which goes to memory (``/dev/shm``) if possible.

    Raises:
        ProfilerBusyError: A profiler is already running.
    """

    def __init__(self) -> None:
        import tensorflow as tf

        self._directory = tempfile.mkdtemp(
            prefix="tb_memplugin_", dir="/dev/shm" if os.path.isdir("/dev/shm") else None
        )
        try:
            tf.profiler.experimental.start(self._directory)
        except tf.errors.AlreadyExistsError as error:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise ProfilerBusyError(str(error)) from None
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    def stop(self) -> bytes:
        """Stop the profiler and return the serialized XSpace."""
        import tensorflow as tf

        try:
            tf.profiler.experimental.stop()
            files = glob.glob(os.path.join(self._directory, "**", "*.xplane.pb"), recursive=True)
            if not files:
                raise RuntimeError("the profiler wrote no profile")
            with open(files[0], "rb") as file:
                return file.read()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
