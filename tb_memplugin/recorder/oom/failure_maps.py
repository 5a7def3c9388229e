"""The memory map at a failed allocation, from TensorFlow's dump (`FailureMaps`) or from reads during the wait
(`StalledMaps`)."""

import collections
import time
from collections.abc import Sequence

from tb_memplugin.allocator.fit import would_fit
from tb_memplugin.importers.allocator.memory_dump import read_dump
from tb_memplugin.importers.profile.xplane import device_name
from tb_memplugin.model import MemoryMap
from tb_memplugin.recorder.base.due import changes
from tb_memplugin.recorder.native.memory_maps import MemoryMaps
from tb_memplugin.recorder.oom.dump_files import DumpFile, dump_files, final_dump
from tb_memplugin.recorder.sampling import devices as allocator
from tb_memplugin.recorder.sampling.devices import Device

POLL_SECONDS = 0.5
MAX_MAPS = 8
"""Most maps that are kept of one step, the newest ones."""


class StalledMaps:
    """Memory maps of one step, read when its bytes in use have not changed since the last poll.

    The background thread polls; the training's thread clears and reads.
    """

    def __init__(self, devices: Sequence[str], maps: MemoryMaps) -> None:
        self._devices = [device for device in devices if maps.available(device)]
        self._maps = maps
        self.clear()

    def clear(self) -> None:
        self._levels: dict[str, int] = {}
        self._kept: dict[str, collections.deque[tuple[float, bytes]]] = {
            device: collections.deque(maxlen=MAX_MAPS) for device in self._devices
        }

    def poll(self) -> None:
        """Read the maps of a step that has been open for a while, if nothing changed since the last poll."""
        changes.note()  # now: what is read must be cleared as the step ends
        levels, kept = self._levels, self._kept  # of this step: `clear` replaces them
        for device in self._devices:
            level = allocator.memory_info(device)[0]
            if levels.get(device) == -level:  # its map was read
                continue
            is_still = levels.get(device) == level
            dump = self._maps.read(device) if is_still else None
            if dump is not None:
                kept[device].append((time.time(), dump))
            levels[device] = level if dump is None else -level

    def newest_first(self, device: str) -> list[tuple[float, bytes]]:
        """(seconds since the epoch, map) of each map of the device."""
        return list(reversed(self._kept.get(device, ())))


class FailureMaps:
    """Reads dumps and stalled maps of the recorded devices. Any thread may call the methods."""

    def __init__(self, devices: Sequence[Device], stalled: StalledMaps) -> None:
        self._capacities = {device.name: device.capacity_bytes for device in devices}
        self._stalled = stalled

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(self._capacities)

    def clear(self) -> None:
        self._stalled.clear()

    def dumps(self, since: float, allocator: str | None = None) -> list[DumpFile]:
        """Dumps of recorded devices since a wall time, in order of time; optionally of one allocator."""
        return [
            dump
            for dump in dump_files.since(since)
            if allocator in (None, dump.allocator) and self.device_of(dump) is not None
        ]

    def device_of(self, dump: DumpFile) -> str | None:
        """The recorded device of the allocator that wrote the dump, None for any other."""
        name = device_name(dump.allocator)
        return name if name in self._capacities else None

    def at_failure(self, device: str, requested: int | None, dumps: list[DumpFile]) -> MemoryMap | None:
        """The map that TensorFlow wrote as it gave up, or else one that was read while it waited.

        Other ops may still free a chunk during the wait, so TensorFlow's dump is the more exact one. Without it, the
        step may have several maps: some from before the request and some from after it, when the step's chunks are
        free already. The newest one in which the request does not fit is taken, or the fullest for an unknown size.
        """
        written = self.read(final_dump(dumps), device) if dumps else None
        if written is not None and (requested is None or would_fit(written, requested).fits is False):
            return written
        maps = [
            read_dump(data, wall_time, self._capacities.get(device))
            for wall_time, data in self._stalled.newest_first(device)
        ]
        if requested is None:
            return max(maps, key=lambda memory_map: memory_map.in_use_bytes or 0, default=None)
        stalled = next((memory_map for memory_map in maps if would_fit(memory_map, requested).fits is False), None)
        return written if stalled is None else stalled

    def read(self, dump: DumpFile, device: str) -> MemoryMap | None:
        """Read a dump of a device, waiting until TensorFlow has written it; None if it stays empty or was deleted."""
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
