"""Tensors that Python holds beside variables: input data, constants and held tensors; and variables, models, pipelines.

A batch is input data in the step that uses it and in the next one, in which a loop may still refer to it. A batch that
is alive afterwards is a held tensor, unless it was made before the first window: such data is often used again.

Only Python's garbage collector knows all objects, and listing them takes 0.1 to 0.3 s on the training's thread. So
objects are found while they are young, or just before they grow old, and remembered weakly."""

import dataclasses
import math
import weakref
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Set
from itertools import chain
from typing import Any, Literal, TypeAlias

from tb_memplugin.recorder.devices import tensor_address
from tb_memplugin.recorder.heap import YOUNG, Promotions, cycles_of, find_holders, objects_of, subclasses
from tb_memplugin.recorder.watch import layers
from tb_memplugin.recorder.watch.graphs import PIPELINE_FUNCTION
from tb_memplugin.recorder.watch.notes import input_notes
from tb_memplugin.schema import DATA_SET, TensorFact

HOLDER_SHARE = 0.01
"""Least share of a device's bytes in use that held tensors must have for a search, unless they grew; and least share of
the held tensors that those of one shape must have: a search for a few scalars would take as long."""
MAX_IN_CYCLES = 20
"""Most tensors without a known holder that are looked for in reference cycles at a time, the largest ones."""

TensorCategory = Literal["inputs", "other_state", "held_tensors"]
_RANKS: Mapping[TensorCategory, int] = {"inputs": 0, "other_state": 1, "held_tensors": 2}
Device = str
DeviceFacts = tuple[tuple[Device, TensorFact], ...]
ReadChunks = Callable[[], Mapping[Device, Set[int] | None]]
"""Reads the addresses of the chunks in use that a variable or a tensor may own; None where the map cannot be read."""
_ById: TypeAlias = "weakref.WeakValueDictionary[int, Any]"


class Captures:
    def __init__(self) -> None:
        self.graphs: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # to the graph's version
        self._captured: dict[int, tuple[Callable[[], Any], TensorCategory, str]] = {}  # by id, with a weak reference

    def read(self, graphs: Iterable[Any]) -> None:
        """Read graphs that are new or have grown, and their outer graphs."""
        read = False
        for graph in graphs:
            while graph is not None and hasattr(graph, "captures") and self.graphs.get(graph) != graph.version:
                self.graphs[graph], read = graph.version, True
                is_data = graph.name.startswith(PIPELINE_FUNCTION)
                for tensor in (external for external, _ in graph.captures if not hasattr(external, "graph")):
                    category: TensorCategory = "inputs" if is_data or self.of(tensor)[0] == "inputs" else "other_state"
                    self._captured[id(tensor)] = weakref.ref(tensor), category, graph.name
                graph = getattr(graph, "outer_graph", None)
        if read:
            self._captured = {key: one for key, one in self._captured.items() if one[0]() is not None}

    def of(self, tensor: Any) -> tuple[TensorCategory | None, str]:
        """Whether a function of an input pipeline captured a tensor, or another one; and the last one's name."""
        reference, category, name = self._captured.get(id(tensor), (None, None, ""))
        return (category, name) if reference is not None and reference() is tensor else (None, "")


class KnownTensor:
    def __init__(self, tensor: Any) -> None:
        self.reference = weakref.ref(tensor)
        self.address: int | None = 0  # until it was read; None if unknown
        self.held_by: str | None = None
        self.retaining_path: str | None = None
        self.next_search = 0  # the window in which its holder is searched again


Entry = tuple[Device, TensorFact, KnownTensor]


