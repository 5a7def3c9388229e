"""`memory_summary`: what a device's memory holds at this moment."""

import collections
import time
from collections.abc import Sequence
from typing import Any

from tb_memplugin.allocator import pool_at
from tb_memplugin.device_contents import CategorySum, DeviceContents, LayerSum, MemorySummary
from tb_memplugin.importers import read_dump
from tb_memplugin.recorder.devices import MemoryMaps
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.recorder.watch import HeldTensors, ObservedWindow, Variables, variables_of
from tb_memplugin.schema import IN_USE, Category, MemoryMap, TraceFacts, stack_order


def memory_summary(
    model: Any = None, optimizer: Any = None, devices: Sequence[str] | None = None
) -> MemorySummary:
    """Measure what the devices' memory holds now, for example between two steps. Nothing is
    recorded.

    ```python
    print(tb_memplugin.memory_summary())
    ```

    The rows of a device sum to its allocated bytes. Tensors are found through the models, their
    optimizers and Python's garbage collector, which takes 0.1 to 0.2 s, and as long again without a
    model. `unattributed` is allocated memory that belongs to none of them.

    Args:
        model: Keras model; its variables are attributed to layers. By default all models that the
            program holds.
        optimizer: Its optimizer; by default the one that each model was compiled with.
        devices: Names of devices such as ``GPU:0``; by default all GPUs, or the CPU if there is
            none.

    Returns:
        The figures; `print` shows them as text, a notebook as tables.

    Raises:
        RecordingError: A name is not the name of a CPU or GPU."""
    chosen, notes = allocator.choose_devices(devices)
    maps = MemoryMaps([device.name for device in chosen], notes.append)
    held = HeldTensors()
    found = held.find_models() if model is None else [model]
    models = [one for one in found if one is model or variables_of(one, "weights")]
    window = ObservedWindow(Variables([(one, optimizer) for one in models], []), held)
    contents = []
    for device in chosen:
        dump = maps.read(device.name)
        memory_map = None if dump is None else read_dump(dump, time.time())
        pool = None if memory_map is None else pool_at(memory_map)
        facts = window.facts(device.name, (), ())
        current, peak = allocator.memory_info(device.name)
        contents.append(
            DeviceContents(
                device.name,
                current,
                peak,
                device.capacity_bytes,
                pool_bytes=None if pool is None else pool.pool_bytes,
                free_bytes=None if pool is None else pool.free_bytes,
                largest_free_bytes=None if pool is None else pool.largest_free_bytes,
                categories=_categories(facts, memory_map, current),
                layers=_layers(facts),
            )
        )
    names = tuple(str(getattr(one, "name", type(one).__name__)) for one in models)
    return MemorySummary(names, _last_step(models, optimizer), tuple(contents), tuple(notes))


def _last_step(models: Sequence[Any], optimizer: Any) -> int | None:
    """The last step of the only model that was trained."""
    optimizers = {
        id(one): one for one in (optimizer or getattr(model, "optimizer", None) for model in models)
    }
    counts = [int(getattr(one, "iterations", 0)) for one in optimizers.values()]
    trained = [count for count in counts if count]
    return trained[0] - 1 if len(trained) == 1 else None


def _categories(
    facts: TraceFacts, memory_map: MemoryMap | None, allocated: int
) -> tuple[CategorySum, ...]:
    """The categories from the top of the stack; they sum to the allocated bytes."""
    chunks: dict[int, int] = {}
    if memory_map is not None:
        in_use = memory_map.state == IN_USE
        addresses, sizes = memory_map.address[in_use], memory_map.bytes[in_use]
        chunks = dict(zip(addresses.tolist(), sizes.tolist(), strict=True))
    sums: dict[tuple[Category, bool | None], int] = collections.Counter()
    counts: dict[tuple[Category, bool | None], int] = collections.Counter()

    def add(category: Category, trainable: bool | None, address: int | None, size: int) -> None:
        sums[category, trainable] += size
        counts[category, trainable] += 1
        if address in chunks:
            sums["rounding", None] += chunks[address] - size

    for variable in facts.variables:
        trainable = variable.trainable if variable.role == "weights" else None
        add(variable.role, trainable, variable.start_address, variable.requested_bytes)
    for tensor in facts.tensors:
        add(tensor.category, None, tensor.address, tensor.requested_bytes)
    sums["unattributed", None] = allocated - sum(sums.values())
    order = sorted(sums, key=lambda key: stack_order(*key), reverse=True)
    return tuple(CategorySum(*key, sums[key], counts.get(key)) for key in order if sums[key])


def _layers(facts: TraceFacts) -> tuple[LayerSum, ...]:
    weights: dict[str, int] = collections.Counter()
    others: dict[str, int] = collections.Counter()
    for one in facts.variables:
        if one.layer is not None:
            (weights if one.role == "weights" else others)[one.layer] += one.requested_bytes
    order = sorted({*weights, *others}, key=lambda layer: (-weights[layer] - others[layer], layer))
    return tuple(LayerSum(layer, weights[layer], others[layer]) for layer in order)
