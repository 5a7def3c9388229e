"""Counts the program's Keras models, and the bytes of their variables while any of them is alive.

A model in reference cycles that nothing else refers to is gone for the program, but exists until Python's garbage
collector runs. Its variables may outlive it: a function graph that captured them, or an optimizer, keeps their memory.
So the resource handle of each variable is referenced weakly, beside the model.
"""

import logging
import math
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tb_memplugin.recorder.base import changes
from tb_memplugin.recorder.watch.layers import (
    parts,
    replicas,
    short_device,
    slots,
    tensor_size,
    tf_variable,
    variables_of,
)

logger = logging.getLogger("tb_memplugin")

MAX_MODELS = 2000
"""Most models whose variables are known at a time, the first ones."""
FREE_SECONDS = 0.25
"""Processor time that looking for unreachable models may take at any cost, so that short programs are told of them."""
UNREACHABLE_SHARE = 0.2
"""Share of the overhead budget that it may take beyond that."""
CHECK_SECONDS = 1.0
"""Interval of looking at models and optimizers that are not built yet, and at variables of models that are gone."""


class ModelFigures(NamedTuple):
    """Count and bytes by device, as in `CounterKind`."""

    built: int
    alive: dict[str, tuple[int, int]]
    unreachable: dict[str, tuple[int, int]]
    gone: dict[str, tuple[int, int]]
    slots_without_model: dict[str, tuple[int, int]]


class _Variable(NamedTuple):
    handle: Callable[[], Any]  # a weak reference
    device: str
    size: int
    is_slot: bool


class _Model:
    def __init__(self, model: Any, gone: Callable[[Any], None]) -> None:
        self.reference = weakref.ref(model, gone)
        self.optimizer: Callable[[], Any] = lambda: None
        self.variables: dict[int, _Variable] = {}  # by id of the handle
        self.unreachable: frozenset[int] | None = None  # keys of the variables that the collector would free
        self.noted_at = self.next_search = time.monotonic()
        self.counted = False
        self.complete = False
        self.is_part = False  # of another model, which may be read later

    def add_slots(self, optimizer: Any) -> None:
        self.optimizer = weakref.ref(optimizer)
        self.variables.update(_variables([slot.variable for slot in slots(optimizer)], True))

    def matters(self) -> bool:
        """Whether the model exists or left variables behind; drops the variables that do not exist any more."""
        if self.reference() is None:
            self.variables = {key: one for key, one in self.variables.items() if one.handle() is not None}
        return not self.is_part and (self.reference() is not None or bool(self.variables))


