"""Manages the dump files that TensorFlow writes when an allocation fails.

TensorFlow reads ``TF_BFC_MEMORY_DUMP`` at each failure, so the variable costs nothing before one and can be set late.
TensorFlow writes a file when the allocation first fails, retries for up to ten seconds, and writes another one when it
gives up; also for failures that an op tolerates.
"""

import dataclasses
import itertools
import os
import re
import threading
from collections.abc import Iterator, Sequence

from tb_memplugin.recorder.base.forks import abandon_in_child
from tb_memplugin.recorder.base.private_directory import PrivateDirectory, is_private, remove_abandoned

VARIABLE = "TF_BFC_MEMORY_DUMP"
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
        self._directory: PrivateDirectory | None = None
        self._made = 0  # when it was last changed without a dump in it, in nanoseconds since the epoch

    def acquire(self) -> None:
        """Make TensorFlow write dumps, unless the user already does; pair it with `release`."""
        with self._lock:
            before = os.environ.get(VARIABLE)
            # A child process inherits the variable of its parent's recorder, but must not write to that directory.
            if not self._users and (not before or is_private(before)):
                remove_abandoned()
                self._directory = PrivateDirectory("oom")
                self._made = os.stat(self._directory.path).st_mtime_ns
                os.environ[VARIABLE] = os.path.join(self._directory.path, "dump")
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users = max(0, self._users - 1)
            if not self._users:
                self._remove()

    def _abandon(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._remove()

    def _remove(self) -> None:
        directory, self._directory = self._directory, None
        if directory is None:
            return
        if os.environ.get(VARIABLE, "").startswith(directory.path):
            del os.environ[VARIABLE]
        directory.remove()

    def since(self, wall_time: float) -> list[DumpFile]:
        """Dumps written since a wall time, in order of time. Takes about a microsecond while there never was one."""
        prefix = os.environ.get(VARIABLE)
        directory = self._directory
        if not prefix or (directory is not None and os.stat(directory.path).st_mtime_ns == self._made):
            return []
        place, name = os.path.split(prefix)
        dumps = []
        for entry in os.listdir(place or "."):
            match = _NAME.fullmatch(entry[len(name) :]) if entry.startswith(name) else None
            if match is not None and int(match["microseconds"]) / 1e6 >= wall_time:
                path = os.path.join(place, entry)
                dumps.append(DumpFile(int(match["microseconds"]) / 1e6, match["allocator"], path))
        return sorted(dumps)

    def remove_before(self, wall_time: float) -> None:
        """Delete dumps from before a wall time in the private directory, not those at the user's prefix."""
        if self._directory is None:
            return
        for dump in self.since(0.0):
            if dump.wall_time < wall_time:
                _remove(dump.path)


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except OSError:
        return


WAIT_SECONDS = 9.9
"""Time after which TensorFlow gives up waiting for memory, and a little less."""
_PAIR_SECONDS = 0.005


def _given_up(dumps: Sequence[DumpFile]) -> Iterator[DumpFile]:
    """The dumps of attempts after which TensorFlow gave up: the second one of two in a row, after a wait."""
    for one, next_one in itertools.pairwise(dumps):
        waited = one.wall_time - dumps[0].wall_time >= WAIT_SECONDS
        if waited and next_one.wall_time - one.wall_time < _PAIR_SECONDS:
            yield next_one


def gave_up(dumps: Sequence[DumpFile]) -> bool:
    """Whether the last dump is of an attempt after which TensorFlow gave up."""
    return any(one is dumps[-1] for one in _given_up(dumps))


def final_dump(dumps: Sequence[DumpFile]) -> DumpFile:
    """The dump of the attempt after which TensorFlow gave up.

    If several threads fail at once, the first one to give up ends the step. If TensorFlow tolerated a failure before,
    the later one counts.
    """
    begin = dumps[-1].wall_time - WAIT_SECONDS
    return next((one for one in _given_up(dumps) if one.wall_time > begin), dumps[-1])


dump_files = DumpFiles()
abandon_in_child(dump_files)