class HeldTensors:
    """Facts about the tensors of one program, and its remembered objects by id; for the training's thread."""

    def __init__(self) -> None:
        self.captures = Captures()
        self.handles: _ById = weakref.WeakValueDictionary()
        promotions = self._promotions = Promotions(_kinds, _next_tensor_number)
        self.watch, self.unwatch = promotions.start, promotions.stop  # in between, every object is known
        self._misses_found = 0
        self._tensors: dict[int, KnownTensor] = {}
        self._variables: _ById = weakref.WeakValueDictionary()
        self._models: _ById = weakref.WeakValueDictionary()
        self._datasets: _ById = weakref.WeakValueDictionary()
        self._known_variables: Container[int] = ()  # ids
        self._windows = self._misses = 0
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
        known_variables: Container[int] = (),
        read_chunks: ReadChunks | None = None,
        batches_since: float = -math.inf,
    ) -> DeviceFacts:
        """Tensors that Python holds as a window opens, with their devices. All objects are searched if some may be
        unknown, and, with `read_chunks`, a chunk in use has no owner. A batch that was last used before
        `batches_since`, by `time.perf_counter`, is a held tensor: then the step before the window's began."""
        self._windows += 1
        self._batches_since = batches_since
        self._first_number = _next_tensor_number() if self._first_number is None else self._first_number
        self._known_variables, self._in_use = known_variables, in_use
        self._add(input_notes.tensors())
        addresses = set(variable_addresses)
        self._search_new()
        self._read_facts(addresses, graphs)
        complete = self._misses_found == self._promotions.misses > 0
        owned = addresses | {fact.address for _, fact, _ in self._at_start}  # a variable of no model is no owner
        chunks = {"": None} if complete or read_chunks is None else read_chunks()
        if not complete and any(one is None or not one <= owned for one in chunks.values()):
            self._search_all()
            self._read_facts(addresses, graphs)
        self._misses = self._promotions.misses
        return tuple((device, fact) for device, fact, _ in self._at_start)

    def finish(
        self, variable_addresses: Iterable[int | None], graphs: Iterable[Any] = ()
    ) -> tuple[DeviceFacts, DeviceFacts]:
        """(The tensors of `find` with their holders, new tensors) as the window closes; the arguments are as of now."""
        self._search_new()
        if self._promotions.misses != self._misses:
            self._search_all()
        self._add(input_notes.tensors())
        self.captures.read(graphs)
        before = {id(known) for _, _, known in self._at_start}
        aliases = {fact.address for _, fact, known in self._at_start if known.reference() is not None}
        new = self._entries({*variable_addresses, *aliases}, before)
        at_start, self._at_start = [self._with_category(entry) for entry in self._at_start], []
        self._find_holders([*at_start, *new])
        return tuple(map(_with_holder, at_start)), tuple(map(_with_holder, new))

    def find_models(self) -> list[Any]:
        self._search_all()
        return self.models()

    def models(self) -> list[Any]:
        """Remembered models that are alive, without those that are part of another one."""
        models = list(self._models.values())
        inner = {id(part) for model in models for part in layers.parts(model)}
        return [model for model in models if id(model) not in inner]

    def variables_of_no_model(self) -> list[Any]:
        return [one for one in list(self._variables.values()) if id(one) not in self._known_variables]

    def _search_new(self) -> None:
        """Find the young objects and those that grew old since `watch` or the last call."""
        kinds = _kinds()
        young = [objects_of(kinds, generation) for generation in YOUNG]
        # Taken last: a collection on another thread may have moved some before their generation was listed.
        self._remember(chain(*young, self._promotions.take()))

    def _search_all(self) -> None:
        self._misses_found = self._promotions.misses
        self._remember(objects_of(_kinds()))

    def _remember(self, objects: Iterable[Any]) -> None:
        import tensorflow as tf

        models = layers.model_classes()
        tensors: list[Any] = []
        graphs: list[Any] = []
        for item in objects:
            if type(item) is tf.__internal__.EagerTensor:
                tensors.append(item)
            elif isinstance(item, tf.data.Dataset):
                if getattr(item, "_tensors", ()):
                    self._datasets[id(item)] = item
            elif isinstance(item, tf.Variable):
                if hasattr(item, "handle") and tf.executing_eagerly():
                    self._variables[id(item)] = item
            elif isinstance(item, models) or layers.is_module(item):
                self._models[id(item)] = item
            elif isinstance(item, tf.__internal__.FuncGraph):
                graphs.append(item)
        self._add(tensors)
        self.captures.read(graphs)

    def _add(self, tensors: Iterable[Any]) -> None:
        """Remember tensors, except those without plain bytes, and resource handles."""
        import tensorflow as tf

        for tensor in tensors:
            known = self._tensors.get(id(tensor))
            if tensor.dtype == tf.resource:
                self.handles[id(tensor)] = tensor
            elif tensor.dtype not in (tf.variant, tf.string) and (known is None or known.reference() is not tensor):
                self._tensors[id(tensor)] = KnownTensor(tensor)

    def _read_facts(self, variable_addresses: Set[int | None], graphs: Iterable[Any]) -> None:
        self.captures.read([*graphs, *self.captures.graphs])
        self._at_start = self._entries(variable_addresses)

    def _entries(self, excluded: Set[int | None], known_ids: Container[int] = ()) -> list[Entry]:
        """One fact for each address, of the most certain category; without some addresses and `KnownTensor`s."""
        of_datasets = {id(tensor) for dataset in list(self._datasets.values()) for tensor in dataset._tensors}
        entries: dict[int, Entry] = {}
        for key, known in list(self._tensors.items()):
            tensor = known.reference()
            if tensor is None:
                del self._tensors[key]
            if tensor is None or id(known) in known_ids:
                continue
            address = known.address = tensor_address(tensor) if known.address == 0 else known.address
            if address is None or address in excluded:
                continue
            category, holder = self._kind(tensor, of_datasets)
            if address not in entries or _RANKS[category] < _RANKS[entries[address][1].category]:
                shape = tuple(int(size) for size in tensor.shape)
                held = (known.held_by, known.retaining_path) if category == "held_tensors" else (holder, None)
                fact = TensorFact(category, layers.tensor_size(tensor), address, shape, tensor.dtype.name, *held)
                entries[address] = layers.short_device(tensor.device), fact, known
        return list(entries.values())

    def _kind(self, tensor: Any, of_datasets: Container[int] = ()) -> tuple[TensorCategory, str | None]:
        """Category of a tensor, and what holds it, which is searched for if it is a held tensor."""
        category, name = self.captures.of(tensor)
        captured = f"captured by function `{name}`"
        if id(tensor) in of_datasets or category == "inputs":
            return "inputs", DATA_SET if id(tensor) in of_datasets else captured
        made_before = getattr(tensor, "_id", 0) < (self._first_number or 0)
        if input_notes.is_input(tensor, -math.inf if made_before else self._batches_since):
            return "inputs", None
        return ("held_tensors", None) if category is None else (category, captured)

    def _with_category(self, entry: Entry) -> Entry:
        """A tensor of the window's start with its category now: the step may have been fed with it."""
        device, fact, known = entry
        tensor = known.reference()
        if fact.category != "held_tensors" or tensor is None:
            return entry
        category, holder = self._kind(tensor)
        if category == "held_tensors":
            return entry
        return device, dataclasses.replace(fact, category=category, held_by=holder, retaining_path=None), known

    def _find_holders(self, entries: Iterable[Entry]) -> None:
        """Set `held_by` and `retaining_path` of the held tensors if they grew or are many and the holder is unknown. A
        search that fails is repeated when the number of the window has doubled."""
        held = [entry for entry in entries if entry[1].category == "held_tensors"]
        by_device: Counter[Device] = Counter()
        by_shape: Counter[object] = Counter()
        for device, fact, _ in held:
            by_device[device] += fact.requested_bytes
            by_shape[device, fact.shape, fact.dtype] += fact.requested_bytes
        before, self._held_before = self._held_before, by_device
        least = {one: min(before.get(one, 0), HOLDER_SHARE * self._in_use.get(one, 0)) for one in by_device}
        due = [
            known
            for device, fact, known in sorted(held, key=lambda entry: -entry[1].requested_bytes)
            if by_device[device] > least[device]
            and known.held_by is None
            and by_shape[device, fact.shape, fact.dtype] >= HOLDER_SHARE * by_device[device]
            and known.next_search <= self._windows
        ]
        tensors = _alive(due)
        holders = find_holders(tensors) if tensors else {}
        tensors.clear()
        for known in due:
            known.held_by, known.retaining_path = holders.get(id(known.reference()), (None, None))
            known.next_search = 2 * self._windows
        others = _alive([known for known in due if known.held_by is None][:MAX_IN_CYCLES])
        cycles = cycles_of(others) if others else {}
        for known in due:
            name = cycles.get(id(known.reference()))
            known.held_by = known.held_by if name is None else f"a reference cycle of {name} (gc.collect() frees it)"


def _alive(known: Iterable[KnownTensor]) -> list[Any]:
    return [tensor for one in known if (tensor := one.reference()) is not None]


def _with_holder(entry: Entry) -> tuple[Device, TensorFact]:
    device, fact, known = entry
    if fact.category == "held_tensors":
        fact = dataclasses.replace(fact, held_by=known.held_by, retaining_path=known.retaining_path)
    return device, fact


def _next_tensor_number() -> int:
    """The number that TensorFlow would give the next tensor; it then gives the one after it."""
    from tensorflow.python.framework import ops

    return int(ops.uid())


def _kinds() -> set[type]:
    import tensorflow as tf

    bases = (tf.__internal__.FuncGraph, tf.data.Dataset, tf.Variable, tf.Module, *layers.model_classes())
    return {tf.__internal__.EagerTensor}.union(*map(subclasses, bases))
