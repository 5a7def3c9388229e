"""The newest record of a stream in an event file, found from the file's end."""

import dataclasses
import re

from tb_memplugin.storage.files.event_file import only_frame
from tb_memplugin.storage.files.source import NO_ROLLUP, RECORDED, StoredFrame
from tb_memplugin.storage.files.tfrecord import ReadAt, Record
from tb_memplugin.storage.frames import masked_crc32c

TAIL_BYTES = (64 << 10, 1 << 20)
"""Bytes at a file's end that are searched, the second only if the first hold no record of the stream."""
_BEFORE_TAG = 64
"""Most bytes between the begin of a record and its tag."""
_HEADER_BYTES, _FOOTER_BYTES = 12, 4
_RECORDED = tuple(f"{stream}/".encode() for stream in RECORDED)


@dataclasses.dataclass(frozen=True)
class Tail:
    """What the end of a file holds of a stream.

    Attributes:
        tag, frame: The newest record; None without any.
        missing: Why there is none, as the end of a sentence; None if there is one, or if nothing was recorded.
    """

    tag: str | None
    frame: StoredFrame | None
    missing: str | None


def read_tail(read_at: ReadAt, length: int, stream: str) -> Tail:
    """Find the newest record of a stream in a file of `length` bytes; one that is still being written is skipped."""
    pattern = re.compile(stream.encode() + rb"/[0-9A-Za-z_-]{1,64}/[0-9]{1,9}")
    data = b""
    for size in TAIL_BYTES:
        begin = max(0, length - size)
        data = read_at(begin, length - begin)
        for match in reversed(list(pattern.finditer(data))):
            start = _record_before(data, match.start())
            if start is None and begin and match.start() < _HEADER_BYTES + _BEFORE_TAG:
                continue  # its begin lies before these bytes
            if start is None:
                return Tail(None, None, "its newest roll-up is damaged")
            end = start + _HEADER_BYTES + int.from_bytes(data[start : start + 8], "little")
            if end + _FOOTER_BYTES > len(data):
                continue
            checksum = int.from_bytes(data[end : end + _FOOTER_BYTES], "little")
            record = Record(begin + start, data[start + _HEADER_BYTES : end], checksum)
            found = only_frame(record.data) if record.is_intact() else None
            if found is None:
                return Tail(None, None, "its newest roll-up is damaged")
            tag, step, frame = found
            return Tail(tag, StoredFrame(step, frame), None)
        if not begin:
            break
    recorded = length > len(data) or any(mark in data for mark in _RECORDED)
    return Tail(None, None, NO_ROLLUP if recorded else None)


def _record_before(data: bytes, tag_at: int) -> int | None:
    """Where the record begins whose tag lies at `tag_at`; None if its header is damaged."""
    for start in range(tag_at - _HEADER_BYTES, max(-1, tag_at - _HEADER_BYTES - _BEFORE_TAG), -1):
        # Records of this length have a header with six zero bytes, which leaves few candidates.
        if data[start + 2 : start + 8] == bytes(6) and masked_crc32c(data[start : start + 8]) == int.from_bytes(
            data[start + 8 : start + _HEADER_BYTES], "little"
        ):
            return start
    return None
