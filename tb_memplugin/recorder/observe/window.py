"""`ObservedWindow`: facts about the program in one profiler window."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from tb_memplugin.model.trace import GraphFacts, TraceFacts
from tb_memplugin.recorder.observe.heap.held_tensors import DeviceFacts, HeldTensors, ReadChunks
from tb_memplugin.recorder.observe.model.addresses import short_device
from tb_memplugin.recorder.observe.model.former_variables import former_handles, former_variables
from tb_memplugin.recorder.observe.model.variables import Variables


class ObservedWindow:
    """Variables and held tensors at the start and end of a profiler window; for the training's thread.

    Args:
        models: Models with their optimizers; not kept alive.
        optimizers: Optimizers of other models.
        held: Tensors known from earlier windows; without it, all of Python's objects are searched.
        graphs: Traced function graphs; tensors that they captured are constants.
        read_chunks: Reads the chunks in use, which show whether a tensor is unknown.
        batches_since: As for `HeldTensors.find`.

    Attributes:
        variables: The variables of these models and optimizers.
    """

    def __init__(
        self,
        models: list[tuple[Any, Any]],
        optimizers: list[Any],
        held: HeldTensors | None = None,
        graphs: Iterable[Any] = (),
        read_chunks: ReadChunks | None = None,
        batches_since: float = -math.inf,
    ) -> None:
        self.variables = variables = Variables(models, optimizers)
        self._start_in_use = _bytes_in_use()
        self._held = HeldTensors() if held is None else held
        self._tensors = self._held.find(
            self._start_in_use, variables.start_addresses(), graphs, variables.ids(), read_chunks, batches_since
        )
        variables.add_unowned(self._held.variables_of_no_model(), {fact.address for _, fact in self._tensors})
        self._former = former_variables.facts(former_handles(self._held.handles()))
        self._tensors_at_end: DeviceFacts = ()
        self._finished = False

    def finish(self, graphs: Iterable[Any]) -> None:
        """Find new held tensors, and the holders of all, after the window has closed. Calling it again does nothing.

        Args:
            graphs: Traced function graphs.
        """
        if self._finished:
            return
        self._finished = True
        self._tensors, self._tensors_at_end = self._held.finish(self.variables.addresses(), graphs)

    def facts(
        self, device: str, graphs: tuple[GraphFacts, ...], gradients: Iterable[tuple[int, int, Any]]
    ) -> TraceFacts:
        """All facts about the window on one device.

        Args:
            device: The device.
            graphs: Facts about the program's function graphs.
            gradients: (address, requested bytes, weak reference to the variable) of eager gradients.
        """
        return TraceFacts(
            mode="eager" if self.variables.eager or not graphs else "graph",
            trainable=self.variables.trainable,
            graphs=graphs,
            variables=(*self.variables.facts(device), *(fact for fact in self._former if fact.device == device)),
            tensors=tuple(fact for tensor_device, fact in self._tensors if tensor_device == device),
            tensors_at_end=tuple(fact for tensor_device, fact in self._tensors_at_end if tensor_device == device),
            start_in_use=self._start_in_use.get(device),
            gradients=tuple(self._gradient_facts(gradients)),
        )

    def _gradient_facts(self, gradients: Iterable[tuple[int, int, Any]]) -> Iterator[tuple[int, int, str | None]]:
        for address, size, reference in gradients:
            owner = self.variables.owner_of(reference())
            yield address, size, owner[1] if owner else None


def _bytes_in_use() -> dict[str, int]:
    """Bytes in use by device, of allocators that keep statistics."""
    import tensorflow as tf

    in_use: dict[str, int] = {}
    for device in tf.config.list_logical_devices():
        name = short_device(device.name)
        try:
            in_use[name] = int(tf.config.experimental.get_memory_info(name)["current"])
        except Exception:  # an allocator without statistics, such as the plain CPU allocator
            continue
    return in_use
