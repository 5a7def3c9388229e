"""`MemoryMaps`: finds the BFC allocators of TensorFlow's devices, checks them and reads their memory maps."""

import contextlib
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np

from tb_memplugin.importers import read_dump, summarize_dump
from tb_memplugin.recorder.devices import statistics as allocator_figures
from tb_memplugin.recorder.devices.native import BFC_TYPES, Framework, MappedMemory, UnreadableError, open_library
from tb_memplugin.recorder.devices.statistics import asks_for_bfc
from tb_memplugin.schema import IN_USE, is_gpu

PINNED = "gpu_host_bfc"
"""TensorFlow's name of the allocator of host memory that is pinned for transfers to GPUs; it belongs to no device."""


def find_allocator(framework: Framework, device: str, memory: MappedMemory) -> int:
    """Address of the BFC allocator of ``GPU:0``, ``CPU:0`` or `PINNED`; raises `UnreadableError` if there is none."""
    kind, _, number = device.partition(":")
    if kind == "CPU":
        if not asks_for_bfc():
            raise UnreadableError("the plain CPU allocator has none (TF_CPU_ALLOCATOR_USE_BFC is not set)")
        allocator = framework.cpu_allocator()
    elif device == PINNED:
        if not cuda_devices():
            raise UnreadableError("there is no local CUDA GPU")
        allocator = framework.gpu_host_allocator()
    else:
        if os.environ.get("TF_GPU_ALLOCATOR") == "cuda_malloc_async":
            raise UnreadableError("with TF_GPU_ALLOCATOR=cuda_malloc_async the driver manages the pool")
        if device not in cuda_devices():
            raise UnreadableError("it is not a local CUDA GPU")
        allocator = framework.gpu_allocator(int(number))
    allocator_type = type_name(allocator, memory)
    if allocator_type not in BFC_TYPES:
        raise UnreadableError(f"its allocator is a {readable_name(allocator_type)}, not a BFC allocator")
    return allocator


def cuda_devices() -> Collection[str]:
    """Names of this process's logical GPUs that use TensorFlow's own CUDA support; TensorFlow must have made them.

    Requesting the allocator of any other device ends the process, so the count comes from the local physical devices:
    logical ones may be of other hosts. GPUs of a pluggable device report no compute capability.
    """
    import tensorflow as tf

    if not tf.sysconfig.get_build_info().get("is_cuda_build"):
        return ()
    count = 0
    for gpu in tf.config.get_visible_devices("GPU"):
        if "compute_capability" not in tf.config.experimental.get_device_details(gpu):
            return ()
        count += len(tf.config.get_logical_device_configuration(gpu) or "1")
    return [f"GPU:{number}" for number in range(count)]


def type_name(address: int, memory: MappedMemory) -> str:
    """Mangled name of the C++ class of a polymorphic object of TensorFlow's library, such as ``N3tsl12BFCAllocatorE``.

    In the Itanium ABI, an object begins with a pointer into its class's vtable. The two words before that place are the
    offset from this subobject to the object's start, and a pointer to the type, whose second word points to the name.
    """
    vtable = memory.pointer(address)
    if "tensorflow" not in os.path.basename(memory.file_of(vtable)):
        raise UnreadableError("its allocator is not an object of TensorFlow's library")
    if memory.signed(vtable - 16) != 0:
        raise UnreadableError("its allocator is part of another object")
    return memory.text(memory.pointer(memory.pointer(vtable - 8) + 8)).removeprefix("*")


def readable_name(mangled: str) -> str:
    """``tsl::BFCAllocator`` for ``N3tsl12BFCAllocatorE``; names of another form unchanged."""
    parts, left = [], mangled.removeprefix("N").removesuffix("E")
    while match := re.match(r"\d+", left):
        end = match.end() + int(match[0])
        parts.append(left[match.end() : end])
        left = left[end:]
    return "::".join(parts) if parts and not left else mangled


ATTEMPTS = 5  # most comparisons with the allocator's statistics in one read
MAX_DISAGREEMENTS = 20  # failed comparisons after which reading is turned off


