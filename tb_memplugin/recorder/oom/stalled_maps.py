"""`StalledMaps`: memory maps of a step that may be waiting for memory.

TensorFlow waits up to ten seconds for memory before an allocation fails, and frees the step's chunks before the
exception reaches Python. So the map at the failure must be read during the wait.
"""

import collections
import time
from collections.abc import Sequence

from tb_memplugin.recorder.base.due import changes
from tb_memplugin.recorder.native.memory_maps import MemoryMaps
from tb_memplugin.recorder.sampling import devices as allocator

POLL_SECONDS = 0.5
MAX_MAPS = 8
"""Most maps that are kept of one step, the newest ones."""


class StalledMaps:
    """Memory maps of one step, read when its bytes in use have not changed since the last poll.

    The background thread polls; the training's thread clears and reads.

    Args:
        devices: Names of the recorded devices.
        maps: Reads their maps.
    """

    def __init__(self, devices: Sequence[str], maps: MemoryMaps) -> None:
        self._devices = [device for device in devices if maps.available(device)]
        self._maps = maps
        self.clear()

    def clear(self) -> None:
        """Drop the maps as a step begins or ends."""
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
