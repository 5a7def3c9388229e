"""Directories and files, local or behind a URL, read by fsspec: S3 by s3fs, Google Cloud Storage by
gcsfs.

TensorBoard's own file layer is not used: it takes failed requests for answers, asks once more for
each name of a directory, and its reading has no end if an object has become shorter than it was."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from tb_memplugin.environment import absolute
from tb_memplugin.errors import NotFoundError
from tb_memplugin.storage.files.source import SourceError
from tb_memplugin.storage.frames import tfrecord
from tb_memplugin.storage.write import EVENT_FILE_PART

READ_ATTEMPTS = 3
"""How often bytes of a remote file are asked for, if fewer come. A store's client repeats other
failures itself."""
REQUESTS = 16
"""Most requests to an object store at a time."""
_PAUSE_SECONDS = 0.2
"""Time before the second attempt; twice as long before the third."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_ADDRESS = re.compile(r"https?://[^\s\"'<>]+")


@dataclasses.dataclass(frozen=True)
class FileState:
    """Changes whenever a file changes: bytes, what differs between files of one path, time of the
    last change in ns.

    Remote file systems tell only the length."""

    length: int
    identity: tuple[int, int] | None = None
    modified: int | None = None


@dataclasses.dataclass(frozen=True)
class Entry:
    name: str
    path: str
    is_directory: bool
    is_link: bool
    state: FileState | None = None


def is_local(path: str) -> bool:
    return "://" not in path


def is_directory(path: str) -> bool:
    if is_local(path):
        return os.path.isdir(path)
    store, inner = _store(path)
    try:
        # Not `isdir`, which takes a refused request for an answer.
        return bool(store.info(inner)["type"] == "directory")
    except FileNotFoundError:
        return False


def log_directory(path: str) -> str:
    """A log directory's absolute path, or its URL without a slash at its end."""
    logdir = path.rstrip("/") or "/"
    try:
        if is_directory(logdir):
            return absolute(logdir)
    except Exception as error:  # each file system raises its own
        raise SourceError(
            f"the log directory {logdir} cannot be read now: {reason(error, logdir)}"
        ) from error
    raise NotFoundError(
        f"no directory {logdir}; pass the log directory, as for tensorboard --logdir"
    )


def entries(directory: str) -> list[Entry]:
    """The names in a directory, sorted. Raises whatever its file system raises."""
    if is_local(directory):
        with os.scandir(directory) as found:
            local = [
                Entry(entry.name, entry.path, _is_directory(entry), entry.is_symlink())
                for entry in found
            ]
        return sorted(local, key=lambda entry: entry.name)
    store, inner = _store(directory)
    files = []
    for listed in store.ls(inner, detail=True):
        name, is_inner = os.path.basename(listed["name"].rstrip("/")), listed["type"] == "directory"
        # an object that stands for the directory itself
        if listed["name"].strip("/") != inner.strip("/"):
            state = None if is_inner else FileState(int(listed["size"]))
            files.append(Entry(name, f"{directory}/{name}", is_inner, False, state))
    return sorted(files, key=lambda entry: entry.name)


def _store(path: str) -> tuple[Any, str]:
    """The file system of a URL and its path there. A store that keeps its listings would not see a
    run grow."""
    import fsspec

    store, inner = fsspec.core.url_to_fs(path, use_listings_cache=False)
    return store, str(inner)


def at_once(
    function: Callable[[_Item], _Result], items: Sequence[_Item], place: str
) -> Iterator[_Result]:
    """The results of a function, which must not raise, in order; in a store at `place` several run
    at a time."""
    if is_local(place) or len(items) < 2:
        yield from map(function, items)
        return
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        yield from pool.map(function, items)


def is_readable(path: str) -> bool:
    """Whether the client for this kind of URL is installed; True for a path of this machine."""
    try:
        return is_local(path) or _store(path) is not None
    except (ImportError, ValueError):
        return False


def state(path: str) -> FileState:
    """The state of a file. Raises whatever its file system raises, and OSError for devices and
    pipes."""
    if not is_local(path):
        store, inner = _store(path)
        return FileState(int(store.size(inner)))
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    return FileState(status.st_size, (status.st_dev, status.st_ino), status.st_mtime_ns)


