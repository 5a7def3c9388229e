"""`Sampler`: the cheap record of every step, and the buffer in which it waits (`SampleBuffer`).

`FastPath` ends a step and begins the next one while nothing else is due. A training step takes the
processor's caches for itself, so whatever the recorder touches afterwards costs about ten times as
much as in a loop of its own. That path is therefore one function with few calls; all else lies
behind its comparisons."""

import array
import collections
import contextlib
import dataclasses
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tb_memplugin.recorder.base import Due, changes
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.schema import MISSING, PHASES, SAMPLE_COLUMNS, DeviceSamples, Phase, Samples

RESIDENT_SECONDS = 0.05
"""Shortest time between two reads of host RSS. A read takes longer than all other figures of an
ordinary step."""
# least growth of host RSS and of a device's peak that `Sampler.grew` reports; twice as much each
# time
HOST_GROWTH_BYTES, DEVICE_GROWTH_BYTES = 8 << 20, 1 << 20
MAX_ROWS = 1 << 18
"""Most rows that wait: about 30 MiB for one device. More wait only if the files cannot be written
for hours."""
DROPPED = -1

# the order of a row's figures
_COMMON = tuple(name for name in SAMPLE_COLUMNS if name != "wall_time")
_OF_DEVICE = tuple(field.name for field in dataclasses.fields(DeviceSamples))
_RESIDENT = _COMMON.index("host_resident_bytes")
_POOL, _LARGEST_FREE = _OF_DEVICE.index("pool_bytes"), _OF_DEVICE.index("largest_free_bytes")
_NO_FIGURES = allocator.DriverFigures()


class Clock:
    """Wall time of one session. When the system's clock is set back, it goes on from the last time
    at the same pace; otherwise hours of a training could lie before its start. One thread owns
    it."""

    def __init__(self) -> None:
        self._last = 0.0
        self.behind = 0.0  # seconds by which the system's clock is behind this one

    def now(self) -> float:
        """Seconds since the epoch, never less than before."""
        now = time.time() + self.behind
        if now < self._last:
            self.behind += self._last - now
            now = self._last
        self._last = now
        return now

    def advance_to(self, wall_time: float) -> None:
        """Go on from a time that was read without `now`."""
        self._last = max(self._last, wall_time)


class ResidentMemory:
    """Host RSS of this process. A read takes about a microsecond on Linux; other systems give
    `MISSING`."""

    def __init__(self) -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
        self._statm: int | None = None
        self.open()

    def open(self) -> None:
        if self._statm is None:
            with contextlib.suppress(OSError):
                self._statm = os.open("/proc/self/statm", os.O_RDONLY)

    def resident_bytes(self) -> int:
        if self._statm is None:
            return MISSING
        return int(os.pread(self._statm, 128, 0).split()[1]) * self._page_bytes

    def close(self) -> None:
        if self._statm is not None:
            os.close(self._statm)
            self._statm = None


