"""FACE."""

from tb_memplugin.storage.write import live_files, own_recordings
from tb_memplugin.storage.write.kept_session import Summarize
from tb_memplugin.storage.write.live_files import EVENT_FILE_PART
from tb_memplugin.storage.write.run_writer import MAX_ACTIVATION_VALUES, MAX_SAMPLE_ROWS, RunWriter
from tb_memplugin.storage.write.snapshot_mapping import (
    check_bytes,
    check_layer,
    is_statistics,
    snapshot_from_mapping,
    snapshot_from_statistics,
    with_rounding_apart,
)
