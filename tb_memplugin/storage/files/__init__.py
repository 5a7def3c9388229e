"""FACE."""

from tb_memplugin.storage.files import directories, file_systems
from tb_memplugin.storage.files.file_source import FileSource
from tb_memplugin.storage.files.limits import (
    FULL_SHARE,
    MANY_WORKERS,
    MAX_ACTIVATION_BYTES,
    MAX_ACTIVATION_VALUES,
    MAX_RUN_BYTES,
    MAX_RUN_DEVICES,
    MAX_RUN_ROWS,
    MAX_SAMPLE_BYTES,
    MAX_SESSION_DEVICES,
    MAX_WORKERS,
    Entry,
    Room,
    within_limits,
)
from tb_memplugin.storage.files.provider_source import ProviderSource
from tb_memplugin.storage.files.source import Listing, NewestFrames, Source, SourceError, StoredFrame, TagContent
