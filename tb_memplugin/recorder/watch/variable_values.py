"""One variable of Keras or TensorFlow: its parts on the devices, and their sizes and addresses."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tb_memplugin.recorder.base import (
    ByIdentity,
    asked,
    attribute,
    contained,
    note_code,
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
    if value is not None:
        return value
    note_code()
    return getattr(variable, name)


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


class AddressReader:
    """Reads the addresses of several variables, given by weak references, again and again. Those of
    TensorFlow's own kind are read some at a time, as many as need no more memory than the largest
    one if TensorFlow copies them: one operation for each takes three times as long."""

    def __init__(self, references: Sequence[Callable[[], Any]]) -> None:
        self._references = references
        self._batches = _batches([reference() for reference in references])

    def read(self) -> list[int | None]:
        """The `variable_address` of each, None for one that is gone."""
        variables = [reference() for reference in self._references]
        found: dict[int, int | None] = {}
        for device, places in self._batches:
            some = [one for place in places if (one := variables[place]) not in _copied]
            found.update(_read_at_once(device, some) or {})
        return [
            None if one is None else found.get(id(one)) or variable_address(one)
            for one in variables
        ]


def _batches(variables: Sequence[Any]) -> list[tuple[str, list[int]]]:
    """The device of variables that are read by one operation, and their places."""
    by_device: dict[str, list[tuple[int, int]]] = {}
    for place, variable in enumerate(variables):
        handle = own(variable, "_handle")
        if handle is not None:
            of_device = by_device.setdefault(short_device(handle.device), [])
            of_device.append((place, size_of_variable(variable)))
    batches: list[tuple[str, list[int]]] = []
    for device, sizes in by_device.items():
        total, most = math.inf, max(size for _, size in sizes)
        for place, size in sizes:
            total += size
            if total > most:
                total = size
                batches.append((device, []))
            batches[-1][1].append(place)
    return batches


@quiet
def _read_at_once(device: str, variables: Sequence[Any]) -> dict[int, int | None]:
    """Addresses by the variables' ids; none if a variable is gone, has no value or was copied."""
    import tensorflow as tf
    from tensorflow.python.eager import context, execute

    handles = [own(variable, "_handle") for variable in variables]
    if set(map(type, handles)) != {tf.__internal__.EagerTensor}:
        return {}
    types = [own(variable, "_dtype").as_datatype_enum for variable in variables]
    before = bytes_in_use(device) or 0
    attributes = "N", len(types), "dtypes", types
    values = execute.quick_execute(
        "_ReadVariablesOp", len(types), handles, attributes, context.context()
    )
    if (bytes_in_use(device) or 0) - before >= _MIN_COPY_BYTES:
        return {}
    return dict(zip(map(id, variables), map(tensor_address, values), strict=True))


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
