"""Directories and files, local or in an object store."""

import concurrent.futures
import dataclasses
import functools
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tensorboard.compat.tensorflow_stub import errors

from tb_memplugin.errors import NotFoundError
from tb_memplugin.paths import absolute
from tb_memplugin.reader.files.object_stores import Store, store_of
from tb_memplugin.reader.files.source import SourceError
from tb_memplugin.reader.files.tfrecord import ReadAt

READ_ATTEMPTS = 3
"""How often bytes of a remote file are asked for, if fewer come. A store's client repeats other failures itself."""
REQUESTS = 16
"""Most requests to an object store at a time."""
_PAUSE_SECONDS = 0.2
"""Time before the second attempt; twice as long before the third."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_ADDRESS = re.compile(r"https?://[^\s\"'<>]+")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One name in a directory."""

    name: str
    path: str
    is_directory: bool
    is_link: bool


@dataclasses.dataclass(frozen=True)
class FileState:
    """Changes whenever a file changes; remote file systems tell only the length.

    Attributes:
        length: Bytes.
        identity: Differs between two files of one path; None if unknown.
        modified: Time of the last change in nanoseconds; None if unknown.
    """

    length: int
    identity: tuple[int, int] | None = None
    modified: int | None = None


def is_local(path: str) -> bool:
    """Whether `path` is a path of this machine, not a URL."""
    return "://" not in path


def is_directory(path: str) -> bool:
    """Whether `path` is a directory. Raises whatever its file system raises."""
    if is_local(path):
        return os.path.isdir(path)
    return store_of(path).is_directory(path)


def log_directory(path: str) -> str:
    """A log directory's absolute path, or its URL without a slash at its end.

    Raises:
        NotFoundError: There is no such directory.
        SourceError: Its file system cannot be read now.
    """
    logdir = path.rstrip("/") or "/"
    bucket = logdir.startswith("s3://") and logdir.count("/") == 2
    try:
        if not bucket and is_directory(logdir):
            return absolute(logdir)
    except Exception as error:  # each file system raises its own
        raise SourceError(f"the log directory {logdir} cannot be read now: {reason(error, logdir)}") from error
    what = f"a directory in the bucket, such as {logdir}/runs" if bucket else "the log directory"
    raise NotFoundError(f"no directory {logdir}; pass {what}, as for tensorboard --logdir")


def entries(directory: str) -> list[Entry]:
    """The names in a directory, sorted. Raises whatever its file system raises."""
    if is_local(directory):
        with os.scandir(directory) as found:
            local = [Entry(entry.name, entry.path, _is_directory(entry), entry.is_symlink()) for entry in found]
        return sorted(local, key=lambda entry: entry.name)
    names = store_of(directory).names(directory)
    return [Entry(name, f"{directory}/{name}", names[name], False) for name in sorted(names)]


def tree(directory: str, part: str) -> dict[str, FileState] | None:
    """The files whose names contain `part`, at any depth below a directory of a store that lists them at once, by path.

    None if it cannot: for a directory of this machine, and after a failure, which the listing of each directory names.
    """
    if is_local(directory):
        return None
    try:
        listed = store_of(directory).tree(directory, part)
    except Exception:  # each file system raises its own
        return None
    return None if listed is None else {f"{directory}/{name}": FileState(length) for name, length in listed.items()}


def at_once(function: Callable[[_Item], _Result], items: Sequence[_Item], place: str) -> Iterator[_Result]:
    """The results of a function for each item, in order. In an object store, where each waits, several run at a time.

    Args:
        function: Must not raise.
        items: Its arguments.
        place: Path or URL of what is read.
    """
    if is_local(place) or len(items) < 2:
        yield from map(function, items)
        return
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        yield from pool.map(function, items)


def is_readable(path: str) -> bool:
    """Whether the client for this kind of URL is installed; True for a path of this machine."""
    try:
        return is_local(path) or store_of(path) is not None
    except (ImportError, ValueError):
        return False


def identity(directory: str) -> object:
    """Equal for two paths of the same directory."""
    if not is_local(directory):
        return directory
    status = os.stat(directory)
    return status.st_dev, status.st_ino


def state(path: str) -> FileState:
    """The state of a file. Raises whatever its file system raises, and OSError for devices and pipes."""
    if not is_local(path):
        return FileState(store_of(path).length(path))
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    return FileState(status.st_size, (status.st_dev, status.st_ino), status.st_mtime_ns)


def reader(path: str) -> ReadAt:
    """Reads ranges of a file. The result raises whatever the file system raises."""
    if is_local(path):
        return lambda offset, size: _read_local(path, offset, size)
    return functools.partial(_read_whole, store_of(path), path)


def _read_whole(store: Store, path: str, offset: int, size: int) -> bytes:
    """A range within a remote file; asked for again if the answer is cut.

    Raises OSError if fewer bytes come each time; otherwise such an answer would pass for the file's end.
    """
    error: Exception | None = None
    for attempt in range(READ_ATTEMPTS if size else 0):
        if attempt:
            time.sleep(_PAUSE_SECONDS * attempt)
        try:
            data = store.read(path, offset, size)
        except store.cut as broken:
            error = broken
            continue
        if len(data) == size:
            return data
        error = OSError(f"{len(data)} of {size} bytes at byte {offset} were received")
    if error is not None:
        raise error
    return b""


def reason(error: Exception, path: str) -> str:
    """The reason of a failure, without paths and URLs: reports are passed on, and those name people and machines."""
    text = getattr(error, "strerror", None)
    if text is None and isinstance(error, FileNotFoundError | errors.NotFoundError):
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
