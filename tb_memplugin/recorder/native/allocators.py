"""Finds the address of a device's allocator and checks that it is a BFC allocator."""

import os
import re
from collections.abc import Collection

from tb_memplugin.recorder.native.builds import BFC_TYPES
from tb_memplugin.recorder.native.framework import Framework
from tb_memplugin.recorder.native.mapped_memory import MappedMemory, UnreadableError
from tb_memplugin.recorder.sampling.devices import asks_for_bfc

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
        setting = os.environ.get("TF_GPU_ALLOCATOR", "")
        if setting == "cuda_malloc_async":
            raise UnreadableError("with TF_GPU_ALLOCATOR=cuda_malloc_async the driver manages the pool")
        if device not in cuda_devices():
            raise UnreadableError("it is not a local CUDA GPU")
        allocator = framework.gpu_allocator(int(number))
    allocator_type = type_name(allocator, memory)
    if allocator_type not in BFC_TYPES:
        raise UnreadableError(f"its allocator is a {readable_name(allocator_type)}, not a BFC allocator")
    return allocator


def cuda_devices() -> Collection[str]:
    """Names of this process's logical GPUs that use TensorFlow's own CUDA support.

    TensorFlow must have created its logical devices before. Requesting the allocator of any other device ends the
    process, so the count comes from the local physical devices: the list of logical devices also contains those of
    other hosts. GPUs of a pluggable device report no compute capability.
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
    offset from this subobject to the start of the object, and a pointer to the type information; the second word of the
    type information points to the name.
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
