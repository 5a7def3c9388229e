"""Which tag and sequence number the next frame of a stream gets: the rotation that keeps TensorBoard from sampling."""

import dataclasses
import secrets
import time

from tb_memplugin.metadata import EVENTS_PER_TAG, Tag


def new_session_id() -> str:
    """An identifier that sorts by start time and names neither machine nor person."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + "-" + secrets.token_hex(4)


@dataclasses.dataclass
class TagRotation:
    """Numbers the frames of one stream of one session. Not thread-safe: one writer owns it."""

    session: str
    stream: str
    sequence: int = 0
    _number: int = 0
    _in_tag: int = 0
    _last_step: int = -1

    def next(self, step: int) -> Tag:
        """The tag for the next frame, whose event carries `step`; `sequence` is then that frame's number plus one.

        A step that did not grow begins a new tag too: TensorBoard's fast reader deletes what it holds of a tag from
        that step on.
        """
        if self._in_tag and (self._in_tag >= EVENTS_PER_TAG or step <= self._last_step):
            self._number += 1
            self._in_tag = 0
        self._in_tag += 1
        self._last_step = step
        self.sequence += 1
        return Tag(self.session, self.stream, self._number)
