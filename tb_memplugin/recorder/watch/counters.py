"""The counters of the program: models, traces and dataset caches, as rows of (kind, name) with
their values.

A model in reference cycles that nothing else refers to is gone for the program, but exists until
Python's garbage collector runs. Its variables may outlive it: a function graph that captured them,
or an optimizer, keeps their memory. So the resource handle of each variable is referenced weakly,
beside the model. Traces, and the signatures for which XLA compiles a `tf.function`, are counted by
the function's Python code: one that is made again is the same function."""

import inspect
import math
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Set
from typing import Any, NamedTuple

from tb_memplugin.recorder.base import (
    ByIdentity,
    asked,
    attribute,
    changes,
    contained,
    is_a,
    is_subclass,
    own,
    own_list,
    quiet,
)
from tb_memplugin.recorder.watch import layers
from tb_memplugin.recorder.watch.datasets import DatasetCaches
from tb_memplugin.recorder.watch.slots import slots
from tb_memplugin.recorder.watch.variable_values import (
    current_size,
    kept,
    replicas,
    short_device,
    size_of_variable,
    tensor_size,
)
from tb_memplugin.schema import MISSING, CounterKind

MAX_MODELS = 2000  # most models whose variables are known at a time, the first ones
FREE_SECONDS = 0.25
"""Processor time that looking for unreachable models may take at any cost, so that short programs
are told of them."""
UNREACHABLE_SHARE = 0.2  # share of the overhead budget that it may take beyond that
CHECK_SECONDS = 1.0
"""Interval of looking at models and optimizers that are not built yet, and at variables of models
that are gone."""
MAX_FUNCTIONS = 64  # most functions that are counted, the first ones that were traced
MAX_SIGNATURES = 10_000  # most signatures that are counted for a function
MAX_ITEMS = 32  # most arguments of a call, or items of one, that belong to its signature


class _Variable(NamedTuple):
    device: str
    size: int
    optimizer: int  # number of the model's optimizer whose slot it is; 0 for a weight


class _Model:
    def __init__(self, model: Any, gone: Callable[[Any], None]) -> None:
        self.reference = weakref.ref(model, gone)
        self.optimizer: Callable[[], Any] = lambda: None  # the last one
        self.optimizers = 0  # so far
        self.variables = ByIdentity[_Variable]()  # by their handles
        self.graphs = ByIdentity[bool]()  # that it was loaded with, and that may outlive it
        # ids of the handles that the collector would free
        self.unreachable: Set[int] | None = None
        self.noted_at = self.next_search = time.monotonic()
        self.counted = self.complete = False
        self.is_part = False  # of another model, which may be read later

    def add(self, variables: Iterable[Any], optimizer: int = 0) -> None:
        for variable in variables:
            for part in asked(variable, replicas) or ():
                asked(part, self._add, optimizer)

    def _add(self, variable: Any, optimizer: int) -> None:
        handle, size = kept(variable, "handle"), size_of_variable(variable)
        self.variables[handle] = _Variable(short_device(handle.device), size, optimizer)

    def add_slots(self, optimizer: Any) -> None:
        if self.optimizer() is not optimizer:
            self.optimizer = weakref.ref(optimizer)
            self.optimizers += 1
        self.add((slot.variable for slot in slots(optimizer)), self.optimizers)

    def state(self) -> int:
        """0 while the program may reach the model, 1 while it waits for the garbage collector, then
        2."""
        if self.reference() is None:
            return 1 if self.waiting() else 2
        return int(self.unreachable is not None)

    def waiting(self) -> Set[int]:
        """Ids of the handles that exist and that the collector would free."""
        return set(map(id, self.variables)) & (self.unreachable or set())

    def owners(self) -> list[Any]:
        owners = (self.reference(), self.optimizer(), *self.graphs)
        return [one for one in owners if one is not None]


