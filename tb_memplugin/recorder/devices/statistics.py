"""TensorFlow's devices: which ones to record, their allocators' statistics, and the figures of
NVIDIA's driver."""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from tb_memplugin.environment import VARIABLE
from tb_memplugin.errors import RecordingError
from tb_memplugin.schema import MISSING, NOT_RECORDING, is_cpu, is_gpu

Statistics: TypeAlias = tuple[
    Any, Callable[[Any, str], Mapping[str, int]], Callable[[Any, str], None]
]
"""TensorFlow's context, and its functions of a context and a device that read and reset an
allocator's statistics."""

_CPU_LIMIT = "TF_CPU_BFC_MEM_LIMIT_IN_MB"
_CPU_DEFAULT_MIB = 1 << 16
_MADE_BEFORE = (
    "TensorFlow had made its plain CPU allocator, which keeps no statistics, before tb_memplugin "
    "was imported. Put `import tb_memplugin` above the first line that makes a model, a tensor or "
    "a variable."
)
_PLAIN = (
    "TensorFlow's plain CPU allocator keeps no statistics. Set TF_CPU_ALLOCATOR_USE_BFC=1 (and "
    "TF_CPU_BFC_MEM_LIMIT_IN_MB) before importing TensorFlow."
)
_GROUP_LIMIT = "/sys/fs/cgroup/memory.max"
_NAME = re.compile(r"(?:/device:)?(CPU|GPU):(\d+)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Device:
    """A device whose memory is recorded."""

    name: str  # ``GPU:0`` or ``CPU:0``
    # the allocator's limit, at most the machine's memory for a CPU; None if unknown
    capacity_bytes: int | None
    pci_bus_id: str | None  # None for a CPU
    # the memory that this process may have, for a CPU; None if unknown, and for a GPU
    total_bytes: int | None = None


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Run what follows at once, also where the program builds a graph, which gets no op of it: also
    a graph for `tf.compat.v1.Session`, which ``tf.init_scope`` does not leave."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    with tf.init_scope(), context.eager_mode():
        yield


def choose_devices(names: Sequence[str] | None) -> tuple[list[Device], list[str]]:
    """The devices to record, and a sentence for each one that cannot be recorded, or not fully. By
    default all GPUs, or the CPU if there is no GPU. Raises `RecordingError` for a name that is none
    of a CPU or GPU."""
    import tensorflow as tf

    kinds = ("CPU", "GPU")
    every = tf.config.list_logical_devices()
    logical = [_short(one.name) for one in every if one.device_type in kinds]
    if names is None:
        wanted = [name for name in logical if is_gpu(name)] or ["CPU:0"]
    else:
        wanted = [_checked(name) for name in names]
    missing = [name for name in wanted if names is not None and name not in logical]
    sentences = [
        f"{NOT_RECORDING} {name}: this process has only {', '.join(logical)}." for name in missing
    ]
    chosen = [name for name in dict.fromkeys(wanted) if name not in missing]
    # The logical devices of the CPU share one allocator: each would repeat the bytes of all.
    cpu, *others = [name for name in chosen if is_cpu(name)] or [""]
    if others:
        same = f"logical devices of the CPU share one allocator, recorded as {cpu}."
        sentences.append(f"{NOT_RECORDING} {', '.join(others)}: {same}")
    details = _local_details() if any(map(is_gpu, chosen)) else {}
    devices: list[Device] = []
    for name in chosen:
        if is_gpu(name):
            if os.environ.get("TF_GPU_ALLOCATOR") == "cuda_malloc_async":
                sentences.append(
                    f"Layers, pool, free chunks and memory maps of {name} are unknown: the "
                    "allocator of TF_GPU_ALLOCATOR=cuda_malloc_async reports no allocations."
                )
            devices.append(Device(name, *details.get(name, (None, None))))
        elif name == cpu and not cpu_uses_bfc():
            reason = _MADE_BEFORE if asks_for_bfc() else _PLAIN
            sentences.append(f"{NOT_RECORDING} {name}: {reason}")
        elif name == cpu:
            limit, ignored = _cpu_capacity()
            total = machine_bytes()
            devices.append(Device(name, min(limit, total or limit), None, total))
            sentences += [ignored] if ignored else []
    return devices, sentences


def asks_for_bfc() -> bool:
    return os.environ.get(VARIABLE, "").lower() in ("1", "true")


@functools.cache  # the allocator stays as long as the process
def cpu_uses_bfc() -> bool:
    """Whether ``CPU:0`` has the BFC allocator. A plain one has no statistics, and TensorFlow
    raises, or with oneDNN statistics that stay 0."""
    import numpy as np
    import tensorflow as tf

    if not asks_for_bfc():
        return False
    with eagerly(), tf.device("CPU:0"):
        # Of an array, since TensorFlow keeps the tensors that it makes of Python's numbers.
        kept = tf.raw_ops.Empty(shape=np.asarray([1], np.int32), dtype=tf.float32)
    try:
        in_use, _ = memory_info("CPU:0")
    except ValueError:
        return False
    finally:
        del kept
    return in_use > 0


def memory_info(device: str) -> tuple[int, int]:
    """(bytes in use, peak bytes since the last reset) of a device's allocator; takes a few
    microseconds."""
    import tensorflow as tf

    info = tf.config.experimental.get_memory_info(device)
    return info["current"], info["peak"]


def statistics() -> Statistics | None:
    """The context and the functions under `memory_info` and `reset_peak`; None if this TensorFlow
    has no such ones."""
    try:
        from tensorflow.python import pywrap_tfe
        from tensorflow.python.eager.context import context

        handle = context()._context_handle  # without one they would crash the process
        return (
            None
            if handle is None
            else (handle, pywrap_tfe.TFE_GetMemoryInfo, pywrap_tfe.TFE_ResetMemoryStats)
        )
    except (ImportError, AttributeError):
        return None


lost_peaks: dict[str, int] = {}
"""Device to the highest peak that was reset within the running step: its step had it, too."""


def peaks(devices: Sequence[str]) -> dict[str, int]:
    """The peaks of the running step so far, also those that were reset within it."""
    return {name: max(memory_info(name)[1], lost_peaks.get(name, 0)) for name in devices}


def lose_peaks(peaks: Mapping[str, float]) -> None:
    for name, peak in peaks.items():
        lost_peaks[name] = max(lost_peaks.get(name, 0), int(peak))


def keep_peak(device: str) -> None:
    """Keep a device's peak, which the program is about to reset."""
    name = _short(device).upper()
    lose_peaks({name: memory_info(name)[1]})


def reset_peak(device: str) -> None:
    import tensorflow as tf

    tf.config.experimental.reset_memory_stats(device)
    lost_peaks.pop(device, None)


def _short(name: str) -> str:
    return name.rsplit("device:", 1)[-1]


def _checked(name: Any) -> str:
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise RecordingError(
            f"devices are named such as 'GPU:0' or 'CPU:0'. Received: devices=[…, {name!r}, …]"
        )
    return f"{match[1].upper()}:{int(match[2])}"


def _cpu_capacity() -> tuple[int, str | None]:
    """The limit of the CPU's BFC allocator in bytes, and a sentence if the variable that sets it is
    no number. TensorFlow uses the digits before the first other character then, so ``2GB`` is 2
    MiB."""
    text = os.environ.get(_CPU_LIMIT)
    if text is None:
        return _CPU_DEFAULT_MIB << 20, None
    number = re.match(r"\s*\+?(\d+)(\s*$)?", text, re.ASCII)
    limit = int(number[1]) if number else 0
    ignored = (
        f"{_CPU_LIMIT} must be a whole number of MiB: TensorFlow takes {text!r:.40} as {limit} MiB."
    )
    return limit << 20, None if number and number[2] is not None else ignored


def machine_bytes() -> int | None:
    """The machine's memory, or less if the control group of this process has a limit; None if
    unknown."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    try:
        with open(_GROUP_LIMIT, encoding="ascii") as file:
            return min(total, int(file.read()))
    except (OSError, ValueError):  # no such group, or "max"
        return total


# devices do not change once they are in use, and listing them takes milliseconds per GPU
@functools.cache
def _local_details() -> dict[str, tuple[int | None, str | None]]:
    """Device name to (allocator's limit, PCI bus id)."""
    # TensorFlow's only source of an allocator's limit
    from tensorflow.python.client import device_lib

    details = {}
    for device in device_lib.list_local_devices():
        bus = re.search(r"pci bus id: ([0-9a-fA-F:.]+)", device.physical_device_desc)
        details[_short(device.name)] = (int(device.memory_limit) or None, bus[1] if bus else None)
    return details


class DriverFigures(NamedTuple):
    """The driver's figures for one GPU, in bytes; `MISSING` if unknown."""

    process_bytes: int = MISSING
    used_bytes: int = MISSING
    total_bytes: int = MISSING


class Driver:
    """Queries NVIDIA's management library (NVML), if it is installed and works. The training's
    thread opens it and reads once; the background thread makes all later calls. TensorFlow and the
    driver number GPUs differently: a device (``GPU:0``) is found by its PCI bus id."""

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
        library = self._library
        for device, handle in self._handles.items():
            figures = DriverFigures()
            with contextlib.suppress(library.NVMLError):
                memory = library.nvmlDeviceGetMemoryInfo(handle)
                figures = DriverFigures(MISSING, int(memory.used), int(memory.total))
                for entry in library.nvmlDeviceGetComputeRunningProcesses(handle):
                    if entry.pid == os.getpid() and entry.usedGpuMemory is not None:
                        figures = figures._replace(process_bytes=int(entry.usedGpuMemory))
            self.figures[device] = figures

    def close(self) -> None:
        if self._library is not None:
            self._library.nvmlShutdown()
            self._library, self._handles = None, {}
