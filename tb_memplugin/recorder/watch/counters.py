"""The counters of the program: models, traces and dataset caches, as rows of (kind, name) with
their values.

A model in reference cycles that nothing else refers to is gone for the program, but exists until
Python's garbage collector runs. Its variables may outlive it: a function graph that captured them,
or an optimizer, keeps their memory. So the resource handle of each variable is referenced weakly,
beside the model. Traces, and the signatures for which XLA compiles a `tf.function`, are counted by
the function's Python code: one that is made again is the same function."""

import functools
import itertools
import logging
import math
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tb_memplugin.recorder.base import changes
from tb_memplugin.recorder.watch import layers
from tb_memplugin.recorder.watch.asking import ByIdentity, asked, own
from tb_memplugin.recorder.watch.batches import DatasetCaches
from tb_memplugin.schema import MISSING, CounterKind

logger = logging.getLogger("tb_memplugin")

MAX_MODELS = 2000  # most models whose variables are known at a time, the first ones
FREE_SECONDS = 0.25
"""Processor time that looking for unreachable models may take at any cost, so that short programs
are told of them."""
UNREACHABLE_SHARE = 0.2  # share of the overhead budget that it may take beyond that
CHECK_SECONDS = 1.0
"""Interval of looking at models and optimizers that are not built yet, and at variables of models
that are gone."""
_ABSENT = object()
MAX_VALUE_CHARACTERS = 40
MAX_FUNCTIONS = 64  # most functions that are counted, the first ones that were traced
MAX_SIGNATURES = 10_000  # most signatures that are counted for a function
MAX_ITEMS = 32  # most arguments of a call, or items of one, that belong to its signature


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
        # keys of the variables that the collector would free
        self.unreachable: frozenset[int] | None = None
        self.noted_at = self.next_search = time.monotonic()
        self.counted = self.complete = False
        self.is_part = False  # of another model, which may be read later

    def add_slots(self, optimizer: Any) -> None:
        self.optimizer = weakref.ref(optimizer)
        self.variables.update(_variables([slot.variable for slot in layers.slots(optimizer)], True))

    def matters(self) -> bool:
        """Whether the model exists or left variables behind; drops the variables that do not exist
        any more."""
        if self.reference() is None:
            self.variables = {
                key: one for key, one in self.variables.items() if one.handle() is not None
            }
        return not self.is_part and (self.reference() is not None or bool(self.variables))


