"""The source of a request's data: the files of the log directory, or TensorBoard's data provider.

TensorBoard's readers stop at the first damaged record of a file and say nothing, and convert tensors before anyone can
refuse them; a request to an object store that fails for good ends their reading. So the log directory is read as
`tb-memplugin inspect` reads it, and the tab shows the same. Anything else (``--logdir_spec``, other data providers,
stores whose client is not installed) is only known to the data provider.
"""

import os
import threading
from typing import Any

from tensorboard import plugin_util
from werkzeug.wrappers import Request

from tb_memplugin.errors import NotFoundError
from tb_memplugin.reader.files import storage as files
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.files.provider_source import ProviderSource
from tb_memplugin.reader.files.source import Source

_FILES = "files"
_EXPERIMENT = "experiment "


class Sources:
    """Chooses the source of each request. Thread-safe.

    Args:
        context: TensorBoard's `TBContext`; its fields may be None.
    """

    def __init__(self, context: Any) -> None:
        self._provider = getattr(context, "data_provider", None)
        self._logdir = _directory(context)
        self._files: FileSource | None = None
        self._lock = threading.Lock()

    def of(self, request: Request) -> tuple[str, Source]:
        """A name of the source, equal for requests to the same data, and the source.

        Raises:
            NotFoundError: There is none.
            SourceError: The log directory cannot be read now.
        """
        of_directory = self._of_directory()
        if of_directory is not None:
            # A TensorBoard with a log directory ignores the experiment.
            return _FILES, of_directory
        if self._provider is None:
            raise NotFoundError("this TensorBoard has no data provider")
        experiment = plugin_util.experiment_id(request.environ)
        source = ProviderSource(self._provider, plugin_util.context(request.environ), experiment)
        return _EXPERIMENT + experiment, source

    def _of_directory(self) -> FileSource | None:
        if not self._logdir:
            return None
        with self._lock:
            if self._files is None:
                try:
                    self._files = FileSource(self._logdir, live=True)
                except NotFoundError:  # it may be created later
                    return None
            return self._files


def _directory(context: Any) -> str:
    """The log directory if the data provider reads it too and it can be read here, else an empty string."""
    logdir = getattr(context, "logdir", None)
    if not isinstance(logdir, str) or not files.is_readable(logdir):
        return ""
    if getattr(getattr(context, "flags", None), "grpc_data_provider", ""):
        return ""
    return os.path.expanduser(logdir)
