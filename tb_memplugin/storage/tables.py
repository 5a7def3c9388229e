"""What was read of a run: a table for each stream of each session, within one budget of bytes.

Frames are added as the run grows. Samples that would take too much are thinned meanwhile."""

import dataclasses
import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

from tb_memplugin.schema import NO_SAMPLES
from tb_memplugin.storage.catalog import Entry
from tb_memplugin.storage.decoding import DecodedTag, Piece, Place, decode_tag
from tb_memplugin.storage.files import ByteBudget, Source, TagContent
from tb_memplugin.storage.frames import Tag
from tb_memplugin.storage.samples import counted_bytes, join_samples, thinned
from tb_memplugin.storage.streams import OF_TAG, PEAK, SAMPLES, Joined, Stream

MAX_SAMPLE_BYTES = 64 << 20
"""Limit of what the samples of one run take in memory, as `counted_bytes` counts it."""
FULL_SHARE = 3 / 4
"""Share of it from which samples are thinned; the rest holds a recorder's tag, 32,768 rows."""
LARGE_BYTES = 32 << 20
"""Runs that take more are read one after the other."""
FEW_ROWS = 64
"""Rows of a table that are kept apart after thinning, times how often it halved."""
HALVED = 0.8
"""Most rows that halving samples may leave; where it leaves more, each is a peak."""

Key: TypeAlias = tuple[str, Tag]
"""Event run and tag."""


