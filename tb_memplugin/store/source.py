"""What the reader needs of a place where frames lie: a data provider or a directory of event files."""

import dataclasses
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from tb_memplugin.errors import MemoryPluginError

Listing: TypeAlias = Mapping[str, Mapping[str, Hashable]]
"""TensorBoard's run of the event files -> tag -> a mark that changes whenever the tag's frames do."""


class SourceError(MemoryPluginError):
    """The place cannot be read now (its process is gone, the disk fails); a later try may succeed."""


@dataclasses.dataclass(frozen=True)
class StoredFrame:
    """One event's frame: the step its event carries (not yet believed) and its bytes (not yet checked)."""

    step: int
    data: bytes


@dataclasses.dataclass(frozen=True)
class TagContent:
    """All that a place holds of one tag; `damage` are sentences on what of it could not be had."""

    event_run: str
    tag: str
    frames: tuple[StoredFrame, ...]
    damage: tuple[str, ...] = ()


class Source(Protocol):
    """A place where frames lie. Used by one thread at a time."""

    def listing(self) -> Listing:
        """The tags there are, cheap enough to be asked at every request.

        Raises:
            SourceError: The place cannot be read now.
        """

    def read(self, wanted: Mapping[str, Sequence[str]]) -> Iterator[TagContent]:
        """The content of the wanted tags (event run -> tags), in batches of bounded size; what has gone is left out.

        Raises:
            SourceError: The place cannot be read now.
        """

    def damage(self) -> Mapping[str, tuple[str, ...]]:
        """Event run -> sentences on what could not even be listed, as of the last `listing`."""
