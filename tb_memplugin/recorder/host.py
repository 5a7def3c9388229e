"""What the operating system and NVIDIA's driver say about memory."""

import dataclasses
import os
from typing import Any

from tb_memplugin.codec import MISSING


class HostMemory:
    """Resident memory of this process; a reading costs about a microsecond on Linux, and is `MISSING` elsewhere."""

    def __init__(self) -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
        try:
            self._statm: int | None = os.open("/proc/self/statm", os.O_RDONLY)
        except OSError:
            self._statm = None

    def resident_bytes(self) -> int:
        """Resident set size in bytes (`/proc/self/statm`, second field)."""
        if self._statm is None:
            return MISSING
        return int(os.pread(self._statm, 128, 0).split()[1]) * self._page_bytes

    def close(self) -> None:
        """Gives the file descriptor back."""
        if self._statm is not None:
            os.close(self._statm)
            self._statm = None


@dataclasses.dataclass(frozen=True)
class DriverFigures:
    """What the driver reports of one card, in bytes; `MISSING` where it does not answer."""

    process_bytes: int = MISSING
    used_bytes: int = MISSING
    total_bytes: int = MISSING


class Driver:
    """NVIDIA's management library, where it is installed and answers.

    Args:
        pci_bus_ids: Device name (``GPU:0``) to the card's PCI bus, as TensorFlow reports it: TensorFlow and the driver
            number cards differently.
    """

    def __init__(self, pci_bus_ids: dict[str, str]) -> None:
        self.figures: dict[str, DriverFigures] = {}
        self._cards: dict[str, Any] = {}
        self._library: Any = None
        if pci_bus_ids:
            self._open(pci_bus_ids)

    def _open(self, pci_bus_ids: dict[str, str]) -> None:
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        self._library = pynvml
        for device, bus in pci_bus_ids.items():
            try:
                self._cards[device] = pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
            except pynvml.NVMLError:
                continue

    @property
    def answers(self) -> bool:
        """Whether any card can be asked."""
        return bool(self._cards)

    def read(self) -> None:
        """Asks every card; the answers are in `figures`. Takes up to milliseconds: call it off the training's
        thread."""
        for device, card in self._cards.items():
            self.figures[device] = self._read_card(card)

    def _read_card(self, card: Any) -> DriverFigures:
        library = self._library
        try:
            memory = library.nvmlDeviceGetMemoryInfo(card)
        except library.NVMLError:
            return DriverFigures()
        process = MISSING
        try:
            mine = os.getpid()
            for entry in library.nvmlDeviceGetComputeRunningProcesses(card):
                if entry.pid == mine and entry.usedGpuMemory is not None:
                    process = int(entry.usedGpuMemory)
        except library.NVMLError:
            pass
        return DriverFigures(process, int(memory.used), int(memory.total))

    def close(self) -> None:
        """Lets go of the library."""
        if self._library is not None:
            self._library.nvmlShutdown()
            self._library, self._cards = None, {}