def reader(path: str) -> tfrecord.ReadAt:
    """Reads ranges of a file. The result raises whatever the file system raises."""
    return functools.partial(_read_local if is_local(path) else _read_whole, path)


def _read_whole(path: str, offset: int, size: int) -> bytes:
    """A range within a remote file; asked for again if fewer bytes come.

    Raises OSError if fewer bytes come each time; otherwise such an answer would pass for the file's
    end."""
    store, inner = _store(path)
    data = b""
    for attempt in range(READ_ATTEMPTS if size else 0):
        time.sleep(_PAUSE_SECONDS * attempt)
        data = bytes(store.cat_file(inner, start=offset, end=offset + size))
        if len(data) == size:
            break
    if len(data) != size:
        raise OSError(f"{len(data)} of {size} bytes at byte {offset} were received")
    return data


def reason(error: Exception, path: str) -> str:
    """The reason of a failure, without paths and URLs: reports are passed on, and those name people
    and machines."""
    text = getattr(error, "strerror", None)
    if text is None and isinstance(error, FileNotFoundError):
        return "it does not exist"  # stores say nothing but the path
    text = text or _ADDRESS.sub("…", str(error).replace(path, "…"))
    return (text.strip().splitlines() or [type(error).__name__])[0][:200]


def printable(name: str) -> str:
    r"""A file's name as text: bytes that are not UTF-8 become ``\xff``."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _read_local(path: str, offset: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


MAX_DEPTH = 32
"""Directories deeper than this below the log directory are not read."""
MAX_DIRECTORIES = 50_000
"""Most directories that are read; a sentence says if there are more."""


@dataclasses.dataclass(frozen=True)
class Found:
    """Event files of a directory and sentences on directories that cannot be listed, by run; known
    states, by path."""

    files: Mapping[str, Sequence[str]]
    damage: Mapping[str, Sequence[str]]
    states: Mapping[str, FileState] = dataclasses.field(default_factory=dict)


_Visit: TypeAlias = tuple[str, str, tuple[object, ...]]
"""A directory's path, its run, and the identities of the directories above it."""


def _list(visit: _Visit) -> tuple[object, Sequence[Entry], str | None]:
    """Identity and entries of a directory, or why it cannot be listed."""
    path, _, ancestors = visit
    try:
        status = os.stat(path) if is_local(path) else None
        identity = path if status is None else (status.st_dev, status.st_ino)
        return identity, () if identity in ancestors else entries(path), None
    except Exception as error:  # each file system raises its own
        return None, (), reason(error, path)


def event_files(logdir: str) -> Found:
    """The event files under `logdir`.

    Each symbolic link is followed once, by the path with the fewest links, and never to a directory
    above it, so that directories that link to each other cost no more than their number and that of
    their links."""
    found: dict[str, list[str]] = {}
    damage: dict[str, list[str]] = {}
    states: dict[str, FileState] = {}
    followed: set[object] = set()
    level: list[_Visit] = [(logdir, ".", ())]
    behind_links: list[_Visit] = []
    visited = 0
    while (level or behind_links) and visited <= MAX_DIRECTORIES:
        if not level:
            level, behind_links = behind_links, []
        below: list[_Visit] = []
        for (_, run, above), (identity, listed, why) in zip(
            level, at_once(_list, level, logdir), strict=False
        ):
            if why is not None:
                damage.setdefault(run, []).append(
                    f"run {run}: the directory cannot be listed: {why}"
                )
                continue
            visited += 1
            if visited > MAX_DIRECTORIES:
                damage.setdefault(".", []).append(
                    f"only the first {MAX_DIRECTORIES} directories are read"
                )
                break
            ancestors = (*above, identity)
            for entry in listed:
                if entry.is_directory:
                    if len(ancestors) > MAX_DEPTH or (
                        entry.is_link and (identity, entry.name) in followed
                    ):
                        continue
                    name = printable(entry.name)
                    inner = (entry.path, name if run == "." else f"{run}/{name}", ancestors)
                    if entry.is_link:
                        followed.add((identity, entry.name))
                    (behind_links if entry.is_link else below).append(inner)
                elif EVENT_FILE_PART in entry.name:
                    found.setdefault(run, []).append(entry.path)
                    with contextlib.suppress(OSError):  # told when the file is read
                        states[entry.path] = entry.state or state(entry.path)
        level = below
    return Found(dict(sorted(found.items())), damage, states)
