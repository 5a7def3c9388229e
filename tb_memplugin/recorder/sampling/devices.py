"""TensorFlow's devices: which ones to record, and the statistics of their allocators."""

import dataclasses
import functools
import os
import re
from collections.abc import Sequence
from typing import Any

from tb_memplugin.errors import RecordingError
from tb_memplugin.model.notes import NOT_RECORDING

_NAME = re.compile(r"(?:/device:)?(CPU|GPU):(\d+)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Device:
    """A device whose memory is recorded.

    Attributes:
        name: ``GPU:0`` or ``CPU:0``.
        capacity_bytes: The allocator's limit, None if unknown.
        pci_bus_id: The GPU's PCI bus id, None for a CPU.
        grows: Whether the allocator reserves memory as needed (True) or its whole limit at once (False); None if
            unknown.
    """

    name: str
    capacity_bytes: int | None
    pci_bus_id: str | None
    grows: bool | None = None


def choose_devices(names: Sequence[str] | None) -> tuple[list[Device], list[str]]:
    """The devices to record, and a sentence for each one that cannot be recorded, or not fully.

    Args:
        names: Device names, None for all GPUs, or the CPU if there is no GPU.

    Raises:
        RecordingError: A name is not a device of this process.
    """
    import tensorflow as tf

    logical = [
        _short(device.name) for device in tf.config.list_logical_devices() if device.device_type in ("CPU", "GPU")
    ]
    if names is None:
        chosen = [name for name in logical if name.startswith("GPU")] or ["CPU:0"]
    else:
        chosen = [_checked(name, logical) for name in names]
    chosen, shared = _one_cpu(chosen)
    details = _local_details() if any(name.startswith("GPU") for name in chosen) else {}
    devices: list[Device] = []
    sentences = [shared] if shared else []
    for name in chosen:
        if name.startswith("CPU") and not cpu_uses_bfc():
            sentences.append(
                f"{NOT_RECORDING} {name}: TensorFlow's plain CPU allocator keeps no statistics. Set "
                "TF_CPU_ALLOCATOR_USE_BFC=1 (and TF_CPU_BFC_MEM_LIMIT_IN_MB) before importing TensorFlow."
            )
        elif name.startswith("CPU"):
            devices.append(Device(name, _cpu_capacity(), None, grows=True))
        else:
            if os.environ.get("TF_GPU_ALLOCATOR") == "cuda_malloc_async":
                sentences.append(
                    f"Layers, pool, free chunks and memory maps of {name} are unknown: the allocator of "
                    "TF_GPU_ALLOCATOR=cuda_malloc_async reports no allocations."
                )
            capacity, bus = details.get(name, (None, None))
            devices.append(Device(name, capacity, bus, _gpu_grows()))
    return devices, sentences


def _one_cpu(names: list[str]) -> tuple[list[str], str | None]:
    """The devices with only one of the logical devices of the CPU, and a sentence on the others.

    They share one allocator: each would repeat the bytes of all, and a sum over devices would count them again.
    """
    cpus = list(dict.fromkeys(name for name in names if name.startswith("CPU")))
    if len(cpus) < 2:
        return names, None
    others = ", ".join(cpus[1:])
    sentence = f"{NOT_RECORDING} {others}: logical devices of the CPU share one allocator, recorded as {cpus[0]}."
    return [name for name in names if name not in cpus[1:]], sentence


def cpu_uses_bfc() -> bool:
    """Whether ``CPU:0`` uses the BFC allocator. TensorFlow reads the environment variable at import."""
    return os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() in ("1", "true")


def memory_info(device: str) -> tuple[int, int]:
    """(bytes in use, peak bytes since the last reset) of a device's allocator; takes a few microseconds."""
    import tensorflow as tf

    info = tf.config.experimental.get_memory_info(device)
    return info["current"], info["peak"]


def reset_peak(device: str) -> None:
    """Reset the allocator's peak to the bytes in use now."""
    import tensorflow as tf

    tf.config.experimental.reset_memory_stats(device)


def _short(name: str) -> str:
    return name.rsplit("device:", 1)[-1]


def _checked(name: Any, logical: list[str]) -> str:
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    short = f"{match[1].upper()}:{int(match[2])}" if match else None
    if short is None or short not in logical:
        raise RecordingError(
            f"devices must name devices of this process ({', '.join(logical)}). Received: devices=[…, {name!r}, …]"
        )
    return short


def _cpu_capacity() -> int:
    # TensorFlow's own default: 64 GiB.
    return int(os.environ.get("TF_CPU_BFC_MEM_LIMIT_IN_MB") or 1 << 16) << 20


def _gpu_grows() -> bool | None:
    """Whether memory growth is on for GPUs: from the environment first, then from TensorFlow's configuration.

    GPUs that are split into logical devices with limits do not grow. All GPUs of a process have the same setting.
    """
    if os.environ.get("TF_GPU_ALLOCATOR"):
        return None
    forced = os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "").lower()
    if forced in ("true", "false"):
        return forced == "true"
    import tensorflow as tf

    try:
        gpus = tf.config.get_visible_devices("GPU")
        if any(tf.config.get_logical_device_configuration(gpu) for gpu in gpus):
            return False
        return any(tf.config.experimental.get_memory_growth(gpu) for gpu in gpus)
    except Exception:  # this TensorFlow lacks the API
        return None


@functools.cache  # devices do not change once they are in use, and listing them takes milliseconds per GPU
def _local_details() -> dict[str, tuple[int | None, str | None]]:
    """Device name to (allocator's limit, PCI bus id)."""
    from tensorflow.python.client import device_lib  # TensorFlow's only source of an allocator's limit

    details = {}
    for device in device_lib.list_local_devices():
        bus = re.search(r"pci bus id: ([0-9a-fA-F:.]+)", device.physical_device_desc)
        details[_short(device.name)] = (int(device.memory_limit) or None, bus[1] if bus else None)
    return details
