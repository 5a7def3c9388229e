"""Addresses and sizes of variables and eager tensors in device memory."""

import ctypes
import weakref
from typing import Any

from tb_memplugin.model import is_cpu


def tensor_size(tensor: Any) -> int:
    """Requested bytes of a tensor: elements × size of the dtype; 0 for an unknown shape."""
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


_copied: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Variables that TensorFlow copies whenever they are read, by id: those that were updated sparsely, for good."""
_MIN_COPY_BYTES = 64 << 10


def variable_address(variable: Any) -> int | None:
    """Address of the value of a TensorFlow variable.

    None if unknown: uninitialized, a string, on an accelerator without DLPack, or if TensorFlow copies the variable
    when it is read. Such a variable is read once, as the copy takes as much memory again.
    """
    if _copied.get(id(variable)) is variable:
        return None
    try:
        before = _in_use(variable) if tensor_size(variable) >= _MIN_COPY_BYTES else None
        value = variable.value()  # not read_value(), which copies to the default device
        if before is not None and (_in_use(variable) or 0) - before >= tensor_size(variable):
            _copied[id(variable)] = variable
            return None
        return tensor_address(value)
    except Exception:
        return None


def _in_use(variable: Any) -> int | None:
    """Bytes in use on a variable's device; None without statistics."""
    import tensorflow as tf

    try:
        return int(tf.config.experimental.get_memory_info(short_device(variable.device))["current"])
    except ValueError:
        return None


def tensor_address(tensor: Any) -> int | None:
    """Address of an eager tensor's data in device memory, None if unknown.

    Reads the data pointer at the start of the DLManagedTensor in a DLPack capsule. The capsule must be dropped at once:
    a second reference to a variable's buffer would make the next assignment copy it.
    """
    import tensorflow as tf

    try:
        capsule = tf.experimental.dlpack.to_dlpack(tensor)
    except Exception:
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    managed = pointer(capsule, b"dltensor")
    return ctypes.c_void_p.from_address(managed).value if managed else None


def short_device(name: str) -> str:
    """``GPU:0`` for ``/job:localhost/replica:0/task:0/device:GPU:0``. All CPUs share the allocator of ``CPU:0``."""
    short = name.rsplit("device:", 1)[-1]
    return short if short and not is_cpu(short) else "CPU:0"