class LiveModels:
    """The models of one process. Any thread may note one; the training's thread calls the other
    methods."""

    def __init__(self) -> None:
        self.built = 0
        self._noted: list[_Model] = []  # not looked at yet
        self._models: list[_Model] = []
        self._known = ByIdentity[_Model]()
        self._optimizers = ByIdentity[bool]()
        # weak references to optimizers that are not matched to a model yet
        self._applied: list[Any] = []
        self._changed = False
        self._next_check = 0.0
        self._in_use: Callable[[], Any] = lambda: None
        self._began = time.monotonic()
        self._search_seconds = 0.0

    def note(self, model: Any) -> None:
        self._in_use = weakref.ref(model)
        if model not in self._known:
            self._known[model] = entry = _Model(model, self._gone)
            self._noted.append(entry)
            changes.note()

    def used(self, model: Any) -> None:
        """Look at a model after it was trained: it may be gone before `figures` looks. Does not
        raise."""
        entry = self._known.get(model)
        if entry is not None and not entry.complete:
            try:
                self._read(entry, model)
            except Exception:
                logger.debug("a model could not be counted", exc_info=True)

    def applied(self, optimizer: Any) -> None:
        if optimizer not in self._optimizers:
            self._optimizers.add(optimizer)
            self._applied.append(weakref.ref(optimizer))
            changes.note()

    def due_in(self) -> float:
        if self._noted or self._applied or self._changed:
            return 0.0
        return self._next_check - time.monotonic() if self._models else math.inf

    def bytes_of(self, model: Any) -> dict[str, int]:
        entry = None if model is None else self._known.get(model)
        return {} if entry is None else dict(_sizes(entry.variables.values()))

    def find_unreachable(
        self, overhead: float, unreachable: Callable[[list[Any]], set[int]]
    ) -> float:
        """Find models that only Python's garbage collector can free, if the budget allows;
        processor seconds spent. `overhead` is the share of run time that recording may cost,
        `unreachable` the function of `recorder.heap`."""
        now = time.monotonic()
        if not overhead or self._search_seconds > FREE_SECONDS + UNREACHABLE_SHARE * overhead * (
            now - self._began
        ):
            return 0.0
        others = {id(None), id(self._in_use())}
        waiting = [
            entry
            for entry in self._models
            if entry.unreachable is None and entry.next_search <= now
        ]
        due = [entry for entry in waiting if id(entry.reference()) not in others]
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

    def figures(self) -> dict[CounterKind, dict[str, tuple[int, int]]]:
        """(count, bytes) by kind and device, after a look at new and changed models. Each variable
        counts once; one that a model that exists shares with one that is gone belongs to the
        former."""
        self._changed, self._next_check = False, time.monotonic() + CHECK_SECONDS
        noted, self._noted = self._noted, []
        self._models += noted[: MAX_MODELS - len(self._models)]
        for entry in self._models:
            model = entry.reference()
            if model is not None and not entry.complete:
                asked(model, functools.partial(self._read, entry, model), None)
        model = None
        applied, self._applied = self._applied, []
        for optimizer in (reference() for reference in applied):
            trained = {
                key for key, _ in _variables(own(optimizer, "_trainable_variables", ()), False)
            }
            for entry in self._models:
                if trained & entry.variables.keys() and entry.optimizer() is not optimizer:
                    entry.add_slots(optimizer)
                    break
        optimizer = None  # not kept alive for what follows
        self._models = [entry for entry in self._models if entry.matters()]
        kinds: tuple[CounterKind, ...] = (
            "models_alive",
            "models_unreachable",
            "models_gone",
            "slots_without_model",
        )
        figures: dict[CounterKind, dict[str, tuple[int, int]]] = {kind: {} for kind in kinds}
        seen: set[int] = set()
        states = [
            ((gone := one.reference() is None), None if gone else one.unreachable, one)
            for one in self._models
        ]
        for is_gone, waiting, entry in sorted(
            states, key=lambda state: (state[0], state[1] is not None)
        ):
            left = {key: one for key, one in entry.variables.items() if key not in seen}
            seen.update(left)
            rest: CounterKind = "models_gone" if is_gone or waiting is not None else "models_alive"
            garbage = left.keys() & (waiting or frozenset())
            _add(figures["models_unreachable"], [left[key] for key in garbage])
            _add(figures[rest], [one for key, one in left.items() if key not in garbage])
            if is_gone and entry.optimizer() is not None:
                _add(figures["slots_without_model"], [one for one in left.values() if one.is_slot])
        return figures

    def _gone(self, _: Any) -> None:
        self._changed = True
        changes.note()

    def _read(self, entry: _Model, model: Any) -> None:
        """Read a model's variables, once its weights and its optimizer's slots exist. Its parts are
        no models, also if one was counted before or is noted later."""
        if own(model, "built", True) is False:
            return
        if (inner := own(model, "_functional")) is not None:
            self._known.setdefault(inner, _Model(inner, self._gone))
        for part in map(self._known.get, layers.parts(model)):
            if part is not None and not part.is_part:
                part.is_part = True
                self.built -= part.counted
        if not entry.counted and not entry.is_part:
            entry.counted = True
            self.built += 1
        optimizer = own(model, "optimizer")
        entry.variables.update(_variables(layers.variables_of(model, "variables"), False))
        is_built = bool(getattr(optimizer, "built", True))
        if is_built and optimizer is not None:
            entry.add_slots(optimizer)
        entry.complete = is_built


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
    for variable in variables:
        for part in layers.replicas(variable):
            handle = layers.kept(part, "handle")
            device, size = layers.short_device(handle.device), layers.size_of_variable(part)
            yield id(handle), _Variable(weakref.ref(handle), device, size, is_slot)


