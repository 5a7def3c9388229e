"""Reads the memory maps of TensorFlow's BFC allocators (`MemoryMaps`) through functions of
TensorFlow's C++ library (`Framework`); its objects are read by address, only where memory is mapped
(`MappedMemory`).

All symbols are in ``libtensorflow_framework.so.2``, named as ``nm -D --defined-only`` prints them:
the allocator is in namespace ``tsl``, everything else in ``tensorflow``. No function takes or
returns a ``std::string``."""

import bisect
import contextlib
import ctypes
import mmap
import os
import platform
import re
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tb_memplugin.importers import MAX_DUMP_BYTES, read_dump, summarize_dump
from tb_memplugin.recorder.devices import statistics as allocator_figures
from tb_memplugin.recorder.devices.statistics import asks_for_bfc, eagerly
from tb_memplugin.schema import IN_USE, is_gpu

MACHINES = ("x86_64",)
"""Machines that pass the address of a returned object as the first argument. AArch64 passes it in
register x8, which ctypes cannot set."""

LIBRARY = "libtensorflow_framework.so.2"

# ``tensorflow::MemoryDump tsl::BFCAllocator::RecordMemoryMap()``
RECORD = "_ZN3tsl12BFCAllocator15RecordMemoryMapEv"
# ``size_t tensorflow::MemoryDump::ByteSizeLong() const``
BYTE_SIZE = "_ZNK10tensorflow10MemoryDump12ByteSizeLongEv"
SERIALIZE = "_ZNK6google8protobuf11MessageLite16SerializeToArrayEPvi"
"""``bool google::protobuf::MessageLite::SerializeToArray(void*, int) const``"""
DESTROY = "_ZN10tensorflow10MemoryDumpD1Ev"
"""``tensorflow::MemoryDump::~MemoryDump()``, the complete object destructor: it does not free the
object's own bytes"""
DUMP_VTABLE = "_ZTVN10tensorflow10MemoryDumpE"

CPU_STATE = "_ZN10tensorflow12ProcessState9singletonEv"
"""``static ProcessState* tensorflow::ProcessState::singleton()``"""
CPU_ALLOCATOR = "_ZN10tensorflow12ProcessState15GetCPUAllocatorEi"
"""``Allocator* tensorflow::ProcessState::GetCPUAllocator(int numa_node)``"""

GPU_STATE = "_ZN10tensorflow15GPUProcessState9singletonEPS0_"
"""``static GPUProcessState* tensorflow::GPUProcessState::singleton(GPUProcessState* ps =
nullptr)``"""
GPU_ALLOCATOR = (
    "_ZN10tensorflow15GPUProcessState15GetGPUAllocatorERKNS_10GPUOptionsEN3tsl3gtl7IntTypeINS4_15TfDeviceId_tag_EiEEm"
    "RKSt6vectorIS8_SaIS8_EE"
)
"""``Allocator* tensorflow::GPUProcessState::GetGPUAllocator(const GPUOptions&, TfDeviceId, size_t
total_bytes, const std::vector<TfDeviceId>& peer_gpu_ids)``"""
# the default ``tensorflow::GPUOptions``
GPU_OPTIONS = "_ZN10tensorflow29_GPUOptions_default_instance_E"
GPU_HOST_ALLOCATOR = "_ZN10tensorflow15GPUProcessState19GetGpuHostAllocatorERKNS_10GPUOptionsEi"
"""``Allocator* tensorflow::GPUProcessState::GetGpuHostAllocator(const GPUOptions&, int
numa_node)``"""

BFC_TYPES = ("N3tsl12BFCAllocatorE", "N10tensorflow15GPUBFCAllocatorE")
"""``typeid(allocator).name()`` of ``tsl::BFCAllocator`` and its subclass, for which it is the only
base, so that both have the same address. MklCPUAllocator is not among them: it has a BFC allocator
as a member."""

# environment variable: ``0`` turns all calls of this library off
SWITCH = "TB_MEMPLUGIN_MEMORY_MAP"
OBJECT_BYTES = 4096
"""Space for a MemoryDump. The library does not export its size, below 128 bytes so far."""


class UnreadableError(Exception):
    """Nothing can be read or called; the message is the reason, without a full stop."""


