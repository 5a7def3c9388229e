"""What reading one run takes: its limits, and the thinning of samples that come near them."""

import dataclasses
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

from tb_memplugin.schema import NO_SAMPLES, Samples
from tb_memplugin.storage.files import (
    FULL_SHARE,
    MAX_ACTIVATION_BYTES,
    MAX_ACTIVATION_VALUES,
    MAX_RUN_BYTES,
    MAX_RUN_ROWS,
    MAX_SAMPLE_BYTES,
    Entry,
    Room,
)
from tb_memplugin.storage.frames import Tag
from tb_memplugin.storage.read.decoding import PIECE_BYTES, DecodedTag
from tb_memplugin.storage.read.samples import SamplesPart, join_samples, samples_bytes, tables_of, thinned
from tb_memplugin.storage.read.streams import ACTIVATIONS, OF_TAG, SAMPLES

GROUP_TAGS = 64
"""Tags that are decoded together before their sessions are joined and their frames let go."""
LARGE_BYTES = 32 << 20
"""Runs whose decoded frames take more are read one after the other."""
HALVED = 0.8
"""Most rows that halving samples may leave; where it leaves more, each is a peak."""

Key: TypeAlias = tuple[str, Tag]
"""Event run and tag."""


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

    Attributes:
        contents: The decoded tags of the current group.
        joined: The samples of the sessions that were read before.
        left_out: Tags without room.
        others: What all but the activations may still take.
        recorded: Rows of samples that were decoded, also those that were left out again.
        halvings: How often the number of samples was halved.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.contents: dict[Key, DecodedTag] = {}
        self.joined: dict[tuple[str, str], Samples] = {}
        self.left_out = self.recorded = self.halvings = 0
        self._sample_bytes = 0
        self._can_halve = True
        self._whole: set[Key] = set()  # samples that were not thinned yet
        self._stack = stack
        self.has_entered = False
        self._activations = Room(MAX_ACTIVATION_BYTES, MAX_ACTIVATION_VALUES)
        self.others = Room(MAX_RUN_BYTES, MAX_RUN_ROWS)

    def room_of(self, tag: Tag) -> Room:
        return self._activations if tag.stream == ACTIVATIONS.tag else self.others

    def taken(self) -> tuple[int, int]:
        return MAX_RUN_BYTES - self.others.bytes, MAX_RUN_ROWS - self.others.rows

    def is_large(self) -> bool:
        return MAX_ACTIVATION_BYTES - self._activations.bytes + self.taken()[0] > LARGE_BYTES

    def enter(self, lock: threading.RLock) -> None:
        """Hold `lock` until the run has been read."""
        self._stack.enter_context(lock)
        self.has_entered = True

    def over_limit(self) -> list[str]:
        sentence = f"{self.left_out} tags are not shown: the run exceeds the limits of its size"
        return [sentence] if self.left_out else []

    def add(self, run: str, tag: Tag, decoded: DecodedTag) -> None:
        """Add a decoded tag. If there are too many samples now, thin them all, also the joined ones."""
        self.contents[run, tag] = decoded
        if not _has_samples(tag):
            return
        self._sample_bytes += decoded.size
        self.recorded += decoded.rows
        if decoded.rows:
            self._whole.add((run, tag))
        if not self._samples_are_full():
            return
        self.thin_whole()
        while self._samples_are_full():
            before = self._samples_taken()
            _thin(self.contents)
            self.joined.update((name, thinned(samples)) for name, samples in self.joined.items())
            after = self._samples_taken()
            self._give(before, after)
            self._can_halve = after[1] < HALVED * before[1]
            self.halvings += self._can_halve

    def thin_whole(self) -> None:
        """Thin the new samples as often as the older ones."""
        if self.halvings and self._whole:
            whole = {key: self.contents[key] for key in self._whole}
            before = _taken(whole)
            _thin(whole, self.halvings)
            self.contents |= whole
            self._give(before, _taken(whole))
        self._whole.clear()

    def join(self, frames: int, samples: int) -> None:
        """Count the bytes of the joined samples of a session instead of those of its frames, which are let go."""
        freed = frames - min(frames, samples)
        if not self.others.is_full:
            self.others.bytes += freed
        self._sample_bytes -= freed

    def _samples_are_full(self) -> bool:
        near = self._sample_bytes > FULL_SHARE * MAX_SAMPLE_BYTES or self.taken()[1] > FULL_SHARE * MAX_RUN_ROWS
        return self._can_halve and near

    def _samples_taken(self) -> tuple[int, int]:
        size, rows = _taken(self.contents)
        return size + sum(map(samples_bytes, self.joined.values())), rows + sum(map(len, self.joined.values()))

    def _give(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        self.others.bytes += before[0] - after[0]
        self.others.rows += before[1] - after[1]
        self._sample_bytes -= before[0] - after[0]


def _has_samples(tag: Tag) -> bool:
    return OF_TAG[tag.stream].field == SAMPLES.field


def _taken(contents: dict[Key, DecodedTag]) -> tuple[int, int]:
    tags = [content for (_, tag), content in contents.items() if _has_samples(tag)]
    return sum(content.size for content in tags), sum(content.rows for content in tags)


def _thin(contents: dict[Key, DecodedTag], halvings: int = 1) -> None:
    """Thin the samples among the contents, those of each stream of a session together."""
    by_session: dict[tuple[str, str, str], list[Key]] = {}
    for run, tag in contents:
        if _has_samples(tag):
            by_session.setdefault((run, tag.session, tag.stream), []).append((run, tag))
    for keys in by_session.values():
        pieces = sorted((piece for key in keys for piece in contents[key].pieces), key=lambda piece: piece.sequence)
        table, _ = join_samples(tables_of([piece.value for piece in pieces]))
        table = thinned(table, halvings) if len(table) else table
        size = samples_bytes(table) if len(table) else 0
        empty: dict[str, Any] = {"value": SamplesPart(NO_SAMPLES, 0, 1), "size": PIECE_BYTES, "rows": 0}
        full: dict[str, Any] = {"value": SamplesPart(table, 0, 1), "size": PIECE_BYTES + size, "rows": len(table)}
        for key in keys:
            own = contents[key].pieces
            contents[key] = contents[key].holding(
                [dataclasses.replace(piece, **(full if piece is pieces[0] else empty)) for piece in own]
            )