class LiveModels:
    """The models of one process. Any thread may note one; the training's thread calls the other
    methods."""

    def __init__(self) -> None:
        self.built = 0
        self._noted: list[_Model] = []  # not looked at yet
        self._models: list[_Model] = []
        self._known = ByIdentity[_Model]()
        self._optimizers = ByIdentity[bool]()  # whether its model was looked for
        self._changed = False
        self._next_check = 0.0
        self._in_use: Callable[[], Any] = lambda: None
        self._began = time.monotonic()
        self._search_seconds = 0.0

    def note(self, model: Any) -> None:
        self._in_use = weakref.ref(model)
        if model not in self._known:
            self._known[model] = entry = _Model(model, self._change)
            self._noted.append(entry)
            self._change()

    @quiet
    def loaded(self, nodes: list[Any], graphs: list[Any]) -> None:
        """Note the objects of a SavedModel that TensorFlow loaded, the first of which is the model,
        and the graphs of its functions: they refer to the variables when the model is gone."""
        import tensorflow as tf

        self.note(nodes[0])
        entry = self._known.get(nodes[0])
        if entry is not None and not is_a(nodes[0], *layers.model_classes()):
            entry.add(node for node in nodes if is_a(node, tf.Variable))
            for graph in graphs:
                entry.graphs.add(graph)
            entry.complete = entry.counted = True
            self.built += 1

    @quiet
    def used(self, model: Any) -> None:
        """Look at a model after it was trained: it may be gone before `figures` looks."""
        entry = self._known.get(model)
        if entry is not None and not entry.complete:
            self._read(model, entry)

    def applied(self, optimizer: Any) -> None:
        if optimizer not in self._optimizers:
            self._optimizers[optimizer] = False
            self._change()

    def _change(self, _: Any = None) -> None:
        self._changed = True
        changes.note()

    def due_in(self) -> float:
        if self._changed:
            return 0.0
        return self._next_check - time.monotonic() if self._models else math.inf

    def bytes_of(self, model: Any) -> dict[str, int]:
        """Bytes of a model's weights and of its last optimizer's slots, by device."""
        entry = None if model is None else self._known.get(model)
        if entry is None:
            return {}
        own = (0, entry.optimizers)
        return _sizes(one for _, one in entry.variables.items() if one.optimizer in own)

    def kept_bytes(self, model: Any) -> int | None:
        """Bytes of an earlier model; None for a part of a model, and for the one noted last."""
        entry = self._known.get(model)
        if entry is None or entry.is_part or model is self._in_use():
            return None
        return sum(self.bytes_of(model).values())

    def owns(self, variable: Any) -> bool:
        handle = kept(variable, "handle")
        return any(handle in entry.variables for entry in self._models)

    def find_unreachable(
        self, overhead: float, unreachable: Callable[[list[Any]], set[int]]
    ) -> float:
        """Find models that only Python's garbage collector can free, if the budget allows;
        processor seconds spent. `overhead` is the share of run time that recording may cost,
        `unreachable` the function of `recorder.heap`."""
        now = time.monotonic()
        budget = FREE_SECONDS + UNREACHABLE_SHARE * overhead * (now - self._began)
        if not overhead or self._search_seconds > budget:
            return 0.0
        in_use = id(self._in_use())
        due = [
            entry
            for entry in self._models
            if entry.unreachable is None
            and entry.next_search <= now
            and id(entry.reference()) != in_use
            and (entry.reference() is not None or len(entry.graphs))
        ]
        if not due:
            return 0.0
        began = time.thread_time()
        self._search(due, now, unreachable)
        seconds = time.thread_time() - began
        self._search_seconds += seconds
        return seconds

    @quiet
    def _search(
        self,
        due: list[_Model],
        now: float,
        unreachable: Callable[[list[Any]], set[int]],
    ) -> None:
        garbage = unreachable([owner for entry in due for owner in entry.owners()])
        for entry in due:
            waits = garbage.intersection(map(id, entry.variables))
            is_garbage = id(entry.reference()) in garbage
            if is_garbage or (waits and entry.reference() is None):
                entry.unreachable = waits
            else:
                entry.next_search = now + max(CHECK_SECONDS, now - entry.noted_at)

    def figures(self) -> dict[CounterKind, dict[str, tuple[int, int]]]:
        """(count, bytes) by kind and device, after a look at new and changed models. Each variable
        counts once; one that a model that exists shares with one that is gone belongs to the
        former."""
        self._changed, self._next_check = False, time.monotonic() + CHECK_SECONDS
        self._look()
        figures: dict[CounterKind, dict[str, tuple[int, int]]] = {
            "models_alive": {},
            "models_unreachable": {},
            "models_gone": {},
            "slots_without_model": {},
            "optimizers_replaced": {},
        }
        seen: set[int] = set()
        states = [(entry.state(), entry) for entry in self._models]
        for state, entry in sorted(states, key=lambda pair: pair[0]):
            left = {
                id(handle): one for handle, one in entry.variables.items() if id(handle) not in seen
            }
            seen.update(left)
            garbage = left.keys() & entry.waiting() if state == 1 else set[int]()
            _add(figures["models_unreachable"], [left[key] for key in garbage])
            rest = [one for key, one in left.items() if key not in garbage]
            _add(figures["models_gone" if state else "models_alive"], rest)
            if state == 2 and entry.optimizer() is not None:
                _add(figures["slots_without_model"], [one for one in rest if one.optimizer])
            for number in range(1, entry.optimizers) if state == 0 else ():
                own = [one for one in rest if one.optimizer == number]
                _add(figures["optimizers_replaced"], own)
        return figures

    def _look(self) -> None:
        """Read new models and match new optimizers; drop models that left nothing behind. Keeps
        none of them alive for what follows."""
        noted, self._noted = self._noted, []
        self._models += noted[: MAX_MODELS - len(self._models)]
        for entry in self._models:
            model = entry.reference()
            if model is not None and not entry.complete:
                asked(model, self._read, entry)
        for optimizer, looked in self._optimizers.items():
            if not looked:
                self._optimizers[optimizer] = True
                asked(optimizer, self._match)
        self._models = [
            one
            for one in self._models
            if not one.is_part and (one.reference() is not None or len(one.variables))
        ]

    def _match(self, optimizer: Any) -> None:
        trained = [
            kept(part, "handle")
            for variable in own_list(optimizer, "_trainable_variables")
            for part in replicas(variable)
        ]
        for entry in self._models:
            if entry.optimizer() is not optimizer and any(
                handle in entry.variables for handle in trained
            ):
                entry.add_slots(optimizer)
                break

    def _read(self, model: Any, entry: _Model) -> None:
        """Read a model's variables, once its weights and its optimizer's slots exist. Its parts are
        no models, also if one was counted before or is noted later."""
        if own(model, "built", True) is False:
            return
        if (inner := own(model, "_functional")) is not None:
            self._known.setdefault(inner, _Model(inner, self._change))
        for part in map(self._known.get, layers.parts(model)):
            if part is not None and not part.is_part:
                part.is_part = True
                self.built -= part.counted
        if not entry.counted and not entry.is_part:
            entry.counted = True
            self.built += 1
        optimizer = own(model, "optimizer")
        entry.add(layers.variables_of(model, "variables"))
        entry.complete = bool(attribute(optimizer, "built", True))
        if entry.complete and optimizer is not None:
            entry.add_slots(optimizer)