def changed_argument(before: Any, after: Any) -> str | None:
    """ "argument `scale` changed from 1 to 2 (Python value)", of two function types; None if none
    differs."""
    earlier, later = (
        {name: one.type_constraint for name, one in types.parameters.items()}
        for types in (before, after)
    )
    phrases = (
        _difference(name, earlier.get(name, _ABSENT), later.get(name, _ABSENT))
        for name in {**later, **earlier}
    )
    return next(filter(None, phrases), None)


def _difference(name: str, before: Any, after: Any) -> str | None:
    argument = f"argument `{name}`"
    if before is _ABSENT or after is _ABSENT:
        return f"{argument} is {'new' if before is _ABSENT else 'gone'}"
    if before == after:
        return None
    if type(before) is not type(after):
        return f"{argument} changed its type"
    if type(after).__name__ == "Literal":
        if not all(
            one.value is None or isinstance(one.value, (bool, int, float))
            for one in (before, after)
        ):
            # texts may name persons
            return f"{argument} changed its value (Python {type(after.value).__name__})"
        return (
            f"{argument} changed from {_text(before.value)} to {_text(after.value)} (Python value)"
        )
    shapes, dtypes = (
        [getattr(one, field, None) for one in (before, after)] for field in ("shape", "dtype")
    )
    if shapes[0] != shapes[1]:
        return (
            f"the shape of {argument} changed from {_shape_text(shapes[0])} to "
            f"{_shape_text(shapes[1])}"
        )
    if dtypes[0] != dtypes[1]:
        names = [getattr(dtype, "name", dtype) for dtype in dtypes]
        return f"the dtype of {argument} changed from {names[0]} to {names[1]}"
    earlier, items = _items(before), _items(after)
    if earlier.keys() == items.keys():
        differences = (_difference(f"{name}[{key}]", earlier[key], items[key]) for key in items)
        return next(filter(None, differences), f"{argument} is another object")
    return f"{argument} changed from {len(earlier)} to {len(items)} items"


def _items(constraint: Any) -> dict[str, Any]:
    if isinstance(mapping := getattr(constraint, "mapping", None), Mapping):
        return {_text(key): item for key, item in mapping.items()}
    for field in ("components_tuple", "attributes"):
        constraint = getattr(constraint, field, constraint)
    components = getattr(constraint, "components", ())
    return (
        {str(at): item for at, item in enumerate(components)}
        if isinstance(components, (tuple, list))
        else {}
    )


def _shape_text(shape: Any) -> str:
    """A shape such as ``(32, 8)``, with ``?`` for unknown dimensions."""
    if shape is None or getattr(shape, "rank", 0) is None:
        return "unknown"
    return str(tuple(shape)).replace("None", "?")


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 1] + "…"


class TracedFunction:
    def __init__(self, name: str, code: Any) -> None:
        self.name, self._code = name, code  # so that no other code gets its id
        self.traces = 0  # calls that traced it
        self.retraced: str | None = None  # why the last one did
        # how the last new signature differs from the one before, if XLA compiles it
        self.reshaped: str | None = None
        self.signatures: set[int] = set()  # hashes
        self._last: tuple[Any, ...] = ()

    def add_trace(self, function: Any, before: int, after: int) -> None:
        types = (
            [one.function_type for one in function._function_cache.values()[-2:]] if before else []
        )
        self.retraced = changed_argument(*types) if len(types) == 2 else None
        if not before and self.traces:
            self.retraced = "it was a new tf.function object"
        self.traces += after - before if before else 1

    def add_signature(self, signature: tuple[Any, ...]) -> bool:
        """Note the signature of a call; return whether it is new."""
        key = hash(signature)
        if key in self.signatures or len(self.signatures) >= MAX_SIGNATURES:
            return False
        self.reshaped = _reshaped(self._last, signature) if self.signatures else None
        self.signatures.add(key)
        self._last = signature
        return True


