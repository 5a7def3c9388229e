"""Event files under a log directory, by TensorBoard's run name."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tb_memplugin.storage.files import file_systems as files
from tb_memplugin.storage.files.file_systems import FileState
from tb_memplugin.storage.write import EVENT_FILE_PART

MAX_DEPTH = 32
"""Directories deeper than this below the log directory are not read."""
MAX_DIRECTORIES = 50_000
"""Most directories that are read; a sentence says if there are more."""


@dataclasses.dataclass(frozen=True)
class Found:
    """Event files of a directory.

    Attributes:
        files: By run, sorted by name.
        damage: Sentences on directories that cannot be listed, by run.
        states: By path, of files of which the listing tells it.
    """

    files: Mapping[str, Sequence[str]]
    damage: Mapping[str, Sequence[str]]
    states: Mapping[str, FileState] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _Visit:
    path: str
    run: str
    ancestors: tuple[object, ...]


class _Listed(NamedTuple):
    identity: object
    entries: Sequence[files.Entry]
    reason: str | None
    """Why it cannot be listed."""


def _list(visit: _Visit) -> _Listed:
    """The entries of a directory, none if it is one of those above it."""
    try:
        identity = files.identity(visit.path)
        return _Listed(identity, () if identity in visit.ancestors else files.entries(visit.path), None)
    except Exception as error:  # each file system raises its own
        return _Listed(None, (), files.reason(error, visit.path))


def event_files(logdir: str) -> Found:
    """The event files under `logdir`.

    Each symbolic link is followed once, by the path with the fewest links, and never to a directory above it, so that
    directories that link to each other cost no more than their number and that of their links.
    """
    found: dict[str, list[str]] = {}
    damage: dict[str, list[str]] = {}
    states: dict[str, FileState] = {}
    followed: set[object] = set()
    level, behind_links = [_Visit(logdir, ".", ())], list[_Visit]()
    visited = 0
    while (level or behind_links) and visited <= MAX_DIRECTORIES:
        if not level:
            level, behind_links = behind_links, []
        below: list[_Visit] = []
        for visit, (identity, entries, reason) in zip(level, files.at_once(_list, level, logdir), strict=False):
            if reason is not None:
                damage.setdefault(visit.run, []).append(f"run {visit.run}: the directory cannot be listed: {reason}")
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
                        below.append(inner)
                elif EVENT_FILE_PART in entry.name:
                    found.setdefault(visit.run, []).append(entry.path)
                    if entry.state is not None:
                        states[entry.path] = entry.state
        level = below
    return Found(dict(sorted(found.items())), damage, states)
