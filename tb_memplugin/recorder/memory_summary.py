"""`memory_summary`: what a device's memory holds at this moment, as text."""

import collections
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tb_memplugin.allocator.fit import free_sizes
from tb_memplugin.importers.allocator.memory_dump import read_dump
from tb_memplugin.model import IN_USE, Category, MemoryMap, stack_order
from tb_memplugin.model.tables import format_table
from tb_memplugin.model.trace import TraceFacts
from tb_memplugin.model.units import format_bytes
from tb_memplugin.recorder.native.memory_maps import MemoryMaps
from tb_memplugin.recorder.observe.window import Window
from tb_memplugin.recorder.sampling import devices as allocator

LAYERS = 10
"""Largest layers that are listed."""

_Key = tuple[Category, bool | None]


class _Tensor(NamedTuple):
    category: Category
    trainable: bool | None
    layer: str | None
    bytes: int
    address: int | None


def memory_summary(model: Any, optimizer: Any = None, devices: Sequence[str] | None = None) -> str:
    """Describe what the devices' memory holds now, for example between two steps. Nothing is recorded.

    ```python
    print(tb_memplugin.memory_summary(model))
    ```

    The rows of a device sum to its allocated bytes. Tensors are found through the model, its optimizer and Python's
    garbage collector, which takes 0.1 to 0.2 s. `unattributed` is allocated memory that belongs to none of them.

    Args:
        model: Keras model; its variables are attributed to layers.
        optimizer: Its optimizer; by default the one that the model was compiled with.
        devices: Names of devices such as ``GPU:0``; by default all GPUs, or the CPU if there is none.

    Returns:
        Text of several lines, sizes in KiB, MiB and GiB.

    Raises:
        RecordingError: A device is none of this process.
    """
    chosen, notes = allocator.choose_devices(devices)
    maps = MemoryMaps([device.name for device in chosen], notes.append)
    window = Window([(model, optimizer)], [])
    lines = [f"Memory of model {getattr(model, 'name', type(model).__name__)}"]
    for device in chosen:
        dump = maps.read(device.name)
        memory_map = None if dump is None else read_dump(dump, time.time())
        current, peak = allocator.memory_info(device.name)
        tensors = list(_tensors(window.facts(device.name, (), ())))
        head = f"{device.name}: {format_bytes(current)} allocated"
        if device.capacity_bytes is not None:
            head += f" of {format_bytes(device.capacity_bytes)}"
        lines += ["", f"{head}, peak {format_bytes(peak)}"]
        if memory_map is not None and memory_map.pool_bytes is not None:
            free = free_sizes(memory_map)
            largest = int(free.max()) if len(free) else 0
            lines.append(
                f"{format_bytes(memory_map.pool_bytes)} reserved, {format_bytes(int(free.sum()))} free, "
                f"largest free chunk {format_bytes(largest)}"
            )
        lines += ["", _category_table(tensors, memory_map, current), "", _layer_table(tensors)]
    return "\n".join([*lines, *(f"Note: {note}" for note in notes)])


def _tensors(facts: TraceFacts) -> Iterator[_Tensor]:
    for variable in facts.variables:
        yield _Tensor(
            variable.role, variable.trainable, variable.layer, variable.requested_bytes, variable.start_address
        )
    for tensor in facts.tensors:
        yield _Tensor(tensor.category, None, None, tensor.requested_bytes, tensor.address)


def _category_table(tensors: Sequence[_Tensor], memory_map: MemoryMap | None, allocated: int) -> str:
    """A table of the categories from the top of the stack; sums to the allocated bytes."""
    sums: dict[_Key, int] = collections.Counter()
    counts: dict[_Key, int] = collections.Counter()
    for tensor in tensors:
        key = tensor.category, tensor.trainable if tensor.category == "weights" else None
        sums[key] += tensor.bytes
        counts[key] += 1
    if memory_map is not None:
        sums["rounding", None] = _rounding(tensors, memory_map)
    sums["unattributed", None] = allocated - sum(sums.values())
    order = sorted(sums, key=lambda key: stack_order(*key), reverse=True)
    rows = [(_name(*key), format_bytes(sums[key]), str(counts.get(key) or "")) for key in order if sums[key]]
    return format_table(("category", "size", "tensors"), [*rows, ("allocated", format_bytes(allocated), "")])


def _rounding(tensors: Sequence[_Tensor], memory_map: MemoryMap) -> int:
    """Bytes of the tensors' chunks that were not requested."""
    in_use = memory_map.state == IN_USE
    chunks = dict(zip(memory_map.address[in_use].tolist(), memory_map.bytes[in_use].tolist(), strict=True))
    return sum(chunks[tensor.address] - tensor.bytes for tensor in tensors if tensor.address in chunks)


def _layer_table(tensors: Sequence[_Tensor]) -> str:
    weights: dict[str, int] = collections.Counter()
    slots: dict[str, int] = collections.Counter()
    for tensor in tensors:
        if tensor.layer is not None:
            (weights if tensor.category == "weights" else slots)[tensor.layer] += tensor.bytes
    largest = sorted({*weights, *slots}, key=lambda layer: (-weights[layer] - slots[layer], layer))[:LAYERS]
    rows = [(layer, format_bytes(weights[layer]), format_bytes(slots[layer])) for layer in largest]
    return format_table(("largest layers", "weights", "optimizer and other state"), rows)


def _name(category: Category, trainable: bool | None) -> str:
    word = category.replace("_", " ")
    return word if trainable is None else f"{'trainable' if trainable else 'frozen'} {word}"
