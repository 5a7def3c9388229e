"""Manages the dump files that TensorFlow writes when an allocation fails.

TensorFlow reads ``TF_BFC_MEMORY_DUMP`` at each failure, so the variable costs nothing before one and can be set late.
TensorFlow writes a file when the allocation first fails, retries for up to ten seconds, and writes another one when it
gives up; also for failures that an op tolerates.

A process that is killed cannot remove its directory, but its lock on the directory ends with it. The next recorder of
the same user on the machine removes the directories that are not locked.
"""

import dataclasses
import itertools
import os
import re
import shutil
import tempfile
import threading

try:
    import fcntl
except ImportError:  # on Windows, where the directory of a killed process stays
    fcntl = None  # type: ignore[assignment]

from tb_memplugin.recorder.base.forks import abandon_in_child

VARIABLE = "TF_BFC_MEMORY_DUMP"
_MARK = "tb_memplugin_oom_"
_NAME = re.compile(r"_(?P<allocator>.+)\.(?P<microseconds>\d{10,20})")


@dataclasses.dataclass(frozen=True, order=True)
class DumpFile:
    """A memory dump: when it was written (seconds since the epoch), the allocator's name, and the file's path."""

    wall_time: float
    allocator: str
    path: str


class DumpFiles:
    """This process's memory dumps, in a private directory or at the user's own prefix. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._directory: str | None = None
        self._locked: int | None = None  # file descriptor that holds the lock

    def acquire(self) -> None:
        """Make TensorFlow write dumps, unless the user already does; pair it with `release`."""
        with self._lock:
            before = os.environ.get(VARIABLE)
            # A child process inherits the variable of its parent's recorder, but must not write to that directory.
            if not self._users and (not before or _MARK in before):
                _remove_abandoned(tempfile.gettempdir())
                self._directory, self._locked = _private_directory()
                os.environ[VARIABLE] = os.path.join(self._directory, "dump")
            self._users += 1

    def release(self) -> None:
        """Remove the directory and restore the environment after the last user."""
        with self._lock:
            self._users = max(0, self._users - 1)
            if self._users or self._directory is None:
                return
            if os.environ.get(VARIABLE, "").startswith(self._directory):
                del os.environ[VARIABLE]
            shutil.rmtree(self._directory, ignore_errors=True)
            if self._locked is not None:
                os.close(self._locked)
            self._directory = self._locked = None

    def abandon(self) -> None:
        """Forget the directory in a forked child, which must neither write to it nor remove it."""
        self._lock = threading.Lock()
        self._users = 0
        directory, self._directory = self._directory, None
        locked, self._locked = self._locked, None
        if directory is not None and os.environ.get(VARIABLE, "").startswith(directory):
            del os.environ[VARIABLE]
        if locked is not None:
            os.close(locked)

    def since(self, wall_time: float) -> list[DumpFile]:
        """Dumps written since a wall time, in order of time."""
        prefix = os.environ.get(VARIABLE)
        if not prefix:
            return []
        directory, name = os.path.split(prefix)
        dumps = []
        for entry in os.listdir(directory or "."):
            match = _NAME.fullmatch(entry[len(name) :]) if entry.startswith(name) else None
            if match is not None and int(match["microseconds"]) / 1e6 >= wall_time:
                path = os.path.join(directory, entry)
                dumps.append(DumpFile(int(match["microseconds"]) / 1e6, match["allocator"], path))
        return sorted(dumps)

    def remove_before(self, wall_time: float) -> None:
        """Delete dumps from before a wall time in the private directory, not those at the user's prefix."""
        if self._directory is None:
            return
        for dump in self.since(0.0):
            if dump.wall_time < wall_time:
                _remove(dump.path)


def _private_directory() -> tuple[str, int | None]:
    """(path of a new directory that only this user can read, file descriptor that locks it or None)."""
    for _ in range(10):
        path = tempfile.mkdtemp(prefix=_MARK)
        try:
            return path, _lock(path)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process removed it as abandoned before it was locked
        except OSError:
            return path, None  # locks are not supported, so other processes cannot lock and remove it either
    raise OSError(f"new directories in {tempfile.gettempdir()} are removed at once. Set TMPDIR to another directory.")


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


def _remove_abandoned(directory: str) -> None:
    """Remove the private directories of killed processes: those of this user that are not locked."""
    try:
        paths = [os.path.join(directory, name) for name in os.listdir(directory) if name.startswith(_MARK)]
    except OSError:
        return
    for path in paths:
        try:
            locked = _lock(path)
        except OSError:
            continue
        if locked is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(locked)


def _remove(path: str) -> None:
    """Delete a file that may not exist."""
    try:
        os.remove(path)
    except OSError:
        return


def final_dump(dumps: list[DumpFile]) -> DumpFile:
    """The dump of the attempt after which TensorFlow gave up.

    TensorFlow makes two attempts in a row then. If several threads fail at once, the first one to give up ends the
    step.
    """
    gave_up = dumps[0].wall_time + 9.9
    for one, next_one in itertools.pairwise(dumps):
        if one.wall_time >= gave_up and next_one.wall_time - one.wall_time < 0.005:
            return next_one
    return dumps[-1]


dump_files = DumpFiles()
abandon_in_child(dump_files)
