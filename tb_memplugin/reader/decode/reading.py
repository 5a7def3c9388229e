"""What reading one run takes, and what is left out for it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from tb_memplugin.reader.decode.decoding import TagSurvey, frames_left_out
from tb_memplugin.reader.decode.streams import ACTIVATIONS, Stream
from tb_memplugin.reader.files.limits import MAX_ACTIVATION_BYTES, MAX_ACTIVATION_VALUES, MAX_RUN_ROWS, Entry, Room

GROUP_TAGS = 64
"""Tags that are decoded together before their sessions are joined and their frames let go."""


def groups(wanted: Sequence[Entry]) -> Iterator[list[Entry]]:
    """The entries by whole sessions, in groups of at least `GROUP_TAGS` tags."""
    by_session: dict[tuple[str, str], list[Entry]] = {}
    for entry in wanted:
        by_session.setdefault((entry[0], entry[2].session), []).append(entry)
    group: list[Entry] = []
    for entries in by_session.values():
        group += entries
        if len(group) >= GROUP_TAGS:
            yield group
            group = []
    if group:
        yield group


class Reading:
    """What reading one run has taken so far. Activations have limits of their own, so that they displace nothing else.

    Args:
        stack: Closed when the run has been read.
        large_bytes: A run whose decoded frames take more is large.
        most_bytes: Limit of the decoded frames without activations.

    Attributes:
        left_out: Tags without room.
    """

    def __init__(self, stack: ExitStack, large_bytes: int, most_bytes: int) -> None:
        self.left_out = 0
        self._stack = stack
        self._large_bytes, self._most_bytes = large_bytes, most_bytes
        self._entered = False
        self._activations = Room(MAX_ACTIVATION_BYTES, MAX_ACTIVATION_VALUES)
        self._others = Room(most_bytes, MAX_RUN_ROWS)

    def room_of(self, stream: Stream) -> Room:
        """The room for the frames of a stream."""
        return self._activations if stream is ACTIVATIONS else self._others

    def taken(self) -> tuple[int, int]:
        """Bytes and rows that were taken, without activations."""
        return self._most_bytes - self._others.bytes, MAX_RUN_ROWS - self._others.rows

    def is_large(self) -> bool:
        """Whether the frames so far take more than `large_bytes`."""
        taken = MAX_ACTIVATION_BYTES - self._activations.bytes + self._most_bytes - self._others.bytes
        return taken > self._large_bytes

    def enter(self, lock: threading.RLock) -> bool:
        """Hold `lock` until the run has been read; False if it is held already."""
        if self._entered:
            return False
        self._stack.enter_context(lock)
        self._entered = True
        return True

    def joined(self, frames: int, samples: int) -> None:
        """Count the bytes of the joined samples of a session instead of those of its frames, which are let go."""
        if not self._others.is_full:
            self._others.bytes += frames - min(frames, samples)

    def over_limit(self) -> list[str]:
        """A sentence on the tags without room, if there are any."""
        return [_over_limit(self.left_out)] if self.left_out else []


def left_out(surveys: Sequence[TagSurvey]) -> list[str]:
    """Sentences on the frames over the limit of values; the same as of decoding them."""
    room, sentences, tags = Room(0, MAX_ACTIVATION_VALUES), [], 0
    for survey in surveys:
        if room.is_full:
            tags += 1
            continue
        frames = sum(not room.take(0, values) for values in survey.values)
        if frames:
            sentences.append(frames_left_out(survey.place, frames))
    return [*sentences, _over_limit(tags)] if tags else sentences


def _over_limit(tags: int) -> str:
    return f"{tags} tags are not shown: the run exceeds the limits of its size"
