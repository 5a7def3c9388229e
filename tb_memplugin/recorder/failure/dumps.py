"""The memory maps of a failed allocation: `DumpFiles`, those that TensorFlow writes to files, and
`FailureMaps`, those that are read during the wait.

TensorFlow reads ``TF_BFC_MEMORY_DUMP`` at each failure, so it can be set late. It writes a file
when an allocation fails, retries for up to ten seconds, and writes another one when it gives up;
also for failures that an op tolerates."""

import collections
import contextlib
import dataclasses
import glob
import itertools
import os
import re
import time
from collections.abc import Iterator, Sequence

from tb_memplugin.allocator import would_fit
from tb_memplugin.importers import device_name, read_dump
from tb_memplugin.recorder.base import (
    PrivateDirectory,
    abandon_in_child,
    changes,
    is_private,
    remove_abandoned,
)
from tb_memplugin.recorder.devices import Device, MemoryMaps
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.schema import MemoryMap

VARIABLE = "TF_BFC_MEMORY_DUMP"
_NAME = re.compile(r"_(?P<allocator>.+)\.(?P<microseconds>\d{10,20})")


@dataclasses.dataclass(frozen=True, order=True)
class DumpFile:
    """A memory dump: when it was written (seconds since the epoch), the allocator's name, and the
    file's path."""

    wall_time: float
    allocator: str
    path: str


class DumpFiles:
    """This process's memory dumps, in a private directory or at the user's own prefix.
    `raised_errors` acquires and releases them, any thread may call the other methods."""

    def __init__(self) -> None:
        self._directory: PrivateDirectory | None = None
        # when it was last changed without a dump in it, in nanoseconds since the epoch
        self._made = 0

    def acquire(self) -> None:
        """Make TensorFlow write dumps, unless the user already does."""
        before = os.environ.get(VARIABLE)
        # A child process inherits the variable of its parent's recorder, but must not write to that
        # directory.
        if self._directory is None and (not before or is_private(before)):
            remove_abandoned()
            directory = PrivateDirectory("oom")
            self._made = os.stat(directory.path).st_mtime_ns
            os.environ[VARIABLE] = os.path.join(directory.path, "dump")
            self._directory = directory

    def release(self) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            if os.environ.get(VARIABLE, "").startswith(directory.path):
                del os.environ[VARIABLE]
            directory.remove()

    _abandon = release

    def since(self, wall_time: float) -> list[DumpFile]:
        """Dumps written since a wall time, in order of time. Takes about a microsecond while there
        never was one."""
        prefix = os.environ.get(VARIABLE)
        directory = self._directory
        if not prefix or (
            directory is not None and os.stat(directory.path).st_mtime_ns == self._made
        ):
            return []
        found = []
        for path in glob.glob(f"{glob.escape(prefix)}_*"):
            match = _NAME.fullmatch(path[len(prefix) :])
            if match is not None:
                written = int(match["microseconds"]) / 1e6
                found.append(DumpFile(written, match["allocator"], path))
        return sorted(one for one in found if one.wall_time >= wall_time)

    def remove_before(self, wall_time: float) -> None:
        """Delete dumps from before a wall time in the private directory, not those at the user's
        prefix."""
        for dump in self.since(0.0) if self._directory is not None else ():
            if dump.wall_time < wall_time:
                with contextlib.suppress(OSError):
                    os.remove(dump.path)


WAIT_SECONDS = 9.9  # time after which TensorFlow gives up waiting for memory, and a little less
_PAIR_SECONDS = 0.005


def given_up(dumps: Sequence[DumpFile]) -> Iterator[DumpFile]:
    """The dumps of attempts after which TensorFlow gave up: the second one of two in a row, after a
    wait."""
    for one, next_one in itertools.pairwise(dumps):
        waited = one.wall_time - dumps[0].wall_time >= WAIT_SECONDS
        if waited and next_one.wall_time - one.wall_time < _PAIR_SECONDS:
            yield next_one


