"""The interface of a source of frames: a data provider or a directory of event files."""

import dataclasses
from collections.abc import Hashable, Iterator, Mapping, Sequence
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


class Source(Protocol):
    """A source of frames. Used by one thread at a time."""

    def listing(self) -> Listing:
        """The current tags; cheap enough for every request.

        Raises:
            SourceError: The source cannot be read now.
        """

    def read(self, wanted: Mapping[str, Sequence[str]]) -> Iterator[TagContent]:
        """Read the wanted tags (event run to tags) in batches of bounded size; missing tags are left out.

        Raises:
            SourceError: The source cannot be read now.
        """

    def damage(self) -> Mapping[str, tuple[str, ...]]:
        """Event run to sentences on data that the last `listing` could not list."""
