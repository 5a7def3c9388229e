"""Opens the run's event file with TensorFlow's own record writer, which checksums fast and knows remote file
systems."""

from importlib import metadata
from typing import cast

from tb_memplugin.recorder.settings import Settings
from tb_memplugin.run_writer import RecordFile, RunWriter

REMOTE_FILE_BYTES = 8 << 20


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


def versions() -> dict[str, str]:
    """Versions of the packages that decide what is recorded."""
    found = {}
    for name in ("tensorflow", "keras"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # another build of TensorFlow, such as tensorflow-cpu
            module = __import__(name)
            found[name] = str(getattr(module, "__version__", "unknown"))
    return found
