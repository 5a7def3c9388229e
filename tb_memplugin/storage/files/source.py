"""The interface of a source of frames: a data provider or a directory of event files; and limits on what one run costs.

A run directory may come from a stranger: a few kilobytes can state gigabytes.
"""

import dataclasses
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from tb_memplugin.errors import MemoryPluginError
from tb_memplugin.storage.frames import Tag

Listing: TypeAlias = Mapping[str, Mapping[str, Hashable]]
"""TensorBoard's run name to tag to a mark that changes whenever the tag's frames change."""


class SourceError(MemoryPluginError):
    """The source cannot be read now (stopped server, failing disk); a retry may succeed."""


@dataclasses.dataclass(frozen=True)
class StoredFrame:
    """One event's step and frame, neither validated."""

    step: int
    data: bytes


@dataclasses.dataclass(frozen=True)
class TagContent:
    """The frames of one tag, and sentences on frames that could not be read."""

    event_run: str
    tag: str
    frames: tuple[StoredFrame, ...]
    damage: tuple[str, ...] = ()


RECORDED = ("samples", "snapshots", "oom")
"""Streams that a roll-up summarizes: a session with any of them should have a roll-up."""
NO_ROLLUP = "it has no roll-up"


@dataclasses.dataclass(frozen=True)
class NewestFrames:
    """The newest frame of one stream of each session in an event run.

    Attributes:
        contents: One frame each, in order of the sessions.
        missing: Why a session may lack its newest frame, as the end of a sentence; None if none does.
    """

    event_run: str
    contents: tuple[TagContent, ...]
    missing: str | None


class Source(Protocol):
    """A source of frames, used by one thread at a time. Methods raise SourceError if it cannot be read now."""

    def listing(self) -> Listing:
        """The current tags; cheap enough for every request."""

    def read(self, wanted: Mapping[str, Sequence[str]]) -> Iterator[TagContent]:
        """Read the wanted tags (event run to tags) in batches of bounded size; missing tags are left out."""

    def damage(self) -> Mapping[str, tuple[str, ...]]:
        """Event run to sentences on data that the last `listing` could not list."""

    def event_runs(self) -> Mapping[str, Hashable]:
        """Event runs that may have frames, each with a mark that changes whenever its frames do. Reads no frames."""

    def listing_of(self, event_runs: Collection[str]) -> Listing:
        """The current tags of some event runs, complete however many others there are."""

    def newest(self, event_runs: Collection[str], stream: str) -> Iterator[NewestFrames]:
        """The newest frames of a stream in some event runs, at a cost that does not depend on how much they hold."""


MAX_RUN_BYTES = 96 << 20
"""Limit of what the data of one run takes in memory, without activations; the run's damage says what is not shown."""
MAX_RUN_ROWS = 1 << 20
"""Limit of the samples of one run, of all workers together: a view widens the columns of one device."""
MAX_SAMPLE_BYTES = 64 << 20
"""Limit of what these take in memory, within `MAX_RUN_BYTES`."""
FULL_SHARE = 3 / 4
"""Share of both limits from which samples are thinned; the rest holds a tag of the recorder, 32,768 rows."""
MAX_ACTIVATION_BYTES = 128 << 20
"""Limit of what the activations of one run take in memory."""
MAX_ACTIVATION_VALUES = 32 << 20
"""Limit of the values of the activations of one run, rows × layers."""
MAX_TAG_BYTES = 32 << 20
"""Stored bytes read of one tag; the recorder's tags stay below 8 MiB."""
MAX_SESSIONS = 1000
"""Most sessions shown per run, the newest."""
MAX_WORKERS = 128
"""Most workers whose histories are read for a view of all of them, the first by name."""
MANY_WORKERS = 64
"""Of runs with more workers the comparison of devices reads roll-ups only."""
MAX_SESSION_DEVICES = 256
"""Most devices shown per session."""
MAX_RUN_DEVICES = 1024
"""Most devices shown per run, of all workers together."""

Entry: TypeAlias = tuple[str, str, Tag, Hashable]
"""Worker, event run, tag, mark of the tag."""


@dataclasses.dataclass
class Room:
    """What the frames of a run may still take: bytes in memory, and rows of samples or values of activations.

    The first frame that does not fit is left out, and so are all after it. Equal tuples of layer paths are kept once.
    """

    bytes: int
    rows: int
    is_full: bool = False
    layers: dict[tuple[str, ...], tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def fits(self, size: int, rows: int) -> bool:
        return not self.is_full and size <= self.bytes and rows <= self.rows

    def take(self, size: int, rows: int) -> bool:
        self.is_full = not self.fits(size, rows)
        if not self.is_full:
            self.bytes -= size
            self.rows -= rows
        return not self.is_full


def within_limits(entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """The entries of the workers and sessions that are shown, and a sentence on each kind of others."""
    sentences = []
    workers = sorted({entry[0] for entry in entries})
    if len(workers) > MAX_WORKERS:
        sentences.append(
            f"{len(workers) - MAX_WORKERS} workers are not shown: only the first {MAX_WORKERS} by name are"
        )
        shown = set(workers[:MAX_WORKERS])
        entries = [entry for entry in entries if entry[0] in shown]
    # Identifiers of sessions sort by start time.
    sessions = sorted({(entry[2].session, entry[0]) for entry in entries})
    if len(sessions) > MAX_SESSIONS:
        sentences.append(f"{len(sessions) - MAX_SESSIONS} sessions are not shown: only the last {MAX_SESSIONS} are")
        newest = set(sessions[-MAX_SESSIONS:])
        entries = [entry for entry in entries if (entry[2].session, entry[0]) in newest]
    return list(entries), sentences
