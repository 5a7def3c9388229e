"""Directories and files, local or behind TensorBoard's file layer, which supports S3 and the file systems of fsspec."""

import dataclasses
import os
import re
import stat
import time
from typing import Any

from tensorboard.compat.tensorflow_stub import errors
from tensorboard.compat.tensorflow_stub.io import gfile

from tb_memplugin.errors import NotFoundError
from tb_memplugin.reader.source import SourceError
from tb_memplugin.reader.tfrecord import ReadAt

READ_ATTEMPTS = 3
"""How often bytes of a remote file are asked for, if less than all of them comes."""
_PAUSE_SECONDS = 0.2
"""Time before the second attempt; twice as long before the third."""
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
    if not _is_of_fsspec(path):
        return bool(gfile.isdir(path))
    # Not `isdir`, which takes a refused or failed request for an answer.
    store, inner = _fsspec_store(path)
    try:
        return bool(store.info(inner)["type"] == "directory")
    except FileNotFoundError:
        return False


def log_directory(path: str) -> str:
    """A log directory's path without a slash at its end.

    Raises:
        NotFoundError: There is no such directory.
        SourceError: Its file system cannot be read now.
    """
    logdir = path.rstrip("/") or "/"
    bucket = logdir.startswith("s3://") and logdir.count("/") == 2
    try:
        if not bucket and is_directory(logdir):
            return logdir
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
    file_system = gfile.get_filesystem(directory)
    if _is_of_fsspec(directory):
        names = _listed_by_fsspec(directory)
    elif gfile.S3_ENABLED and isinstance(file_system, gfile.S3FileSystem):
        names = _listed_by_s3(*file_system.bucket_and_path(directory))
    else:
        # Whether a name is a directory must not be guessed after a failed request: a run would be left out.
        names = {name: is_directory(file_system.join(directory, name)) for name in gfile.listdir(directory)}
    return [Entry(name, file_system.join(directory, name), names[name], False) for name in sorted(names)]


def _listed_by_fsspec(directory: str) -> dict[str, bool]:
    """The names in a directory of fsspec, each with whether it is a directory."""
    store, path = _fsspec_store(directory)
    # fsspec keeps listings, in which a growing run stays as it was.
    store.invalidate_cache(path)
    found = {os.path.basename(entry["name"].rstrip("/")): entry for entry in store.ls(path, detail=True)}
    # Some stores list an object that stands for the directory itself.
    return {
        name: entry["type"] == "directory"
        for name, entry in found.items()
        if entry["name"].strip("/") != path.strip("/")
    }


def _listed_by_s3(bucket: str, path: str) -> dict[str, bool]:
    """The names in a directory of S3, each with whether it is a directory.

    Not by TensorBoard's file layer, which asks once more for each name, and each such request may fail.
    """
    import boto3

    client = boto3.client("s3", endpoint_url=os.environ.get("S3_ENDPOINT"))
    prefix = path.rstrip("/") + "/"
    names: dict[str, bool] = {}
    for page in client.get_paginator("list_objects").paginate(Bucket=bucket, Prefix=prefix, Delimiter="/"):
        names |= {entry["Key"][len(prefix) :]: False for entry in page.get("Contents", ())}
        names |= {entry["Prefix"][len(prefix) : -1]: True for entry in page.get("CommonPrefixes", ())}
    names.pop("", None)  # an object that stands for the directory itself
    return names


def identity(directory: str) -> object:
    """Equal for two paths of the same directory."""
    if not is_local(directory):
        return directory
    status = os.stat(directory)
    return status.st_dev, status.st_ino


def state(path: str) -> FileState:
    """The state of a file. Raises whatever its file system raises, and OSError for devices and pipes."""
    if not is_local(path):
        return FileState(int(gfile.stat(path).length))
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    return FileState(status.st_size, (status.st_dev, status.st_ino), status.st_mtime_ns)


def reader(path: str) -> ReadAt:
    """Reads ranges of a file. The result raises whatever the file system raises."""
    if is_local(path):
        return lambda offset, size: _read_local(path, offset, size)
    if _is_of_fsspec(path):
        store, inner = _fsspec_store(path)
        # Not a file of fsspec: its cache never returns if an object has become shorter than it was.
        return _whole(lambda offset, size: bytes(store.cat_file(inner, offset, offset + size)), ())
    file_system = gfile.get_filesystem(path)

    def read_at(offset: int, size: int) -> bytes:
        # TensorBoard's file systems use two different keys; S3 returns one byte too many.
        position = {"opaque_offset": offset, "byte_offset": offset}
        data, _ = file_system.read(path, binary_mode=True, size=size, continue_from=position)
        return bytes(data[:size])

    return _whole(read_at, _cut_bodies())


def _whole(read_at: ReadAt, cut: tuple[type[Exception], ...]) -> ReadAt:
    """Reads ranges within a remote file, again if an answer is cut: fewer bytes, or an exception of `cut`.

    Clients repeat failed requests, but boto3 does not repeat one whose body breaks off. Raises OSError if fewer bytes
    come each time; otherwise such an answer would pass for the file's end.
    """

    def whole(offset: int, size: int) -> bytes:
        error: Exception | None = None
        for attempt in range(READ_ATTEMPTS if size else 0):
            if attempt:
                time.sleep(_PAUSE_SECONDS * attempt)
            try:
                data = read_at(offset, size)
            except cut as broken:
                error = broken
                continue
            if len(data) == size:
                return data
            error = OSError(f"{len(data)} of {size} bytes at byte {offset} were received")
        if error is not None:
            raise error
        return b""

    return whole


def _cut_bodies() -> tuple[type[Exception], ...]:
    """What boto3 raises if the body of an answer breaks off."""
    if not gfile.S3_ENABLED:
        return ()
    from botocore import exceptions

    return (exceptions.ResponseStreamingError, exceptions.IncompleteReadError, exceptions.ReadTimeoutError)


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


def _is_of_fsspec(path: str) -> bool:
    """Whether TensorBoard's file layer reads a URL through fsspec."""
    return isinstance(gfile.get_filesystem(path), gfile.FSSpecFileSystem)


def _fsspec_store(path: str) -> tuple[Any, str]:
    """The file system of a URL of fsspec, and the path in it."""
    import fsspec

    store, inner = fsspec.core.url_to_fs(path)
    return store, str(inner)


def _read_local(path: str, offset: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
