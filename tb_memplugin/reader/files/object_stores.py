"""Directories and files behind URLs: S3 by boto3, other stores by fsspec, the rest by TensorBoard's file layer.

TensorBoard's file layer decides which of them reads a URL. It is not used for S3 and fsspec: there it takes failed
requests for answers, asks once more for each name of a directory, and its reading has no end if an object has become
shorter than it was.
"""

import functools
import os
from typing import Any, Protocol

from tensorboard.compat.tensorflow_stub.io import gfile

MAX_LISTED = 500_000
"""Most objects of one listing: S3 lists a thousand in a request."""


class Store(Protocol):
    """A remote file system. Each method raises whatever the client of the file system raises.

    Attributes:
        cut: Exceptions of an answer whose body broke off, which the client does not ask for again.
    """

    cut: tuple[type[Exception], ...]

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory of this URL."""

    def names(self, directory: str) -> dict[str, bool]:
        """The names in a directory, each with whether it is a directory."""

    def tree(self, directory: str, part: str) -> dict[str, int] | None:
        """The files at any depth below a directory whose names contain `part`: path from there to bytes.

        None if the store has no such listing, or if it has more than `MAX_LISTED` objects.
        """

    def length(self, path: str) -> int:
        """Bytes of a file."""

    def read(self, path: str, offset: int, size: int) -> bytes:
        """A range of a file, `size` at least 1; fewer bytes at the file's end."""


def store_of(path: str) -> Store:
    """The store of a URL.

    Raises:
        ValueError: It is of no known kind.
        ImportError: The client for it is not installed.
    """
    file_system = gfile.get_filesystem(path)
    if isinstance(file_system, gfile.FSSpecFileSystem):
        return _Fsspec()
    if gfile.S3_ENABLED and isinstance(file_system, gfile.S3FileSystem):
        return _S3(file_system)
    return _TensorBoard(file_system)


class _Fsspec:
    cut: tuple[type[Exception], ...] = ()

    def is_directory(self, path: str) -> bool:
        # Not `isdir`, which takes a refused request for an answer.
        store, inner = self._store(path)
        try:
            return bool(store.info(inner)["type"] == "directory")
        except FileNotFoundError:
            return False

    def names(self, directory: str) -> dict[str, bool]:
        store, path = self._store(directory)
        # fsspec keeps listings, in which a growing run stays as it was.
        store.invalidate_cache(path)
        return {
            os.path.basename(entry["name"].rstrip("/")): entry["type"] == "directory"
            for entry in store.ls(path, detail=True)
            if entry["name"].strip("/") != path.strip("/")  # an object that stands for the directory itself
        }

    def tree(self, directory: str, part: str) -> dict[str, int] | None:
        # `find` leaves out what cannot be listed, or gets all fields of all objects.
        return None

    def length(self, path: str) -> int:
        store, inner = self._store(path)
        return int(store.size(inner))

    def read(self, path: str, offset: int, size: int) -> bytes:
        store, inner = self._store(path)
        return bytes(store.cat_file(inner, offset, offset + size))

    def _store(self, path: str) -> tuple[Any, str]:
        import fsspec

        store, inner = fsspec.core.url_to_fs(path)
        return store, str(inner)


class _S3:
    def __init__(self, file_system: Any) -> None:
        from botocore import exceptions

        self._place = file_system.bucket_and_path
        self.cut: tuple[type[Exception], ...] = (
            exceptions.ResponseStreamingError,
            exceptions.IncompleteReadError,
            exceptions.ReadTimeoutError,
        )

    def is_directory(self, path: str) -> bool:
        bucket, inner = self._place(path)
        found = _s3_client().list_objects(Bucket=bucket, Prefix=inner.rstrip("/") + "/", MaxKeys=1)
        return bool(found.get("Contents"))

    def names(self, directory: str) -> dict[str, bool]:
        bucket, inner = self._place(directory)
        prefix = inner.rstrip("/") + "/"
        names: dict[str, bool] = {}
        for page in _s3_client().get_paginator("list_objects").paginate(Bucket=bucket, Prefix=prefix, Delimiter="/"):
            names |= {entry["Key"][len(prefix) :]: False for entry in page.get("Contents", ())}
            names |= {entry["Prefix"][len(prefix) : -1]: True for entry in page.get("CommonPrefixes", ())}
        names.pop("", None)  # an object that stands for the directory itself
        return names

    def tree(self, directory: str, part: str) -> dict[str, int] | None:
        bucket, inner = self._place(directory)
        prefix = inner.rstrip("/") + "/"
        found: dict[str, int] = {}
        listed = 0
        for page in _s3_client().get_paginator("list_objects").paginate(Bucket=bucket, Prefix=prefix):
            entries = page.get("Contents", ())
            # The name of an object that stands for a directory is empty.
            named = (entry for entry in entries if part in entry["Key"].rpartition("/")[2])
            found |= {entry["Key"][len(prefix) :]: int(entry["Size"]) for entry in named}
            listed += len(entries)
            if listed > MAX_LISTED:
                return None
        return found

    def length(self, path: str) -> int:
        bucket, inner = self._place(path)
        return int(_s3_client().head_object(Bucket=bucket, Key=inner)["ContentLength"])

    def read(self, path: str, offset: int, size: int) -> bytes:
        bucket, inner = self._place(path)
        span = f"bytes={offset}-{offset + size - 1}"
        return bytes(_s3_client().get_object(Bucket=bucket, Key=inner, Range=span)["Body"].read())


@functools.cache
def _s3_client() -> Any:
    """One client for all threads, with the address that TensorBoard's file layer takes.

    From a session of its own: TensorBoard's threads make clients from the common one, which only one thread may do.
    """
    import boto3

    return boto3.session.Session().client("s3", endpoint_url=os.environ.get("S3_ENDPOINT"))


class _TensorBoard:
    cut: tuple[type[Exception], ...] = ()

    def __init__(self, file_system: Any) -> None:
        self._file_system = file_system

    def is_directory(self, path: str) -> bool:
        return bool(self._file_system.isdir(path))

    def names(self, directory: str) -> dict[str, bool]:
        # Whether a name is a directory must not be guessed after a failed request: a run would be left out.
        listed = self._file_system.listdir(directory)
        return {name: self.is_directory(self._file_system.join(directory, name)) for name in listed}

    def tree(self, directory: str, part: str) -> dict[str, int] | None:
        return None

    def length(self, path: str) -> int:
        return int(self._file_system.stat(path).length)

    def read(self, path: str, offset: int, size: int) -> bytes:
        # These file systems use two different keys.
        position = {"opaque_offset": offset, "byte_offset": offset}
        data, _ = self._file_system.read(path, binary_mode=True, size=size, continue_from=position)
        return bytes(data[:size])
