"""Whether the peak of devices' memory stays within a limit for a while, from the allocators' statistics."""

import gc
from collections.abc import Callable
from typing import Any

from tb_memplugin.errors import RecordingError
from tb_memplugin.model.units import format_bytes, parse_bytes
from tb_memplugin.recorder.sampling import devices as allocator


class DeviceLimit:
    """Measures the peak of each device between `begin` and `exceeded`.

    A reset of the statistics meanwhile, such as a recorder makes at every step, does not hide a peak: the call is
    wrapped, and reads the peak first.

    Args:
        limit: Highest allowed peak, such as ``"512 MiB"`` or a number of bytes.
        device: Device such as ``GPU:0``; by default each GPU, or the CPU if there is none.

    Raises:
        RecordingError: The limit is not a size, there is no such device, or its allocator keeps no statistics.
    """

    def __init__(self, limit: int | str, device: str | None = None) -> None:
        self._limit = _checked(limit)
        devices, unavailable = allocator.choose_devices(None if device is None else [device])
        if not devices:
            raise RecordingError(" ".join(unavailable) or "this process has no device to measure")
        self._devices = [device.name for device in devices]
        self._before: dict[str, int] = {}
        self._after: dict[str, int] = {}
        self._peaks: dict[str, int] = {}
        self._restore: Callable[[], None] | None = None

    def begin(self) -> None:
        """Free memory that only reference cycles hold, reset the peaks and wrap the call that resets them.

        Raises:
            RecordingError: An allocator keeps no statistics.
        """
        from tensorflow.python.eager.context import Context  # the public function calls its method

        gc.collect()  # models are in reference cycles
        for device in self._devices:
            try:
                allocator.reset_peak(device)
            except Exception as error:  # TensorFlow raises several types
                raise _unmeasured(device, error) from error
        self._read()
        self._before = dict(self._after)
        original = Context.reset_memory_stats

        def reset_memory_stats(context: Any, device: Any) -> Any:
            self._read()
            return original(context, device)

        Context.reset_memory_stats = reset_memory_stats
        self._restore = lambda: setattr(Context, "reset_memory_stats", original)

    def end(self) -> None:
        """Unwrap the call that resets the peaks."""
        if self._restore is not None:
            self._restore()
            self._restore = None

    def exceeded(self) -> list[str]:
        """One sentence for each device whose peak since `begin` exceeds the limit.

        Raises:
            RecordingError: An allocator's statistics cannot be read.
        """
        self._read()
        sentences = []
        for device, peak in self._peaks.items():
            if peak <= self._limit:
                continue
            received, allowed = format_bytes(peak), format_bytes(self._limit)
            if received == allowed:
                received, allowed = f"{peak:,} B", f"{self._limit:,} B"
            before, after = format_bytes(self._before[device]), format_bytes(self._after[device])
            sentences.append(f"{device}: peak {received}, limit {allowed}; in use: {before} before, {after} afterwards")
        return sentences

    def _read(self) -> None:
        for device in self._devices:
            try:
                self._after[device], peak = allocator.memory_info(device)
            except Exception as error:  # TensorFlow raises several types
                raise _unmeasured(device, error) from error
            self._peaks[device] = max(peak, self._peaks.get(device, 0))


def _checked(limit: Any) -> int:
    size = parse_bytes(limit) if isinstance(limit, str) else limit
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise RecordingError(f"the limit is a size such as '512 MiB' or a number of bytes. Received: {limit!r:.80}")
    return size


def _unmeasured(device: str, error: Exception) -> RecordingError:
    return RecordingError(f"the allocator of {device} gives no statistics: {' '.join(str(error).split())[:300]}")