class MemoryMaps:
    """Reads the memory maps of the recorded devices, and of `PINNED`, if that is safe: the functions that it calls are
    not a public API, and docs/development/memory_map.md lists the checks that come first. Any thread may read, but not
    a signal handler: a read takes the allocator's lock. `warn` is called once per device that cannot be read.
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
        import tensorflow as tf

        tf.config.list_logical_devices()  # creates the devices, and with them their allocators
        memory = MappedMemory()
        self._framework = Framework(open_library(tf.__version__, memory))
        for device in devices:
            try:
                self._allocators[device] = find_allocator(self._framework, device, memory)
            except Exception as error:
                self._turn_off([device], error)

    def available(self, device: str) -> bool:
        """Whether the device's map can be read; the first read may turn it off."""
        # In a forked child, the allocator's lock may stay locked by a thread that does not exist there.
        return device in self._allocators and os.getpid() == self._process

    def read(self, device: str) -> bytes | None:
        """The device's current memory map, for `read_dump`. Never raises. None if it is not available, if the allocator
        has no memory yet, or if other threads allocated while the first map was compared; the next read tries again."""
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
        """A map, if the bytes of its chunks in use equal the allocator's statistics."""
        for _ in range(ATTEMPTS):
            before = 0 if device == PINNED else allocator_figures.memory_info(device)[0]
            data = framework.memory_map(allocator)
            after = 0 if device == PINNED else allocator_figures.memory_info(device)[0]
            summary = summarize_dump(data)
            if (is_gpu(device) or device == PINNED) and summary.device != device:
                raise UnreadableError(f"TensorFlow returned the map of {summary.device} instead")
            own = f"its chunks in use sum to {summary.in_use_bytes} bytes, but"
            if device == PINNED:  # only the map itself has the statistics, taken under the same lock
                if summary.in_use_bytes != summary.stated_in_use_bytes:
                    raise UnreadableError(f"{own} its statistics say {summary.stated_in_use_bytes}")
                if summary.chunks:
                    self._verified.add(PINNED)
                return data
            if not summary.chunks and not before and not after:
                return None
            if summary.in_use_bytes in (before, after):
                self._verified.add(device)
                return data
            if before == after:  # otherwise another thread allocated meanwhile
                self._disagreements[device] += 1
        if self._disagreements[device] >= MAX_DISAGREEMENTS:
            raise UnreadableError(f"{own} TensorFlow's statistics say {after}")
        return None

    def _turn_off(self, devices: Sequence[str], error: Exception) -> None:
        with self._lock:
            turned_off = [device for device in devices if device in self._disagreements]
            for device in turned_off:
                del self._disagreements[device]
                self._allocators.pop(device, None)
        reason = str(error) if isinstance(error, UnreadableError) else f"{type(error).__name__}: {error}"
        named = ", ".join(device for device in turned_off if device != PINNED)
        sentence = f"Not reading the memory map of {named}: {reason}. Chunk sizes are rounded requests instead."
        with contextlib.suppress(Exception):  # a failing report must not stop training
            if turned_off:
                self._warn(sentence if named else f"Not measuring pinned host memory: {reason}.")


_PROBES = 5


def resource_handle_bytes(maps: MemoryMaps, device: str) -> int | None:
    """Requested bytes of a resource handle's chunk, measured by making a few; None if unknown. Every variable, of any
    device, has a handle on ``CPU:0``: a C++ object whose size depends on the TensorFlow build. Python cannot read its
    address, so its chunk is recognized by this size."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    before = _sizes(maps, device)
    with tf.init_scope(), tf.device("CPU:0"):
        handles = [
            # As variables' handles: TensorFlow makes handles of any other name once for a process, and keeps them.
            tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name=context.anonymous_name())
            for _ in range(_PROBES)
        ]
        after = _sizes(maps, device)
        del handles
    new = Counter(size for address, size in after.items() if before.get(address) != size)
    return next((size for size, count in new.most_common(1) if count == _PROBES), None)


def _sizes(maps: MemoryMaps, device: str) -> dict[int, int]:
    """Requested bytes of the chunks in use, by address."""
    dump = maps.read(device)
    if dump is None:
        return {}
    memory_map = read_dump(dump, 0.0)
    used = np.flatnonzero(memory_map.state == IN_USE)
    return dict(zip(memory_map.address[used].tolist(), memory_map.requested_bytes[used].tolist(), strict=True))
