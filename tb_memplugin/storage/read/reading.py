"""What reading one run takes, and what is left out for it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from tb_memplugin.storage.files import (
    FULL_SHARE,
    MAX_ACTIVATION_BYTES,
    MAX_ACTIVATION_VALUES,
    MAX_RUN_ROWS,
    MAX_SAMPLE_BYTES,
    Entry,
    Room,
)
from tb_memplugin.storage.frames import Tag
from tb_memplugin.storage.read.decoding import TagSurvey, frames_left_out
from tb_memplugin.storage.read.streams import ACTIVATIONS, Stream

GROUP_TAGS = 64
"""Tags that are decoded together before their sessions are joined and their frames let go."""


def groups(wanted: Sequence[Entry]) -> Iterator[list[Entry]]:
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
        sample_bytes: Bytes of the samples so far.
        recorded: Rows of samples that were decoded, also those that were left out again.
        whole: Event run and tag of the samples that were not thinned yet.
        halvings: How often the number of samples was halved.
        can_halve: Whether that left fewer of them the last time.
    """

    def __init__(self, stack: ExitStack, large_bytes: int, most_bytes: int) -> None:
        self.left_out = self.sample_bytes = self.recorded = self.halvings = 0
        self.can_halve = True
        self.whole: set[tuple[str, Tag]] = set()
        self._stack = stack
        self._large_bytes, self._most_bytes = large_bytes, most_bytes
        self._entered = False
        self._activations = Room(MAX_ACTIVATION_BYTES, MAX_ACTIVATION_VALUES)
        self._others = Room(most_bytes, MAX_RUN_ROWS)

    def room_of(self, stream: Stream) -> Room:
        return self._activations if stream is ACTIVATIONS else self._others

    def taken(self) -> tuple[int, int]:
        return self._most_bytes - self._others.bytes, MAX_RUN_ROWS - self._others.rows

    def samples_are_full(self) -> bool:
        """Whether the samples so far come near a limit, and can be thinned."""
        rows = MAX_RUN_ROWS - self._others.rows
        near = rows > FULL_SHARE * MAX_RUN_ROWS or self.sample_bytes > FULL_SHARE * MAX_SAMPLE_BYTES
        return self.can_halve and near

    def give_samples(self, size: int, rows: int) -> None:
        self._others.give(size, rows)
        self.sample_bytes -= size

    def is_large(self) -> bool:
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
        self.sample_bytes -= frames - min(frames, samples)

    def over_limit(self) -> list[str]:
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
