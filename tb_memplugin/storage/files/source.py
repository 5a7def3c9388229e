"""The interface of a source of frames: a data provider or a directory of event files."""

import dataclasses
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from tb_memplugin.errors import MemoryPluginError

Listing: TypeAlias = Mapping[str, Mapping[str, Hashable]]
"""TensorBoard's run name to tag to a mark that changes whenever the tag's frames change."""


class SourceError(MemoryPluginError):
    """The source cannot be read now (stopped server, failing disk); a retry may succeed."""


@dataclasses.dataclass(frozen=True)
class StoredFrame:
    """One event's frame: the event's step and the frame's bytes, neither validated."""

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
