"""Tensors that Python holds beside variables: input data, constants and held tensors; and
variables, models, pipelines.

A batch is input data in the step that uses it and in the next one, in which a loop may still refer
to it. A batch that is alive afterwards is a held tensor, unless it was made before the first
window: such data is often used again.

Only what the program can reach is read, since the garbage collector's list of all objects contains
some that a collection on another thread has already cleared. The objects are found from the
program's modules, running functions and models, from the graphs that TensorFlow keeps, and by weak
notes of what calls used and returned."""

import dataclasses
import math
import weakref
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Set
from typing import Any, Literal

from tb_memplugin.recorder.base import (
    ByIdentity,
    is_a,
    own,
    own_list,
    quiet,
)
from tb_memplugin.recorder.devices import tensor_address
from tb_memplugin.recorder.heap import (
    find_holders,
    reachable,
    registered_graphs,
)
from tb_memplugin.recorder.watch import layers
from tb_memplugin.recorder.watch.graphs import PIPELINE_FUNCTION
from tb_memplugin.recorder.watch.notes import call_notes, input_notes
from tb_memplugin.recorder.watch.variable_values import has_handle, short_device, tensor_size
from tb_memplugin.recorder.watch.variables import former_variables
from tb_memplugin.schema import DATA_SET, TensorFact

HOLDER_SHARE = 0.01
"""Least share of a device's bytes in use that held tensors must have for a search, unless they
grew; and least share of the held tensors that those of one shape must have: a search for a few
scalars would take as long."""

TensorCategory = Literal["inputs", "other_state", "held_tensors"]
_RANKS: Mapping[str, int] = {"inputs": 0, "other_state": 1, "held_tensors": 2}
Device = str
DeviceFacts = tuple[tuple[Device, TensorFact], ...]


class Captures:
    def __init__(self) -> None:
        self.graphs = ByIdentity[int]()  # to the graph's version
        self._captured = ByIdentity[tuple[TensorCategory, str]]()

    def read(self, graphs: Iterable[Any]) -> None:
        """Read graphs that are new or have grown, and their outer graphs."""
        for graph in graphs:
            while hasattr(graph, "captures") and self.graphs.get(graph) != graph.version:
                self.graphs[graph] = graph.version
                is_data = graph.name.startswith(PIPELINE_FUNCTION)
                for tensor in _captured(graph):
                    category: TensorCategory = (
                        "inputs" if is_data or self.of(tensor)[0] == "inputs" else "other_state"
                    )
                    self._captured[tensor] = category, graph.name
                graph = getattr(graph, "outer_graph", None)

    def of(self, tensor: Any) -> tuple[TensorCategory | None, str]:
        """Whether a function of an input pipeline captured a tensor, or another one; and the last
        one's name."""
        found: tuple[TensorCategory | None, str] = self._captured.get(tensor, (None, ""))
        return found


@quiet
def _cached_tensors() -> list[Any]:
    """The zeros that TensorFlow keeps on this thread for gradients of eager ops, up to 256 tensors
    of at most 10,000 values: no object of the program."""
    from tensorflow.python.eager import context

    return list(context.context().zeros_cache()._data.values())


def _captured(graph: Any) -> list[Any]:
    """The eager tensors that a graph captured."""
    return [external for external, _ in graph.captures if not hasattr(external, "graph")]


class KnownTensor:
    def __init__(self, tensor: Any) -> None:
        self.reference = weakref.ref(tensor)
        self.address: int | None = 0  # until it was read; None if unknown
        self.held_by: str | None = None
        self.retaining_path: str | None = None
        self.next_search = 0  # the window in which its holder is searched again


Entry = tuple[Device, TensorFact, KnownTensor]