def final_dump(dumps: Sequence[DumpFile]) -> DumpFile:
    """The dump of the attempt after which TensorFlow gave up. Of several threads that fail at once,
    the first one to give up ends the step; of failures that TensorFlow tolerated before, the last
    one counts."""
    begin = dumps[-1].wall_time - WAIT_SECONDS
    return next((one for one in given_up(dumps) if one.wall_time > begin), dumps[-1])


dump_files = DumpFiles()
abandon_in_child(dump_files)


POLL_SECONDS = 0.5
MAX_MAPS = 8  # most maps that are kept of one step, the newest ones


class FailureMaps:
    """Dumps of the recorded devices, and memory maps of one step, read while its bytes in use do
    not change. The background thread polls, the training's thread clears; any thread may call the
    other methods."""

    def __init__(self, devices: Sequence[Device], maps: MemoryMaps) -> None:
        self._capacities = {device.name: device.capacity_bytes for device in devices}
        self.devices = tuple(self._capacities)
        self._readable = [name for name in self._capacities if maps.available(name)]
        self._maps = maps
        # of one step; negative if its map was read
        self._levels: dict[str, int] = {}
        self._kept: dict[str, collections.deque[tuple[float, bytes]]] = {}

    def clear(self) -> None:
        """Forget the maps as a step ends."""
        self._levels, self._kept = {}, {}

    def poll(self) -> None:
        """Read the maps of a step that is open for a while, if its bytes in use are those of the
        last poll."""
        changes.note()  # now: what is read must be cleared as the step ends
        levels, kept = self._levels, self._kept  # of this step: `clear` replaces them
        for device in self._readable:
            level = allocator.memory_info(device)[0]
            if levels.get(device) == -level:  # its map was read
                continue
            is_still = levels.get(device) == level
            dump = self._maps.read(device) if is_still else None
            if dump is not None:
                found = kept.setdefault(device, collections.deque(maxlen=MAX_MAPS))
                found.append((time.time(), dump))
            levels[device] = level if dump is None else -level

    def dumps(self, since: float, allocator: str | None = None) -> list[DumpFile]:
        """Dumps of recorded devices since a wall time, in order of time; optionally of one
        allocator."""
        found = dump_files.since(since)
        return [
            one
            for one in found
            if allocator in (None, one.allocator) and self.device_of(one) is not None
        ]

    def device_of(self, dump: DumpFile) -> str | None:
        """The recorded device of the allocator that wrote the dump, None for any other."""
        name = device_name(dump.allocator)
        return name if name in self._capacities else None

    def at_failure(
        self, device: str, requested: int | None, dumps: list[DumpFile]
    ) -> MemoryMap | None:
        """The map that TensorFlow wrote as it gave up, or else one that was read while it waited.

        Other ops may still free a chunk during the wait, so TensorFlow's dump is the more exact
        one. Without it, the step may have several maps: some from before the request and some from
        after it, when the step's chunks are free already. The newest one in which the request does
        not fit is taken, or the fullest for an unknown size."""
        written = self.read(final_dump(dumps), device) if dumps else None
        if written is not None and (requested is None or would_fit(written, requested) is False):
            return written
        capacity, kept = self._capacities.get(device), reversed(self._kept.get(device, ()))
        maps = [read_dump(data, wall_time, capacity) for wall_time, data in kept]
        if requested is None:
            return max(maps, key=lambda one: one.in_use_bytes or 0, default=None)
        return next((one for one in maps if would_fit(one, requested) is False), written)

    def read(self, dump: DumpFile, device: str) -> MemoryMap | None:
        """Read a dump of a device, waiting until TensorFlow has written it; None if it stays empty
        or was deleted."""
        for _ in range(20):
            try:
                with open(dump.path, "rb") as file:
                    data = file.read()
            except FileNotFoundError:
                return None
            if data:  # TensorFlow writes the file in one go after opening it
                return read_dump(data, dump.wall_time, self._capacities.get(device))
            time.sleep(0.01)
        return None
