"""Directories and files, local or behind TensorBoard's file layer, which supports S3 and the file systems of fsspec."""

import dataclasses
import os
import stat

from tensorboard.compat.tensorflow_stub.io import gfile

from tb_memplugin.errors import NotFoundError
from tb_memplugin.reader.tfrecord import ReadAt


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
    """Whether `path` is a directory; False if that cannot be found out."""
    try:
        return os.path.isdir(path) if is_local(path) else bool(gfile.isdir(path))
    except Exception:  # each file system raises its own
        return False


def log_directory(path: str) -> str:
    """A log directory's path without a slash at its end.

    Raises:
        NotFoundError: There is no such directory.
    """
    logdir = path.rstrip("/") or "/"
    if is_directory(logdir):
        return logdir
    bucket = logdir.startswith("s3://") and logdir.count("/") == 2
    what = f"a directory in the bucket, such as {logdir}/runs" if bucket else "the log directory"
    raise NotFoundError(f"no directory {logdir}; pass {what}, as for tensorboard --logdir")


def entries(directory: str) -> list[Entry]:
    """The names in a directory, sorted. Raises whatever its file system raises."""
    if is_local(directory):
        with os.scandir(directory) as found:
            local = [Entry(entry.name, entry.path, _is_directory(entry), entry.is_symlink()) for entry in found]
        return sorted(local, key=lambda entry: entry.name)
    file_system = gfile.get_filesystem(directory)
    if isinstance(file_system, gfile.FSSpecFileSystem):
        _forget_listing(directory)
    paths = ((name, file_system.join(directory, name)) for name in sorted(gfile.listdir(directory)))
    return [Entry(name, path, is_directory(path), False) for name, path in paths]


def _forget_listing(directory: str) -> None:
    """Forget what a directory contained: in the listings that fsspec keeps, a growing run stays as it was."""
    import fsspec

    store, path = fsspec.core.url_to_fs(directory)
    store.invalidate_cache(path)


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
    file_system = gfile.get_filesystem(path)

    def read_at(offset: int, size: int) -> bytes:
        # TensorBoard's file systems use two different keys; S3 returns one byte too many.
        position = {"opaque_offset": offset, "byte_offset": offset}
        data, _ = file_system.read(path, binary_mode=True, size=size, continue_from=position)
        return bytes(data[:size])

    return read_at


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
