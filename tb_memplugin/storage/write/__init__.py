"""Writes a session: records of `schema` go in, frames under rotating tags of event files come out,
with roll-ups.

`RunWriter` belongs to one thread of a recorder, an importer or the summary API; `recordings` tells
which directories are being recorded into, so that a second process takes its own and a reader in
this process waits."""

from tb_memplugin.storage.write import recordings
from tb_memplugin.storage.write.recordings import EVENT_FILE_PART
from tb_memplugin.storage.write.rollups import Summarize
from tb_memplugin.storage.write.run_writer import (
    MAX_ACTIVATION_VALUES,
    MAX_SAMPLE_ROWS,
    PackedRecord,
    RunWriter,
    TracedRecord,
    pack,
)
from tb_memplugin.storage.write.snapshot_mapping import (
    check_bytes,
    check_layer,
    is_statistics,
    snapshot_from_mapping,
    snapshot_from_statistics,
    with_rounding_apart,
)
