"""`MemoryMaps`: reads the memory maps of TensorFlow's BFC allocators."""

import contextlib
import os
import threading
from collections.abc import Callable, Sequence

from tb_memplugin.importers.allocator.memory_dump import summarize_dump
from tb_memplugin.model import is_gpu
from tb_memplugin.recorder.native.allocators import PINNED, find_allocator
from tb_memplugin.recorder.native.framework import Framework, check_switch, open_framework
from tb_memplugin.recorder.native.mapped_memory import MappedMemory, UnreadableError
from tb_memplugin.recorder.sampling import devices as allocator_figures

ATTEMPTS = 5
"""Most comparisons with the allocator's statistics in one read."""
MAX_DISAGREEMENTS = 20
"""Failed comparisons after which reading is turned off."""
_FALLBACK = "Chunk sizes are rounded requests instead."


class MemoryMaps:
    """Reads the memory maps of the recorded devices, and of `PINNED`, if that is safe.

    Reading calls functions of TensorFlow's library that are not a public API; docs/development/memory_map.md
    lists the checks that come first. Any thread may read, but not a signal handler: a read takes the allocator's lock.
    `warn` is called once per device that cannot be read, with a sentence that says why.
    """

    def __init__(self, devices: Sequence[str], warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._allocators: dict[str, int] = {}
        self._verified: set[str] = set()
        self._disagreements = dict.fromkeys(devices, 0)
        self._framework: Framework | None = None
        try:
            self._open(devices)
        except Exception as error:
            self._turn_off(devices, error)

    def _open(self, devices: Sequence[str]) -> None:
        if not devices:
            return
        check_switch()
        import tensorflow as tf

        tf.config.list_logical_devices()  # creates the devices, and with them their allocators
        memory = MappedMemory()
        self._framework = open_framework(tf.__version__, memory)
        for device in devices:
            try:
                self._allocators[device] = find_allocator(self._framework, device, memory)
            except Exception as error:
                self._turn_off([device], error)

    def available(self, device: str) -> bool:
        """Whether the device's map can be read. The first read may still turn it off."""
        # In a forked child, the allocator's lock may stay locked by a thread that does not exist there.
        return device in self._allocators and os.getpid() == self._process

    def read(self, device: str) -> bytes | None:
        """The device's current memory map, for `memory_dump.read_dump`. Never raises.

        None if the map is not available, if the allocator has no memory yet, or if other threads allocated during the
        comparison of the first map with the allocator's statistics; the next read tries again.
        """
        allocator = self._allocators.get(device)
        if allocator is None or self._framework is None or not self.available(device):
            return None
        try:
            if device in self._verified:
                return self._framework.memory_map(allocator)
            return self._verify(self._framework, device, allocator)
        except Exception as error:
            self._turn_off([device], error)
            return None

    def _verify(self, framework: Framework, device: str, allocator: int) -> bytes | None:
        """Read a map and return it if the bytes of its chunks in use equal the allocator's statistics."""
        if device == PINNED:
            return self._verify_pinned(framework, allocator)
        for _ in range(ATTEMPTS):
            before, _ = allocator_figures.memory_info(device)
            data = framework.memory_map(allocator)
            after, _ = allocator_figures.memory_info(device)
            summary = summarize_dump(data)
            if is_gpu(device) and summary.device != device:
                raise UnreadableError(f"TensorFlow returned the map of {summary.device} instead")
            if not summary.chunks and not before and not after:
                return None
            if summary.in_use_bytes in (before, after):
                self._verified.add(device)
                return data
            if before == after:  # otherwise another thread allocated meanwhile
                self._disagreements[device] += 1
        if self._disagreements[device] >= MAX_DISAGREEMENTS:
            raise UnreadableError(
                f"its chunks in use sum to {summary.in_use_bytes} bytes, but TensorFlow's statistics say {after}"
            )
        return None

    def _verify_pinned(self, framework: Framework, allocator: int) -> bytes:
        """The same for pinned host memory: only the map itself has the statistics, taken under the same lock."""
        data = framework.memory_map(allocator)
        summary = summarize_dump(data)
        if summary.device != PINNED:
            raise UnreadableError(f"TensorFlow returned the map of {summary.device} instead")
        if summary.in_use_bytes != summary.stated_in_use_bytes:
            raise UnreadableError(
                f"its chunks in use sum to {summary.in_use_bytes} bytes, but its statistics say "
                f"{summary.stated_in_use_bytes}"
            )
        if summary.chunks:
            self._verified.add(PINNED)
        return data

    def _turn_off(self, devices: Sequence[str], error: Exception) -> None:
        with self._lock:
            turned_off = [device for device in devices if device in self._disagreements]
            for device in turned_off:
                del self._disagreements[device]
                self._allocators.pop(device, None)
        if not turned_off:
            return
        reason = str(error) if isinstance(error, UnreadableError) else f"{type(error).__name__}: {error}"
        named = [device for device in turned_off if device != PINNED]
        sentence = f"Not reading the memory map of {', '.join(named)}: {reason}. {_FALLBACK}"
        with contextlib.suppress(Exception):  # a failing report must not stop training
            self._warn(sentence if named else f"Not measuring pinned host memory: {reason}.")
