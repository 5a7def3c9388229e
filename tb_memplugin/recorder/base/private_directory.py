"""Temporary directories of this process that only its user can read. A process that is killed cannot remove its
directories, but its locks on them end with it. The next session of the same user on the machine removes the directories
that are not locked."""

import os
import shutil
import tempfile
from typing import Literal, TypeAlias, get_args

try:
    import fcntl
except ImportError:  # on Windows, where the directories of a killed process stay
    fcntl = None  # type: ignore[assignment]

from tb_memplugin.recorder.base.process import abandon_in_child

Use: TypeAlias = Literal["oom", "profile", "probe"]
MEMORY = "/dev/shm"


class PrivateDirectory:
    """A new, locked directory, in memory if wanted and possible. A forked child leaves it to its parent."""

    def __init__(self, use: Use, in_memory: bool = False) -> None:
        self._process = os.getpid()
        place = MEMORY if in_memory and os.path.isdir(MEMORY) else None
        self.path, self._locked = _make(_prefix(use), place)
        abandon_in_child(self)

    def remove(self) -> None:
        if os.getpid() == self._process:
            shutil.rmtree(self.path, ignore_errors=True)
        self._abandon()

    def _abandon(self) -> None:
        """Unlock it; in a forked child the parent's lock stays."""
        locked, self._locked = self._locked, None
        if locked is not None:
            os.close(locked)


def is_private(path: str) -> bool:
    """Whether a path leads into such a directory, of this process or another one."""
    return any(_prefix(use) in path for use in get_args(Use))


def remove_abandoned() -> None:
    """Remove the directories of killed processes: those of this user that are not locked."""
    prefixes = tuple(_prefix(use) for use in get_args(Use))
    for place in {tempfile.gettempdir(), MEMORY}:
        try:
            paths = [os.path.join(place, name) for name in os.listdir(place) if name.startswith(prefixes)]
        except OSError:
            continue
        for path in paths:
            try:
                locked = _lock(path)
            except OSError:
                continue
            if locked is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(locked)


def _prefix(use: Use) -> str:
    return f"tb_memplugin_{use}_"


def _make(prefix: str, place: str | None) -> tuple[str, int | None]:
    """(path of a new directory that only this user can read, file descriptor that locks it or None)."""
    for _ in range(10):
        path = tempfile.mkdtemp(prefix=prefix, dir=place)
        try:
            return path, _lock(path)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process removed it as abandoned before it was locked
        except OSError:
            return path, None  # locks are not supported, so other processes cannot lock and remove it either
    place = tempfile.gettempdir() if place is None else place
    raise OSError(f"new directories in {place} are removed at once. Set TMPDIR to another directory.")


def _lock(path: str) -> int | None:
    """Lock a directory and return the file descriptor; None if the system has no such locks.

    Raises:
        OSError: Another process has locked it, or it is not a directory of this user.
    """
    if fcntl is None:
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        stat = os.fstat(descriptor)
        if stat.st_uid != os.geteuid() or not os.path.samestat(stat, os.stat(path, follow_symlinks=False)):
            raise FileNotFoundError(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
