"""The counters of the program: models, traces and dataset caches, as rows of (kind, name) with their values.

Traces, and the signatures for which XLA compiles a `tf.function`, are counted by the function's Python code, so that
one that is made again counts as the same function.
"""

import itertools
import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tb_memplugin.recorder.base import changes
from tb_memplugin.recorder.watch.datasets import DatasetCaches
from tb_memplugin.recorder.watch.live_models import LiveModels
from tb_memplugin.schema import MISSING, CounterKind

logger = logging.getLogger("tb_memplugin")

MAX_VALUE_CHARACTERS = 40
MAX_FUNCTIONS = 64
"""Most functions that are counted, the first ones that were traced."""
MAX_SIGNATURES = 10_000
"""Most signatures that are counted for a function."""
MAX_ITEMS = 32
"""Most arguments of a call, or items of one, that belong to its signature."""


def changed_argument(before: Any, after: Any) -> str | None:
    """A phrase on the first argument that differs between two function types (`ConcreteFunction.function_type`).

    Such as "argument `scale` changed from 1 to 2 (Python value)"; None if none differs.
    """
    earlier: Mapping[str, Any] = before.parameters
    for name, parameter in after.parameters.items():
        if name not in earlier:
            return f"argument `{name}` is new"
        phrase = _difference(name, earlier[name].type_constraint, parameter.type_constraint)
        if phrase is not None:
            return phrase
    return next((f"argument `{name}` is gone" for name in earlier if name not in after.parameters), None)


def _difference(name: str, before: Any, after: Any) -> str | None:
    if before == after:
        return None
    argument = f"argument `{name}`"
    if type(before) is not type(after):
        return f"{argument} changed its type"
    if type(after).__name__ == "Literal":
        if not all(one.value is None or isinstance(one.value, (bool, int, float)) for one in (before, after)):
            return f"{argument} changed its value (Python {type(after.value).__name__})"  # texts may name persons
        return f"{argument} changed from {_text(before.value)} to {_text(after.value)} (Python value)"
    shapes, dtypes = ([getattr(one, field, None) for one in (before, after)] for field in ("shape", "dtype"))
    if shapes[0] != shapes[1]:
        return f"the shape of {argument} changed from {shape_text(shapes[0])} to {shape_text(shapes[1])}"
    if dtypes[0] != dtypes[1]:
        names = [getattr(dtype, "name", dtype) for dtype in dtypes]
        return f"the dtype of {argument} changed from {names[0]} to {names[1]}"
    earlier, items = _items(before), _items(after)
    if earlier.keys() == items.keys():
        differences = (_difference(f"{name}[{key}]", earlier[key], items[key]) for key in items)
        return next((phrase for phrase in differences if phrase is not None), f"{argument} is another object")
    return f"{argument} changed from {len(earlier)} to {len(items)} items"


def _items(constraint: Any) -> dict[str, Any]:
    """The types in that of a tuple, list, named tuple or dict, by index or key; empty for other types."""
    mapping = getattr(constraint, "mapping", None)
    if isinstance(mapping, Mapping):
        return {_text(key): item for key, item in mapping.items()}
    for field in ("components_tuple", "attributes"):
        constraint = getattr(constraint, field, constraint)
    components = getattr(constraint, "components", ())
    return {str(at): item for at, item in enumerate(components)} if isinstance(components, (tuple, list)) else {}


def shape_text(shape: Any) -> str:
    """A shape such as ``(32, 8)``, with ``?`` for unknown dimensions."""
    if shape is None or getattr(shape, "rank", 0) is None:
        return "unknown"
    sizes = ["?" if size is None else str(size) for size in shape]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 1] + "…"


class TracedFunction:
    """What is known of a function: calls that traced it, why the last one did (`retraced`), and how the last new
    signature differs from the one before (`reshaped`)."""

    def __init__(self, name: str, code: Any) -> None:
        self.name = name
        self._code = code  # so that no other code gets its id
        self.traces = 0
        self.retraced: str | None = None
        self.reshaped: str | None = None
        self._hashes: set[int] = set()
        self._last: tuple[Any, ...] = ()

    @property
    def signatures(self) -> int:
        """Number of different signatures it was called with, if XLA compiles it."""
        return len(self._hashes)

    def add_signature(self, signature: tuple[Any, ...]) -> bool:
        """Note the signature of a call; return whether it is new."""
        key = hash(signature)
        if key in self._hashes or len(self._hashes) >= MAX_SIGNATURES:
            return False
        if self._hashes:
            self.reshaped = _reshaped(self._last, signature)
        self._hashes.add(key)
        self._last = signature
        return True


