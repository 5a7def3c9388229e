"""Tensors that Python holds beside variables: input data, constants and held tensors.

A batch is input data in the step that uses it and in the next one, in which a loop may still refer to it. A batch that
is alive afterwards is a held tensor, unless it was made before the first window: such data is often used again.
"""

import dataclasses
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Set
from typing import Any, Literal

from tb_memplugin.recorder.heap.holders import Device, Entry, HolderSearch
from tb_memplugin.recorder.heap.python_objects import PythonObjects, next_tensor_number
from tb_memplugin.recorder.watch import input_notes, short_device, tensor_address, tensor_size
from tb_memplugin.schema import DATA_SET, TensorFact

TensorCategory = Literal["inputs", "other_state", "held_tensors"]
_RANKS: Mapping[TensorCategory, int] = {"inputs": 0, "other_state": 1, "held_tensors": 2}
DeviceFacts = tuple[tuple[Device, TensorFact], ...]
ReadChunks = Callable[[], Mapping[Device, Set[int] | None]]
"""Reads the addresses of the chunks in use that a variable or a tensor may own; None where the map cannot be read."""


class HeldTensors(PythonObjects):
    """Facts about the tensors of one program from window to window; for the training's thread."""

    def __init__(self) -> None:
        super().__init__()
        self._holders = HolderSearch()
        self._known_variables: Container[int] = ()  # ids
        self._windows = self._misses = 0
        self._batches_since = -math.inf
        self._first_number: int | None = None  # of the tensors made since the first window
        self._in_use: Mapping[Device, int] = {}
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
        """Tensors that Python holds as a window opens, with their devices.

        All objects are searched if some may be unknown, and, with `read_chunks`, a chunk in use has no owner. A batch
        that was last used before `batches_since`, by `time.perf_counter`, is a held tensor: then the step before the
        window's began.
        """
        self._windows += 1
        self._batches_since = batches_since
        if self._first_number is None:
            self._first_number = next_tensor_number()
        self._known_variables = known_variables
        self._in_use = in_use
        self.add(input_notes.tensors())
        addresses = set(variable_addresses)
        self.search_new()
        self._read_facts(addresses, graphs)
        if not self.complete and self._has_unowned(addresses, read_chunks):
            self.search_all()
            self._read_facts(addresses, graphs)
        self._misses = self._promotions.misses
        return tuple((device, fact) for device, fact, _ in self._at_start)

    def _read_facts(self, variable_addresses: Set[int | None], graphs: Iterable[Any]) -> None:
        self.captures.read([*graphs, *self.captures.graphs])
        self._at_start = list(self._entries(variable_addresses))

    def _has_unowned(self, variable_addresses: Set[int | None], read_chunks: ReadChunks | None) -> bool:
        """Whether a chunk has no known owner, or the chunks are unknown.

        Variables of no model do not count: their model may be among the objects that were not found.
        """
        if read_chunks is None:
            return True
        owned = variable_addresses | {fact.address for _, fact, _ in self._at_start}
        return any(addresses is None or not addresses <= owned for addresses in read_chunks().values())

    def finish(
        self, variable_addresses: Iterable[int | None], graphs: Iterable[Any] = ()
    ) -> tuple[DeviceFacts, DeviceFacts]:
        """(The tensors of `find` with their holders, the tensors that are new), as the window closes.

        The arguments are those of `find`, but as they are now.
        """
        self.search_new()
        if self._promotions.misses != self._misses:
            self.search_all()
        self.add(input_notes.tensors())
        self.captures.read(graphs)
        before = {id(known) for _, _, known in self._at_start}
        aliases = {fact.address for _, fact, known in self._at_start if known.reference() is not None}
        new = list(self._entries({*variable_addresses, *aliases}, before))
        at_start, self._at_start = [self._with_category(entry) for entry in self._at_start], []
        self._holders.search([*at_start, *new], self._in_use, self._windows)
        return tuple(map(_with_holder, at_start)), tuple(map(_with_holder, new))

    def find_models(self) -> list[Any]:
        self.search_all()
        return self.models()

    def variables_of_no_model(self) -> list[Any]:
        """Variables that searches found beside the known ones."""
        variables = list(self.variables.values())
        return [variable for variable in variables if id(variable) not in self._known_variables]

    def _entries(self, excluded: Set[int | None], known_ids: Container[int] = ()) -> Iterator[Entry]:
        """One fact for each address; of several tensors there, the one with the most certain category.

        Leaves out addresses of `excluded`, and ids of `KnownTensor`s of `known_ids`.
        """
        of_datasets = self.dataset_tensors()
        entries: dict[int, Entry] = {}
        for tensor, known in self.tensors():
            if id(known) in known_ids:
                continue
            if known.address == 0:
                known.address = tensor_address(tensor)
            address = known.address
            if address is None or address in excluded:
                continue
            category, holder = self._kind(tensor, of_datasets)
            if address not in entries or _RANKS[category] < _RANKS[entries[address][1].category]:
                shape = tuple(int(size) for size in tensor.shape)
                held = (known.held_by, known.retaining_path) if category == "held_tensors" else (holder, None)
                fact = TensorFact(category, tensor_size(tensor), address, shape, tensor.dtype.name, *held)
                entries[address] = short_device(tensor.device), fact, known
        yield from entries.values()

    def _kind(self, tensor: Any, of_datasets: set[int]) -> tuple[TensorCategory, str | None]:
        """Category of a tensor, and what holds it, which is searched for if it is a held tensor."""
        captured = f"captured by function `{self.captures.function(tensor)}`"
        if id(tensor) in of_datasets:
            return "inputs", DATA_SET
        if self.captures.is_data(tensor):
            return "inputs", captured
        made_before = getattr(tensor, "_id", 0) < (self._first_number or 0)
        if input_notes.is_input(tensor, -math.inf if made_before else self._batches_since):
            return "inputs", None
        return ("other_state", captured) if self.captures.is_constant(tensor) else ("held_tensors", None)

    def _with_category(self, entry: Entry) -> Entry:
        """A tensor of the window's start with its category now: the step may have been fed with it."""
        device, fact, known = entry
        tensor = known.reference()
        if fact.category != "held_tensors" or tensor is None:
            return entry
        category, holder = self._kind(tensor, set())
        if category == "held_tensors":
            return entry
        return device, dataclasses.replace(fact, category=category, held_by=holder, retaining_path=None), known


def _with_holder(entry: Entry) -> tuple[Device, TensorFact]:
    device, fact, known = entry
    if fact.category != "held_tensors":
        return device, fact
    return device, dataclasses.replace(fact, held_by=known.held_by, retaining_path=known.retaining_path)
