"""`ProfilerWindow`: runs TensorFlow's profiler during one step."""

import glob
import os

from tb_memplugin.recorder.base.private_directory import PrivateDirectory


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

        self._directory = PrivateDirectory("profile", in_memory=True)
        try:
            tf.profiler.experimental.start(self._directory.path)
        except tf.errors.AlreadyExistsError as error:
            self._directory.remove()
            raise ProfilerBusyError(str(error)) from None
        except BaseException:
            self._directory.remove()
            raise

    def stop(self) -> bytes:
        """Stop the profiler and return the serialized XSpace."""
        import tensorflow as tf

        try:
            tf.profiler.experimental.stop()
            files = glob.glob(os.path.join(self._directory.path, "**", "*.xplane.pb"), recursive=True)
            if not files:
                raise RuntimeError("the profiler wrote no profile")
            with open(files[0], "rb") as file:
                return file.read()
        finally:
            self._directory.remove()
