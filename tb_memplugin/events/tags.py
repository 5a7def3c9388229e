"""Tags and sequence numbers of frames. Tags rotate, because TensorBoard samples the events of a tag."""

import calendar
import dataclasses
import secrets
import time

from tb_memplugin.events.metadata import EVENTS_PER_TAG, Tag

_START = "%Y%m%dT%H%M%SZ"


def new_session_id() -> str:
    """A new identifier that sorts by start time and identifies neither machine nor person."""
    return time.strftime(_START, time.gmtime()) + "-" + secrets.token_hex(4)


def start_of(session: str) -> float | None:
    """The start that an identifier of `new_session_id` tells, in whole seconds since the epoch; None for others."""
    try:
        return float(calendar.timegm(time.strptime(session.partition("-")[0], _START)))
    except ValueError:
        return None


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
        """The tag of the next frame, whose event has step `step`; adds one to `sequence`.

        A step that is not larger than the last one starts a new tag: TensorBoard's fast reader would delete the events
        of the old tag from that step on.
        """
        if self._in_tag and (self._in_tag >= EVENTS_PER_TAG or step <= self._last_step):
            self._number += 1
            self._in_tag = 0
        self._in_tag += 1
        self._last_step = step
        self.sequence += 1
        return Tag(self.session, self.stream, self._number)
