"""Measures the bytes that TensorFlow requests for a resource handle.

Every variable has a handle: a tensor with one C++ object, of a size that depends on the TensorFlow build. Its chunk is
recognized by this size, because Python cannot read the tensor's address.
"""

from collections import Counter

import numpy as np

from tb_memplugin.importers.allocator.memory_dump import read_dump
from tb_memplugin.model import IN_USE
from tb_memplugin.recorder.native.memory_maps import MemoryMaps

_PROBES = 5


def resource_handle_bytes(maps: MemoryMaps, device: str) -> int | None:
    """Requested bytes of a resource handle's chunk, measured by making a few; None if unknown.

    The handles of all devices' variables are on ``CPU:0``. Every variable has one: a tensor with one C++ object, of a
    size that depends on the TensorFlow build. Python cannot read its address, so its chunk is recognized by this size.
    """
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
    size, count = new.most_common(1)[0] if new else (0, 0)
    return size if count == _PROBES else None


def _sizes(maps: MemoryMaps, device: str) -> dict[int, int]:
    """Requested bytes of the chunks in use, by address."""
    dump = maps.read(device)
    if dump is None:
        return {}
    memory_map = read_dump(dump, 0.0)
    used = np.flatnonzero(memory_map.state == IN_USE)
    return dict(zip(memory_map.address[used].tolist(), memory_map.requested_bytes[used].tolist(), strict=True))
