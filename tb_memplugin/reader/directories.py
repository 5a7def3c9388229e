"""Event files under a log directory, by TensorBoard's run name."""

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence

from tb_memplugin.events.live_files import EVENT_FILE_PART
from tb_memplugin.reader import files

MAX_DEPTH = 32
"""Directories deeper than this below the log directory are not read."""
MAX_DIRECTORIES = 50_000
"""Most directories that are read; a sentence says if there are more."""


@dataclasses.dataclass(frozen=True)
class Found:
    """Event files and sentences on directories that cannot be listed, both by run; files are sorted by name."""

    files: Mapping[str, Sequence[str]]
    damage: Mapping[str, Sequence[str]]


@dataclasses.dataclass(frozen=True)
class _Visit:
    path: str
    run: str
    ancestors: tuple[object, ...]


def event_files(logdir: str) -> Found:
    """The event files under `logdir`.

    Each symbolic link is followed once, by the path with the fewest links, and never to a directory above it, so that
    directories that link to each other cost no more than their number and that of their links.
    """
    found: dict[str, list[str]] = {}
    damage: dict[str, list[str]] = {}
    followed: set[object] = set()
    pending, behind_links = deque([_Visit(logdir, ".", ())]), deque[_Visit]()
    visited = 0
    while pending or behind_links:
        if not pending:
            pending, behind_links = behind_links, pending
        visit = pending.popleft()
        try:
            identity = files.identity(visit.path)
            if identity in visit.ancestors:
                continue
            entries = files.entries(visit.path)
        except Exception as error:  # each file system raises its own
            damage.setdefault(visit.run, []).append(
                f"run {visit.run}: the directory cannot be listed: {files.reason(error, visit.path)}"
            )
            continue
        visited += 1
        if visited > MAX_DIRECTORIES:
            damage.setdefault(".", []).append(f"only the first {MAX_DIRECTORIES} directories are read")
            break
        ancestors = (*visit.ancestors, identity)
        for entry in entries:
            if entry.is_directory:
                if len(ancestors) > MAX_DEPTH or (entry.is_link and (identity, entry.name) in followed):
                    continue
                name = files.printable(entry.name)
                inner = _Visit(entry.path, name if visit.run == "." else f"{visit.run}/{name}", ancestors)
                if entry.is_link:
                    followed.add((identity, entry.name))
                    behind_links.append(inner)
                else:
                    pending.append(inner)
            elif EVENT_FILE_PART in entry.name:
                found.setdefault(visit.run, []).append(entry.path)
    return Found(dict(sorted(found.items())), damage)
