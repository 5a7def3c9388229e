"""Decides when to search for the objects that hold tensors: a search takes up to 50 ms of the training's thread."""

from collections.abc import Iterable, Mapping

from tb_memplugin.model.trace import TensorFact
from tb_memplugin.recorder.observe.holders import find_holders
from tb_memplugin.recorder.observe.python_objects import KnownTensor

HOLDER_SHARE = 0.01
"""Least share of a device's bytes in use that held tensors must have for a search, unless they grew; and least share of
the held tensors that those of one shape must have: a search for a few scalars would take as long."""

Device = str
Entry = tuple[Device, TensorFact, KnownTensor]


class HolderSearch:
    """Searches for the holders of held tensors, from window to window."""

    def __init__(self) -> None:
        self._held_before: dict[Device, int] = {}

    def search(self, entries: Iterable[Entry], in_use: Mapping[Device, int], window: int) -> None:
        """Set `held_by` of the held tensors if they grew or are many and the holder is unknown.

        Args:
            entries: Tensors.
            in_use: Bytes in use by device.
            window: Number of the window. A search that fails is repeated when that has doubled.
        """
        held = [entry for entry in entries if entry[1].category == "held_tensors"]
        by_device: dict[Device, int] = {}
        by_shape: dict[object, int] = {}
        for device, fact, _ in held:
            by_device[device] = by_device.get(device, 0) + fact.requested_bytes
            key = device, fact.shape, fact.dtype
            by_shape[key] = by_shape.get(key, 0) + fact.requested_bytes
        devices = {
            device
            for device, size in by_device.items()
            if size > self._held_before.get(device, 0) or size > HOLDER_SHARE * in_use.get(device, 0)
        }
        self._held_before = by_device
        due = [
            (known, known.reference())
            for device, fact, known in held
            if device in devices
            and known.held_by is None
            and by_shape[device, fact.shape, fact.dtype] >= HOLDER_SHARE * by_device[device]
            and known.next_search <= window
        ]
        tensors = [tensor for _, tensor in due if tensor is not None]
        holders = find_holders(tensors) if tensors else {}
        for known, tensor in due:
            known.held_by = holders.get(id(tensor))
            known.next_search = 2 * window