class Table:
    """A stream of a session: its frames' places, and what they hold."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.size = 0
        self.values: dict[int, Any] = {}
        """What frames hold that were decoded together, by the sequence number of the first."""
        self._places: dict[int, Place] = {}

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._places

    @property
    def places(self) -> list[Place]:
        return [self._places[at] for at in sorted(self._places)]

    def add(self, piece: Piece) -> None:
        self._places.update((place.sequence, place) for place in piece.places)
        self.values[piece.places[0].sequence] = piece.value
        self.size += piece.size

    def joined(self) -> Joined:
        return self.stream.of_frames([self.values[at] for at in sorted(self.values)])


class SampleTable(Table):
    """Samples: `values` are those since the last `settle`; the earlier ones have been halved."""

    def __init__(self, stream: Stream, halvings: int) -> None:
        super().__init__(stream)
        self._halvings = halvings
        self._settled = NO_SAMPLES
        self._left_out: str | None = None

    def joined(self) -> Joined:
        """All rows; the new ones are thinned as much as the earlier ones are."""
        new, left_out = super().joined()
        rows, more = join_samples([self._settled, thinned(new, self._halvings)])
        return rows, more or left_out or self._left_out

    def settle(self, again: int = 0) -> int:
        """Join the rows, and halve all again; returns the bytes that this freed."""
        before = self.size
        rows, self._left_out = self.joined()
        self._settled = thinned(rows, again)
        self._halvings += again
        self.values.clear()
        self.size = counted_bytes(self._settled)
        return before - self.size

    @property
    def new_rows(self) -> int:
        return sum(map(len, self.values.values()))

    def __len__(self) -> int:
        return len(self._settled) + self.new_rows


class RunTables:
    """The tables of some streams of a run. One thread at a time uses it.

    Attributes:
        sessions: (worker, session) to its tables by stream.
        size: Bytes in memory."""

    def __init__(self) -> None:
        self.sessions: dict[tuple[str, str], dict[Stream, Table]] = {}
        self._room = ByteBudget(0)
        self._most_bytes = 0
        # The mark of each tag, and what was said of it; None of one without room.
        self._tags: dict[Key, tuple[Hashable, DecodedTag | None]] = {}
        self._sample_bytes = 0
        self._recorded = 0  # rows of samples, also those that were left out again
        self._halvings = 0
        self._can_halve = True

    @property
    def size(self) -> int:
        return self._most_bytes - self._room.bytes

    @property
    def thinning(self) -> int:
        """Of how many samples about one is shown."""
        shown = sum(len(table) for table in self._sample_tables())
        return max(2, round(self._recorded / max(1, shown))) if self._halvings else 1

    @property
    def damage(self) -> list[str]:
        read = [decoded for _, decoded in self._tags.values() if decoded is not None]
        sentences = [sentence for decoded in read for sentence in decoded.damage]
        left_out = len(self._tags) - len(read)
        if left_out:
            over = "tags are not shown: the run exceeds the limits of its size"
            sentences.append(f"{left_out} {over}")
        return sentences

    @property
    def newer(self) -> list[str]:
        """Sentences on tags of a newer format."""
        return [one.newer for _, one in self._tags.values() if one is not None and one.newer]

    def are_part_of(self, wanted: Collection[Entry]) -> bool:
        """Whether all tags that were read are among the wanted ones."""
        return self._tags.keys() <= {(run, tag) for _, run, tag, _ in wanted}

    def read(
        self,
        source: Source,
        lock: threading.Lock,
        wanted: Sequence[Entry],
        streams: Collection[Stream],
        most_bytes: int,
        wait_for_large: Callable[[], None],
    ) -> None:
        """Add the wanted tags that are new or have changed, as far as `most_bytes` allow. `lock` is
        held while the source is used; `wait_for_large` is called once if this takes much memory."""
        self._room.bytes += most_bytes - self._most_bytes
        self._most_bytes = most_bytes
        by_tag = {stream.tag: stream for stream in streams}
        missing: dict[str, dict[str, Entry]] = {}
        for entry in wanted:
            _, run, tag, mark = entry
            if (run, tag) not in self._tags or self._tags[run, tag][0] != mark:
                missing.setdefault(run, {})[str(tag)] = entry
        contents = (
            source.read({run: list(tags) for run, tags in missing.items()}) if missing else iter(())
        )
        is_alone = False
        while True:
            with lock:
                content = next(contents, None)
            if content is None:
                break
            worker, run, tag, mark = missing[content.event_run][content.tag]
            decoded = None
            if self.size > LARGE_BYTES and not is_alone:
                is_alone = True
                wait_for_large()
            if not self._room.is_full:
                decoded = self._add(worker, tag, content, by_tag[tag.stream])
            self._tags[run, tag] = mark, decoded
        # Few rows are thinned anew with those that follow: ends of tables are thinned less.
        self._settle(least_rows=FEW_ROWS << self._halvings if self._halvings else 0)

    def _add(self, worker: str, tag: Tag, content: TagContent, stream: Stream) -> DecodedTag:
        """Add what the frames of a tag hold to its table; returns what else is known of them."""
        of_session = self.sessions.get((worker, tag.session), {})
        of_tag = OF_TAG[tag.stream]
        table = of_session.get(of_tag)
        if table is None:
            has_samples = of_tag in (SAMPLES, PEAK)
            table = SampleTable(of_tag, self._halvings) if has_samples else Table(of_tag)
        decoded = decode_tag(tag, content, self._room, stream, table)
        for piece in decoded.pieces:
            table.add(piece)
            self.sessions.setdefault((worker, tag.session), of_session)[of_tag] = table
        if isinstance(table, SampleTable):
            self._recorded += sum(len(piece.value) for piece in decoded.pieces)
            self._sample_bytes += sum(piece.size for piece in decoded.pieces)
            self._thin()
        return dataclasses.replace(decoded, pieces=())

    def _thin(self) -> None:
        """Halve the samples of all sessions alike until they fit, first the new rows as often as
        the earlier ones."""
        most = FULL_SHARE * MAX_SAMPLE_BYTES
        if self._can_halve and self._sample_bytes > most:
            self._settle()
        while self._can_halve and self._sample_bytes > most:
            before = sum(map(len, self._sample_tables()))
            self._settle(1)
            self._halvings += 1
            self._can_halve = sum(map(len, self._sample_tables())) < HALVED * before

    def _settle(self, again: int = 0, least_rows: int = 0) -> None:
        tables = [one for one in self._sample_tables() if one.new_rows >= least_rows]
        for table in tables:
            freed = table.settle(again)
            self._room.bytes += freed
            self._sample_bytes -= freed

    def _sample_tables(self) -> Iterator[SampleTable]:
        for of_session in self.sessions.values():
            for table in of_session.values():
                if isinstance(table, SampleTable):
                    yield table
