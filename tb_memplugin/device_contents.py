"""What the devices' memory holds at one moment: figures, and how they are read."""

import dataclasses
from collections.abc import Callable, Iterator

from tb_memplugin.schema import (
    Category,
    clean,
    counted,
    first_of,
    format_bytes,
    format_table,
    html_table,
    html_text,
)

LAYERS = 10  # largest layers that are printed
_KINDS = {None: "", True: "trainable ", False: "frozen "}


@dataclasses.dataclass(frozen=True)
class CategorySum:
    """Bytes of a category; of weights, of the trainable or the frozen ones.

    Attributes:
        category: The category.
        trainable: Of weights; None for the other categories.
        bytes: Requested bytes, or rounding.
        tensors: Number of tensors and variables; None for `rounding` and `unattributed`."""

    category: Category
    trainable: bool | None
    bytes: int
    tensors: int | None


@dataclasses.dataclass(frozen=True)
class LayerSum:
    """Requested bytes of a layer's weights, and of its optimizer slots and other state."""

    layer: str
    weight_bytes: int
    other_bytes: int


@dataclasses.dataclass(frozen=True)
class DeviceContents:
    """What the memory of a device holds.

    Attributes:
        device: Its name, such as ``GPU:0``.
        allocated_bytes: Bytes in use now.
        peak_bytes: The highest bytes in use since the program or a recorder reset the allocator's
            statistics.
        capacity_bytes: The allocator's limit; None if unknown.
        pool_bytes, free_bytes, largest_free_bytes: Bytes reserved by the allocator, free ones among
            them, and the largest free chunk; None without a memory map.
        categories: From the top of the stack; their bytes sum to `allocated_bytes`.
        layers: Layers with weights or state, the largest first."""

    device: str
    allocated_bytes: int
    peak_bytes: int
    capacity_bytes: int | None
    pool_bytes: int | None
    free_bytes: int | None
    largest_free_bytes: int | None
    categories: tuple[CategorySum, ...]
    layers: tuple[LayerSum, ...]


@dataclasses.dataclass(frozen=True, repr=False)
class MemorySummary:
    """What the devices' memory holds at one moment; `print` shows it as text.

    Attributes:
        models: Names of the models whose variables are attributed to layers.
        step: The last training step before this moment, numbered as by `MemoryCallback`; None if
            nothing was trained, or several models were.
        devices: The devices.
        notes: Sentences on what is unknown."""

    models: tuple[str, ...]
    step: int | None
    devices: tuple[DeviceContents, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        parts = "\n\n".join(self._parts(str, format_table))
        return parts + "".join(f"\nNote: {clean(note)}" for note in self.notes)

    def __repr__(self) -> str:
        devices = ", ".join(
            f"{one.device}: {format_bytes(one.allocated_bytes)} allocated" for one in self.devices
        )
        return f"<{type(self).__name__} {devices or 'no device'}>"

    def _repr_html_(self) -> str:
        notes = (html_text(f"Note: {note}") for note in self.notes)
        return "".join([*self._parts(html_text, html_table), *notes])

    def _parts(self, text: Callable[[str], str], table: Callable[..., str]) -> Iterator[str]:
        named = first_of([*map(clean, self.models)]) or "(none found)"
        noun = "model" if len(self.models) <= 1 else counted(len(self.models), "model") + ":"
        when = "" if self.step is None else f", after training step {self.step}"
        yield text(f"Memory of {noun} {named}{when}")
        for device in self.devices:
            yield text(_head(device))
            categories = [
                (
                    _KINDS[one.trainable] + one.category.replace("_", " "),
                    format_bytes(one.bytes),
                    str(one.tensors or ""),
                )
                for one in device.categories
            ]
            allocated = ("allocated", format_bytes(device.allocated_bytes), "")
            yield table(("category", "size", "tensors"), [*categories, allocated])
            rows = [
                (clean(one.layer), format_bytes(one.weight_bytes), format_bytes(one.other_bytes))
                for one in device.layers[:LAYERS]
            ]
            yield table(("largest layers", "weights", "optimizer and other state"), rows)


def _head(device: DeviceContents) -> str:
    capacity = "" if device.capacity_bytes is None else f" of {format_bytes(device.capacity_bytes)}"
    allocated = f"{format_bytes(device.allocated_bytes)} allocated{capacity}"
    head = f"{device.device}: {allocated}, peak {format_bytes(device.peak_bytes)}"
    if device.pool_bytes is None:
        return head
    sizes = device.pool_bytes, device.free_bytes, device.largest_free_bytes
    reserved, free, largest = map(format_bytes, sizes)
    return f"{head}\n{reserved} reserved, {free} free, largest free chunk {largest}"