def _add(figures: dict[str, tuple[int, int]], variables: Iterable[_Variable]) -> None:
    for device, size in _sizes(variables).items():
        count, before = figures.get(device, (0, 0))
        figures[device] = count + 1, before + size


def _sizes(variables: Iterable[_Variable]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for one in variables:
        sizes[one.device] = sizes.get(one.device, 0) + one.size
    return sizes


class TracedFunction:
    def __init__(self, name: str, code: Any) -> None:
        self.name, self._code = name, code  # so that no other code gets its id
        self.traces = 0  # calls that traced it
        self.signatures: set[int] = set()  # hashes; of those with which XLA compiles it


class FunctionTraces:
    """The traced functions of one process, by id of their code, or else by name. Any thread may
    call; none raises."""

    def __init__(self) -> None:
        self.functions: dict[Any, TracedFunction] = {}
        self.changed = False

    @quiet
    def called(self, function: Any, traces_before: int, args: Any, kwargs: Any) -> None:
        """Note an outermost call of a `tf.function`, given its number of traces before the call."""
        traces, is_compiled = traces_of(function), own(function, "_jit_compile")
        known = self._function(function) if is_compiled or traces != traces_before else None
        if known is None:
            return
        before = known.traces, len(known.signatures)
        # a first call that makes variables traces twice
        known.traces += traces - traces_before if traces_before else traces > 0
        if is_compiled and len(known.signatures) < MAX_SIGNATURES:
            known.signatures.add(hash((_signature(args), _signature(kwargs))))
        if before != (known.traces, len(known.signatures)):
            self.changed = True
            changes.note()

    def _function(self, function: Any) -> TracedFunction | None:
        python = own(function, "_python_function")
        name = str(getattr(python, "__name__", None) or type(python).__name__)
        code = code_of(function)
        key = name if code is None else id(code)  # hashing code takes longer than all else here
        if key not in self.functions and len(self.functions) < MAX_FUNCTIONS:
            self.functions[key] = TracedFunction(name, code)
        return self.functions.get(key)


def code_of(function: Any) -> Any:
    """The code of the Python function that a `tf.function` traces; None for other callables."""
    return asked(own(function, "_python_function"), _innermost_code)


def _innermost_code(python: Any) -> Any:
    # `tf.function` wraps a method in a function of its own
    return getattr(inspect.unwrap(python), "__code__", None)


def traces_of(function: Any) -> int:
    try:
        return int(function.experimental_get_tracing_count())
    except Exception:
        return 0


def _signature(value: Any) -> Any:
    """What XLA compiles for; None for objects without a shape."""
    items = contained(value, MAX_ITEMS)
    if items is not None:
        keys = list(dict.keys(value))[:MAX_ITEMS] if is_a(value, dict) else ()
        return (*(key for key in keys if type(key) is str), *map(_signature, items))
    if value is None or type(value) in (bool, int, float, str):
        return value
    return asked(value, _shape_and_type)


def _shape_and_type(value: Any) -> Any:
    shape = getattr(value, "_shape_tuple", None)
    if shape is not None:  # an eager tensor; its `shape` takes several times as long
        return shape(), value._datatype_enum()
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return tuple(value.shape), str(value.dtype)
    return None


class CounterValue(NamedTuple):  # fields as in `Counters`
    kind: CounterKind
    name: str | None
    value: int
    bytes: int = MISSING


class ProgramCounters:
    """Process-wide. Wrapped methods note in the attributes what happens on any thread; the
    training's thread reads."""

    def __init__(self) -> None:
        self.models = LiveModels()
        self.functions = FunctionTraces()
        self.datasets = DatasetCaches()

    def due_in(self) -> float:
        """Seconds until a value may have changed, unless a change is noted before."""
        return 0.0 if self.functions.changed or self.datasets.changed else self.models.due_in()

    def values(self) -> list[CounterValue]:
        """All values now. Takes as long as the models that are new have variables: about a
        microsecond for each."""
        self.functions.changed = self.datasets.changed = False
        figures = self.models.figures()
        values = [CounterValue("models_built", None, self.models.built)]
        for kind, by_device in figures.items():
            values += [CounterValue(kind, device, *figure) for device, figure in by_device.items()]
        traces, signatures = Counter[str](), Counter[str]()
        for one in list(self.functions.functions.values()):
            traces[one.name] += one.traces
            signatures[one.name] += len(one.signatures)
        values += [CounterValue("traces", name, count) for name, count in traces.items()]
        values += [
            CounterValue("compiled_shapes", name, count)
            for name, count in signatures.items()
            if count
        ]
        caches, size = self.datasets.now()
        if caches:
            values.append(
                CounterValue("dataset_caches", None, caches, MISSING if size is None else size)
            )
        return values

    def kept_kind(self, kind: type) -> CounterKind | None:
        """What objects of a class count as if something keeps them."""
        import tensorflow as tf

        if is_subclass(kind, (tf.__internal__.EagerTensor, tf.Variable)):
            return "kept_tensors"
        return "kept_models" if is_subclass(kind, layers.model_classes()) else None

    def kept_bytes(self, item: Any) -> int | None:
        """Bytes of a tensor or of a model; None for those that do not count: variables of models,
        handles, texts, and the last model."""
        import tensorflow as tf

        if is_a(item, tf.__internal__.EagerTensor):
            is_plain = item.dtype not in (tf.resource, tf.variant, tf.string)
            return tensor_size(item) if is_plain else None
        if not is_a(item, tf.Variable):
            return self.models.kept_bytes(item)
        return asked(item, self._unowned_bytes) if tf.executing_eagerly() else None

    def _unowned_bytes(self, variable: Any) -> int | None:
        return None if self.models.owns(variable) else current_size(variable)


program_counters = ProgramCounters()
