"""Memory figures of the operating system and of NVIDIA's driver."""

import contextlib
import dataclasses
import os
from typing import Any

from tb_memplugin.schema import MISSING


class ResidentMemory:
    """Host RSS of this process. A read takes about a microsecond on Linux; other systems give `MISSING`."""

    def __init__(self) -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
        self._statm: int | None = None
        self.open()

    def open(self) -> None:
        """Open the file descriptor again after `close`."""
        try:
            self._statm = os.open("/proc/self/statm", os.O_RDONLY) if self._statm is None else self._statm
        except OSError:
            self._statm = None

    def resident_bytes(self) -> int:
        """Resident set size in bytes (`/proc/self/statm`, second field)."""
        if self._statm is None:
            return MISSING
        return int(os.pread(self._statm, 128, 0).split()[1]) * self._page_bytes

    def close(self) -> None:
        if self._statm is not None:
            os.close(self._statm)
            self._statm = None


@dataclasses.dataclass(frozen=True)
class DriverFigures:
    """The driver's figures for one GPU, in bytes; `MISSING` if unknown."""

    process_bytes: int = MISSING
    used_bytes: int = MISSING
    total_bytes: int = MISSING


class Driver:
    """Queries NVIDIA's management library (NVML), if it is installed and works. Open it and read once on the training's
    thread, before the background thread does all later calls. TensorFlow and the driver number GPUs differently: a
    device (``GPU:0``) is found by its PCI bus id."""

    def __init__(self, pci_bus_ids: dict[str, str]) -> None:
        self.figures: dict[str, DriverFigures] = {}  # the last ones by device
        self._pci_bus_ids = pci_bus_ids
        self._handles: dict[str, Any] = {}
        self._library: Any = None

    def open(self) -> None:
        """Open the library, also again after `close`. Takes milliseconds."""
        if not self._pci_bus_ids or self._library is not None:
            return
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        self._library = pynvml
        for device, bus in self._pci_bus_ids.items():
            with contextlib.suppress(pynvml.NVMLError):
                self._handles[device] = pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode())

    @property
    def answers(self) -> bool:
        return bool(self._handles)

    def read(self) -> None:
        """Update `figures`. Takes up to milliseconds per GPU."""
        for device, handle in self._handles.items():
            self.figures[device] = self._read_device(handle)

    def _read_device(self, handle: Any) -> DriverFigures:
        library = self._library
        try:
            memory = library.nvmlDeviceGetMemoryInfo(handle)
        except library.NVMLError:
            return DriverFigures()
        process = MISSING
        with contextlib.suppress(library.NVMLError):
            for entry in library.nvmlDeviceGetComputeRunningProcesses(handle):
                if entry.pid == os.getpid() and entry.usedGpuMemory is not None:
                    process = int(entry.usedGpuMemory)
        return DriverFigures(process, int(memory.used), int(memory.total))

    def close(self) -> None:
        if self._library is not None:
            self._library.nvmlShutdown()
            self._library, self._handles = None, {}