class SampleBuffer:
    """Takes rows of figures from one thread and returns them as columns on another. Every method is
    thread-safe."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = tuple(devices)
        self._width = len(_COMMON) + len(self.devices) * len(_OF_DEVICE)
        # row after row, without an object for each
        self._values, self._times = array.array("q"), array.array("d")
        self._taken = self._dropped = 0
        self._awaited: set[int] = set()  # numbers of rows that wait for `measure`
        self._short: collections.deque[tuple[float, ...]] = collections.deque()
        self.keep = self._short.append
        """Adds a short row without a lock, not while another thread calls `append`: wall time,
        step, host RSS, and the bytes in use and the peak of each device. The buffers in host memory
        are unknown in it; see `like`."""
        self._rest: tuple[int, ...] = ()  # what short rows leave out
        self._lock = threading.Lock()

    def append(self, wall_time: float, row: tuple[int, ...], waits: bool = False) -> int:
        """Add a row and return its number, for `measure`; `DROPPED` if `MAX_ROWS` wait already. A
        row is the integers of `SAMPLE_COLUMNS`, then each device's fields of `DeviceSamples`;
        `MISSING` for unknown ones. One that `waits`, and later ones, are not taken before
        `release`."""
        with self._lock:
            self._complete()
            number = self._append(wall_time, row)
            if waits and number != DROPPED:
                self._awaited.add(number)
            return number

    def release(self, number: int | None = None) -> None:
        """Let a row be taken, by default all: nothing is measured for it any more."""
        with self._lock:
            self._awaited = set() if number is None else self._awaited - {number}

    def like(self, row: tuple[int, ...]) -> None:
        """Take the other figures of the short rows to come from `row`."""
        with self._lock:
            self._complete()
            self._rest = row

    def _complete(self) -> None:
        rest, figures = self._rest, len(_OF_DEVICE)
        while self._short:
            wall_time, step, resident, *sizes = self._short.popleft()
            row = [step, rest[1], rest[2], resident, MISSING, MISSING]
            for at in range(len(self.devices)):
                start = len(_COMMON) + at * figures
                row += (*sizes[2 * at : 2 * at + 2], *rest[start + 2 : start + figures])
            self._append(wall_time, row)

    def _append(self, wall_time: float, row: Sequence[Any]) -> int:
        if len(self._times) >= MAX_ROWS:
            self._dropped += 1
            return DROPPED
        self._values.extend(array.array("q", row))  # raises before anything is added
        self._times.append(wall_time)
        return self._taken + len(self._times) - 1

    def measure(self, number: int, device: str, pool_bytes: int, largest_free_bytes: int) -> bool:
        """Fill in the pool at the step end of a row from `append`; False if the row was taken
        already."""
        start = len(_COMMON) + self.devices.index(device) * len(_OF_DEVICE)
        with self._lock:
            at = number - self._taken
            if not 0 <= at < len(self._times):
                return False
            start += at * self._width
            self._values[start + _POOL], self._values[start + _LARGEST_FREE] = (
                pool_bytes,
                largest_free_bytes,
            )
            return True

    def take_dropped(self) -> int:
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        return dropped

    def take(self) -> Samples | None:
        with self._lock:
            self._complete()
            count = min([len(self._times), *(number - self._taken for number in self._awaited)])
            values, self._values = (
                self._values[: count * self._width],
                self._values[count * self._width :],
            )
            times, self._times = self._times[:count], self._times[count:]
            self._taken += count
        if not times:
            return None
        columns = np.frombuffer(values, np.int64).reshape(len(times), self._width).T
        common, *of_devices = np.split(columns, range(len(_COMMON), self._width, len(_OF_DEVICE)))
        devices = {
            name: DeviceSamples(*rows) for name, rows in zip(self.devices, of_devices, strict=True)
        }
        own = dict(zip(_COMMON, common, strict=True))
        return Samples(**own, wall_time=np.asarray(times, np.float64), devices=devices)


class PassedSteps(NamedTuple):
    """Steps that ended by themselves: how many, how long they took together, the highest peak of
    any device."""

    steps: int
    seconds: float
    peak_bytes: int


class FastPath:
    """The training's thread calls all methods except `disarm`, which any thread may call, as it may
    read `step`, `began` (the running step's wall time by the recorder's clock) and `passed` (steps
    that ended since `arm`)."""

    __slots__ = (
        *("step", "began", "passed"),
        *("_seen", "_until", "_last_step", "_most_bytes", "_highest", "_first", "_behind"),
        *("_handle", "_get", "_reset", "_devices", "_keep", "_host", "_resident", "_next_read"),
    )

    def __init__(
        self,
        devices: Sequence[str],
        host: ResidentMemory,
        keep: Callable[[tuple[float, ...]], None],
    ) -> None:
        self._devices = tuple(devices)
        self._host = host
        self._keep = keep  # called with a short row for each step: `SampleBuffer.keep`
        self.step, self.began, self.passed = 0, 0.0, 0
        self._seen: Any = None
        self._handle: Any = None
        self._get: Any = None
        self._reset: Any = None
        self._until = self._first = self._behind = self._next_read = 0.0
        self._last_step = self._most_bytes = math.inf
        self._highest = self._resident = 0

    def next(self, step: int) -> bool:
        """End the running step, keep its sample and begin the next one. False if more is due, or if
        this fails: the step goes on then with its peaks, and the fault will show on the other
        path."""
        if changes.last is not self._seen:
            return False
        row: tuple[float, ...] = ()
        try:
            wall_time = time.time() + self._behind
            if not self.began <= wall_time < self._until or step >= self._last_step:
                return False
            if wall_time >= self._next_read:
                self._resident = self._host.resident_bytes()
                self._next_read = wall_time + RESIDENT_SECONDS
            handle, get, reset = self._handle, self._get, self._reset
            row = wall_time, self.step, self._resident
            for device in self._devices:
                figures = get(handle, device)
                peak = figures["peak"]
                if peak > self._most_bytes:
                    return False
                if peak > self._highest:
                    self._highest = peak
                row += figures["current"], peak
            for device in self._devices:
                reset(handle, device)
            self._keep(row)
        except Exception:
            # some were reset
            allocator.lose_peaks(dict(zip(self._devices, row[4::2], strict=False)))
            return False
        self.step, self.began = step, wall_time
        self.passed += 1
        return True

    def begin(self, step: int, began: float) -> None:
        """Begin a step on the other path. The next one does not begin here, unless `arm` is
        called."""
        self.step, self.began = step, began
        self._stop()

    def arm(
        self,
        seen: object,
        due: Due,
        behind: float,
        read_at: float,
        resident: int,
        statistics: allocator.Statistics,
    ) -> None:
        """Let the following steps begin here until more is `due`, or `changes.last` is not what was
        `seen` before. The recorder's clock adds `behind` to the system's; host RSS was last read at
        `read_at`."""
        self._until, self._last_step, self._most_bytes = (
            self.began + due.seconds,
            due.step,
            due.peak_bytes,
        )
        self._behind, self._first = behind, self.began
        self._resident, self._next_read = resident, read_at + RESIDENT_SECONDS
        self._handle, self._get, self._reset = statistics
        self._seen = seen

    def disarm(self) -> None:
        self._seen = None

    def drain(self) -> PassedSteps:
        """What ended here since `arm`; begins no further step here."""
        passed = PassedSteps(
            self.passed, self.began - self._first if self.passed else 0.0, self._highest
        )
        self._stop()
        return passed

    def _stop(self) -> None:
        self._seen = self._handle = None  # the context is not kept alive for longer than it is used
        self.passed = self._highest = 0


class Sample(NamedTuple):
    """A sampled step: its number in the buffer, and bytes in use and peak by device."""

    number: int
    in_use_bytes: Mapping[str, int]
    peak_bytes: Mapping[str, int]


class _Rise:
    """Levels of a figure, each twice as far above the one before."""

    def __init__(self, step_bytes: int) -> None:
        self.next_bytes, self._step_bytes = 0, step_bytes

    def reached(self, level: int) -> bool:
        if level < self.next_bytes:
            return False
        if self.next_bytes:
            self._step_bytes *= 2
        self.next_bytes = level + self._step_bytes
        return True


class Sampler:
    """Samples steps on the training's thread: `ordinary` those at which nothing else is due,
    `sample` the others."""

    def __init__(self, devices: Sequence[allocator.Device]) -> None:
        self.names = tuple(device.name for device in devices)
        self.clock = Clock()
        self.host = ResidentMemory()
        self.buffer = SampleBuffer(self.names)
        self.ordinary = FastPath(self.names, self.host, self.buffer.keep)
        self.driver = allocator.Driver(
            {device.name: device.pci_bus_id for device in devices if device.pci_bus_id}
        )
        self._devices = devices
        # the last sample's wall time and row
        self._last: tuple[float, tuple[int, ...]] | None = None
        self._host_rise, self._peak_rise = _Rise(HOST_GROWTH_BYTES), _Rise(DEVICE_GROWTH_BYTES)
        # device to the highest peak that other recorders reset in the running step
        self._lost: Mapping[str, int] = {}
        self._peak_bytes = 0  # the highest of the last sample's devices

    def sample(
        self,
        wall_time: float,
        step: int,
        phase: Phase,
        epoch: int,
        host_buffers: tuple[int, int] | None,
        waits: bool = False,
    ) -> Sample:
        """Sample a step that ends now; `host_buffers` as `HostBuffers.read` gives them, None if
        they were not read. One that `waits` is kept back for the figures of its pool:
        `SampleBuffer.measure`, then `release`."""
        self._last = None
        row = [
            step,
            PHASES.index(phase),
            epoch,
            self.host.resident_bytes(),
            *(host_buffers or (MISSING, MISSING)),
        ]
        peaks, in_use = {}, {}
        for device in self._devices:
            name, capacity = device.name, device.capacity_bytes
            in_use[name], peak = allocator.memory_info(name)
            peaks[name] = max(peak, allocator.lost_peaks.get(name, 0), self._lost.get(name, 0))
            process, used, total = self.driver.figures.get(name, _NO_FIGURES)
            total = total if device.total_bytes is None else device.total_bytes
            row += (
                in_use[name],
                peaks[name],
                MISSING if capacity is None else capacity,
                process,
                used,
                total,
            )
            # the pool and its largest free chunk, which `SampleBuffer.measure` fills in
            row += (MISSING, MISSING)
        self._last = wall_time, tuple(row)
        self._peak_bytes = max(peaks.values(), default=0)
        return Sample(self.buffer.append(*self._last, waits), in_use, peaks)

    def lose(self, peaks: Mapping[str, int]) -> None:
        """Take the peaks of the running step, which another recorder is about to reset."""
        self._lost = {name: max(peak, self._lost.get(name, 0)) for name, peak in peaks.items()}

    def reset_peaks(self) -> None:
        """Reset the devices' peaks as a step begins."""
        self._lost = {}
        for name in self.names:
            allocator.reset_peak(name)

    def allow_ordinary(self, seen: object, due: Due, step: int, phase: Phase, epoch: int) -> None:
        """Let steps end and begin by themselves from this one on; see `FastPath.arm`."""
        statistics = allocator.statistics()
        if statistics is not None and self._last is not None:
            read_at, row = self._last
            self.buffer.like((step, PHASES.index(phase), epoch, *row[_RESIDENT:]))
            self.ordinary.arm(seen, due, self.clock.behind, read_at, row[_RESIDENT], statistics)

    @property
    def next_look_bytes(self) -> int:
        """The peak of a device from which on memory `grew`."""
        return self._peak_rise.next_bytes

    def grew(self) -> bool:
        """Whether host RSS or a device's peak grew since this was last True; the first time that
        they are known, they did."""
        if self._last is None:
            return False
        host = self._host_rise.reached(self._last[1][_RESIDENT])
        return self._peak_rise.reached(self._peak_bytes) or host
