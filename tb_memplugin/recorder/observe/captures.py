"""Eager tensors that function graphs captured: constants, and the data of input pipelines."""

import weakref
from collections.abc import Iterable
from typing import Any

PIPELINE_FUNCTION = "Dataset_"
"""Prefix of the names of tf.data's function graphs."""


class Captures:
    """Remembers graphs and the tensors that they captured, weakly."""

    def __init__(self) -> None:
        self._graphs: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # to the graph's version
        self._constants: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._data: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def read(self, graphs: Iterable[Any]) -> None:
        """Read graphs that are new or have grown, and their outer graphs."""
        for graph in graphs:
            while graph is not None and hasattr(graph, "captures"):
                version = graph.version
                if self._graphs.get(graph) == version:
                    break
                self._graphs[graph] = version
                tensors = self._data if graph.name.startswith(PIPELINE_FUNCTION) else self._constants
                for external, _ in graph.captures:
                    if not hasattr(external, "graph"):
                        tensors[id(external)] = external
                graph = getattr(graph, "outer_graph", None)

    def graphs(self) -> list[Any]:
        """Graphs that are still alive."""
        return list(self._graphs)

    def is_data(self, tensor: Any) -> bool:
        """Whether a function of an input pipeline captured the tensor."""
        return self._data.get(id(tensor)) is tensor

    def is_constant(self, tensor: Any) -> bool:
        """Whether another function captured the tensor."""
        return self._constants.get(id(tensor)) is tensor