class MappedMemory:
    """The readable mappings of this process, from ``/proc/self/maps`` at construction. Every
    pointer is looked up here before it is followed: a wrong assumption about the library raises
    `UnreadableError` instead of a crash."""

    def __init__(self, listing: str | None = None) -> None:
        if listing is None:
            with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
                listing = file.read()
        # By column: an object for each of a thousand mappings would let Python's garbage collector
        # run earlier.
        self._starts, self._ends, self._files = list[int](), list[int](), list[str]()
        # "7f52c0000000-7f52c0021000 r-xp 00000000 08:01 123  /usr/lib/libm.so.6", in ascending
        # order
        for line in listing.splitlines():
            addresses, permissions, _, _, _, *path = line.split(None, 5)
            if permissions.startswith("r"):
                start, _, end = addresses.partition("-")
                self._starts.append(int(start, 16))
                self._ends.append(int(end, 16))
                self._files.append(path[0] if path else "")

    def file_of(self, address: int) -> str:
        """Path of the mapped file, empty for anonymous memory."""
        return self._files[self._at(address)]

    def paths_of(self, name: str) -> list[str]:
        return sorted({file for file in self._files if file.rpartition("/")[2] == name})

    def pointer(self, address: int) -> int:
        """The pointer at an aligned address."""
        if address % 8 or address + 8 > self._ends[self._at(address)]:
            raise UnreadableError(f"pointer {address:#x} does not point to readable memory")
        return ctypes.c_uint64.from_address(address).value

    def signed(self, address: int) -> int:
        return ctypes.c_int64(self.pointer(address)).value

    def text(self, address: int, longest: int = 200) -> str:
        """The zero-terminated ASCII text at an address, of less than `longest` characters."""
        data = ctypes.string_at(address, min(longest, self._ends[self._at(address)] - address))
        text, zero, _ = data.partition(b"\0")
        if not zero or not text.isascii():
            raise UnreadableError(f"there is no name at {address:#x}")
        return text.decode("ascii")

    def _at(self, address: int) -> int:
        number = bisect.bisect_right(self._starts, address) - 1
        if number >= 0 and address < self._ends[number]:
            return number
        raise UnreadableError(f"pointer {address:#x} does not point to readable memory")


