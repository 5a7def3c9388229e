"""Sources of stored frames: event files of a directory, local or in an object store, and
TensorBoard's data provider.

Paths and URLs come in; tags with marks of their versions, and the bytes of frames with sentences on
damage go out, within limits that a hostile directory cannot exceed. The reader of runs, the server
and exports make a source for each request."""

from tb_memplugin.storage.files import file_systems
from tb_memplugin.storage.files.file_source import FileSource
from tb_memplugin.storage.files.source import (
    DAMAGED_ROLLUP,
    MANY_WORKERS,
    MAX_RUN_BYTES,
    MAX_RUN_ROWS,
    MAX_WORKERS,
    ByteBudget,
    Listing,
    NewestFrames,
    ProviderSource,
    Source,
    SourceError,
    StoredFrame,
    TagContent,
)