class LiveModels:
    """The models of one process. Any thread may note a model; the training's thread calls the other methods."""

    def __init__(self) -> None:
        self._noted: list[_Model] = []  # not looked at yet
        self._models: list[_Model] = []
        self._known: weakref.WeakKeyDictionary[Any, _Model] = weakref.WeakKeyDictionary()
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._applied: list[Any] = []  # weak references to optimizers that are not matched to a model yet
        self._built = 0
        self._changed = False
        self._next_check = 0.0
        self._in_use: Callable[[], Any] = lambda: None
        self._began = time.monotonic()
        self._search_seconds = 0.0

    def note(self, model: Any) -> None:
        """Note a model that was made or is about to be used."""
        self._in_use = weakref.ref(model)
        if model not in self._known:
            self._known[model] = entry = _Model(model, self._gone)
            self._noted.append(entry)
            changes.note()

    def used(self, model: Any) -> None:
        """Look at a model after it was trained: it may be gone before `figures` looks. Does not raise."""
        entry = self._known.get(model)
        if entry is not None and not entry.complete:
            try:
                self._read(entry, model)
            except Exception:
                logger.debug("a model could not be counted", exc_info=True)

    def applied(self, optimizer: Any) -> None:
        """Note an optimizer that updated variables; the model need not know it."""
        if optimizer not in self._optimizers:
            self._optimizers.add(optimizer)
            self._applied.append(weakref.ref(optimizer))
            changes.note()

    def due_in(self) -> float:
        """Seconds until `figures` may have changed, unless a change is noted before."""
        if self._noted or self._applied or self._changed:
            return 0.0
        return self._next_check - time.monotonic() if self._models else math.inf

    def bytes_of(self, model: Any) -> dict[str, int]:
        """Bytes of a model's variables and slots by device, as far as they are known."""
        entry = None if model is None else self._known.get(model)
        return {} if entry is None else dict(_sizes(entry.variables.values()))

    def find_unreachable(self, overhead: float, unreachable: Callable[[list[Any]], set[int]]) -> float:
        """Find models that only Python's garbage collector can free, if the budget allows; processor seconds spent.

        `overhead` is the share of run time that recording may cost. `unreachable` empties a list of objects, and
        returns the ids of those that only the collector can free.
        """
        now = time.monotonic()
        budget = FREE_SECONDS + UNREACHABLE_SHARE * overhead * (now - self._began)
        if not overhead or self._search_seconds > budget:
            return 0.0
        others = {id(None), id(self._in_use())}
        due = [
            entry
            for entry in self._models
            if entry.unreachable is None and entry.next_search <= now and id(entry.reference()) not in others
        ]
        if not due:
            return 0.0
        began = time.thread_time()
        try:
            keys = [id(entry.reference()) for entry in due]
            owners = (one for entry in due for one in (entry.reference(), entry.optimizer()))
            garbage = unreachable([one for one in owners if one is not None])
            for entry, key in zip(due, keys, strict=True):
                if key in garbage:
                    entry.unreachable = frozenset(garbage.intersection(entry.variables))
                else:
                    entry.next_search = now + max(CHECK_SECONDS, now - entry.noted_at)
        except Exception:
            logger.debug("unreachable models could not be found", exc_info=True)
        seconds = time.thread_time() - began
        self._search_seconds += seconds
        return seconds

    def figures(self) -> ModelFigures:
        """Look at new models, and at others that may have changed."""
        self._changed, self._next_check = False, time.monotonic() + CHECK_SECONDS
        noted, self._noted = self._noted, []
        self._models += noted[: MAX_MODELS - len(self._models)]
        for entry in self._models:
            model = entry.reference()
            if model is not None and not entry.complete:
                self._read(entry, model)
        applied, self._applied = self._applied, []
        for reference in applied:
            self._match(reference())
        self._models = [entry for entry in self._models if entry.matters()]
        return self._sums()

    def _gone(self, _: Any) -> None:
        self._changed = True
        changes.note()

    def _read(self, entry: _Model, model: Any) -> None:
        """Read a model's variables, once its weights and its optimizer's slots exist."""
        if not getattr(model, "built", True):
            return
        self._note_parts(model)
        if not entry.counted and not entry.is_part:
            entry.counted = True
            self._built += 1
        optimizer = getattr(model, "optimizer", None)
        entry.variables.update(_variables(variables_of(model, "variables"), False))
        if optimizer is not None:
            if not getattr(optimizer, "built", True):
                return
            entry.add_slots(optimizer)
        entry.complete = True

    def _note_parts(self, model: Any) -> None:
        """Count no part of a model as a model of its own, also one that was counted before or is noted later."""
        inner = getattr(model, "_functional", None)
        if inner is not None:
            self._known.setdefault(inner, _Model(inner, self._gone))
        for part in parts(model):
            entry = self._known.get(part)
            if entry is not None and not entry.is_part:
                entry.is_part = True
                self._built -= entry.counted

    def _match(self, optimizer: Any) -> None:
        """Add the slots of an optimizer to those of the model whose variables it updates."""
        own = {key for key, _ in _variables(getattr(optimizer, "_trainable_variables", ()), False)}
        for entry in self._models:
            if own & entry.variables.keys() and entry.optimizer() is not optimizer:
                entry.add_slots(optimizer)
                return

    def _sums(self) -> ModelFigures:
        """Sum each variable once; one that a model that exists shares with one that is gone belongs to the former."""
        figures = ModelFigures(self._built, {}, {}, {}, {})
        seen: set[int] = set()
        states = [(entry.reference() is None, entry.unreachable is not None, entry) for entry in self._models]
        for is_gone, waits, entry in sorted(states, key=lambda state: (state[0], not state[0] and state[1])):
            own = {key: one for key, one in entry.variables.items() if key not in seen}
            seen.update(own)
            if not is_gone and not waits:
                _add(figures.alive, own.values())
                continue
            waiting = frozenset() if is_gone else entry.unreachable or frozenset()
            _add(figures.unreachable, [one for key, one in own.items() if key in waiting])
            _add(figures.gone, [one for key, one in own.items() if key not in waiting])
            if is_gone and entry.optimizer() is not None:
                _add(figures.slots_without_model, [one for one in own.values() if one.is_slot])
        return figures


def _add(figures: dict[str, tuple[int, int]], variables: Iterable[_Variable]) -> None:
    for device, size in _sizes(variables).items():
        count, before = figures.get(device, (0, 0))
        figures[device] = count + 1, before + size


def _sizes(variables: Iterable[_Variable]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for one in variables:
        sizes[one.device] += one.size
    return sizes


def _variables(variables: Any, is_slot: bool) -> Iterator[tuple[int, _Variable]]:
    """Id of its handle and facts of each variable that has one."""
    for variable in variables:
        for part in replicas(tf_variable(variable)):
            handle = part.handle
            yield id(handle), _Variable(weakref.ref(handle), short_device(part.device), tensor_size(part), is_slot)
