"""The files that TensorFlow writes when an allocation fails: where they go, and which are new.

TensorFlow reads ``TF_BFC_MEMORY_DUMP`` at each failure, so it costs nothing until one happens, and can be set late. It
writes a file when the allocation first fails, waits up to ten seconds for memory, trying again, and writes another when
it gives up; also for failures that an operation tolerates.
"""

import dataclasses
import itertools
import os
import re
import shutil
import tempfile
import threading

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

    def acquire(self) -> None:
        """Lets TensorFlow write dumps from now on, if the user does not already; pair it with `release`."""
        with self._lock:
            self._users += 1
            before = os.environ.get(VARIABLE)
            # A parent process's recorder passes its variable on; its directory is not ours to write to.
            if self._users == 1 and (not before or _MARK in before):
                self._directory = tempfile.mkdtemp(prefix=_MARK)
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
            self._directory = None

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