class FunctionTraces:
    """The traced functions of one process, by id of their code, or else by name. Any thread may
    call; none raises."""

    def __init__(self) -> None:
        self.functions: dict[Any, TracedFunction] = {}
        self.changed = False

    def called(self, function: Any, traces_before: int, args: Any, kwargs: Any) -> None:
        """Note an outermost call of a `tf.function`, given its number of traces before the call."""
        try:
            traces, is_compiled = traces_of(function), getattr(function, "_jit_compile", None)
            is_traced = traces != traces_before
            known = self._function(function) if is_compiled or is_traced else None
            if known is not None and is_traced:
                known.add_trace(function, traces_before, traces)
            is_new = (
                is_compiled
                and known
                and known.add_signature((*_signature(args), *_signature(kwargs)))
            )
            if is_new or (known is not None and is_traced):
                self.changed = True
                changes.note()
        except Exception:
            logger.debug("a trace could not be counted", exc_info=True)

    def _function(self, function: Any) -> TracedFunction | None:
        python = getattr(function, "_python_function", None)
        name, code = (
            str(getattr(python, "__name__", None) or type(python).__name__),
            getattr(python, "__code__", None),
        )
        key = name if code is None else id(code)  # hashing code takes longer than all else here
        if key not in self.functions and len(self.functions) < MAX_FUNCTIONS:
            self.functions[key] = TracedFunction(name, code)
        return self.functions.get(key)


def traces_of(function: Any) -> int:
    try:
        return int(function.experimental_get_tracing_count())
    except Exception:
        return 0


def _signature(value: Any) -> Any:
    shape = getattr(value, "_shape_tuple", None)
    if shape is not None:  # an eager tensor; its `shape` takes several times as long
        return shape(), value._datatype_enum()
    if isinstance(value, (list, tuple)):
        return tuple([_signature(item) for item in value[:MAX_ITEMS]])
    if isinstance(value, dict):
        return tuple([(str(key), _signature(value[key])) for key in list(value)[:MAX_ITEMS]])
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return (
        (tuple(value.shape), value.dtype)
        if hasattr(value, "shape") and hasattr(value, "dtype")
        else None
    )


def _reshaped(before: tuple[Any, ...], after: tuple[Any, ...]) -> str | None:
    """A clause on the first argument whose shape differs between two signatures; None for other
    differences."""
    for at, pair in enumerate(zip(before, after, strict=False)):
        shapes = [
            part[0]
            for part in pair
            if isinstance(part, tuple) and part and isinstance(part[0], tuple)
        ]
        if (
            len(shapes) == 2
            and shapes[0] != shapes[1]
            and all(type(size) is int for size in itertools.chain(*shapes))
        ):
            return (
                f"the shape of argument {at} changed from {_shape_text(shapes[0])} to "
                f"{_shape_text(shapes[1])}"
            )
    return None


class CounterValue(NamedTuple):  # fields as in `Counters`
    kind: CounterKind
    name: str | None
    value: int
    bytes: int = MISSING
    detail: str | None = None


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
        every = list(self.functions.functions.values())
        for name in dict.fromkeys(function.name for function in every):
            functions = [function for function in every if function.name == name]
            most = max(functions, key=lambda function: (function.traces, len(function.signatures)))
            values.append(
                CounterValue(
                    "traces", name, sum(one.traces for one in functions), detail=most.retraced
                )
            )
            if signatures := sum(len(one.signatures) for one in functions):
                values.append(
                    CounterValue("compiled_shapes", name, signatures, detail=most.reshaped)
                )
        caches, size = self.datasets.now()
        if caches:
            values.append(
                CounterValue("dataset_caches", None, caches, MISSING if size is None else size)
            )
        return values


program_counters = ProgramCounters()
