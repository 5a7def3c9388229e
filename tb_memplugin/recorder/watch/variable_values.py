"""One variable of Keras or TensorFlow: its parts on the devices, and their sizes and addresses."""

import math
from typing import Any

from tb_memplugin.recorder.base import (
    ByIdentity,
    asked,
    attribute,
    contained,
    own,
    quiet,
)
from tb_memplugin.recorder.devices import memory_info, tensor_address
from tb_memplugin.schema import DTYPE_BYTES, is_cpu

_MIN_COPY_BYTES = 64 << 10


def kept(variable: Any, name: str) -> Any:
    """What TensorFlow keeps of a variable under ``_name``, such as its shape; else what the
    attribute `name` gives."""
    value = own(variable, f"_{name}")
    return getattr(variable, name) if value is None else value


def has_handle(variable: Any) -> bool:
    # A distributed variable, which has `_values`, has no handle in the scope of its strategy.
    kept_as = (own(variable, name) for name in ("_handle", "_values"))
    return any(one is not None for one in kept_as) or attribute(variable, "handle") is not None


def tf_variable(variable: Any) -> Any:
    """The TensorFlow variable of a Keras variable; any other variable unchanged."""
    if own(variable, "_handle") is not None:
        return variable
    inner = attribute(variable, "_value")
    return inner if inner is not None and has_handle(inner) else variable


def replicas(variable: Any) -> list[Any]:
    """The TensorFlow variables of a Keras variable, a distributed or another one; empty for other
    objects."""
    value = tf_variable(variable)
    if own(value, "_handle") is not None:
        return [value]
    parts = contained(attribute(value, "values")) or [value]
    return [part for part in parts if has_handle(part)]


def variable_bytes(variable: Any) -> int:
    """Bytes of a variable of Keras or TensorFlow; 0 if they are unknown."""
    return asked(variable, _bytes) or 0


def _bytes(variable: Any) -> int:
    dtype = kept(variable, "dtype")
    return _size(variable) * DTYPE_BYTES.get(getattr(dtype, "name", dtype), 0)


def _size(variable: Any) -> int:
    return math.prod(kept(variable, "shape"))


def parameters(variable: Any) -> int:
    return asked(variable, _size) or 0


def tensor_size(tensor: Any) -> int:
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def size_of_variable(variable: Any) -> int:
    """Bytes of a TensorFlow variable."""
    return int(kept(variable, "shape").num_elements() or 0) * int(kept(variable, "dtype").size)


def current_size(variable: Any) -> int:
    """Bytes of the value of a TensorFlow variable, also if its shape changes."""
    known = kept(variable, "shape").is_fully_defined()
    return size_of_variable(variable) if known else tensor_size(_value(variable))


_copied = ByIdentity[bool]()
"""Variables that TensorFlow copies whenever they are read: those that were updated sparsely, for
good."""


@quiet
def variable_address(variable: Any) -> int | None:
    """Address of the value of a TensorFlow variable. None if unknown: uninitialized, a string, on
    an accelerator without DLPack, or if TensorFlow copies the variable when it is read. Such a
    variable is read once, as the copy takes as much memory again."""
    if variable in _copied:
        return None
    device, size = short_device(kept(variable, "handle").device), size_of_variable(variable)
    before = bytes_in_use(device) if size >= _MIN_COPY_BYTES else None
    value = _value(variable)
    if before is not None and (bytes_in_use(device) or 0) - before >= size:
        _copied.add(variable)
        return None
    return tensor_address(value)


def _value(variable: Any) -> Any:
    """The variable's value where it is; not `read_value`, which copies it to the default device.
    TensorFlow's own variables are read by their handle, in half the time and without a tape's
    notice."""
    import tensorflow as tf
    from tensorflow.python.ops import gen_resource_variable_ops

    handle, dtype = own(variable, "_handle"), own(variable, "_dtype")
    if type(handle) is not tf.__internal__.EagerTensor or dtype is None:
        return variable.value()
    return gen_resource_variable_ops.read_variable_op(handle, dtype)


@quiet
def bytes_in_use(device: str) -> int | None:
    return memory_info(device)[0]


def short_device(name: str) -> str:
    """``GPU:0`` for ``/job:localhost/replica:0/task:0/device:GPU:0``. All CPUs share the allocator
    of ``CPU:0``."""
    short = name.rsplit("device:", 1)[-1]
    return short if short and not is_cpu(short) else "CPU:0"
