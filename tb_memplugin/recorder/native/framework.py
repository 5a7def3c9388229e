"""Calls functions of TensorFlow's C++ library, above all those that reading a memory map needs."""

import ctypes
import os
import platform
import sys
from typing import Any

from tb_memplugin.importers.allocator.memory_dump import MAX_DUMP_BYTES
from tb_memplugin.recorder.native import builds
from tb_memplugin.recorder.native.mapped_memory import MappedMemory, UnreadableError

SWITCH = "TB_MEMPLUGIN_MEMORY_MAP"
"""Environment variable: ``0`` turns all calls of this library off."""
OBJECT_BYTES = 4096
"""Space for a MemoryDump. The library does not export its size, which is below 128 bytes in all tested versions."""


class Framework:
    """Functions of ``libtensorflow_framework``; any thread may call them.

    Only calls that wait for an allocator's lock release the GIL: getting it back may take longer than the other calls.

    Signatures follow the Itanium C++ ABI on x86-64. `this` is the first argument. An object with a destructor is
    returned in space that the caller provides: its address is passed before `this`, and the function returns it.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        self._record = self._function(builds.RECORD, pointer, pointer, pointer)
        self._byte_size = self._function(builds.BYTE_SIZE, size, pointer, waits=False)
        self._serialize = self._function(builds.SERIALIZE, ctypes.c_bool, pointer, pointer, integer, waits=False)
        self._destroy = self._function(builds.DESTROY, None, pointer, waits=False)
        # A vtable begins with the offset to the object's start and its type; objects point behind these two words.
        self._dump_vptr = self._address(builds.DUMP_VTABLE) + 16

    def memory_map(self, allocator: int) -> bytes:
        """The serialized MemoryDump of the `tsl::BFCAllocator` at an unchecked address. Takes the allocator's lock."""
        space = ctypes.create_string_buffer(OBJECT_BYTES)
        at = ctypes.addressof(space)
        returned = self._record(at, allocator)
        if returned != at or ctypes.c_uint64.from_buffer(space).value != self._dump_vptr:
            raise UnreadableError("TensorFlow's library did not return a memory map")
        try:
            size = int(self._byte_size(at))
            if size > MAX_DUMP_BYTES:
                raise UnreadableError(f"it takes {size} bytes, more than the limit of {MAX_DUMP_BYTES}")
            data = ctypes.create_string_buffer(size or 1)
            if not self._serialize(at, ctypes.addressof(data), size):
                raise UnreadableError("TensorFlow could not serialize the map")
            return ctypes.string_at(data, size)
        finally:
            self._destroy(at)

    def cpu_allocator(self) -> int:
        """Address of the CPU's allocator. TensorFlow creates it together with its devices."""
        state = self._function(builds.CPU_STATE, ctypes.c_void_p)
        allocator = self._function(builds.CPU_ALLOCATOR, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
        return int(allocator(_not_null(state()), 0) or 0)  # NUMA node 0, the only one by default

    def gpu_allocator(self, number: int) -> int:
        """Address of the allocator of a logical GPU.

        Call this only for `allocators.cuda_devices`: without CUDA support or such a GPU, the library ends the process;
        it creates a missing allocator.
        """
        allocator = self._function(
            builds.GPU_ALLOCATOR,
            ctypes.c_void_p,
            ctypes.c_void_p,  # this
            ctypes.c_void_p,  # const GPUOptions&
            ctypes.c_int,  # TfDeviceId: a class with one int, passed like an int
            ctypes.c_size_t,  # total_bytes, ignored if the allocator exists
            ctypes.c_void_p,  # const std::vector<TfDeviceId>&
        )
        no_peers = (ctypes.c_void_p * 3)()  # an empty std::vector: begin, end and end of storage are null
        options = self._address(builds.GPU_OPTIONS)
        return int(allocator(self._gpu_state(), options, number, 0, ctypes.addressof(no_peers)) or 0)

    def gpu_host_allocator(self) -> int:
        """Address of the allocator of pinned host memory, which all GPUs share. As for `gpu_allocator`."""
        allocator = self._function(
            builds.GPU_HOST_ALLOCATOR, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int
        )
        options = self._address(builds.GPU_OPTIONS)
        return int(allocator(self._gpu_state(), options, 0) or 0)  # NUMA node 0, the only one by default

    def _gpu_state(self) -> int:
        return _not_null(self._function(builds.GPU_STATE, ctypes.c_void_p, ctypes.c_void_p)(None))

    def _address(self, symbol: str) -> int:
        try:
            return ctypes.addressof(ctypes.c_char.in_dll(self._library, symbol))
        except ValueError:
            raise UnreadableError(f"this TensorFlow lacks {symbol}") from None

    def _function(self, symbol: str, result: Any, *arguments: Any, waits: bool = True) -> Any:
        prototype = ctypes.CFUNCTYPE if waits else ctypes.PYFUNCTYPE
        return prototype(result, *arguments)(self._address(symbol))


def open_framework(version: str, memory: MappedMemory) -> Framework:
    return Framework(open_library(version, memory))


def open_library(version: str, memory: MappedMemory) -> ctypes.CDLL:
    """The library of the TensorFlow that this process has loaded; `UnreadableError` for an untested build."""
    check_build(version)
    paths = memory.paths_of(builds.LIBRARY)
    if len(paths) != 1:
        raise UnreadableError(f"this process has loaded {len(paths)} files named {builds.LIBRARY}")
    try:
        return ctypes.CDLL(paths[0], mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError as error:
        raise UnreadableError(f"{builds.LIBRARY} cannot be opened: {error}") from None


def check_switch() -> None:
    if os.environ.get(SWITCH, "").strip() == "0":
        raise UnreadableError(f"{SWITCH}=0 is set")


def check_build(version: str) -> None:
    if sys.platform != "linux" or platform.machine() not in builds.MACHINES:
        raise UnreadableError(
            f"this works on Linux x86-64 only, not on {platform.system()} {platform.machine()}".rstrip()
        )
    if version not in builds.TESTED_VERSIONS:
        raise UnreadableError(
            f"TensorFlow {version} is not one of the tested versions {', '.join(builds.TESTED_VERSIONS)}"
        )


def _not_null(pointer: int | None) -> int:
    if not pointer:
        raise UnreadableError("TensorFlow has not set up its allocators")
    return pointer