class FunctionTraces:
    """The traced functions of one process, by id of their code, or else by name. A count that changes sets `changed`.

    Any thread may call a method; none raises.
    """

    def __init__(self) -> None:
        self.functions: dict[Any, TracedFunction] = {}
        self.changed = False

    def called(self, function: Any, traces_before: int, args: Any, kwargs: Any) -> None:
        """Note an outermost call of a `tf.function`, given its number of traces before the call."""
        try:
            traces = traces_of(function)
            if traces != traces_before:
                self._traced(function, traces_before, traces)
            if getattr(function, "_jit_compile", None):
                known = self._function(function)
                if known is not None and known.add_signature((*_signature(args), *_signature(kwargs))):
                    self.changed = True
                    changes.note()
        except Exception:
            logger.debug("a trace could not be counted", exc_info=True)

    def _traced(self, function: Any, before: int, after: int) -> None:
        known = self._function(function)
        if known is None:
            return
        if not before:
            known.retraced = "it was a new tf.function object" if known.traces else None
        else:
            types = [one.function_type for one in function._function_cache.values()[-2:]]
            known.retraced = changed_argument(*types) if len(types) == 2 else None
        known.traces += after - before if before else 1
        self.changed = True
        changes.note()

    def _function(self, function: Any) -> TracedFunction | None:
        python = getattr(function, "_python_function", None)
        name = str(getattr(python, "__name__", None) or type(python).__name__)
        code = getattr(python, "__code__", None)
        key = name if code is None else id(code)  # hashing code takes longer than all else here
        known = self.functions.get(key)
        if known is None and len(self.functions) < MAX_FUNCTIONS:
            known = self.functions[key] = TracedFunction(name, code)
        return known


def traces_of(function: Any) -> int:
    """Number of traces of a `tf.function` that exist; 0 if unknown."""
    try:
        return int(function.experimental_get_tracing_count())
    except Exception:
        return 0


def _signature(value: Any) -> Any:
    """Shape and dtype of each tensor or array in the arguments, and each plain Python value; nested as they are."""
    shape = getattr(value, "_shape_tuple", None)
    if shape is not None:  # an eager tensor; its `shape` takes several times as long
        return shape(), value._datatype_enum()
    if isinstance(value, (list, tuple)):
        return tuple([_signature(item) for item in value[:MAX_ITEMS]])
    if isinstance(value, dict):
        return tuple([(str(key), _signature(value[key])) for key in list(value)[:MAX_ITEMS]])
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return (tuple(value.shape), value.dtype) if hasattr(value, "shape") and hasattr(value, "dtype") else None


def _reshaped(before: tuple[Any, ...], after: tuple[Any, ...]) -> str | None:
    """A clause on the first argument whose shape differs between two signatures; None for other differences."""
    for at, (one, other) in enumerate(zip(before, after, strict=False)):
        shapes = [part[0] for part in (one, other) if isinstance(part, tuple) and part and isinstance(part[0], tuple)]
        if (
            len(shapes) == 2
            and shapes[0] != shapes[1]
            and all(isinstance(size, int) for size in itertools.chain(*shapes))
        ):
            return f"the shape of argument {at} changed from {shape_text(shapes[0])} to {shape_text(shapes[1])}"
    return None


class CounterValue(NamedTuple):
    """The value of a counter; `value` is the count, other fields are as in `Counters`."""

    kind: CounterKind
    name: str | None
    value: int
    bytes: int = MISSING
    detail: str | None = None


class ProgramCounters:
    """Process-wide. Wrapped methods note in the attributes what happens on any thread; the training's thread reads the
    values."""

    def __init__(self) -> None:
        self.models = LiveModels()
        self.functions = FunctionTraces()
        self.datasets = DatasetCaches()

    def due_in(self) -> float:
        """Seconds until a value may have changed, unless a change is noted before."""
        return 0.0 if self.functions.changed or self.datasets.changed else self.models.due_in()

    def values(self) -> list[CounterValue]:
        """All values now. Takes as long as the models that are new have variables: about a microsecond for each."""
        self.functions.changed = self.datasets.changed = False
        values = [*self._of_models(), *self._of_functions()]
        caches, size = self.datasets.now()
        if caches:
            values.append(CounterValue("dataset_caches", None, caches, MISSING if size is None else size))
        return values

    def _of_models(self) -> Iterator[CounterValue]:
        figures = self.models.figures()
        yield CounterValue("models_built", None, figures.built)
        by_kind: tuple[tuple[CounterKind, Any], ...] = (
            ("models_alive", figures.alive),
            ("models_unreachable", figures.unreachable),
            ("models_gone", figures.gone),
            ("slots_without_model", figures.slots_without_model),
        )
        for kind, by_device in by_kind:
            for device, (count, size) in by_device.items():
                yield CounterValue(kind, device, count, size)

    def _of_functions(self) -> Iterator[CounterValue]:
        by_name: dict[str, list[TracedFunction]] = {}
        for function in list(self.functions.functions.values()):
            by_name.setdefault(function.name, []).append(function)
        for name, functions in by_name.items():
            most = max(functions, key=lambda function: (function.traces, function.signatures))
            yield CounterValue("traces", name, sum(one.traces for one in functions), detail=most.retraced)
            signatures = sum(one.signatures for one in functions)
            if signatures:
                yield CounterValue("compiled_shapes", name, signatures, detail=most.reshaped)


program_counters = ProgramCounters()
