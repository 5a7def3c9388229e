"""The files that TensorFlow writes when an allocation fails: where they go, and which are new.

TensorFlow reads ``TF_BFC_MEMORY_DUMP`` at each failure, so it costs nothing until one happens, and can be set late. It
writes a file when the allocation first fails, waits up to ten seconds for memory, trying again, and writes another when
it gives up; also for failures that an operation tolerates.

A process that is killed cannot remove its directory. It holds a lock on it, though, which dies with it: whoever records
next on the machine, as the same user, removes the directories that nobody holds a lock on any more.
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
except ImportError:  # not on Windows: there a killed process's directory stays
    fcntl = None  # type: ignore[assignment]

VARIABLE = "TF_BFC_MEMORY_DUMP"
_MARK = "tb_memplugin_oom_"
_NAME = re.compile(r"_(?P<allocator>.+)\.(?P<microseconds>\d{10,20})")


@dataclasses.dataclass(frozen=True, order=True)
class DumpFile:
    """A memory dump: when it was written (seconds since the epoch), by which allocator, and where it is."""

    wall_time: float
    allocator: str
    path: str


class DumpFiles:
    """This process's memory dumps, in a private directory, or where the user asked TensorFlow to put them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._directory: str | None = None
        self._held: int | None = None

    def acquire(self) -> None:
        """Lets TensorFlow write dumps from now on, if the user does not already; pair it with `release`."""
        with self._lock:
            self._users += 1
            before = os.environ.get(VARIABLE)
            # A parent process's recorder passes its variable on; its directory is not ours to write to.
            if self._users == 1 and (not before or _MARK in before):
                _remove_abandoned(tempfile.gettempdir())
                self._directory, self._held = _private_directory()
                os.environ[VARIABLE] = os.path.join(self._directory, "dump")

    def release(self) -> None:
        """Puts everything back as it was, once nobody needs the dumps any more."""
        with self._lock:
            self._users = max(0, self._users - 1)
            if self._users or self._directory is None:
                return
            if os.environ.get(VARIABLE, "").startswith(self._directory):
                del os.environ[VARIABLE]
            shutil.rmtree(self._directory, ignore_errors=True)
            if self._held is not None:
                os.close(self._held)
            self._directory = self._held = None

    def since(self, wall_time: float) -> list[DumpFile]:
        """The dumps written from a moment on, in order of time."""
        prefix = os.environ.get(VARIABLE)
        if not prefix:
            return []
        directory, name = os.path.split(prefix)
        found = []
        for entry in os.listdir(directory or "."):
            match = _NAME.fullmatch(entry[len(name) :]) if entry.startswith(name) else None
            if match is not None and int(match["microseconds"]) / 1e6 >= wall_time:
                path = os.path.join(directory, entry)
                found.append(DumpFile(int(match["microseconds"]) / 1e6, match["allocator"], path))
        return sorted(found)

    def remove_before(self, wall_time: float) -> None:
        """Deletes our own dumps older than a moment; the user's stay."""
        if self._directory is None:
            return
        for dump in self.since(0.0):
            if dump.wall_time < wall_time:
                _remove(dump.path)


def _private_directory() -> tuple[str, int | None]:
    """A new directory that only this user can look into, and what holds its lock as long as this process lives."""
    for _ in range(10):
        path = tempfile.mkdtemp(prefix=_MARK)
        try:
            return path, _lock(path)
        except (BlockingIOError, FileNotFoundError):
            continue  # someone who cleans up took it for abandoned
        except OSError:
            return path, None  # no locks here: nobody who cleans up gets one either
    raise OSError(f"directories made in {tempfile.gettempdir()} disappear at once")


def _lock(path: str) -> int | None:
    """Locks a directory; None where the system has no such locks.

    Raises:
        OSError: Another process holds it, or it is no directory of this user.
    """
    if fcntl is None:
        return None
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(held)
        if found.st_uid != os.geteuid() or not os.path.samestat(found, os.stat(path, follow_symlinks=False)):
            raise FileNotFoundError(path)
    except BaseException:
        os.close(held)
        raise
    return held


def _remove_abandoned(directory: str) -> None:
    """Removes the private directories of processes that were killed: those of this user that nobody has locked."""
    try:
        paths = [os.path.join(directory, name) for name in os.listdir(directory) if name.startswith(_MARK)]
    except OSError:
        return
    for path in paths:
        try:
            held = _lock(path)
        except OSError:
            continue
        if held is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(held)


def _remove(path: str) -> None:
    """Deletes a file that may be gone already."""
    try:
        os.remove(path)
    except OSError:
        return


def last_words(dumps: list[DumpFile]) -> DumpFile:
    """The dump of the attempt after which TensorFlow gave up.

    It tries twice in a row then, the second time saying so in its log. Where several threads fail at once, the first of
    them to give up is the one that ends the step.
    """
    gave_up = dumps[0].wall_time + 9.9
    for one, next_one in itertools.pairwise(dumps):
        if one.wall_time >= gave_up and next_one.wall_time - one.wall_time < 0.005:
            return next_one
    return dumps[-1]


dump_files = DumpFiles()