class HeldTensors:
    """Facts about the tensors of one program, and its remembered objects; for the training's
    thread."""

    def __init__(self) -> None:
        self.captures = Captures()
        self.handles = ByIdentity[bool]()
        self._tensors = ByIdentity[KnownTensor]()
        self._read_graphs = ByIdentity[int]()  # to the graph's version
        self._variables = ByIdentity[bool]()
        self._models = ByIdentity[bool]()
        self._datasets = ByIdentity[bool]()
        self._cached: Set[int] = set()  # ids of the tensors of TensorFlow's cache
        self._windows = 0
        self._batches_since = -math.inf
        self._first_number: int | None = None  # of the tensors made since the first window
        self._in_use: Mapping[Device, int] = {}
        self._held_before: Mapping[Device, int] = {}
        self._at_start: list[Entry] = []

    def find(
        self,
        in_use: Mapping[Device, int],
        variable_addresses: Iterable[int | None],
        graphs: Iterable[Any] = (),
        batches_since: float = -math.inf,
    ) -> DeviceFacts:
        """Tensors that Python holds as a window opens, with their devices. A batch that was last
        used before `batches_since`, by `time.perf_counter`, is a held tensor: then the step before
        the window's began."""
        self._windows += 1
        self._batches_since = batches_since
        self._first_number = (
            _next_tensor_number() if self._first_number is None else self._first_number
        )
        self._in_use = in_use
        self._search()
        self.captures.read([*graphs, *self.captures.graphs])
        self._know_handles()
        self._at_start = self._entries(set(variable_addresses))
        return tuple((device, fact) for device, fact, _ in self._at_start)

    def finish(
        self, variable_addresses: Iterable[int | None], graphs: Iterable[Any] = ()
    ) -> tuple[DeviceFacts, DeviceFacts]:
        """(The tensors of `find` with their holders, new tensors) as the window closes; the
        arguments are as of now."""
        self._search()
        self.captures.read(graphs)
        before = {id(known) for _, _, known in self._at_start}
        aliases = {
            fact.address for _, fact, known in self._at_start if known.reference() is not None
        }
        new = self._entries({*variable_addresses, *aliases}, before)
        at_start, self._at_start = [self._with_category(entry) for entry in self._at_start], []
        self._find_holders([*at_start, *new])
        return (
            tuple(_with_holder(entry)[:2] for entry in at_start),
            tuple(_with_holder(entry)[:2] for entry in new),
        )

    def find_models(self) -> list[Any]:
        self._search()
        return self.models()

    def known_models(self) -> list[int]:
        """Ids of the remembered models that are alive."""
        return list(map(id, self._models))

    def models(self) -> list[Any]:
        """Remembered models that are alive, without those that are part of another one."""
        models = list(self._models)
        inner = {id(part) for model in models for part in layers.parts(model)}
        return [model for model in models if id(model) not in inner]

    def variables(self) -> list[Any]:
        """Remembered variables that are alive."""
        return list(self._variables)

    def _search(self) -> None:
        import tensorflow as tf

        ends = (tf.__internal__.EagerTensor, tf.Variable, tf.__internal__.FuncGraph)
        kinds = (*ends, tf.data.Dataset, tf.Module, *layers.model_classes())
        roots = [*self._models, *call_notes.outermost_layers, *input_notes.roots()]
        self._remember([*reachable(kinds, ends, roots), *roots])
        self._add(input_notes.tensors())
        cached = _cached_tensors() or []
        self._cached = {id(tensor) for tensor in cached}
        self._add(cached)

    def _know_handles(self) -> None:
        """Remember the resource handles that traced functions captured: they keep the memory of
        variables."""
        for graph in (*self.captures.graphs, *registered_graphs()):
            if self._read_graphs.get(graph) != graph.version:
                self._read_graphs[graph] = graph.version
                self._add(_captured(graph) if hasattr(graph, "captures") else ())
        self._add(former_variables.handles())

    def _remember(self, objects: Iterable[Any]) -> None:
        import tensorflow as tf

        models = layers.model_classes()
        tensors: list[Any] = []
        graphs: list[Any] = []
        for item in objects:
            if type(item) is tf.__internal__.EagerTensor:
                tensors.append(item)
            elif is_a(item, tf.data.Dataset):
                if own(item, "_tensors") is not None:
                    self._datasets.add(item)
                    tensors += _tensors_of(item)
            elif is_a(item, tf.Variable):
                if tf.executing_eagerly() and has_handle(item):
                    self._variables.add(item)
            elif is_a(item, *models) or layers.is_module(item):
                self._models.add(item)
            elif is_a(item, tf.__internal__.FuncGraph):
                graphs.append(item)
        self._add(tensors)
        self.captures.read(graphs)

    def _add(self, tensors: Iterable[Any]) -> None:
        """Remember tensors, except those without plain bytes, and resource handles."""
        import tensorflow as tf

        for tensor in tensors:
            if tensor in self.handles or tensor in self._tensors:
                continue
            if tensor.dtype == tf.resource:
                self.handles.add(tensor)
            elif tensor.dtype not in (tf.variant, tf.string):
                self._tensors[tensor] = KnownTensor(tensor)

    def _entries(self, excluded: Set[int | None], known_ids: Container[int] = ()) -> list[Entry]:
        """One fact for each address, of the most certain category; without some addresses and
        `KnownTensor`s."""
        of_datasets = {id(tensor) for dataset in self._datasets for tensor in _tensors_of(dataset)}
        entries: dict[int, Entry] = {}
        for tensor, known in self._tensors.items():
            if id(known) in known_ids:
                continue
            if known.address == 0:
                known.address = tensor_address(tensor)
            address = known.address
            if address is None or address in excluded:
                continue
            category, holder = self._kind(tensor, of_datasets)
            if address not in entries or _RANKS[category] < _RANKS[entries[address][1].category]:
                fact = TensorFact(
                    category,
                    tensor_size(tensor),
                    address,
                    tuple(int(size) for size in tensor.shape),
                    tensor.dtype.name,
                    holder,
                    line=input_notes.line(tensor),
                )
                entries[address] = _with_holder((short_device(tensor.device), fact, known))
        return list(entries.values())

    def _kind(
        self, tensor: Any, of_datasets: Container[int] = ()
    ) -> tuple[TensorCategory, str | None]:
        """Category of a tensor, and what holds it, which is searched for if it is a held tensor."""
        if id(tensor) in self._cached:
            return "other_state", "TensorFlow's own cache of zeros"
        category, name = self.captures.of(tensor)
        captured = f"captured by function `{name}`"
        if id(tensor) in of_datasets or category == "inputs":
            return "inputs", DATA_SET if id(tensor) in of_datasets else captured
        made_before = getattr(tensor, "_id", 0) < (self._first_number or 0)
        if input_notes.is_input(tensor, -math.inf if made_before else self._batches_since):
            return "inputs", None
        return ("held_tensors", None) if category is None else (category, captured)

    def _with_category(self, entry: Entry) -> Entry:
        """A tensor of the window's start with its category now: the step may have been fed with
        it."""
        device, fact, known = entry
        tensor = known.reference()
        if fact.category != "held_tensors" or tensor is None:
            return entry
        category, holder = self._kind(tensor)
        if category == "held_tensors":
            return entry
        fact = dataclasses.replace(fact, category=category, held_by=holder, retaining_path=None)
        return device, fact, known

    def _find_holders(self, entries: Iterable[Entry]) -> None:
        """Set `held_by` and `retaining_path` of the held tensors if they grew or are many and the
        holder is unknown. A search that fails is repeated when the number of the window has
        doubled."""
        held = [entry for entry in entries if entry[1].category == "held_tensors"]
        by_device: Counter[Device] = Counter()
        by_shape: Counter[object] = Counter()
        for device, fact, _ in held:
            by_device[device] += fact.requested_bytes
            by_shape[device, fact.shape, fact.dtype] += fact.requested_bytes
        before, self._held_before = self._held_before, by_device
        due = []
        for device, fact, known in sorted(held, key=lambda entry: -entry[1].requested_bytes):
            least = min(before.get(device, 0), HOLDER_SHARE * self._in_use.get(device, 0))
            of_shape = by_shape[device, fact.shape, fact.dtype]
            matters = by_device[device] > least and of_shape >= HOLDER_SHARE * by_device[device]
            if matters and known.held_by is None and known.next_search <= self._windows:
                due.append(known)
        tensors = [tensor for known in due if (tensor := known.reference()) is not None]
        holders = find_holders(tensors) if tensors else {}
        for known in due:
            known.held_by, known.retaining_path = holders.get(id(known.reference()), (None, None))
            known.next_search = 2 * self._windows


def _tensors_of(dataset: Any) -> list[Any]:
    """The eager tensors that a dataset of tensors keeps."""
    import tensorflow as tf

    tensors = own_list(dataset, "_tensors")
    return [one for one in tensors if type(one) is tf.__internal__.EagerTensor]


def _with_holder(entry: Entry) -> Entry:
    device, fact, known = entry
    if fact.category == "held_tensors":
        fact = dataclasses.replace(fact, held_by=known.held_by, retaining_path=known.retaining_path)
    return device, fact, known


def _next_tensor_number() -> int:
    """The number that TensorFlow would give the next tensor; it then gives the one after it."""
    from tensorflow.python.framework import ops

    return int(ops.uid())
