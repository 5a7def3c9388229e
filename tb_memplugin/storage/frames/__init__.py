"""The binary format: records of `schema` become frames in events of TFRecord files, and frames
become checked records.

`frame_of` and `codec.encode` write what `codec.decode` and `read_frame` read; every size, index and
bound of the bytes is checked before memory is taken. Writers and readers of runs call it, and
nothing else knows how a record is stored.
"""

from tb_memplugin.storage.frames import codec, tfrecord
from tb_memplugin.storage.frames.codec import (
    MAX_STRING_CHARACTERS,
    Frame,
    FrameHead,
    OpenFrame,
    value_bytes,
)
from tb_memplugin.storage.frames.metadata import (
    DIRECTORY_NAME,
    EVENTS_PER_TAG,
    STREAMS,
    Tag,
    TagRotation,
    frame_summary,
    new_session_id,
    parse_tag,
    run_name,
    scalar_summary,
    start_of,
    summary_metadata,
)
from tb_memplugin.storage.frames.record_frames import frame_of, object_bytes, read_frame
from tb_memplugin.storage.frames.tfrecord import LocalRecordFile, RecordFile, framed, masked_crc32c