class Framework:
    """Functions of ``libtensorflow_framework``; any thread may call them. Only calls that wait for
    an allocator's lock release the GIL: getting it back may take longer than the other calls.

    Signatures follow the Itanium C++ ABI on x86-64: `this` is the first argument. An object with a
    destructor is returned in space that the caller provides; its address is passed before `this`,
    and the function returns it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        self._record = self._function(RECORD, pointer, pointer, pointer)
        self._byte_size = self._function(BYTE_SIZE, size, pointer, waits=False)
        self._serialize = self._function(
            SERIALIZE, ctypes.c_bool, pointer, pointer, integer, waits=False
        )
        self._destroy = self._function(DESTROY, None, pointer, waits=False)
        # A vtable begins with the offset to the object's start and its type; objects point behind
        # these two words.
        self._dump_vptr = self._address(DUMP_VTABLE) + 16

    def memory_map(self, allocator: int) -> bytes:
        """The serialized MemoryDump of the `tsl::BFCAllocator` at an unchecked address. Takes the
        allocator's lock."""
        space = ctypes.create_string_buffer(OBJECT_BYTES)
        at = ctypes.addressof(space)
        returned = self._record(at, allocator)
        if returned != at or ctypes.c_uint64.from_buffer(space).value != self._dump_vptr:
            raise UnreadableError("TensorFlow's library did not return a memory map")
        try:
            size = int(self._byte_size(at))
            if size > MAX_DUMP_BYTES:
                raise UnreadableError(
                    f"it takes {size} bytes, more than the limit of {MAX_DUMP_BYTES}"
                )
            data = ctypes.create_string_buffer(size or 1)
            if not self._serialize(at, ctypes.addressof(data), size):
                raise UnreadableError("TensorFlow could not serialize the map")
            return ctypes.string_at(data, size)
        finally:
            self._destroy(at)

    def cpu_allocator(self) -> int:
        """Address of the CPU's allocator. TensorFlow creates it together with its devices."""
        state = _not_null(self._function(CPU_STATE, ctypes.c_void_p)())
        allocator = self._function(CPU_ALLOCATOR, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
        return int(allocator(state, 0) or 0)  # NUMA node 0, the only one by default

    def gpu_allocator(self, number: int) -> int:
        """Address of the allocator of a logical GPU, made if missing. Call this only for
        `memory_maps.cuda_devices`: without CUDA support or such a GPU, the library ends the
        process."""
        # `TfDeviceId` is a class with one int, passed like an int; total_bytes is ignored if the
        # allocator exists.
        pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        allocator = self._function(GPU_ALLOCATOR, pointer, pointer, pointer, integer, size, pointer)
        # an empty std::vector: begin, end and end of storage are null
        no_peers = (ctypes.c_void_p * 3)()
        state, options = self._gpu_state_and_options()
        return int(allocator(state, options, number, 0, ctypes.addressof(no_peers)) or 0)

    def gpu_host_allocator(self) -> int:
        """Address of the allocator of pinned host memory, which all GPUs share. As for
        `gpu_allocator`."""
        allocator = self._function(
            GPU_HOST_ALLOCATOR, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int
        )
        # NUMA node 0, the only one by default
        return int(allocator(*self._gpu_state_and_options(), 0) or 0)

    def _gpu_state_and_options(self) -> tuple[int, int]:
        state = self._function(GPU_STATE, ctypes.c_void_p, ctypes.c_void_p)(None)
        return _not_null(state), self._address(GPU_OPTIONS)

    def _address(self, symbol: str) -> int:
        try:
            return ctypes.addressof(ctypes.c_char.in_dll(self._library, symbol))
        except ValueError:
            raise UnreadableError(f"this TensorFlow lacks {symbol}") from None

    def _function(self, symbol: str, result: Any, *arguments: Any, waits: bool = True) -> Any:
        prototype = ctypes.CFUNCTYPE if waits else ctypes.PYFUNCTYPE
        return prototype(result, *arguments)(self._address(symbol))


def open_library(memory: MappedMemory) -> ctypes.CDLL:
    """The library of the TensorFlow that this process has loaded; `UnreadableError` with `SWITCH`
    set to 0."""
    if os.environ.get(SWITCH, "").strip() == "0":
        raise UnreadableError(f"{SWITCH}=0 is set")
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        here = f"{platform.system()} {platform.machine()}".rstrip()
        raise UnreadableError(f"this works on Linux x86-64 only, not on {here}")
    paths = memory.paths_of(LIBRARY)
    if len(paths) != 1:
        raise UnreadableError(f"this process has loaded {len(paths)} files named {LIBRARY}")
    try:
        return ctypes.CDLL(paths[0], mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError as error:
        raise UnreadableError(f"{LIBRARY} cannot be opened: {error}") from None


def exported_names(path: str, pattern: bytes) -> set[str]:
    """Names of an ELF file's dynamic symbols that match, read from its table of their names."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != b"\x7fELF\x02\x01":  # 64 bits, little endian
            return set()
        (headers,) = struct.unpack_from("<Q", data, 0x28)
        size, count = struct.unpack_from("<HH", data, 0x3A)
        sections = [
            struct.unpack_from("<IIQQQQI", data, headers + size * number) for number in range(count)
        ]
        for _, kind, _, _, _, _, link in sections:
            if kind == 11:  # SHT_DYNSYM, which links to its names
                _, _, _, _, begin, length, _ = sections[link]
                named = re.compile(rb"\0(" + pattern + rb")(?=\0)")
                return {name.decode("ascii") for name in named.findall(data, begin, begin + length)}
    return set()


def _not_null(pointer: int | None) -> int:
    if not pointer:
        raise UnreadableError("TensorFlow has not set up its allocators")
    return pointer


PINNED = "gpu_host_bfc"
"""TensorFlow's name of the allocator of host memory that is pinned for transfers to GPUs; it
belongs to no device."""


def find_allocator(framework: Framework, device: str, memory: MappedMemory) -> int:
    """Address of the BFC allocator of ``GPU:0``, ``CPU:0`` or `PINNED`; raises `UnreadableError` if
    there is none."""
    kind, _, number = device.partition(":")
    if kind == "CPU":
        if not asks_for_bfc():
            raise UnreadableError(
                "the plain CPU allocator has none (TF_CPU_ALLOCATOR_USE_BFC is not set)"
            )
        allocator = framework.cpu_allocator()
    elif device == PINNED:
        if not cuda_devices():
            raise UnreadableError("there is no local CUDA GPU")
        allocator = framework.gpu_host_allocator()
    else:
        if os.environ.get("TF_GPU_ALLOCATOR") == "cuda_malloc_async":
            raise UnreadableError(
                "with TF_GPU_ALLOCATOR=cuda_malloc_async the driver manages the pool"
            )
        if device not in cuda_devices():
            raise UnreadableError("it is not a local CUDA GPU")
        allocator = framework.gpu_allocator(int(number))
    allocator_type = type_name(allocator, memory)
    if allocator_type not in BFC_TYPES:
        raise UnreadableError(
            f"its allocator is a {readable_name(allocator_type)}, not a BFC allocator"
        )
    return allocator


def cuda_devices() -> Collection[str]:
    """Names of this process's logical GPUs that use TensorFlow's own CUDA support; TensorFlow must
    have made them.

    Requesting the allocator of any other device ends the process, so the count comes from the local
    physical devices: logical ones may be of other hosts. GPUs of a pluggable device report no
    compute capability."""
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
    """Mangled name of the C++ class of a polymorphic object of TensorFlow's library, such as
    ``N3tsl12BFCAllocatorE``.

    In the Itanium ABI, an object begins with a pointer into its class's vtable. The two words
    before that place are the offset from this subobject to the object's start, and a pointer to the
    type, whose second word points to the name.
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


ATTEMPTS = 5  # most comparisons with the allocator's statistics in one read, and most self-checks
MAX_DISAGREEMENTS = 20  # failed comparisons after which reading is turned off
PROBE_BYTES = (100, 300, 400)  # the tensors of a self-check
PROBE_CHUNK_BYTES = 1280  # of their chunks, of 256, 512 and 512 bytes
_checked: set[str] = set()
"""Devices of this process that passed their self-check."""


_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def tensor_address(tensor: Any) -> int | None:
    """Address of an eager tensor's data in device memory, None if unknown. Reads the data pointer
    at the start of the DLManagedTensor in a DLPack capsule. The capsule must be dropped at once: a
    second reference to a variable's buffer would make the next assignment copy it."""
    import tensorflow as tf

    if tensor.dtype in (tf.string, tf.variant, tf.resource):  # these abort the process
        return None
    try:
        capsule = tf.experimental.dlpack.to_dlpack(tensor)
    except Exception:
        return None
    managed = _capsule_pointer(capsule, b"dltensor")
    return ctypes.c_void_p.from_address(managed).value if managed else None


def self_check(read: Callable[[], bytes], device: str) -> None:
    """Raise `UnreadableError` unless the device's maps show tensors of known sizes at their
    addresses while they exist, and not afterwards. Repeated if it fails, since other threads may
    take the memory that was freed."""
    import tensorflow as tf

    for _ in range(ATTEMPTS):
        with eagerly(), tf.device(device):
            # Of arrays, since TensorFlow keeps the tensors that it makes of Python's numbers.
            shapes = [np.asarray([size // 4], np.int32) for size in PROBE_BYTES]
            tensors = [tf.raw_ops.Empty(shape=shape, dtype=tf.float32) for shape in shapes]
        addresses = [tensor_address(tensor) or 0 for tensor in tensors]
        used = _sizes(read())
        del tensors
        left = _sizes(read())
        wrong = []
        for address, size in zip(addresses, PROBE_BYTES, strict=True):
            shown = used.get(address, "no")
            if shown != size:
                shows = f"shows {shown} requested bytes in use at the address"
                wrong.append(f"it {shows} of a tensor of {size} bytes")
            if left.get(address) == size:
                wrong.append(f"it shows a freed tensor of {size} bytes as in use")
        if not wrong:
            return
    raise UnreadableError(wrong[0])


class MemoryMaps:
    """Reads the memory maps of the recorded devices, and of `PINNED`, if that is safe: the
    functions that it calls are not a public API, and docs/development/memory_map.md lists the
    checks that come first, here or, if the allocator has no free chunk for them yet, with a later
    read. Any thread may read, but not a signal handler: a read takes the allocator's lock. `warn`
    is called once per device that cannot be read."""

    def __init__(self, devices: Sequence[str], warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._allocators: dict[str, int] = {}
        self._verified: set[str] = set()
        self._disagreements = dict.fromkeys(devices, 0)
        self._framework: Framework | None = None
        if not devices:
            return
        try:
            import tensorflow as tf

            tf.config.list_logical_devices()  # creates the devices, and with them their allocators
            memory = MappedMemory()
            self._framework = Framework(open_library(memory))
        except Exception as error:
            self._turn_off(devices, error)
            return
        for device in devices:
            try:
                self._allocators[device] = find_allocator(self._framework, device, memory)
            except Exception as error:
                self._turn_off([device], error)
        for device in devices:
            self.read(device)

    def available(self, device: str) -> bool:
        """Whether the device's map can be read; a read may turn it off."""
        # In a forked child, the allocator's lock may stay locked by a thread that does not exist
        # there.
        return device in self._allocators and os.getpid() == self._process

    def read(self, device: str) -> bytes | None:
        """The device's current memory map, for `read_dump`. Never raises. None if it is not
        available, if the allocator has no memory for the self-check yet, or if other threads
        allocated while the first map was compared; the next read tries again."""
        allocator = self._allocators.get(device)
        if allocator is None or self._framework is None or not self.available(device):
            return None
        try:
            if device in self._verified:
                return self._framework.memory_map(allocator)
            return self._verify(self._framework, device, allocator)
        except Exception as error:
            # Tensors cannot be placed in pinned memory: its map is trusted as far as the device's
            # is.
            self._turn_off([device, PINNED], error)
            return None

    def _verify(self, framework: Framework, device: str, allocator: int) -> bytes | None:
        """A map, if the bytes of its chunks in use equal the allocator's statistics, and the
        self-check passes."""
        for _ in range(ATTEMPTS):
            before = 0 if device == PINNED else allocator_figures.memory_info(device)[0]
            data = framework.memory_map(allocator)
            after = 0 if device == PINNED else allocator_figures.memory_info(device)[0]
            summary = summarize_dump(data)
            if (is_gpu(device) or device == PINNED) and summary.device != device:
                raise UnreadableError(f"TensorFlow returned the map of {summary.device} instead")
            own = f"its chunks in use sum to {summary.in_use_bytes} bytes, but"
            # only the map itself has the statistics, taken under the same lock
            if device == PINNED:
                if summary.in_use_bytes != summary.stated_in_use_bytes:
                    raise UnreadableError(f"{own} its statistics say {summary.stated_in_use_bytes}")
                if summary.chunks:
                    self._verified.add(PINNED)
                return data
            if not summary.chunks and not before and not after:
                return None
            if summary.in_use_bytes in (before, after):
                if device not in _checked:
                    if summary.largest_free_bytes < PROBE_CHUNK_BYTES:
                        return None  # the tensors would wait for memory, or let the pool grow
                    self_check(lambda: framework.memory_map(allocator), device)
                    _checked.add(device)
                self._verified.add(device)
                return data
            if before == after:  # otherwise another thread allocated meanwhile
                self._disagreements[device] += 1
        if self._disagreements[device] >= MAX_DISAGREEMENTS:
            raise UnreadableError(f"{own} TensorFlow's statistics say {after}")
        return None

    def _turn_off(self, devices: Sequence[str], error: Exception) -> None:
        with self._lock:
            turned_off = [
                device for device in dict.fromkeys(devices) if device in self._disagreements
            ]
            for device in turned_off:
                del self._disagreements[device]
                self._allocators.pop(device, None)
        own = isinstance(error, UnreadableError)
        reason = str(error) if own else f"{type(error).__name__}: {error}"
        named = ", ".join(device for device in turned_off if device != PINNED)
        sentence = f"Not measuring pinned host memory: {reason}."
        if named:
            sentence = (
                f"Not reading the memory map of {named}: {reason}. Chunk sizes are rounded "
                "requests instead."
            )
        with contextlib.suppress(Exception):  # a failing report must not stop training
            if turned_off:
                self._warn(sentence)


_PROBES = 5


def resource_handle_bytes(maps: MemoryMaps, device: str) -> int | None:
    """Requested bytes of a resource handle's chunk, measured by making a few; None if unknown.
    Every variable, of any device, has a handle on ``CPU:0``: a C++ object whose size depends on the
    TensorFlow build. Python cannot read its address, so its chunk is recognized by this size."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    before = _sizes(maps.read(device))
    with eagerly(), tf.device("CPU:0"):
        handles = [
            # As variables' handles: TensorFlow makes handles of any other name once for a process,
            # and keeps them.
            tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name=context.anonymous_name())
            for _ in range(_PROBES)
        ]
        after = _sizes(maps.read(device))
        del handles
    new = Counter(size for address, size in after.items() if before.get(address) != size)
    return next((size for size, count in new.most_common(1) if count == _PROBES), None)


def _sizes(dump: bytes | None) -> dict[int, int]:
    """Requested bytes of the chunks in use, by address."""
    if dump is None:
        return {}
    memory_map = read_dump(dump, 0.0)
    used = np.flatnonzero(memory_map.state == IN_USE)
    return dict(
        zip(
            memory_map.address[used].tolist(),
            memory_map.requested_bytes[used].tolist(),
            strict=True,
        )
    )
