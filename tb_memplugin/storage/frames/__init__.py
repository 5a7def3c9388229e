"""FACE."""

from tb_memplugin.storage.frames import codec
from tb_memplugin.storage.frames.codec import Frame, FrameHead, OpenFrame
from tb_memplugin.storage.frames.column_codec import MAX_STRING_CHARACTERS, value_bytes
from tb_memplugin.storage.frames.crc32c import header_matches, masked_crc32c
from tb_memplugin.storage.frames.metadata import (
    DIRECTORY_NAME,
    EVENTS_PER_TAG,
    GONE,
    STREAMS,
    Tag,
    TagRotation,
    frame_summary,
    new_session_id,
    parse_tag,
    run_name,
    scalar_summary,
    start_of,
)
from tb_memplugin.storage.frames.record_file import LocalRecordFile, RecordFile, framed
from tb_memplugin.storage.frames.record_frames import frame_of, object_bytes, read_frame
